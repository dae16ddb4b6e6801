"""Calls of the engine that concern several shards, taken apart: what each server is asked, and what its part answers.

The engine promises that a call happens completely or not at all in each shard, and nothing across shards. So a call
may be done on one server and not on another: because that one fails over, cannot be reached, or because the coordinator
is killed while its requests are on their way. One answer is made of the parts only if all of them were done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from drumlin.engines.memory.engine import MemoryEngine

Server = int
Arguments = tuple[Any, ...]


class Spread(NamedTuple):
    """How a call is taken apart. `parted` gives each server its part of the arguments, `joined` makes one answer of the
    parts' answers. `done`, where there is one, does a part that names its shards instead of what is asked of them."""

    parted: Callable[[Places, Arguments], dict[Server, Arguments]]
    joined: Callable[[Places, Arguments, Mapping[Server, Any]], Any]
    done: Callable[..., Any] | None = None


class Places:
    """Which server has which shard, host or domain."""

    def __init__(self, memory: MemoryEngine, servers: int) -> None:
        self.memory = memory
        self._servers = servers
        self._shards = {server: range(server, memory.shard_count, servers) for server in range(servers)}

    def of_shard(self, shard: int) -> Server:
        return shard % self._servers

    def of_name(self, name: str) -> Server:
        return self.of_shard(self.memory.shard_of(name))

    def all_shards(self) -> dict[Server, range]:
        return self._shards


# A mapping of shards to what is asked of them


def _shards_parted(places: Places, arguments: Arguments) -> dict[Server, Arguments]:
    batches, *rest = arguments
    parts: dict[Server, dict[int, Any]] = {}
    for shard, batch in batches.items():
        parts.setdefault(places.of_shard(shard), {})[shard] = batch
    return {server: (part, *rest) for server, part in parts.items()}


def _shards_joined(places: Places, arguments: Arguments, answers: Mapping[Server, Any]) -> Any:
    return {shard: answers[places.of_shard(shard)][shard] for shard in arguments[0]}


# A list of things, each of which belongs to a server, and a list of as many answers


def _listed(server_of: Callable[[Places, Any], Server]) -> Spread:
    def parted(places: Places, arguments: Arguments) -> dict[Server, Arguments]:
        things, *rest = arguments
        parts: dict[Server, list[Any]] = {}
        for thing in things:
            parts.setdefault(server_of(places, thing), []).append(thing)
        return {server: (part, *rest) for server, part in parts.items()}

    def joined(places: Places, arguments: Arguments, answers: Mapping[Server, Any]) -> Any:
        told = {server: iter(answer) for server, answer in answers.items()}
        return [next(told[server_of(places, thing)]) for thing in arguments[0]]

    return Spread(parted, joined)


# All shards


def _everywhere(places: Places, arguments: Arguments) -> dict[Server, Arguments]:
    return {server: (*arguments, shards) for server, shards in places.all_shards().items()}


async def _expire(memory: MemoryEngine, now: float, shards: Sequence[int]) -> list[str]:
    return [host for shard in shards for host in await memory.expire(shard, now)]


async def _release_nodes(memory: MemoryEngine, nodes: Sequence[str], now: float, shards: Sequence[int]) -> int:
    return sum([await memory.release_node(shard, node, now) for shard in shards for node in nodes])


def _hosts_joined(places: Places, arguments: Arguments, answers: Mapping[Server, list[str]]) -> list[str]:
    return [host for answer in answers.values() for host in answer]


def _counts_joined(places: Places, arguments: Arguments, answers: Mapping[Server, int]) -> int:
    return sum(answers.values())


_BY_SHARD = Spread(_shards_parted, _shards_joined)
_BY_DOMAIN = _listed(lambda places, content: places.of_name(content.domain))


def _nothing_joined(places: Places, arguments: Arguments, answers: Mapping[Server, None]) -> None:
    return None


SPREAD: dict[str, Spread] = {
    "add_all": _BY_SHARD,
    "settle_all": _BY_SHARD,
    "preview_all": _BY_SHARD,
    "extend_all": _listed(lambda places, renewal: places.of_shard(renewal.shard)),
    "expire_all": Spread(_everywhere, _hosts_joined, _expire),
    "release_nodes": Spread(_everywhere, _counts_joined, _release_nodes),
    "contents.known": _listed(lambda places, asked: places.of_name(asked[0])),
    "contents.record": _BY_DOMAIN,
    "contents.adopt": Spread(_BY_DOMAIN.parted, _nothing_joined),
}
