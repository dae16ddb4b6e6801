"""The engine on Redis or Valkey, single or clustered, shared by many coordinators.

Every call on a shard runs one function of the folder `lua` on the server that has the shard's slot, and so is atomic;
calls on several shards travel at once. Any number of engines in any number of processes may share one namespace.

Durability is Redis's: with `appendonly yes`, what was acknowledged survives kill -9; with `replicas`, it has also
reached so many replicas and survives the loss of a master. Calls are repeated through failovers and while slots move,
so each is safe to repeat: a URL is accepted once, an attempt settles once, and a repeated lease or extension gets the
same answer as the first time. A repeated call may answer `SEEN` or `REPEATED` about what it did itself.

It differs from the contract in three points: the seen-test keeps 52 bits of hash (`records.SEEN_BITS`), the story of a
done URL has no attempt's id, and after two weeks a repeated settlement is `STALE` instead of `REPEATED`.

Needs Redis 7.0 or any Valkey, with `maxmemory-policy noeviction`. Bytes of its memory, measured with two million URLs
of 68 characters: 84 per queued URL (20 with `list-compress-depth 1`, for 7 % more CPU; these URLs are much alike), 9.4
per seen URL, 5 per done URL for two weeks, 410 per host (128 of them to find it by name), 350 per page for finding
duplicates.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from heapq import nlargest, nsmallest
from itertools import count
from typing import Any

from xxhash import xxh3_64_intdigest

from drumlin.engines.base import EXPIRE_LIMIT, Added, shard_of
from drumlin.engines.kept import SHORT_BITS
from drumlin.engines.redis.address import RedisAddress, parse_address
from drumlin.engines.redis.check import Looks
from drumlin.engines.redis.client import PATIENCE_S, RedisClient
from drumlin.engines.redis.commands import Command, ShardCommands, load_library, packed
from drumlin.engines.redis.contents import RedisContents
from drumlin.engines.redis.founding import check_exists, found_frontier
from drumlin.engines.redis.records import (
    encode,
    hosts_and_shorts,
    read_host,
    read_lease,
    read_letter,
    read_record,
    read_stats,
    seen_mark,
    short_url,
    task_id_of,
    write_previews,
    write_previews_held,
    write_settlements,
    write_urls,
)
from drumlin.engines.redis.removing import RedisRemoving
from drumlin.engines.redis.topology import slot_of
from drumlin.errors import EngineError
from drumlin.model import (
    FailureKind,
    HostStanding,
    HostState,
    HostSummary,
    Lease,
    NewURLs,
    Preview,
    Renewal,
    Settlement,
    ShardStats,
    TaskState,
    TaskStory,
    Verdict,
    Visit,
)
from drumlin.urls import host_of, identity

SCAN_HOSTS = 1_000
FINDS_MAX = 3
"""How often to look for a URL that may move from one place to another during the search."""
# Spellings of one page are the same up to the first of these characters.
_SPELLED = re.compile("[%?;]")
_HIGHEST_PRIORITY = 9
_ADDED = {48: Added.ADDED, 49: Added.SEEN, 50: Added.CAPPED}
_LIVE, _UNDECIDED = ord("L"), b"?"
_VERDICTS = {
    ord("S"): Verdict.SETTLED,
    ord("R"): Verdict.REPEATED,
    ord("X"): Verdict.STALE,
    ord("O"): Verdict.OPEN,
}


async def open_redis(
    url: str, *, shard_count: int | None = None, patience_s: float = PATIENCE_S, founds: bool = True
) -> RedisEngine:
    """Open the frontier that `url` names (`drumlin.engines.redis.address`). If there is none it is founded; without
    `founds`, a `ConfigError` says so.

    `shard_count` is for a new frontier; None derives it from the number of masters. An existing frontier keeps its own.
    """
    address = parse_address(url)
    version, source = load_library()
    client = RedisClient(address, source, patience_s=patience_s)
    try:
        await client.open()
        if not founds:
            await check_exists(client, address)
        shards = await found_frontier(client, address, shard_count)
    except BaseException:
        await client.close()
        raise
    return RedisEngine(client, address, shards, version)


class RedisEngine(RedisRemoving):
    """See `drumlin.engines.base.Engine`, whose methods these are."""

    shared = True
    ids_of_hosts = True
    mark_bits = SHORT_BITS

    def __init__(self, client: RedisClient, address: RedisAddress, shard_count: int, version: str) -> None:
        self.shard_count = shard_count
        self.address = address
        self._client = client
        self._shards = ShardCommands(address.namespace, shard_count, version)
        self._root = f"{{{address.namespace}}}"
        self._root_slot = slot_of(address.namespace)
        self._looks = Looks(client, address, self._root, self._shards.tags)
        self.contents = RedisContents(self._record_contents, self._read_contents, address.contents)
        self._time = 0.0
        """The engine time that this process heard last, for calls that are not given `now`."""
        # Each call has a unique name, by which Redis recognises one that is sent again.
        engine_id = os.urandom(8).hex()
        self._calls = (f"{engine_id}.{number}" for number in count())

    def __repr__(self) -> str:
        return f"<RedisEngine {self.address}: {self.shard_count} shards>"

    def shard_of(self, host: str) -> int:
        return shard_of(host, self.shard_count)

    async def _call(self, name: str, shard: int, *arguments: bytes | str | float) -> Any:
        (reply,) = await self._client.run([self._shards.call(name, shard, *arguments)])
        return reply

    async def _call_everywhere(self, name: str, *arguments: bytes | str | float) -> list[Any]:
        shards = range(self.shard_count)
        return await self._client.run([self._shards.call(name, shard, *arguments) for shard in shards])

    # What is to be fetched

    async def add_all(
        self, batches: Mapping[int, Sequence[NewURLs]], now: float, *, host_urls_max: int | None = None
    ) -> dict[int, list[Added]]:
        shards = [shard for shard, found in batches.items() if any(new.urls for new in found)]
        written = [write_urls(batches[shard], now, host_urls_max) for shard in shards]
        commands = [self._shards.call("add", *call) for call in zip(shards, written, strict=True)]
        answers: dict[int, list[Added]] = {shard: [] for shard in batches}
        for shard, reply in zip(shards, await self._client.run(commands), strict=True):
            answers[shard] = list(map(_ADDED.__getitem__, reply))
        return answers

    async def lease(
        self,
        shard: int,
        node: str,
        request: str,
        now: float,
        *,
        until: float,
        hosts_max: int,
        urls_max: int,
        urls_per_host: int,
        horizon_s: float = 0.0,
        delay_default_s: float = 0.0,
        skip_hosts: Container[str] = (),
        only_hosts: Sequence[str] = (),
    ) -> list[Lease]:
        skipped = list(skip_hosts) if isinstance(skip_hosts, Iterable) else []
        limits = (hosts_max, urls_max, urls_per_host, horizon_s, delay_default_s)
        wanted = encode((node, request, now, until, *limits, skipped, sorted(set(only_hosts))))
        reply = await self._call("lease", shard, wanted)
        await self._looks.be_sure()
        return [read_lease(shard, fields, node, now) for fields in reply]

    async def visit(self, shard: int, visit: Visit, now: float) -> Lease | None:
        fields = await self._call("visit", shard, encode(visit))
        await self._looks.be_sure()
        return read_lease(shard, fields, visit.node, now) if fields else None

    async def forget(self, shard: int, hosts: Sequence[str], now: float) -> list[str]:
        return [name.decode() for name in await self._call("forget_hosts", shard, encode((list(hosts), now)))]

    async def extend_all(
        self, renewals: Sequence[Renewal], now: float, *, until: float, delay_default_s: float = 0.0
    ) -> list[Lease | None]:
        by_shard: dict[int, list[int]] = {}
        for place, renewal in enumerate(renewals):
            by_shard.setdefault(renewal.shard, []).append(place)
        commands = []
        for shard, places in by_shard.items():
            wanted = [(renewals[at].host, renewals[at].lease_id, max(renewals[at].urls_max, 0)) for at in places]
            message = encode((next(self._calls), now, until, wanted, delay_default_s))
            commands.append(self._shards.call("extend", shard, message))
        leases: list[Lease | None] = [None] * len(renewals)
        for (shard, places), reply in zip(by_shard.items(), await self._client.run(commands), strict=True):
            for place, fields in zip(places, reply, strict=True):
                leases[place] = read_lease(shard, fields, fields[6].decode(), now) if fields else None
        return leases

    # What became of it

    async def settle_all(
        self, batches: Mapping[int, Sequence[Settlement]], now: float
    ) -> dict[int, list[list[Verdict]]]:
        shards = [shard for shard, settlements in batches.items() if settlements]
        commands = [self._shards.call("settle", shard, write_settlements(batches[shard], now)) for shard in shards]
        verdicts: dict[int, list[list[Verdict]]] = {shard: [] for shard in batches}
        for shard, reply in zip(shards, await self._client.run(commands), strict=True):
            codes = iter(reply)
            # The reply has the codes of all settlements in a row: each settlement takes as many as it has parts.
            verdicts[shard] = [[_VERDICTS[next(codes)] for _ in one.settled] for one in batches[shard]]
        return verdicts

    async def preview_all(self, batches: Mapping[int, Sequence[Settlement]]) -> dict[int, list[Preview]]:
        """Try `preview_held` first: it costs a fraction, and decides nearly all batches. `preview` decides the rest."""
        shards = [shard for shard, settlements in batches.items() if settlements]
        first = await self._preview("preview_held", {shard: write_previews_held(batches[shard]) for shard in shards})
        odd = [shard for shard, codes in first.items() if _UNDECIDED in codes]
        codes = first | await self._preview("preview", {shard: write_previews(batches[shard]) for shard in odd})
        return {shard: _previews(codes.get(shard, b""), settlements) for shard, settlements in batches.items()}

    async def _preview(self, function: str, asked: Mapping[int, bytes]) -> dict[int, bytes]:
        commands = [self._shards.call(function, shard, written) for shard, written in asked.items()]
        return dict(zip(asked, await self._client.run(commands), strict=True)) if commands else {}

    async def expire_all(self, now: float, *, limit: int = EXPIRE_LIMIT) -> list[str]:
        ended: list[list[bytes]] = await self._call_everywhere("expire", now, limit)
        return [name.decode() for names in ended for name in names]

    async def release_nodes(self, nodes: Sequence[str], now: float) -> int:
        return sum(await self._call_everywhere("release_nodes", now, *nodes)) if nodes else 0

    async def strike(
        self, shard: int, url: str, now: float, *, limit: int, kind: FailureKind, error: str, counter: str = ""
    ) -> bool:
        host = host_of(url)
        what = (host, short_url(url, host), now, limit, kind, error, counter)
        answer = await self._call("strike", shard, encode((next(self._calls), *what)))
        for _ in range(FINDS_MAX):
            if answer >= 0:
                break
            found = await self._find(shard, host, [what[1]])
            if not found:
                return False
            task_id = task_id_of(found[what[1]])
            answer = await self._call("strike", shard, encode((next(self._calls), *what, task_id)))
        return bool(answer == 1)

    async def reprioritise(self, shard: int, changes: Sequence[tuple[str, int]]) -> int:
        by_host: dict[str, list[str]] = {}
        for url, _ in changes:
            host = host_of(url)
            by_host.setdefault(host, []).append(short_url(url, host))
        found = {host: await self._find(shard, host, urls) for host, urls in by_host.items()}
        wanted = []
        for url, priority in changes:
            host = host_of(url)
            short = short_url(url, host)
            if short in found[host]:
                wanted.append((host, short, task_id_of(found[host][short]), priority))
        changed: int = await self._call("reprioritise", shard, encode(wanted)) if wanted else 0
        return changed

    async def _find(self, shard: int, host: str, urls: Sequence[str], page: str = "") -> dict[str, bytes]:
        """Those of a host's `urls` that are queued, with their records; or, given the identity of a `page`, any queued
        spelling of it. The queue is read a slice at a time, so other calls on the server do not wait long."""
        found: dict[str, bytes] = {}
        wanted = set(urls)
        stem = _SPELLED.split(short_url(page, host), maxsplit=1)[0] if page else False
        priority, place = _HIGHEST_PRIORITY, 0
        while priority >= 0 and len(found) < max(1, len(wanted)):
            arguments = encode((host, priority, place, list(wanted), stem))
            priority, place, *tasks = await self._call("find", shard, arguments)
            for raw in tasks:
                url = read_record(raw, host).task.url
                if not page or identity(url) == page:
                    found[short_url(url, host)] = raw
        return found

    # What went wrong for good

    async def revive(self, shard: int, urls: Sequence[str], now: float, *, counter: str = "") -> int:
        revived: int = await self._call("revive", shard, encode((now, hosts_and_shorts(urls), counter)))
        return revived

    async def drop(self, shard: int, urls: Sequence[str], *, counter: str = "") -> int:
        dropped: int = await self._call("drop", shard, encode((hosts_and_shorts(urls), counter)))
        return dropped

    async def forget_done(self, shard: int, urls: Sequence[str]) -> int:
        stories = [(url, await self.story(shard, url)) for url in urls]
        done = [(host_of(url), str(seen_mark(url))) for url, one in stories if one and one.state is TaskState.DONE]
        forgotten: int = await self._call("forget_done", shard, encode(done)) if done else 0
        return forgotten

    # What is known

    async def story(self, shard: int, url: str) -> TaskStory | None:
        story = await self._story(shard, url)
        if story is None or story.task is not None:
            return story
        kept = await self._kept_spelling(shard, url)
        return await self._story(shard, kept) if kept else story

    async def _kept_spelling(self, shard: int, url: str) -> str:
        """The spelling under which a page that is not done is kept; empty when there is none."""
        host, page, tag = host_of(url), identity(url), self._shards.tags[shard]
        places = [self._shards.read(shard, "HGETALL", f"{tag}{place}{host}") for place in "lw"]
        held = [
            raw
            for fields in await self._client.run(places)
            for key, raw in zip(fields[::2], fields[1::2], strict=True)
            if key
        ]
        held += (await self._find(shard, host, [], page)).values()
        urls = [read_record(raw, host).task.url for raw in held]
        urls += [letter.url for letter in await self.dead_letters_all(host=host)]
        return next((one for one in urls if identity(one) == page), "")

    async def _story(self, shard: int, url: str) -> TaskStory | None:
        host = host_of(url)
        short = short_url(url, host)
        for _ in range(FINDS_MAX):
            state, *rest = await self._call("story", shard, host, short, seen_mark(url))
            if state == b"unknown":
                return None
            if state == b"dead":
                letter = read_letter(rest[0])
                attempt_id = read_record(rest[0][-1], host).attempt_id
                return TaskStory(TaskState.DEAD, letter.task, 0.0, attempt_id, letter)
            if rest:
                record, retry_at = read_record(rest[0], host), float(rest[1]) if rest[1:] else 0.0
                return TaskStory(TaskState(state.decode()), record.task, retry_at, record.attempt_id)
            found = await self._find(shard, host, [short])
            if found:
                record = read_record(found[short], host)
                return TaskStory(TaskState.QUEUED, record.task, 0.0, record.attempt_id)
            # Look again: it may have moved from one place to another between the reads.
        return TaskStory(TaskState.DONE, None)

    async def host_note(self, shard: int, host: str) -> bytes:
        (note,) = await self._client.run([self._shards.read(shard, "HGET", self._shards.tags[shard] + "o", host)])
        return note or b""

    async def host_state(self, shard: int, host: str) -> HostState | None:
        fields = await self._call("host_state", shard, host)
        state = read_host(fields) if fields else None
        return state if state and state.urls else None

    async def hosts(self, shard: int, standing: HostStanding, now: float, *, limit: int) -> list[HostState]:
        return [read_host(fields) for fields in await self._call("hosts", shard, standing.value, now, limit)]

    async def set_delay(self, shard: int, host: str, delay_s: float | None) -> None:
        await self._call("set_delay", shard, host, -1 if delay_s is None else delay_s)

    async def hurry(self, shard: int, now: float, *, delay_default_s: float = 0.0) -> int:
        return int(await self._call("hurry", shard, now, delay_default_s))

    async def stats_all(self, now: float) -> list[ShardStats]:
        return [read_stats(reply) for reply in await self._call_everywhere("stats", now)]

    async def count(self, shard: int, counts: dict[str, int]) -> None:
        flat = [part for pair in counts.items() for part in pair]
        await self._call("count", shard, encode((next(self._calls), self._time, flat)))

    async def top_hosts(self, shard: int, n: int) -> list[HostSummary]:
        top: dict[str, HostSummary] = {}
        cursor = b"0"
        while True:
            scan = ("HSCAN", self._shards.tags[shard] + "h", cursor, "COUNT", SCAN_HOSTS)
            ((cursor, fields),) = await self._client.run([self._shards.read(shard, *scan)])
            states = [read_host((name, raw, b"", b"")) for name, raw in zip(fields[::2], fields[1::2], strict=True)]
            # A scan may name a host twice.
            top |= {one.host: HostSummary(one.host, one.pages, one.bytes, one.queued) for one in states if one.urls}
            best = nsmallest(n, top.values(), key=lambda one: (-one.pages, -one.queued, one.host))
            if cursor == b"0":
                return best
            top = {one.host: one for one in best}

    async def check(self, within_s: float) -> None:
        await self._looks.check(within_s)

    # Small tables that all coordinators share

    async def _at_root(self, *words: bytes | str, writes: bool = False) -> Any:
        command = Command(self._root_slot, packed(*words), self._root if writes else "")
        (reply,) = await self._client.run([command])
        return reply

    async def get_meta(self, key: str) -> bytes | None:
        value: bytes | None = await self._at_root("HGET", self._root + "meta", key)
        return value

    async def put_meta(self, key: str, value: bytes) -> None:
        await self._at_root("HSET", self._root + "meta", key, value, writes=True)

    async def put_meta_if_absent(self, key: str, value: bytes) -> bytes:
        # Not sent together: while a slot is moving, the read could overtake the write.
        await self._at_root("HSETNX", self._root + "meta", key, value, writes=True)
        known = await self.get_meta(key)
        return value if known is None else known

    async def put_entries(self, table: str, entries: Mapping[str, bytes]) -> None:
        if entries:
            flat = [part for pair in entries.items() for part in pair]
            await self._at_root("HSET", f"{self._root}table:{table}", *flat, writes=True)

    async def get_entries(self, table: str) -> dict[str, bytes]:
        flat = await self._at_root("HGETALL", f"{self._root}table:{table}")
        entries = {key.decode(): value for key, value in zip(flat[::2], flat[1::2], strict=True)}
        return dict(sorted(entries.items()))

    async def last_entries(self, table: str, *, limit: int, before: str = "") -> dict[str, bytes]:
        keys = [key.decode() for key in await self._at_root("HKEYS", f"{self._root}table:{table}")]
        wanted = nlargest(limit, (key for key in keys if not before or key < before))
        values = await self._at_root("HMGET", f"{self._root}table:{table}", *wanted) if wanted else []
        return {key: value for key, value in zip(wanted, values, strict=True) if value is not None}

    async def get_entry(self, table: str, key: str) -> bytes | None:
        value: bytes | None = await self._at_root("HGET", f"{self._root}table:{table}", key)
        return value

    async def delete_entries(self, table: str, keys: Sequence[str]) -> None:
        if keys:
            await self._at_root("HDEL", f"{self._root}table:{table}", *keys, writes=True)

    async def claim(self, name: str, holder: str, now: float, *, until: float) -> bool:
        # Claims are spread over all shards, because every batch of results makes one to be safe from replays.
        shard = xxh3_64_intdigest(name.encode()) % self.shard_count
        return bool(await self._call("claim", shard, name, holder, now, until))

    async def keep_time(self, mine: float) -> float:
        # No replica has to confirm this: it is sent several times a second, and sent again after a failover.
        (kept,) = await self._client.run([Command(self._root_slot, self._shards.keep_time(self._root + "time", mine))])
        self._time = float(kept)
        return self._time

    # Contents

    async def _record_contents(self, calls: Sequence[tuple[str, str, bytes]]) -> list[Any]:
        commands = [self._shards.call(name, self.shard_of(domain), written) for name, domain, written in calls]
        return await self._client.run(commands)

    async def _read_contents(
        self, wanted: Sequence[tuple[str, Sequence[bytes], int | None]]
    ) -> list[tuple[list[bytes | None], bytes]]:
        commands = []
        for domain, digests, begin in wanted:
            shard = self.shard_of(domain)
            tag = self._shards.tags[shard]
            commands.append(self._shards.read(shard, "HMGET", f"{tag}e{domain}", *digests))
            if begin is not None:
                commands.append(self._shards.read(shard, "GETRANGE", f"{tag}i{domain}", begin, -1))
        replies = iter(await self._client.run(commands))
        return [(next(replies), b"" if begin is None else next(replies)) for _, _, begin in wanted]

    # The engine itself

    async def snapshot(self, name: str) -> str:
        raise EngineError(
            "A crawl on Redis has no checkpoints.",
            "Use Redis's own backups of every master, or stop the coordinators and use `drumlin frontier export`.",
        )

    async def close(self) -> None:
        await self._client.close()


def _previews(codes: bytes, settlements: Sequence[Settlement]) -> list[Preview]:
    """Read codes that stand in a row: each settlement has one for its lease and one for each of its parts."""
    turns = iter(codes)
    return [Preview(next(turns) == _LIVE, [_VERDICTS[next(turns)] for _ in one.settled]) for one in settlements]
