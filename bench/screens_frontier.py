"""Fills an engine with a large crawl for `bench.screens`: URLs and hosts in every state, nodes, history, changes.

Everything goes in by the calls of the engine's contract, as coordinators make them; only time is made up, and what
nodes would have fetched.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from itertools import islice
from typing import NamedTuple

import msgspec

from drumlin.access.audit import AUDIT_TABLE, AuditEntry
from drumlin.access.tokens import Role
from drumlin.api.calls import marks
from drumlin.api.calls.history import SERIES, Sample
from drumlin.coordinator.nodes import NodeRegistry
from drumlin.engines.base import Engine
from drumlin.model import FailureKind, Lease, NewURLs, Settled, Settlement, TaskState
from drumlin.protocol import Effort, NodeRecord, NodeStatus

HOSTS_AT_ONCE = 2_000
LEASE_S = 36_000.0
PRESENT_S = 36_000.0
"""Nodes were last heard so far in the future: nobody plays them, and they must not fall silent while we measure."""
DEAD_SHARE = 0.02
"""Of the hosts, those whose leased URLs are given up."""
DONE_SHARE = 0.05
LEASED_SHARE = 0.02
BACKOFF_SHARE = 0.005
URLS_LEASED = 5
AUDIT_ENTRIES = 10_000
NODES_FAILED_EACH = 100
"""One node in so many is lost."""
KINDS = tuple(FailureKind)
BEGINNINGS = ("www", "news", "blog", "shop", "docs", "m", "forum", "cdn")


class Size(NamedTuple):
    nodes: int
    hosts: int
    urls: int


def host_name(number: int) -> str:
    return f"{BEGINNINGS[number % len(BEGINNINGS)]}.site-{number}.example"


def url_of(number: int, path: int) -> str:
    return f"https://{host_name(number)}/articles/2026/{path}/a-title-of-usual-length"


async def fill(engine: Engine, size: Size) -> None:
    now = time.time()
    await engine.keep_time(now)
    began = time.monotonic()
    await _add(engine, size, now)
    print(f"{size.urls:,} URLs of {size.hosts:,} hosts in {time.monotonic() - began:.0f} s", flush=True)
    await _work(engine, size, now)
    await _register(engine, size.nodes, now)
    await _remember(engine, now)
    print(f"filled in {time.monotonic() - began:.0f} s", flush=True)


async def _add(engine: Engine, size: Size, now: float) -> None:
    each = size.urls // size.hosts
    for first in range(0, size.hosts, HOSTS_AT_ONCE):
        batches: dict[int, list[NewURLs]] = {}
        for number in range(first, min(first + HOSTS_AT_ONCE, size.hosts)):
            name = host_name(number)
            urls = [url_of(number, path) for path in range(each)]
            batches.setdefault(engine.shard_of(name), []).append(NewURLs(name, urls, 5, 1, f"https://{name}/"))
        # A third of the hosts must still wait when the screens are looked at.
        await engine.add_all(batches, now + (3_600.0 if first // HOSTS_AT_ONCE % 3 == 0 else 0.0))


async def _work(engine: Engine, size: Size, now: float) -> None:
    """Lease hosts, and settle the leases: some URLs done, some given up, some hosts out of reach, some still held."""
    leases = _leases(engine, size, now)
    for share, ending in ((DONE_SHARE, _done), (DEAD_SHARE, _dead), (BACKOFF_SHARE, _out_of_reach)):
        left = int(size.hosts * share)
        while left > 0 and (taken := [lease async for lease in _some(leases, min(left, HOSTS_AT_ONCE))]):
            batches: dict[int, list[Settlement]] = {}
            for lease in taken:
                batches.setdefault(lease.shard, []).append(ending(lease, now))
            await engine.settle_all(batches, now)
            left -= len(taken)
    held = int(size.hosts * LEASED_SHARE)
    async for _ in leases:
        held -= 1
        if held <= 0:
            break


async def _leases(engine: Engine, size: Size, now: float) -> AsyncGenerator[Lease, None]:
    """One lease after the other, of all shards in turn and for all nodes."""
    number, idle = 0, 0
    while idle < engine.shard_count:
        node = f"node-{number % size.nodes:05d}"
        found = await engine.lease(
            number % engine.shard_count,
            node,
            f"fill/{number}",
            now,
            until=now + LEASE_S,
            hosts_max=100,
            urls_max=100 * URLS_LEASED,
            urls_per_host=URLS_LEASED,
        )
        idle = 0 if found else idle + 1
        number += 1
        for lease in found:
            yield lease


async def _some(leases: AsyncGenerator[Lease, None], count: int) -> AsyncGenerator[Lease, None]:
    async for lease in leases:
        yield lease
        count -= 1
        if count <= 0:
            return


def _done(lease: Lease, now: float) -> Settlement:
    counts = {"pages": 1, "bytes": 20_000, "status.200": 1, "outcome.fetched": 1}
    parts = [
        Settled(task.id, task.url, TaskState.DONE, b"%d" % task.id, size=20_000, counts=counts) for task in lease.tasks
    ]
    return Settlement(lease.host, lease.lease_id, parts, release=True, next_contact=now + 1.0)


def _dead(lease: Lease, now: float) -> Settlement:
    parts = []
    for place, task in enumerate(lease.tasks):
        kind = KINDS[(task.id + place) % len(KINDS)]
        counts = {"outcome.failed": 1, f"dead.{kind}": 1}
        parts.append(
            Settled(task.id, task.url, TaskState.DEAD, b"%d" % task.id, kind=kind, error="made up", counts=counts)
        )
    return Settlement(lease.host, lease.lease_id, parts, release=True, next_contact=now + 1.0)


def _out_of_reach(lease: Lease, now: float) -> Settlement:
    return Settlement(lease.host, lease.lease_id, [], release=True, next_contact=now + 7_200.0, in_backoff=True)


async def _register(engine: Engine, nodes: int, now: float) -> None:
    registry = NodeRegistry()
    effort = Effort(time_s=10.0)
    metadata = {"version": "0.1", "host": "machine-17.example", "python": "3.11.2"}
    for number in range(nodes):
        status = NodeStatus.FAILED if number % NODES_FAILED_EACH == 0 else NodeStatus.ACTIVE
        record = NodeRecord(
            f"node-{number:05d}",
            f"10.0.{number % 250}.{number // 250}",
            now + PRESENT_S,
            status,
            50.0,
            12.0,
            1_000 + number,
            now,
            metadata,
        )
        record.leases, record.pages_per_s, record.total_bytes, record.instance = 20, 40.0, 20_000_000, "0" * 32
        record.last_beat, record.effort, record.lately = now + PRESENT_S, effort, effort
        await registry.keep(engine, record)
    await registry.flush(engine)


async def _remember(engine: Engine, now: float) -> None:
    """A month of history, and as many changes as are kept."""
    for span, (step_s, kept) in SERIES.items():
        slot = int(now // step_s)
        samples = (Sample(now - (kept - place) * step_s, place, place, place, 0, 0, 0) for place in range(kept))
        numbers = (f"{(slot - kept + place) % kept:05d}" for place in range(kept))
        entries = zip(numbers, map(msgspec.msgpack.encode, samples), strict=True)
        await engine.put_entries(f"history_{span}", dict(entries))
    lost = [marks.Mark(now - place, "node-1 lost") for place in range(marks.MARKS_MAX)]
    entries_of_marks = {f"{int(mark.time * 1000):015d}-000": msgspec.msgpack.encode(mark) for mark in lost}
    await engine.put_entries(marks.TABLE, entries_of_marks)
    for part in _parts(_changes(now), 1_000):
        await engine.put_entries(AUDIT_TABLE, dict(part))


def _changes(now: float) -> Iterator[tuple[str, bytes]]:
    for place in range(AUDIT_ENTRIES):
        moment = now - 10.0 * place
        entry = AuditEntry(
            moment, "0123456789ab", "somebody", Role.OPERATOR, "host.change", host_name(place), "done", "10.0.0.1"
        )
        yield f"{int(moment * 1e6):020d}-{place:08x}", msgspec.msgpack.encode(entry)


def _parts(items: Iterator[tuple[str, bytes]], size: int) -> Iterator[list[tuple[str, bytes]]]:
    while part := list(islice(items, size)):
        yield part
