"""Why nothing is being fetched right now, or not more, in sentences. Pure: from figures to reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence

from drumlin.coordinator.health import Trouble
from drumlin.coordinator.messages import Reason
from drumlin.coordinator.nodes import FAILURE
from drumlin.coordinator.totals import Totals
from drumlin.model import HostState
from drumlin.protocol import CrawlState, NodeRecord, NodeStatus

SETTLED_LATELY_S = 3.0


def why_idle(
    state: CrawlState,
    stop_reason: str,
    totals: Totals,
    nodes: Sequence[NodeRecord],
    waiting: Sequence[HostState],
    blocked: int,
    budgeted: int,
    now: float,
    settled_s: float = math.inf,
) -> list[Reason]:
    """The reasons, most telling first; none when pages are being fetched. `waiting` are some hosts that must wait,
    those due first; `settled_s` is how long ago the last result came in."""
    if _is_fetching(state, nodes, settled_s):
        return []
    stopped = _stopped(state, stop_reason)
    if stopped is not None:
        return [stopped]
    nobody = _nobody(totals, nodes)
    reasons = [*_nothing_queued(totals, now), *nobody]
    reasons += _hosts(totals, waiting, blocked, budgeted, now, held=not nobody)
    return reasons or [Reason("between", "There is work and there are nodes: they are about to ask for it.")]


def _is_fetching(state: CrawlState, nodes: Sequence[NodeRecord], settled_s: float) -> bool:
    """What nodes tell is their mean load since their heartbeat before; workers that send none still return results."""
    loaded = any(node.current_load > 0 for node in nodes if node.status is NodeStatus.ACTIVE)
    return loaded or (state is CrawlState.RUNNING and settled_s < SETTLED_LATELY_S)


def bound_by(totals: Totals, nodes: Sequence[NodeRecord]) -> list[Reason]:
    """What keeps a crawl that fetches from fetching faster, if it is not its nodes."""
    active = any(node.status is NodeStatus.ACTIVE for node in nodes)
    hosts = totals.hosts_leased + totals.hosts_waiting
    if not active or totals.hosts_ready or not hosts:
        return []
    which = f"Each of the {hosts:,} hosts that have" if hosts > 1 else "The one host that has"
    return [Reason("politeness", f"{which} URLs left is asked as often as its delay allows.")]


def troubled(troubles: Sequence[Trouble], now: float) -> list[Reason]:
    """What is wrong with the engine or the store, and for how long."""
    return [
        Reason(one.code, f"{one.message} {one.hint}".strip() + f" (For {max(0.0, now - one.since):,.0f} s.)")
        for one in troubles
    ]


def _stopped(state: CrawlState, stop_reason: str) -> Reason | None:
    because = f": {stop_reason}" if stop_reason else ""
    sentences = {
        CrawlState.PAUSED: "The crawl is paused; `drumlin resume` lets it go on.",
        CrawlState.DRAINING: f"The crawl is stopping{because}; what is in flight is finished.",
        CrawlState.FINISHED: f"The crawl is finished{because}.",
    }
    return Reason(str(state), sentences[state]) if state in sentences else None


def _nothing_queued(totals: Totals, now: float) -> list[Reason]:
    if totals.pending == 0:
        known = f"all {totals.known:,} that are known are done or dead" if totals.known else "none is known"
        return [Reason("nothing_queued", f"No URL is waiting to be fetched: {known}.")]
    if totals.queued == 0 and totals.scheduled:
        message = f"{totals.scheduled:,} URLs failed and wait to be tried again{_when(totals.next_event, now)}."
        return [Reason("all_scheduled", message)]
    if totals.queued == 0:
        left = f"All {totals.leased:,} URLs that are left are" if totals.leased > 1 else "The one URL that is left is"
        return [Reason("all_given", f"{left} with nodes or workers, which have not returned a result yet.")]
    return []


def _nobody(totals: Totals, nodes: Sequence[NodeRecord]) -> list[Reason]:
    if not totals.pending:
        return []
    if not nodes:
        return [Reason("no_nodes", "No node has registered; `drumlin node --coordinator …` starts one.")]
    if any(node.status is NodeStatus.ACTIVE for node in nodes):
        return []
    counts = {status: sum(node.status is status for node in nodes) for status in NodeStatus}
    listed = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return [Reason("no_active_nodes", f"No node is active: {listed}.{_last_failure(nodes)}")]


def _last_failure(nodes: Sequence[NodeRecord]) -> str:
    """Why the last node that said so has ended; the others mostly for the same reason."""
    failed = [node for node in nodes if FAILURE in node.metadata]
    last = max(failed, key=lambda node: node.last_seen, default=None)
    return f" {last.node_id} ended: {last.metadata[FAILURE]}" if last is not None else ""


def _hosts(
    totals: Totals, waiting: Sequence[HostState], blocked: int, budgeted: int, now: float, *, held: bool
) -> list[Reason]:
    """What keeps the hosts with URLs; `held` says that there are nodes to hold them."""
    reasons: list[Reason] = []
    if totals.queued and not totals.hosts_ready:
        if totals.hosts_leased and not totals.hosts_waiting:
            then = (
                "their nodes keep to each host's delay" if held else "they are free when the leases of lost nodes end"
            )
            message = f"All {totals.hosts_leased:,} hosts with URLs are leased; {then}."
            reasons.append(Reason("all_leased", message))
        elif totals.hosts_waiting:
            reasons.append(Reason("all_waiting", _waiting(totals, waiting, now)))
    if blocked and totals.queued:
        reasons.append(Reason("blocked", f"{blocked:,} hosts are blocked by an operator."))
    if budgeted and totals.queued:
        message = f"{budgeted:,} hosts have a budget of pages, set by an operator; those that have spent it wait."
        reasons.append(Reason("budgeted", message))
    return reasons


def _waiting(totals: Totals, waiting: Sequence[HostState], now: float) -> str:
    first = f" The first is {waiting[0].host}{_when(waiting[0].next_contact, now)}." if waiting else ""
    return f"{totals.hosts_waiting:,} hosts with URLs wait until they may be contacted again.{first}"


def _when(moment: float, now: float) -> str:
    return f", in {max(0.0, moment - now):,.1f} s" if math.isfinite(moment) else ""
