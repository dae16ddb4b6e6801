"""What a fleet needs at its pace, line by line, each with what it is made of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from drumlin.config.quantities import (
    show_bits,
    show_duration,
    show_gap,
    show_many,
    show_number,
    show_rate,
    show_size,
)
from drumlin.engines.redis.address import Duplicates
from drumlin.lines import counted
from drumlin.plan.costs import Cost, Costs
from drumlin.plan.notes import notes
from drumlin.plan.pace import Bound, Pace, Wish, find_pace, node_pace, rounded_up

DAY_S = 86_400.0
DONE_REMEMBERED_S = 14 * DAY_S
"""How long the engine remembers that a URL is done, besides having seen it."""
FORK_SHARE = 0.5
"""Memory that a server needs besides its data while it rewrites its file: a fork copies what changes meanwhile."""
CLUSTER_MASTERS_MIN = 3
COMPRESSION = 2.5
"""How many times smaller HTML becomes when a site compresses it."""
CORES_SHOWN_MIN = 0.01
ENGINE = "Engine (Redis)"
_WHY = {
    Bound.WISH: "as asked for",
    Bound.POLITENESS: "as politeness allows",
    Bound.NODES: "as these nodes allow",
}
_SHOWN_PARTS = {"queue": "queued", "known": "seen and done", "contents": "contents of pages", "hosts": "hosts"}


class Need(msgspec.Struct, frozen=True):
    """One line of a plan. `shown` is `amount` for people."""

    group: str
    name: str
    amount: float
    unit: str
    shown: str
    made_of: str


class Plan(msgspec.Struct, frozen=True):
    """A pace that can be reached, why it is not higher, and what it needs."""

    pages_per_s: float
    bound: Bound
    sentence: str
    notes: list[str]
    needs: list[Need]
    costs: dict[str, Cost]


def make_plan(wish: Wish, costs: Costs) -> Plan:
    """The plan for a wish, by multiplication."""
    pace = find_pace(wish, costs)
    nodes = _nodes(wish, costs, pace)
    parts = _engine_data(wish, costs, pace)
    needs = [
        *_pace(wish, pace),
        *nodes,
        *_coordinators(wish, costs, pace, nodes[0].amount),
        *_engine(wish, costs, pace, parts),
        *_traffic(wish, costs, pace),
    ]
    said = list(notes(wish, costs, pace, {name: size for name, (size, _) in parts.items()}))
    return Plan(pace.pages_per_s, pace.bound, pace.sentence, said, needs, dict(costs))


def _rate(pace: Pace) -> str:
    return show_rate(pace.pages_per_s)


def _pace(wish: Wish, pace: Pace) -> Iterator[Need]:
    group, rate = "Pace", pace.pages_per_s
    yield Need(group, "pages a second", rate, "pages/s", show_number(rate), _WHY[pace.bound])
    if wish.pages is not None:
        seconds = wish.pages / rate
        made_of = f"{show_many(wish.pages, 'page')} / {_rate(pace)}"
        yield Need(group, "time", seconds, "s", show_duration(seconds), made_of)
    hosts = rounded_up(rate * wish.turn_s)
    turn = f"({show_gap(wish.delay_s)} delay + {show_duration(wish.response_s)} for an answer)"
    yield Need(group, "hosts at least", hosts, "hosts", show_number(hosts), f"{_rate(pace)} × {turn}")
    flying = rounded_up(rate * wish.response_s)
    made_of = f"{_rate(pace)} × {show_duration(wish.response_s)} for an answer"
    yield Need(group, "requests at once", flying, "requests", show_number(flying), made_of)


def _nodes(wish: Wish, costs: Costs, pace: Pace) -> list[Need]:
    one, memory = node_pace(wish, costs), costs["node_memory"].value * 1e6
    needed = wish.nodes or rounded_up(pace.pages_per_s / (one.pages_per_s * wish.availability))
    there = f"{one.made_of} = {show_rate(one.pages_per_s)} while it is there, {wish.availability:.0%} of the time"
    made_of = f"a core each: {_rate(pace)} / ({there})"
    if wish.nodes is not None:
        each, could = pace.pages_per_s / (wish.nodes * wish.availability), show_number(one.pages_per_s)
        made_of = f"as given; each fetches {show_rate(each)} while it is there, and could fetch {could}"
    return [
        Need("Nodes", "nodes", needed, "cores", show_number(needed), made_of),
        _memory("Nodes", needed * memory, f"{show_number(needed)} × {show_size(memory)}"),
    ]


def _memory(group: str, size: float, made_of: str) -> Need:
    return Need(group, "memory", size, "bytes", show_size(size), made_of)


def _busy(wish: Wish, pace: Pace, cpu_us: float) -> tuple[float, str]:
    """How many cores are busy, and how that is said."""
    cores = pace.pages_per_s * cpu_us / 1e6
    many = show_many(cores, "core") if cores >= CORES_SHOWN_MIN else f"less than {CORES_SHOWN_MIN} cores"
    busy = f"{_rate(pace)} × {show_number(cpu_us)} µs = {many} busy"
    return cores, f"{busy}, at most {wish.servers_busy:.0%} of a core each"


def _coordinators(wish: Wish, costs: Costs, pace: Pace, nodes: float) -> Iterator[Need]:
    busy, said = _busy(wish, pace, costs["coordinator_cpu"].value)
    # One may fail: the others must be able to carry on, if not at ease.
    count = max(rounded_up(busy / wish.servers_busy), rounded_up(busy) + 1)
    made_of = f"a core each: {said}; one may fail"
    yield Need("Coordinators", "coordinators", count, "cores", show_number(count), made_of)
    memory, connection = costs["coordinator_memory"].value * 1e6, costs["connection_memory"].value * 1e3
    made_of = f"{count:,} × {show_size(memory)} + {show_size(connection)} for each node"
    yield _memory("Coordinators", count * memory + nodes * connection, made_of)


def _engine_data(wish: Wish, costs: Costs, pace: Pace) -> dict[str, tuple[float, str]]:
    """The data of the engine by part: how many bytes, and what they are made of."""
    queued = round(wish.urls * wish.queued_share)
    done = wish.urls - queued
    recent = min(done, pace.pages_per_s * DONE_REMEMBERED_S)
    kept = done if wish.pages is None else min(done, wish.pages)
    queued_each, seen, settled = (costs[name].value for name in ("url_queued", "url_seen", "url_done"))
    content = _content_bytes(wish.contents, costs)
    settled_said = f"{show_number(recent)} done within two weeks × {show_number(settled)}"
    parts = {
        "queue": (queued * queued_each, f"{show_many(queued, 'URL')} × {show_many(queued_each, 'byte')}"),
        "known": (
            done * seen + recent * settled,
            f"{show_many(done, 'URL')} × {show_many(seen, 'byte')} + {settled_said}",
        ),
    }
    if content:
        parts["contents"] = (
            kept * content,
            f"{show_many(kept, 'page')} × {show_many(content, 'byte')} (--contents {wish.contents})",
        )
    if wish.hosts is not None:
        host = costs["host"].value
        parts["hosts"] = wish.hosts * host, f"{show_number(wish.hosts)} × {show_many(host, 'byte')}"
    return parts


def _content_bytes(contents: Duplicates, costs: Costs) -> float:
    exact = costs["content_exact"].value
    return {Duplicates.OFF: 0.0, Duplicates.EXACT: exact, Duplicates.NEAR: exact + costs["content_near"].value}[
        contents
    ]


def _engine(wish: Wish, costs: Costs, pace: Pace, parts: Mapping[str, tuple[float, str]]) -> Iterator[Need]:
    data = sum(size for size, _ in parts.values())
    busy, said = _busy(wish, pace, costs["engine_cpu"].value)
    by_cpu, by_memory = rounded_up(busy / wish.servers_busy), rounded_up(data / wish.master_bytes)
    masters = _masters(by_cpu, by_memory)
    for name, (size, made_of) in parts.items():
        yield Need(ENGINE, _SHOWN_PARTS[name], size, "bytes", show_size(size), made_of)
    yield Need(ENGINE, "data in all", data, "bytes", show_size(data), "the sum of these, on all masters together")
    made_of = (
        f"a core each: {said}: {by_cpu:,}; {show_size(data)} of data, {show_size(wish.master_bytes)} in each: "
        f"{by_memory:,}" + ("; a cluster has three at least" if masters > max(by_cpu, by_memory) else "")
    )
    yield Need(ENGINE, "masters", masters, "servers", show_number(masters), made_of)
    servers = masters * (1 + wish.replicas)
    made_of = f"{counted(masters, 'master')}, each with {counted(wish.replicas, 'replica')}"
    yield Need(ENGINE, "servers", servers, "servers", show_number(servers), made_of)
    each = data / masters * (1 + FORK_SHARE)
    made_of = f"{servers:,} × {show_size(each)}: the data, and {FORK_SHARE:.0%} more while a server rewrites its file"
    yield _memory(ENGINE, servers * each, made_of)


def _masters(by_cpu: int, by_memory: int) -> int:
    """One server, or as many as a cluster has at least."""
    masters = max(by_cpu, by_memory)
    return max(masters, CLUSTER_MASTERS_MIN) if masters > 1 else 1


def _traffic(wish: Wish, costs: Costs, pace: Pace) -> Iterator[Need]:
    group, rate = "Network and disk", pace.pages_per_s
    sites, results = rate * wish.page_bytes * 8, rate * costs["result_size"].value * 8
    share = costs["stored_share"].value
    stored = rate * wish.page_bytes * share
    made_of = f"{_rate(pace)} × {show_size(wish.page_bytes)} if no site compresses; {COMPRESSION} times less if all do"
    yield Need(group, "from sites", sites, "bit/s", show_bits(sites), made_of)
    made_of = f"{_rate(pace)} × {show_many(costs['result_size'].value, 'byte')} of results, from nodes"
    yield Need(group, "to coordinators", results, "bit/s", show_bits(results), made_of)
    made_of = f"{_rate(pace)} × {show_size(wish.page_bytes)} × {show_number(share)} (WARC and tables, compressed)"
    yield Need(group, "to the store", stored * 8, "bit/s", show_bits(stored * 8), made_of)
    day = stored * DAY_S
    yield Need(group, "disk a day", day, "bytes/day", show_size(day), f"{show_size(stored)} a second × 86,400 s")
    if wish.pages is not None:
        size = wish.pages * wish.page_bytes * share
        made_of = f"{show_many(wish.pages, 'page')} × {show_size(wish.page_bytes)} × {show_number(share)}"
        yield Need(group, "disk in all", size, "bytes", show_size(size), made_of)
