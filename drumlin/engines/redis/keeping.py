"""A frontier on Redis told as records, and made from such records (`drumlin.engines.kept`).

Nothing is written meanwhile, so lists and sets are read piece by piece with commands of Redis's own. Memory holds one
page, the marks of up to `LIVE_MAX` URLs of one host (8 bytes each), and a hash of each registrable domain (60 bytes).
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Callable, Sequence
from math import ceil
from typing import Any, NamedTuple

import msgspec
import numpy as np
from xxhash import xxh3_64_intdigest

from drumlin.engines.kept import (
    SHORT_BYTES,
    Kept,
    KeptContent,
    KeptCounters,
    KeptDone,
    KeptHost,
    KeptSketch,
    KeptTask,
    KeptValue,
    Paged,
    Section,
    after_lease,
    is_blank,
    is_told,
)
from drumlin.engines.paging import KINDS_IN_ORDER
from drumlin.engines.redis.commands import Command, packed
from drumlin.engines.redis.contents import nearest_digest, read_entry, read_log
from drumlin.engines.redis.filling import write_kept
from drumlin.engines.redis.lists import RedisLists, letter_ranges
from drumlin.engines.redis.records import (
    HostNumbers,
    mark_from,
    read_letter,
    read_numbers,
    read_record,
    seen_mark,
    task_id_of,
)
from drumlin.model import FailureKind, LetterPlace, TaskState
from drumlin.urls import domain_of

NAMES_SLICE = 500
HOSTS_AT_ONCE = 20
SLICE = 500
BUCKETS_AT_ONCE = 20
BUCKET_LOAD = 192
"""As in `lua/layout.lua`."""
LIVE_MAX = 4_000_000
SKETCHES_SLICE_BYTES = 100_000
SCAN_KEYS = 10_000
PRIORITIES = range(9, -1, -1)

_decode_grant = msgspec.msgpack.Decoder(tuple[str, str, str, str]).decode


class _Queue(NamedTuple):
    """What is queued of a host, as far as it was read: the tasks of its lease, and the beginning of each of its lists
    by priority."""

    held: list[bytes]
    lists: dict[int, list[bytes]]


class RedisKeeping(RedisLists):
    """These calls of `drumlin.engines.base.Engine`, for the engine to inherit."""

    _root: str
    _root_slot: int

    async def fill(self, shard: int, step: int, kept: Sequence[Kept], now: float) -> None:
        await self._client.run([self._shards.call("fill", shard, write_kept(step, kept, now))])

    async def read_kept(self, section: Section) -> AsyncIterator[list[Kept]]:
        paged = Paged()
        async for record in self._told(section):
            if page := paged.add(record):
                yield page
        if page := paged.rest():
            yield page

    async def _told(self, section: Section) -> AsyncIterator[Kept]:
        crawl = {
            Section.CONTENTS: self._told_contents,
            Section.SKETCHES: self._told_sketches,
            Section.VALUES: self._told_values,
        }
        if section in crawl:
            async for record in crawl[section]():
                yield record
            return
        of_shard: dict[Section, Callable[[int], AsyncIterator[Kept]]] = {
            Section.COUNTERS: self._told_counters,
            Section.HOSTS: self._told_hosts,
            Section.QUEUED: self._told_queued,
            Section.SCHEDULED: self._told_scheduled,
            Section.DEAD: self._told_dead,
            Section.DONE: self._told_done,
        }
        for shard in range(self.shard_count):
            async for record in of_shard[section](shard):
                yield record

    async def _read(self, shard: int, *commands: tuple[bytes | str | int, ...]) -> list[Any]:
        """The answers of commands about keys of a shard; the second word of each is a key without its tag."""
        tag = self._shards.tags[shard].encode()
        words = [
            (name, tag + (key if isinstance(key, bytes) else str(key).encode()), *rest) for name, key, *rest in commands
        ]
        return await self._client.run([self._shards.read(shard, *one) for one in words])

    # Hosts

    async def _told_counters(self, shard: int) -> AsyncIterator[Kept]:
        ((*flat,),) = await self._read(shard, ("HGETALL", "c"))
        counters = {name.decode(): int(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}
        if counters:
            yield KeptCounters(shard, counters)

    async def _names(self, shard: int, slice_size: int = NAMES_SLICE) -> AsyncIterator[list[bytes]]:
        """The names of the hosts with an accepted URL, in order."""
        after = b"-"
        while True:
            (names,) = await self._read(shard, ("ZRANGEBYLEX", "m", after, "+", "LIMIT", 0, slice_size))
            if names:
                yield names
            if len(names) < slice_size:
                return
            after = b"(" + names[-1]

    async def _told_hosts(self, shard: int) -> AsyncIterator[Kept]:
        async for names in self._names(shard):
            for host in await self._hosts(shard, names):
                yield host
        visited = sorted(await self._only_visited(shard))
        for at in range(0, len(visited), NAMES_SLICE):
            for host in await self._hosts(shard, visited[at : at + NAMES_SLICE]):
                yield host

    async def _hosts(self, shard: int, names: list[bytes]) -> list[KeptHost]:
        columns: list[tuple[bytes | str | int, ...]] = [("HMGET", key, *names) for key in "hop"]
        raws, notes, slow, backing_off = await self._read(shard, *columns, ("ZMSCORE", "r", *names))
        grants = await self._read(shard, *(("HGET", b"l" + name, "") for name in names))
        hosts = []
        for name, raw, note, slow_s, in_backoff, grant in zip(
            names, raws, notes, slow, backing_off, grants, strict=True
        ):
            numbers = read_numbers(raw)
            next_contact, slow_s = numbers.next_contact, float(slow_s or 0)
            if grant is not None:
                _, _, deadline, delay_s = _decode_grant(grant)
                lost_s = max(float(delay_s), numbers.delay_s or 0.0, slow_s)
                next_contact = after_lease(next_contact, float(deadline), lost_s)
            pace = (next_contact, numbers.delay_s, slow_s, in_backoff is not None, note or b"")
            hosts.append(KeptHost(name.decode(), *pace, numbers.urls, numbers.pages, numbers.bytes))
        return [host for host in hosts if not is_blank(host)]

    async def _only_visited(self, shard: int) -> set[bytes]:
        """The hosts without an accepted URL: few, since they are forgotten when their next contact has come."""
        found: set[bytes] = set()
        cursor = b"0"
        while True:
            ((cursor, fields),) = await self._read(shard, ("HSCAN", "h", cursor, "COUNT", NAMES_SLICE))
            pairs = zip(fields[::2], fields[1::2], strict=True)
            found.update(name for name, raw in pairs if not read_numbers(raw).urls)
            if cursor == b"0":
                return found

    # Tasks

    async def _told_queued(self, shard: int) -> AsyncIterator[Kept]:
        async for names in self._names(shard, HOSTS_AT_ONCE):
            for name, _, queue in await self._queues(shard, names):
                host = name.decode()
                async for raw in self._in_order(shard, name, queue):
                    record = read_record(raw, host)
                    past = (record.attempt_id, record.first_failed)
                    yield KeptTask(host, shard, TaskState.QUEUED, record.task, *past)

    async def _queues(self, shard: int, names: list[bytes]) -> list[tuple[bytes, HostNumbers, _Queue]]:
        """The numbers of hosts, and the beginnings of what is queued or leased of them."""
        (raws,) = await self._read(shard, ("HMGET", "h", *names))
        numbers = [read_numbers(raw) for raw in raws]
        commands: list[tuple[bytes | str | int, ...]] = []
        for name, one in zip(names, numbers, strict=True):
            commands.append(("HGETALL", b"l" + name))
            commands += [("LRANGE", b"q%d" % priority + name, 0, SLICE - 1) for priority in one.priorities]
        replies = iter(await self._read(shard, *commands))
        found = []
        for name, one in zip(names, numbers, strict=True):
            fields = next(replies)
            held = [raw for key, raw in zip(fields[::2], fields[1::2], strict=True) if key]
            found.append((name, one, _Queue(held, {priority: next(replies) for priority in one.priorities})))
        return found

    async def _in_order(self, shard: int, name: bytes, queue: _Queue) -> AsyncIterator[bytes]:
        """The records of a host's queue, with those that are leased in their places."""
        for priority in PRIORITIES:
            held = sorted((raw for raw in queue.held if raw[6] >> 1 == priority), key=task_id_of, reverse=True)
            records, at = queue.lists.get(priority, []), 0
            while records:
                for raw in records:
                    while held and task_id_of(held[-1]) < task_id_of(raw):
                        yield held.pop()
                    yield raw
                at += len(records)
                if len(records) < SLICE:
                    break
                (records,) = await self._read(shard, ("LRANGE", b"q%d" % priority + name, at, at + SLICE - 1))
            for raw in reversed(held):
                yield raw

    async def _told_scheduled(self, shard: int) -> AsyncIterator[Kept]:
        at = 0
        while True:
            (found,) = await self._read(shard, ("ZRANGE", "t", at, at + SLICE - 1, "WITHSCORES"))
            members, times = found[::2], found[1::2]
            raws = await self._read(shard, *(("HGET", b"w" + member[6:], member[:6]) for member in members))
            for member, retry_at, raw in zip(members, times, raws, strict=True):
                host = member[6:].decode()
                record = read_record(raw, host)
                past = (record.attempt_id, record.first_failed, float(retry_at))
                yield KeptTask(host, shard, TaskState.SCHEDULED, record.task, *past)
            if len(members) < SLICE:
                return
            at += SLICE

    async def _told_dead(self, shard: int) -> AsyncIterator[Kept]:
        after: LetterPlace | None = None
        while True:
            ((low, high),) = letter_ranges(None, "", after)
            (letters,) = await self._client.run([self._shards.call("dead_letters", shard, low, high, SLICE)])
            for fields in letters:
                letter = read_letter(fields)
                record = read_record(fields[-1], letter.host)
                death = (letter.kind, letter.last_error, letter.last_failed)
                past = (record.attempt_id, record.first_failed, 0.0, *death)
                yield KeptTask(letter.host, shard, TaskState.DEAD, record.task, *past)
                after = letter.place
            if len(letters) < SLICE:
                return

    # What is done: everything that was accepted, without what is in a queue, scheduled or dead

    async def _told_done(self, shard: int) -> AsyncIterator[Kept]:
        async for names in self._names(shard, HOSTS_AT_ONCE):
            queues = await self._queues(shard, names)
            scheduled = await self._read(shard, *(("HVALS", b"w" + name) for name in names))
            scores: list[tuple[bytes | str | int, ...]] = [("ZMSCORE", f"j{kind}", *names) for kind in FailureKind]
            dead = await self._read(shard, *scores)
            for place, (name, numbers, queue) in enumerate(queues):
                kinds = any(of_kind[place] is not None for of_kind in dead)
                parts = 1 + numbers.urls // LIVE_MAX
                for part in range(parts):
                    live = await self._live(shard, name, queue, scheduled[place], parts, part, dead=kinds)
                    async for done in self._done(shard, name, numbers.urls, live, parts, part):
                        yield done

    async def _live(
        self, shard: int, name: bytes, queue: _Queue, scheduled: list[bytes], parts: int, part: int, *, dead: bool
    ) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """The marks of a host's URLs that are not done, in order; those of one of several parts."""
        host, marks = name.decode(), array("Q")

        def note(url: str) -> None:
            mark = int(seen_mark(url))
            if mark % parts == part:
                marks.append(mark)

        async for raw in self._in_order(shard, name, queue):
            note(read_record(raw, host).task.url)
        for raw in scheduled:
            note(read_record(raw, host).task.url)
        for kind in KINDS_IN_ORDER if dead else ():
            after: LetterPlace | None = None
            while letters := await self.dead_letters_all(kind=kind, host=host, after=after):
                for letter in letters:
                    note(letter.url)
                after = letters[-1].place
        return np.sort(np.frombuffer(marks, np.uint64)) if marks else np.empty(0, np.uint64)

    async def _done(
        self, shard: int, name: bytes, urls: int, live: np.ndarray[Any, np.dtype[np.uint64]], parts: int, part: int
    ) -> AsyncIterator[KeptDone]:
        buckets = max(1, ceil(urls / BUCKET_LOAD))
        for begin in range(0, buckets, BUCKETS_AT_ONCE):
            numbers = range(begin, min(begin + BUCKETS_AT_ONCE, buckets))
            replies = await self._read(shard, *(("SMEMBERS", b"s%d:" % number + name) for number in numbers))
            marks = np.array([int(mark) for reply in replies for mark in reply], np.uint64)
            marks = marks[(marks % np.uint64(parts) == part) & ~np.isin(marks, live)]
            if len(marks):
                yield KeptDone(name.decode(), shard, SHORT_BYTES, b"".join(map(mark_from, marks.tolist())))

    # Contents

    async def _domains(self) -> AsyncIterator[str]:
        """Each domain of which something was fetched, once: those of all hosts."""
        seen: set[int] = set()
        for shard in range(self.shard_count):
            async for names in self._names(shard):
                for domain in [domain_of(name.decode()) for name in names]:
                    hashed = xxh3_64_intdigest(domain.encode())
                    if hashed not in seen:
                        seen.add(hashed)
                        yield domain

    async def _told_contents(self) -> AsyncIterator[Kept]:
        async for domain in self._domains():
            shard, key, cursor = self.shard_of(domain), b"e" + domain.encode(), b"0"
            told: set[bytes] = set()
            while True:
                ((cursor, fields),) = await self._read(shard, ("HSCAN", key, cursor, "COUNT", SLICE))
                found = {one: raw for one, raw in zip(fields[::2], fields[1::2], strict=True) if one not in told}
                # A scan may tell an entry twice.
                told.update(found)
                wanted = [nearest_digest(raw) for raw in found.values()]
                (nearest,) = await self._read(shard, ("HMGET", key, *wanted)) if wanted else ([],)
                for (digest, raw), near in zip(found.items(), nearest, strict=True):
                    yield KeptContent(*read_entry(domain, digest, raw, near or b""))
                if cursor == b"0":
                    break

    async def _told_sketches(self) -> AsyncIterator[Kept]:
        async for domain in self._domains():
            shard, key, at = self.shard_of(domain), b"i" + domain.encode(), 0
            while True:
                (log,) = await self._read(shard, ("GETRANGE", key, at, at + SKETCHES_SLICE_BYTES - 1))
                for digest, sketch in read_log(log):
                    yield KeptSketch(domain, digest, sketch)
                at += len(log)
                if len(log) < SKETCHES_SLICE_BYTES:
                    break

    # Values

    async def _told_values(self) -> AsyncIterator[Kept]:
        for key, table in (("meta", ""), *[(f"table:{one}", one) for one in await self._tables()]):
            (flat,) = await self._client.run([Command(self._root_slot, packed("HGETALL", self._root + key))])
            for name, value in sorted(zip(flat[::2], flat[1::2], strict=True)):
                kept = KeptValue(table, name.decode(), value)
                if is_told(kept):
                    yield kept

    async def _tables(self) -> list[str]:
        """The names of the small tables. All keys of the server that has them are looked at: nothing lists them."""
        prefix, cursor, tables = f"{self._root}table:".encode(), b"0", set[str]()
        while True:
            scan = packed("SCAN", cursor, "MATCH", prefix + b"*", "COUNT", SCAN_KEYS)
            ((cursor, keys),) = await self._client.run([Command(self._root_slot, scan)])
            tables.update(key.removeprefix(prefix).decode() for key in keys)
            if cursor == b"0":
                return sorted(tables)
