"""Why nothing is being fetched right now, or not more, in sentences. Pure: from figures to reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence

from drumlin.coordinator.health import Trouble
from drumlin.coordinator.host_reports import backoffs_of
from drumlin.coordinator.messages import Reason
from drumlin.coordinator.nodes import FAILURE
from drumlin.coordinator.totals import Totals
from drumlin.model import HostState
from drumlin.protocol import CrawlState, NodeRecord, NodeStatus

SETTLED_LATELY_S = 3.0
UNITS_MAX = 90
"""From here on a larger unit says it better."""


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
    backing_off: Sequence[HostState] = (),
) -> list[Reason]:
    """The reasons, most telling first; none when pages are being fetched. `waiting` are some hosts that must wait,
    those due first, `backing_off` some that are in back-off; `settled_s` is how long ago the last result came in."""
    if _is_fetching(state, nodes, settled_s):
        return []
    stopped = _stopped(state, stop_reason)
    if stopped is not None:
        return [stopped]
    nobody = _nobody(totals, nodes)
    reasons = [*_nothing_queued(totals, now), *nobody, *hosts_in_backoff(totals, backing_off, now)]
    reasons += _hosts(totals, waiting, blocked, budgeted, now, held=not nobody)
    return reasons or [Reason("between", "There is work and there are nodes: they are about to ask for it.")]


def _is_fetching(state: CrawlState, nodes: Sequence[NodeRecord], settled_s: float) -> bool:
    """What nodes tell is their mean load since their heartbeat before; workers that send none still return results."""
    loaded = any(node.current_load > 0 for node in nodes if node.status is NodeStatus.ACTIVE)
    return loaded or (state is CrawlState.RUNNING and settled_s < SETTLED_LATELY_S)


def bound_by(totals: Totals, nodes: Sequence[NodeRecord]) -> list[Reason]:
    """What keeps a crawl that fetches from fetching faster, if it is not its nodes."""
    active = any(node.status is NodeStatus.ACTIVE for node in nodes)
    hosts = totals.hosts_leased + totals.hosts_waiting - totals.hosts_in_backoff
    if not active or totals.hosts_ready or hosts <= 0:
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
    standings = [_standing(node) for node in nodes]
    if NodeStatus.ACTIVE in standings:
        return []
    counts = {status: standings.count(status) for status in NodeStatus}
    listed = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    return [Reason("no_active_nodes", f"No node is active: {listed}.{_last_failure(nodes)}")]


def _standing(node: NodeRecord) -> NodeStatus:
    """A node that said that it cannot go on has ended, though it is not silent for long yet."""
    ended = node.status is NodeStatus.ACTIVE and FAILURE in node.metadata
    return NodeStatus.FAILED if ended else node.status


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
        elif totals.hosts_waiting > totals.hosts_in_backoff:
            reasons.append(Reason("all_waiting", _waiting(totals, waiting, now)))
    if blocked and totals.queued:
        reasons.append(Reason("blocked", f"{blocked:,} hosts are blocked by an operator."))
    if budgeted and totals.queued:
        message = f"{budgeted:,} hosts have a budget of pages, set by an operator; those that have spent it wait."
        reasons.append(Reason("budgeted", message))
    return reasons


def in_backoff(host: HostState, now: float) -> str:
    """Why a host is in back-off, and when it is tried next."""
    if not (backoffs := backoffs_of(host.note)):
        return "It is out of reach."
    one = max(backoffs.values(), key=lambda backoff: backoff.tried)
    tries = "1 try" if one.tries == 1 else f"{one.tries:,} tries"
    asked = ", as it asked us to" if one.asked else ""
    return (
        f"It has been out of reach for {_about(now - one.since)} ({one.kind}: {one.error}; {tries} in vain). "
        f"It is tried again in {_about(host.next_contact - now)}{asked}."
    )


def _about(seconds: float) -> str:
    """So long, as people say it."""
    seconds = max(0.0, seconds)
    for unit, size_s in (("s", 1.0), ("min", 60.0), ("h", 3600.0)):
        if seconds < UNITS_MAX * size_s:
            return f"{seconds / size_s:,.0f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def out_of_reach(host: HostState, now: float) -> str:
    """The same in a few words."""
    causes = [f"{one.kind}: {one.error}" for one in backoffs_of(host.note).values()]
    wait_s = max(0.0, host.next_contact - now)
    next_try = f"next try in {_about(wait_s)}" if wait_s else "being tried"
    return f"{host.host}: {', '.join([*causes[:1], next_try])}"


def hosts_in_backoff(totals: Totals, some: Sequence[HostState], now: float) -> list[Reason]:
    """How many hosts are out of reach, and why some of them are."""
    if not totals.hosts_in_backoff:
        return []
    listed = " ".join(f"{host.host}: {in_backoff(host, now)}" for host in some)
    hosts = "1 host is" if totals.hosts_in_backoff == 1 else f"{totals.hosts_in_backoff:,} hosts are"
    return [Reason("backoff", f"{hosts} in back-off. {listed}".strip())]


def _waiting(totals: Totals, waiting: Sequence[HostState], now: float) -> str:
    first = f" The first is {waiting[0].host}{_when(waiting[0].next_contact, now)}." if waiting else ""
    return f"{totals.hosts_waiting:,} hosts with URLs wait until they may be contacted again.{first}"


def _when(moment: float, now: float) -> str:
    return f", in {max(0.0, moment - now):,.1f} s" if math.isfinite(moment) else ""
