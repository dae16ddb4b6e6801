"""Why nothing is being fetched right now, in sentences. Pure functions from figures to reasons. (`bounds` says why a
crawl that fetches does not fetch more.)"""

from __future__ import annotations

import math
from collections.abc import Sequence

from drumlin.api.explaining.causes import cause
from drumlin.api.messages.people import Reason
from drumlin.config import SETTINGS
from drumlin.config.quantities import show_duration
from drumlin.coordinator.health import Trouble
from drumlin.coordinator.nodes import FAILURE
from drumlin.coordinator.taking.host_reports import backoffs_of, slow_s_of
from drumlin.coordinator.totals import Totals
from drumlin.events.figures import broker_away
from drumlin.events.kafka import Kafka
from drumlin.lines import counted
from drumlin.model import HostState
from drumlin.protocol import PRESENT, CrawlState, NodeRecord, NodeStatus
from drumlin.protocol.states import ORDERS

SETTLED_LATELY_S = 3.0
SLOWED_SHOWN = 3
NODES_NAMED = 5
BROKER_AWAY = "broker_away"
EVENTS_FULL = "events_full"
SEEDS_LOST = "seeds_lost"
BUNDLES_AWAITED = "bundles_awaited"
RESUME = "`drumlin resume` goes on."
TOO_OFTEN = "Some hosts said that they were asked too often (status 429), and are asked less often for a while"


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
    held: Sequence[HostState] = (),
) -> list[Reason]:
    """The reasons, the most important first; none when pages are being fetched. `waiting` are some hosts that must
    wait, those due first, `backing_off` some that are in back-off, `held` some that nodes hold. `settled_s` is how long
    ago the last result came in."""
    stopped = _stopped(state, stop_reason, has_stopped(state, totals, nodes), left(totals, budgeted))
    if stopped is not None:
        # Also while the last pages come in: they are not why nothing more will.
        return [stopped]
    if _is_fetching(nodes, settled_s):
        return []
    nobody = _nobody(totals, nodes)
    reasons = [*_nothing_queued(totals, now), *nobody, *hosts_in_backoff(totals, backing_off, now)]
    reasons += _hosts(totals, waiting, blocked, budgeted, now, held=not nobody) + _slowed([*held, *waiting])
    return reasons or [Reason("between", "There is work and there are nodes: they are about to ask for it.")]


def has_stopped(state: CrawlState, totals: Totals, nodes: Sequence[NodeRecord]) -> bool:
    """Whether a crawl that is to stop has done so: its nodes have left, and nothing is with one any more."""
    gone = not totals.leased and not any(node.status in PRESENT for node in nodes)
    return state is CrawlState.DRAINING and gone


def _is_fetching(nodes: Sequence[NodeRecord], settled_s: float) -> bool:
    """Whether pages are being fetched: nodes report a load with their heartbeats, and workers that send no heartbeats
    still return results."""
    loaded = any(node.current_load > 0 for node in nodes if node.status is NodeStatus.ACTIVE)
    return loaded or settled_s < SETTLED_LATELY_S


def troubled(troubles: Sequence[Trouble], now: float) -> list[Reason]:
    """What is wrong with the engine or the store, and for how long."""
    return [
        Reason(one.code, f"{one.message} {one.hint}".strip() + f" (For {show_duration(now - one.since)}.)")
        for one in troubles
    ]


def brokers_away(nodes: Sequence[NodeRecord], kafka: Kafka | None) -> list[Reason]:
    """Which events wait because Kafka does not take them."""
    told = [(f"node {node.node_id}", node.events) for node in nodes if node.events and node.status in PRESENT]
    if kafka is not None and (own := kafka.beat()):
        told.append(("this coordinator", own))
    return [Reason(EVENTS_FULL if one.full else BROKER_AWAY, broker_away(who, one)) for who, one in told[:NODES_NAMED]]


def seeds_lost(kafka: Kafka | None) -> list[Reason]:
    """Whether seeds cannot be read."""
    if kafka is None or not kafka.seeds_lost:
        return []
    return [Reason(SEEDS_LOST, f"The topic of --seeds-from cannot be read: {kafka.seeds_lost}.")]


def bundles_awaited(owed: str) -> list[Reason]:
    """What a crawl waits for that has nothing left to fetch."""
    return [Reason(BUNDLES_AWAITED, owed)] if owed else []


def _stopped(state: CrawlState, stop_reason: str, stopped: bool, left_over: str) -> Reason | None:
    """Why a crawl gives out no work; `stopped` says that it was to stop and has, `left_over` what a finished one has
    left."""
    budget = SETTINGS.get(stop_reason)
    because = f": {budget.flag} is spent" if budget is not None else f": {stop_reason}" if stop_reason else ""
    if stopped:
        return Reason("stopped", f"The crawl has stopped{because}. {_how_to_go_on(stop_reason)}")
    sentences = {
        CrawlState.PAUSED: "The crawl is paused; `drumlin resume` lets it go on.",
        CrawlState.DRAINING: f"The crawl is stopping{because}; what is in flight is finished.",
        CrawlState.FINISHED: f"The crawl is finished{because}.{left_over and f' {left_over} {RESUME}'}",
    }
    return Reason(str(state), sentences[state]) if state in sentences else None


def left(totals: Totals, budgeted: int) -> str:
    """What a finished crawl has left, in a sentence; empty if it is nothing."""
    if not totals.pending:
        return ""
    beyond = ", or is beyond the budget of its host" if budgeted else ""
    several = ", or are beyond the budgets of their hosts" if budgeted else ""
    if totals.pending == 1:
        return f"1 URL has been queued since{beyond}."
    return f"{totals.pending:,} URLs have been queued since{several}."


def _how_to_go_on(stop_reason: str) -> str:
    if stop_reason in SETTINGS:
        return f"Raise that with `drumlin set {stop_reason} ...`; then `drumlin resume` goes on."
    return RESUME


def _nothing_queued(totals: Totals, now: float) -> list[Reason]:
    if totals.pending == 0:
        all_known = f"all {totals.known:,} that are known are" if totals.known > 1 else "the only one that is known is"
        known = f"{all_known} done or given up" if totals.known else "none is known"
        return [Reason("nothing_queued", f"No URL is waiting to be fetched: {known}.")]
    if totals.queued == 0 and totals.scheduled:
        wait = "waits" if totals.scheduled == 1 else "wait"
        message = (
            f"{counted(totals.scheduled, 'URL')} failed and {wait} to be tried again{_when(totals.next_event, now)}."
        )
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
    listed = ", ".join(_listed(status, nodes) for status in NodeStatus if status in standings)
    failure = _last_failure(nodes)
    return [Reason("no_active_nodes", f"No node is active: {listed}.{failure}{_how_to_get_one(set(standings))}")]


def _listed(status: NodeStatus, nodes: Sequence[NodeRecord]) -> str:
    """How many nodes have this standing, and the names of some."""
    names = sorted(node.node_id for node in nodes if _standing(node) is status)
    more = ", …" if len(names) > NODES_NAMED else ""
    return f"{len(names):,} {status} ({', '.join(names[:NODES_NAMED])}{more})"


def _how_to_get_one(standings: set[NodeStatus]) -> str:
    """What to do to have an active node: about failed ones if there are any, then about those under an order."""
    if NodeStatus.FAILED in standings:
        return " Their logs say why; start them again."
    if standings & set(ORDERS.values()):
        return " `drumlin nodes release NAME` lets one work again."
    return " `drumlin node --coordinator …` starts one."


def _standing(node: NodeRecord) -> NodeStatus:
    """A node's status. One that reported that it cannot go on has failed, even if it was heard of a moment ago."""
    ended = node.status is NodeStatus.ACTIVE and FAILURE in node.metadata
    return NodeStatus.FAILED if ended else node.status


def _last_failure(nodes: Sequence[NodeRecord]) -> str:
    """Why the last node that gave a reason has ended; others mostly ended for the same one."""
    failed = [node for node in nodes if FAILURE in node.metadata]
    last = max(failed, key=lambda node: node.last_seen, default=None)
    return f" {last.node_id} ended: {last.metadata[FAILURE]}" if last is not None else ""


def _hosts(
    totals: Totals, waiting: Sequence[HostState], blocked: int, budgeted: int, now: float, *, held: bool
) -> list[Reason]:
    """Why no host can be given out; `held` says that there are nodes to hold them."""
    reasons: list[Reason] = []
    if totals.queued and not totals.hosts_ready:
        if totals.hosts_leased and totals.hosts_waiting <= totals.hosts_in_backoff:
            reasons.append(Reason("all_leased", _all_leased(totals, held)))
        elif totals.hosts_waiting > totals.hosts_in_backoff:
            reasons.append(Reason("all_waiting", _waiting(totals, waiting, now)))
    if blocked and totals.queued:
        reasons.append(Reason("blocked", f"{counted(blocked, 'host')} {_are(blocked)} blocked by an operator."))
    if budgeted and totals.queued:
        one = f"{counted(budgeted, 'host')} has a budget of pages, set by an operator, and waits once that is spent."
        several = f"{budgeted:,} hosts have a budget of pages, set by an operator; those that have spent it wait."
        message = one if budgeted == 1 else several
        reasons.append(Reason("budgeted", message))
    return reasons


def _all_leased(totals: Totals, held: bool) -> str:
    then = "they go to other nodes as soon as it is certain that those do not contact them any more"
    if held:
        then = "their nodes keep to each host's delay"
    others = " other" if totals.hosts_in_backoff else ""
    if totals.hosts_leased == 1:
        return f"The one{others} host with URLs is with a node; {then}."
    return f"All {totals.hosts_leased:,}{others} hosts with URLs are with nodes; {then}."


def _slowed(hosts: Sequence[HostState]) -> list[Reason]:
    """The hosts that are asked less often than the crawl's delay allows, because they answered 429."""
    paces = {host.host: slow_s_of(host.note) for host in hosts}
    listed = [f"{host} every {show_duration(pace_s)}" for host, pace_s in paces.items() if pace_s]
    return [Reason("slowed", f"{TOO_OFTEN}: {', '.join(listed[:SLOWED_SHOWN])}.")] if listed else []


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def in_backoff(host: HostState, now: float, *, passes: bool = True) -> str:
    """Why a host is in back-off, and when it is tried next. `passes` says whether time passes."""
    if not (backoffs := backoffs_of(host.note)):
        return "It is out of reach."
    one = max(backoffs.values(), key=lambda backoff: backoff.tried)
    tries = "1 try" if one.tries == 1 else f"{one.tries:,} tries"
    why = cause(one.kind, one.error)
    asked = ", as it asked us to" if one.as_asked else ""
    return (
        f"It has been out of reach for {show_duration(now - one.since)} ({why}; {tries} in vain). "
        f"It is tried again {after(host.next_contact - now, passes=passes)}{asked}."
    )


def after(wait_s: float, *, passes: bool) -> str:
    """How long something waits. While no process of a crawl runs, its time stands still."""
    return f"in {show_duration(wait_s)}" if passes else f"{show_duration(wait_s)} after the crawl goes on"


def out_of_reach(host: HostState, now: float) -> str:
    """The same in a few words."""
    causes = [cause(one.kind, one.error) for one in backoffs_of(host.note).values()]
    return f"{host.host}: {', '.join([*causes[:1], next_try(host.next_contact, now)])}"


def next_try(moment: float, now: float) -> str:
    """When something is tried again, in whole seconds, so a countdown does not flicker."""
    return f"next try in {show_duration(math.ceil(moment - now))}" if moment > now else "being tried"


def hosts_in_backoff(totals: Totals, some: Sequence[HostState], now: float) -> list[Reason]:
    """How many hosts are out of reach, and why some of them are."""
    if not totals.hosts_in_backoff:
        return []
    listed = " ".join(f"{host.host}: {in_backoff(host, now)}" for host in some)
    hosts = "1 host is" if totals.hosts_in_backoff == 1 else f"{totals.hosts_in_backoff:,} hosts are"
    return [Reason("backoff", f"{hosts} out of reach. {listed}".strip())]


def _waiting(totals: Totals, waiting: Sequence[HostState], now: float) -> str:
    first = f" The first is {waiting[0].host}{_when(waiting[0].next_contact, now)}." if waiting else ""
    if totals.hosts_waiting == 1:
        return f"1 host with URLs waits until it may be contacted again.{first.replace('The first', 'It')}"
    return f"{totals.hosts_waiting:,} hosts with URLs wait until they may be contacted again.{first}"


def _when(moment: float, now: float) -> str:
    return f", in {show_duration(moment - now)}" if math.isfinite(moment) else ""
