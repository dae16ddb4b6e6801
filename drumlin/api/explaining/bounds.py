"""What keeps a crawl that fetches from fetching faster: one cause or several, each with the figures that show it.

Everything is judged by what happened in the last ten seconds or so. A node's time tells whether the CPU or the disk is
the limit (`Effort`). Small writes tell how fast engine and store are (`Watch`). The hosts that may be contacted, their
delays and the time that answers take permit so many requests a second: if about so many are made, hosts are the limit,
because of their delays, or because their answers are slow to begin or slow to arrive. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from drumlin.api.explaining.why import hosts_in_backoff
from drumlin.api.messages.people import Reason
from drumlin.api.watch import Look
from drumlin.config.quantities import show_duration, show_number, show_size
from drumlin.coordinator.totals import Totals
from drumlin.model import HostState
from drumlin.protocol import PRESENT, Effort, NodeRecord, NodeStatus

BUSY_SHARE: Final = 0.8
"""A node or coordinator that computes for so much of its time can hardly do more."""
DISK_SHARE: Final = 0.25
STORE_S: Final = 0.25
"""A write to the store of 64 KB takes milliseconds; so long, and the disk is in trouble."""
ENGINE_S: Final = 0.05
"""A small write to the engine takes a millisecond or two."""
HELD_SHARE: Final = 0.1
"""How much of the time nodes may hold back before that is a limit."""
USED_SHARE: Final = 0.6
"""How much of what the hosts permit is used by a crawl that its hosts limit."""
ALL_SHARE: Final = 0.95
"""A crawl that makes so large a share of the permitted requests is said to make all of them."""
NOTED_SHARE: Final = 0.25
"""A part of a whole that is worth naming."""
SILENT_HEARTBEATS: Final = 2
"""A node that is so many heartbeats late may hang, or be cut off."""
SILENT_S: Final = 3.0
"""A node is not called silent sooner: with heartbeats twice a second, a busy machine alone makes it a second late."""
SILENT_NAMED: Final = 3
SLOW_S: Final = 0.2
"""An answer that takes less is not called slow."""


class Seen(NamedTuple):
    """The figures that are judged. `delays_s` are the delays of some of the hosts that may be contacted, `backing_off`
    are some of those that are out of reach."""

    totals: Totals
    nodes: Sequence[NodeRecord]
    look: Look
    delays_s: Sequence[float]
    backing_off: Sequence[HostState]
    now: float
    bytes_per_s: float = 0.0
    held: Sequence[HostState] = ()
    """Some of the hosts that nodes hold."""
    heartbeat_s: float = 2.0


def bound_by(seen: Seen) -> list[Reason]:
    """The causes, those within the fleet first. Empty if none is certain."""
    active = [node for node in seen.nodes if node.status is NodeStatus.ACTIVE]
    if not active:
        return []
    efforts = [node.lately for node in active if node.lately is not None and node.lately.time_s > 0]
    reasons = [*_cpu(efforts), *_disk(efforts, seen.look), *_engine(efforts, seen.look), *_coordinator(seen.look)]
    if not reasons:
        reasons += _settling(efforts, active)
    return [*_silent(seen), *reasons, *_hosts(efforts, seen), *_out_of_reach(seen)]


def _sum(efforts: Sequence[Effort]) -> Effort:
    return Effort(*(sum(getattr(one, name) for one in efforts) for name in Effort.__struct_fields__))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _silent(seen: Seen) -> list[Reason]:
    """Nodes that have missed heartbeats and hold hosts, which nobody else may contact until their leases end."""
    holders = {host.node for host in seen.held}
    silent = [node for node in seen.nodes if _is_silent(node, node.node_id in holders, seen)]
    if not silent:
        return []
    names = ", ".join(node.node_id for node in silent[:SILENT_NAMED])
    more = f" and {len(silent) - SILENT_NAMED:,} more" if len(silent) > SILENT_NAMED else ""
    they = "it holds" if len(silent) == 1 else "they hold"
    for_s = seen.now - max(node.last_seen for node in silent)
    said = f"Silent nodes: nothing was heard of {names}{more} for {show_duration(for_s)}."
    then = f"The hosts that {they} go to others when the leases end."
    return [Reason("silent_nodes", f"{said} {then}", {"nodes": len(silent), "silent_s": round(for_s, 1)})]


def _is_silent(node: NodeRecord, holds: bool, seen: Seen) -> bool:
    if node.status is NodeStatus.FAILED:
        return holds
    silent_s = max(SILENT_S, SILENT_HEARTBEATS * seen.heartbeat_s)
    missed = bool(node.last_beat) and seen.now - node.last_seen > silent_s
    return node.status in PRESENT and missed and (holds or node.leases > 0)


def _cpu(efforts: Sequence[Effort]) -> list[Reason]:
    busy = [one.cpu_s / one.time_s for one in efforts if one.cpu_s / one.time_s >= BUSY_SHARE]
    if not busy:
        return []
    mean = min(1.0, sum(busy) / len(busy))
    one = len(efforts) == 1
    who = "the node computes or waits" if one else f"{len(busy):,} of {len(efforts):,} nodes compute or wait"
    said = f"CPU: {who} for a core {_percent(mean)} of the time."
    return [Reason("cpu", said, {"nodes": len(busy), "share": round(mean, 3)})]


def _disk(efforts: Sequence[Effort], look: Look) -> list[Reason]:
    # A node that waits for a core while it stores waits for the CPU and not for the disk.
    free = [one for one in efforts if one.cpu_s / one.time_s < BUSY_SHARE]
    shares = [one.disk_s / one.time_s for one in free]
    slow = [share for share in shares if share >= DISK_SHARE]
    if slow:
        mean = sum(slow) / len(slow)
        who = "the node waits" if len(efforts) == 1 else f"{len(slow):,} of {len(efforts):,} nodes wait"
        said = f"Disk: {who} for the disk {_percent(mean)} of the time while storing pages."
        return [Reason("disk", said, {"nodes": len(slow), "share": round(mean, 3), "store_s": round(look.store_s, 4)})]
    if look.store_s >= STORE_S:
        said = f"Disk: a small write to this coordinator's store takes {show_duration(look.store_s)}."
        return [Reason("disk", said, {"store_s": round(look.store_s, 4)})]
    return []


def _engine(efforts: Sequence[Effort], look: Look) -> list[Reason]:
    if look.engine_s < ENGINE_S or look.cpu_share >= BUSY_SHARE:
        return []
    held = _held_share(efforts)
    said = f"Engine: a small write takes {show_duration(look.engine_s)}, which every lease and every result waits for."
    return [Reason("engine", said, {"engine_s": round(look.engine_s, 4), "held_share": round(held, 3)})]


def _coordinator(look: Look) -> list[Reason]:
    if look.cpu_share < BUSY_SHARE:
        return []
    said = f"CPU: this coordinator computes, or waits for a core, {_percent(look.cpu_share)} of the time."
    return [Reason("coordinator_cpu", said, {"share": round(look.cpu_share, 3)})]


def _held_share(efforts: Sequence[Effort]) -> float:
    whole = _sum(efforts)
    return whole.held_s / whole.time_s if whole.time_s else 0.0


def _settling(efforts: Sequence[Effort], active: Sequence[NodeRecord]) -> list[Reason]:
    """Nodes hold back, and none of the causes that we know explains it."""
    share = _held_share(efforts)
    if share < HELD_SHARE:
        return []
    lag_s = max(node.lag_s for node in active)
    said = (
        f"Settling: nodes contact no further host {_percent(share)} of the time, because pages wait to be read or "
        f"counted, the oldest for {show_duration(lag_s)}."
    )
    return [Reason("settling", said, {"held_share": round(share, 3), "lag_s": round(lag_s, 3)})]


def _hosts(efforts: Sequence[Effort], seen: Seen) -> list[Reason]:
    """Whether the hosts are the limit, and by what: their delays, or their answers."""
    totals = seen.totals
    hosts = totals.hosts_leased + totals.hosts_waiting - totals.hosts_in_backoff
    if totals.hosts_ready or hosts <= 0:
        return []
    whole = _sum(efforts)
    if not whole.requests:
        # Workers that tell nothing of themselves: all that is certain is that no host is ready.
        return [Reason("politeness", _polite(hosts), {"hosts": hosts})] if not efforts else []
    answer_s, body_s = whole.answer_s / whole.requests, whole.body_s / whole.requests
    took_s = answer_s + body_s
    delays = seen.delays_s or [0.0]
    turn_s = len(delays) / sum(1 / max(delay_s + took_s, 0.001) for delay_s in delays)
    permitted = hosts / turn_s
    made = sum(one.requests / one.time_s for one in efforts)
    if made < USED_SHARE * permitted:
        return []
    figures = {
        "hosts": hosts,
        "turn_s": round(turn_s, 3),
        "answer_s": round(answer_s, 3),
        "body_s": round(body_s, 3),
        "permitted_per_s": round(permitted, 2),
        "made_per_s": round(made, 2),
    }
    return _by_hosts(hosts, turn_s, answer_s, body_s, figures, seen.bytes_per_s)


def _by_hosts(
    hosts: int, turn_s: float, answer_s: float, body_s: float, figures: dict[str, float], bytes_per_s: float
) -> list[Reason]:
    """Which parts of a host's turn are worth naming: its delay, the wait for the answer, the arrival of the body."""
    reasons: list[Reason] = []
    rates = _rates(figures["permitted_per_s"], figures["made_per_s"])
    if turn_s - answer_s - body_s >= NOTED_SHARE * turn_s:
        reasons.append(Reason("politeness", f"{_polite(hosts)} {rates}", figures))
    if answer_s >= max(SLOW_S, NOTED_SHARE * turn_s):
        said = f"Slow sites: answers begin {show_duration(answer_s)} after they were asked for. {rates}"
        reasons.append(Reason("slow_sites", said, figures))
    if body_s >= max(SLOW_S, NOTED_SHARE * turn_s):
        arrive = f"bodies take {show_duration(body_s)} to arrive, {show_size(round(bytes_per_s))} a second in all"
        said = f"Bandwidth: {arrive}: the line is full, or the sites send slowly. {rates}"
        reasons.append(Reason("bandwidth", said, figures | {"bytes_per_s": round(bytes_per_s, 1)}))
    return reasons


def _rates(permitted: float, made: float) -> str:
    """Both are means of some seconds, so what is made may seem a little more than what is permitted."""
    shown = show_number(permitted)
    permits = f"That permits about {shown} {'request' if shown == '1' else 'requests'} a second"
    if made >= ALL_SHARE * permitted:
        return f"{permits}, and so many are made."
    return f"{permits}; {show_number(made)} are made."


def _polite(hosts: int) -> str:
    which = f"Each of the {hosts:,} hosts that have" if hosts > 1 else "The one host that has"
    return f"Politeness: {which} URLs left is asked as often as its delay allows."


def _out_of_reach(seen: Seen) -> list[Reason]:
    """Hosts in back-off, if they are a good part of those that have URLs left."""
    totals = seen.totals
    hosts = totals.hosts_leased + totals.hosts_waiting + totals.hosts_ready
    if totals.hosts_in_backoff < NOTED_SHARE * hosts:
        return []
    return hosts_in_backoff(totals, seen.backing_off, seen.now)
