"""Encodes what the redis engine writes and decodes what it reads. `lua/layout.lua` explains these layouts.

URLs are written without scheme and host where possible, which saves about a third (`short_url`). Redis's Lua cannot
read the `bin` type of MessagePack, so bytes are written as strings.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import msgspec
from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from drumlin.engines.kept import SHORT_BITS, SHORT_BYTES, mark_of
from drumlin.model import (
    PRIORITY_MAX,
    DeadLetter,
    FailureKind,
    HostState,
    Lease,
    NewURLs,
    Settled,
    Settlement,
    ShardStats,
    Task,
    TaskState,
)
from drumlin.urls import host_of, identity

SEEN_BITS = SHORT_BITS
"""Bits of a URL's hash that the seen-test keeps, the last ones: more would not fit exactly into a number in Lua. A new
URL is wrongly taken for a seen one, and so is lost, with a probability of (URLs of its host) / 2^52: one in 4.5 billion
for a host with a million URLs."""

ATTEMPT_BITS = 23
"""Bits of hash that tell an attempt from other attempts of its task; they are mistaken once in 8 million."""

_SEEN_MASK = (1 << SEEN_BITS) - 1
_ATTEMPT_MASK = (1 << ATTEMPT_BITS) - 1
_TASK_MASK = 255
_HISTORY = struct.Struct(">HHdIH")
_PACE = struct.Struct(">dd")
_HOST = struct.Struct(">dd5s5s5sQ2s")
_TOTAL_BYTES = 6
_RUN_FIELDS = 4
_SETTLED_CODES = {TaskState.DONE: 0, TaskState.SCHEDULED: 1, TaskState.DEAD: 2}
_PUT_OFF, _TO_BE_REFUSED = 3, 4
"""The code of a task that is scheduled without an attempt."""
_NO_PAGE = -1
_BACKOFF_CODES = {None: 0, False: 1, True: 2}

_id_of, _priority_of = attrgetter("id"), attrgetter("priority")

encode = msgspec.msgpack.Encoder().encode
_decode_rest = msgspec.msgpack.Decoder(tuple[int, float, str, tuple[str, ...]]).decode


_STRING_HEADS = [bytes((0xA0 | size,)) if size < 32 else bytes((0xD9, size)) for size in range(1 << 8)]


def as_string(value: bytes) -> msgspec.Raw:
    """Bytes as a MessagePack string."""
    size = len(value)
    if size < 1 << 8:
        return msgspec.Raw(_STRING_HEADS[size] + value)
    if size < 1 << 16:
        return msgspec.Raw(b"\xda" + size.to_bytes(2, "big") + value)
    return msgspec.Raw(b"\xdb" + size.to_bytes(4, "big") + value)


_NO_ATTEMPT = as_string(b"")


def short_url(url: str, host: str) -> str:
    """The URL without what its host already says."""
    if url.startswith("https://" + host):
        return "s" + url[8 + len(host) :]
    if url.startswith("http://" + host):
        return "h" + url[7 + len(host) :]
    return "=" + url


def long_url(short: str, host: str) -> str:
    """The inverse of `short_url`."""
    if short[:1] == "s":
        return f"https://{host}{short[1:]}"
    return f"http://{host}{short[1:]}" if short[:1] == "h" else short[1:]


def seen_mark(url: str) -> str:
    """What the seen-test keeps of a URL."""
    return number_of(mark_of(url))


def number_of(mark: bytes) -> str:
    """The same, from a URL's mark, whole or short."""
    return str(int.from_bytes(mark[-SHORT_BYTES:], "big") & _SEEN_MASK)


def mark_from(number: bytes) -> bytes:
    """The short mark that the seen-test keeps as this number."""
    return int(number).to_bytes(SHORT_BYTES, "big")


def attempt_mark(task_id: int, mark: bytes, attempt_id: bytes) -> int:
    """What is kept of the attempt that settled a URL with this (whole) mark."""
    return (task_id & _TASK_MASK) << ATTEMPT_BITS | xxh3_64_intdigest(attempt_id + mark) & _ATTEMPT_MASK


# Adding


def write_urls(found: Sequence[NewURLs], now: float, host_urls_max: int | None) -> bytes:
    """URLs as `add` of `lua/adding.lua` takes them, grouped by host. The URLs of one `NewURLs` form a run, because
    their records differ in id and URL only."""
    groups: dict[str, tuple[list[str], list[str], list[int | msgspec.Raw]]] = {}
    place = 1  # Lua counts from 1.
    for new in found:
        offered, host = new.urls, new.host
        if not offered:
            continue
        group = groups.get(host)
        if group is None:
            group = groups[host] = ([], [], [])
        marks, urls, runs = group
        rest = encode((new.depth, now, short_url(new.found_on, host), new.redirects))
        runs += (len(urls) + 1, place, new.priority, as_string(rest))
        secure = "https://" + host
        cut = len(secure)
        # One loop, without functions: it sees ten links for each page, and is a tenth of a coordinator's work.
        for url in offered:
            urls.append("s" + url[cut:] if url.startswith(secure) else short_url(url, host))
            page = identity(url) if "?" in url or "%" in url or ";" in url else url
            marks.append(str(xxh3_128_intdigest(page.encode()) & _SEEN_MASK))
        place += len(offered)
    written: list[Any] = [now, False if host_urls_max is None else host_urls_max, place - 1, len(groups), *groups]
    for marks, urls, runs in groups.values():
        written += (len(urls), len(runs) // _RUN_FIELDS)
        written += marks
        written += urls
        written += runs
    return encode(written)


# Settling


def write_settlements(settlements: Sequence[Settlement], now: float) -> bytes:
    """Settlements as `settle` of `lua/settling.lua` takes them; the name of each counter is written once."""
    numbers: dict[str, int] = {}
    parts = [_written_settlement(settlement, numbers) for settlement in settlements]
    return encode((now, list(numbers), parts))


def _written_settlement(settlement: Settlement, numbers: dict[str, int]) -> tuple[Any, ...]:
    return (
        settlement.host,
        settlement.lease_id,
        settlement.release,
        settlement.next_contact,
        False if settlement.delay_s is None else settlement.delay_s,
        False if settlement.note is None else as_string(settlement.note),
        [_written_settled(settled, settlement.host, numbers) for settled in settlement.settled],
        _BACKOFF_CODES[settlement.in_backoff],
        False if settlement.slow_s is None else settlement.slow_s,
    )


def _written_settled(settled: Settled, host: str, numbers: dict[str, int]) -> tuple[Any, ...]:
    counts: list[int] = []
    for name, value in settled.counts.items():
        # Lua counts from 1.
        counts += (numbers.setdefault(name, len(numbers) + 1), value)
    task_id, url, size = settled.task_id, settled.url, settled.size
    attempt_id, mark = _NO_ATTEMPT, 0
    if settled.attempt_id:
        attempt_id = as_string(settled.attempt_id)
        mark = attempt_mark(task_id, mark_of(url), settled.attempt_id)
    code = _SETTLED_CODES[settled.state] if settled.attempted or not settled.put_off else _PUT_OFF
    if settled.refused:
        code = _TO_BE_REFUSED
    written = (task_id, short_url(url, host), attempt_id, mark, code, _NO_PAGE if size is None else size, counts)
    if code in (_SETTLED_CODES[TaskState.DONE], _TO_BE_REFUSED):
        return written
    died = (settled.cause_of_death, settled.error) if settled.state is TaskState.DEAD else ()
    return (*written, settled.retry_at, *died)


def write_previews_held(settlements: Sequence[Settlement]) -> bytes:
    """Settlements as `preview_held` of `lua/settling.lua` takes them."""
    written: list[Any] = [len(settlements)]
    for one in settlements:
        host, secure = one.host, "https://" + one.host
        cut = len(secure)
        written += (host, one.lease_id, len(one.settled))
        for settled in one.settled:
            url = settled.url
            written += (settled.task_id, "s" + url[cut:] if url.startswith(secure) else short_url(url, host))
    return encode(written)


def write_previews(settlements: Sequence[Settlement]) -> bytes:
    """Settlements as `preview` of `lua/settling.lua` takes them: only the fields that decide the verdict."""
    written: list[Any] = [len(settlements)]
    for one in settlements:
        host = one.host
        written += (host, one.lease_id, len(one.settled))
        for settled in one.settled:
            attempt_id = settled.attempt_id
            mark = attempt_mark(settled.task_id, mark_of(settled.url), attempt_id) if attempt_id else 0
            written += (settled.task_id, short_url(settled.url, host), as_string(attempt_id), mark)
    return encode(written)


# Reading


class Record(msgspec.Struct, frozen=True, gc=False):
    """A task as it is stored, with what its failures left behind."""

    task: Task
    first_failed: float
    attempt_id: bytes


def read_record(raw: bytes, host: str) -> Record:
    """Decode a task's record; `host` is the task's host."""
    attempts, crashes, first_failed, attempt_id, position = 0, 0, 0.0, b"", 7
    if raw[6] & 1:
        attempts, crashes, first_failed, _, size = _HISTORY.unpack_from(raw, 7)
        position = 7 + _HISTORY.size + size
        attempt_id = raw[position - size : position]
    end = position + 2 + int.from_bytes(raw[position : position + 2], "big")
    depth, added, found_on, redirects = _decode_rest(raw[end:])
    task = Task(
        int.from_bytes(raw[:6], "big"),
        long_url(raw[position + 2 : end].decode(), host),
        raw[6] >> 1,
        depth,
        attempts,
        long_url(found_on, host),
        redirects,
        crashes,
        added,
    )
    return Record(task, first_failed, attempt_id)


def write_record(task: Task, host: str, first_failed: float, attempt: int, attempt_id: bytes) -> bytes:
    """The inverse of `read_record`; `attempt` is the mark of the attempt."""
    tried = bool(task.attempts or task.crashes or first_failed or attempt_id)
    history = b""
    if tried:
        size = len(attempt_id)
        history = _HISTORY.pack(task.attempts, task.crashes, first_failed, attempt, size) + attempt_id
    url = short_url(task.url, host).encode()
    rest = encode((task.depth, task.added, short_url(task.found_on, host), task.redirects))
    begin = task.id.to_bytes(6, "big") + bytes((2 * task.priority + tried,))
    return begin + history + len(url).to_bytes(2, "big") + url + rest


def task_id_of(raw: bytes) -> int:
    """The id of a task, from its record."""
    return int.from_bytes(raw[:6], "big")


def read_pace(raw: bytes) -> tuple[float, float | None]:
    """A host's next contact, and its delay if it has one of its own."""
    next_contact, delay_s = _PACE.unpack(raw)
    return next_contact, None if delay_s < 0 else delay_s


def read_letter(fields: Sequence[bytes]) -> DeadLetter:
    host, kind, error, last_failed, raw = fields
    name = host.decode()
    record = read_record(raw, name)
    task = record.task
    return DeadLetter(
        task.url,
        name,
        FailureKind(kind.decode()),
        task.attempts,
        error.decode(),
        record.first_failed,
        float(last_failed),
        task.found_on,
        task,
    )


class HostNumbers(msgspec.Struct, frozen=True, gc=False):
    """What Redis has of a host under its name. `priorities` are those in which something may be queued, highest
    first."""

    next_contact: float
    delay_s: float | None
    urls: int
    pages: int
    bytes: int
    priorities: list[int]


def read_numbers(raw: bytes) -> HostNumbers:
    """Decode the numbers of a host."""
    next_contact, delay_s, urls, _, pages, size, flags = _HOST.unpack(raw)
    queued = [priority for priority in range(PRIORITY_MAX, -1, -1) if int.from_bytes(flags, "big") >> priority & 1]
    return HostNumbers(
        next_contact,
        None if delay_s < 0 else delay_s,
        int.from_bytes(urls, "big"),
        int.from_bytes(pages, "big"),
        size,
        queued,
    )


def read_host(fields: Sequence[bytes]) -> HostState:
    """Decode a host: name, numbers, note, whether it is in back-off, and, if it is leased, its lease's id, node and
    deadline."""
    name, raw, note, in_backoff, *lease = fields
    next_contact, delay_s, urls, queued, pages, size, _ = _HOST.unpack(raw)
    lease_id, node, deadline = lease or (b"", b"", b"0")
    return HostState(
        name.decode(),
        next_contact,
        None if delay_s < 0 else delay_s,
        int.from_bytes(queued, "big"),
        int.from_bytes(urls, "big"),
        int.from_bytes(pages, "big"),
        size,
        lease_id.decode(),
        node.decode(),
        float(deadline),
        note,
        bool(in_backoff),
    )


def read_totals(raw: bytes) -> list[int]:
    """How many tasks are scheduled, leased, done and dead."""
    return [int.from_bytes(raw[at : at + _TOTAL_BYTES], "big") for at in range(0, 4 * _TOTAL_BYTES, _TOTAL_BYTES)]


def read_stats(reply: Sequence[Any]) -> ShardStats:
    """Decode the answer of `stats`."""
    accepted, totals, ready, listed, leased, *events, in_backoff, counters = reply
    scheduled, tasks_leased, done, dead = read_totals(totals)
    pairs = zip(counters[::2], counters[1::2], strict=True)
    return ShardStats(
        queued=int(accepted) - scheduled - tasks_leased - done - dead,
        scheduled=scheduled,
        leased=tasks_leased,
        done=done,
        dead=dead,
        hosts_ready=ready,
        hosts_waiting=listed - ready,
        hosts_leased=leased,
        next_event=min(map(float, events)),
        counters={name.decode(): int(value) for name, value in pairs},
        hosts_in_backoff=in_backoff,
    )


def read_lease(shard: int, fields: Sequence[Any], node: str, now: float) -> Lease:
    """A lease as it is given out, its tasks in their order."""
    name, lease_id, pace, note, raw_tasks, deadline, *_ = fields
    host = name.decode()
    next_contact, delay_s = read_pace(pace)
    tasks = [read_record(raw, host).task for raw in raw_tasks]
    # Sorting is stable, so tasks of one priority stay in the order of their ids.
    tasks.sort(key=_id_of)
    tasks.sort(key=_priority_of, reverse=True)
    return Lease(shard, host, lease_id.decode(), node, float(deadline), max(now, next_contact), delay_s, tasks, note)


def hosts_and_shorts(urls: Sequence[str]) -> list[tuple[str, str]]:
    """Each URL as host and short form, which is how dead letters are looked up."""
    return [(host_of(url), short_url(url, host_of(url))) for url in urls]
