"""The lists of the redis engine that go over all shards: hosts by name, dead letters and groups of them by place.

Names and places are compared as bytes, in Redis as here. `lua/layout.lua` explains the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from drumlin.engines.base import DEAD_LETTERS_LIMIT
from drumlin.engines.paging import KINDS_IN_ORDER, page_of
from drumlin.engines.redis.client import RedisClient
from drumlin.engines.redis.commands import ShardCommands
from drumlin.engines.redis.records import read_host, read_letter
from drumlin.model import DeadGroup, DeadLetter, FailureKind, GroupPlace, HostState, LetterPlace

AFTER_ALL = b"\xff"
"""Stands behind everything in UTF-8."""
TASK_ID_BYTES = 6


def host_range(prefix: str, after: str) -> tuple[bytes, bytes]:
    """The names that begin with `prefix` and come after `after`, as ZRANGEBYLEX takes it."""
    begin, passed = prefix.encode(), after.encode()
    return b"(" + passed if passed >= begin else b"[" + begin, b"(" + begin + AFTER_ALL


def letter_ranges(kind: FailureKind | None, host: str, after: LetterPlace | None) -> list[tuple[bytes, bytes]]:
    """The dead letters of a kind or of all, of a host or of all, after a place: the parts of a shard's list."""
    if kind is None and not host:
        begins = [b""]
    else:
        kinds = KINDS_IN_ORDER if kind is None else [kind]
        begins = [(f"{one}\0{host}\0" if host else f"{one}\0").encode() for one in kinds]
    # In a member of the list the URL follows the id. What comes after a place must come after any URL that may follow.
    passed = _place_key(after) + AFTER_ALL if after is not None else b""
    return [(b"(" + passed if passed > begin else b"[" + begin, b"(" + begin + AFTER_ALL) for begin in begins]


def _place_key(place: LetterPlace) -> bytes:
    kind, host, task_id = place
    return f"{kind}\0{host}\0".encode() + task_id.to_bytes(TASK_ID_BYTES, "big")


def group_starts(kinds: Sequence[FailureKind], after: GroupPlace | None) -> list[int | str | bytes]:
    """Each kind with where its groups begin after a place, as `dead_groups` of `lua/letters.lua` takes it."""
    starts: list[int | str | bytes] = []
    for kind in kinds:
        score, passed, host = after or ("", "", "")
        # Of groups as large as that one, those of an earlier kind were told, and those of a later one were not.
        starts += (str(kind), score, host if kind == passed else AFTER_ALL if kind < passed else "")
    return starts


def read_group(fields: tuple[bytes, bytes, int]) -> DeadGroup:
    """Decode a group as `dead_groups` tells it."""
    kind, host, score = fields
    return DeadGroup(FailureKind(kind.decode()), host.decode(), -score)


class RedisLists:
    """These calls of `drumlin.engines.base.Engine`, for the engine to inherit."""

    shard_count: int
    _client: RedisClient
    _shards: ShardCommands

    def shard_of(self, host: str) -> int:
        raise NotImplementedError

    async def find_hosts_all(self, prefix: str, *, after: str = "", limit: int) -> list[HostState]:
        async def ask(place: str | None, size: int) -> list[list[str]]:
            between = host_range(prefix, place or "")
            reads = [
                self._shards.read(shard, "ZRANGEBYLEX", tag + "m", *between, "LIMIT", 0, size)
                for shard, tag in enumerate(self._shards.tags)
            ]
            return [[name.decode() for name in reply] for reply in await self._client.run(reads)]

        found: list[HostState] = []
        while True:
            wanted = limit - len(found)
            names = await page_of(ask, str, after, limit=wanted, parts=self.shard_count)
            calls = [self._shards.call("host_state", self.shard_of(name), name) for name in names]
            # A name may be left of a host that is gone. A page must not be shorter for that: it would seem the last.
            found += [read_host(fields) for fields in await self._client.run(calls) if fields]
            if len(names) < wanted or len(found) == limit:
                return found
            after = names[-1]

    async def dead_letters_all(
        self,
        *,
        kind: FailureKind | None = None,
        host: str = "",
        after: LetterPlace | None = None,
        limit: int = DEAD_LETTERS_LIMIT,
    ) -> list[DeadLetter]:
        shards = [self.shard_of(host)] if host else range(self.shard_count)

        async def ask(place: LetterPlace | None, size: int) -> list[list[DeadLetter]]:
            ranges = letter_ranges(kind, host, place)
            calls = [self._shards.call("dead_letters", shard, *one, size) for shard in shards for one in ranges]
            return [list(map(read_letter, reply)) for reply in await self._client.run(calls)]

        return await page_of(ask, lambda one: one.place, after, limit=limit, parts=len(shards))

    async def dead_groups_all(
        self, *, kind: FailureKind | None = None, after: GroupPlace | None = None, limit: int = DEAD_LETTERS_LIMIT
    ) -> list[DeadGroup]:
        kinds = KINDS_IN_ORDER if kind is None else [kind]

        async def ask(place: GroupPlace | None, size: int) -> list[list[DeadGroup]]:
            asked = (size, *group_starts(kinds, place))
            calls = [self._shards.call("dead_groups", shard, *asked) for shard in range(self.shard_count)]
            return [list(map(read_group, reply)) for reply in await self._client.run(calls)]

        return await page_of(ask, lambda one: one.place, after, limit=limit, parts=self.shard_count)
