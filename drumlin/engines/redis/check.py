"""Checks whether a frontier on Redis can be written just now, and if not, why; and whether it has lost data.

A check writes to every master that has shards. A read would not be enough: a server whose memory or disk is full, or
that became a replica, still answers reads. The write raises a counter, shared by all coordinators. If the counter is
not above the value that this process saw before, the server was emptied or came back with older data.
"""

from __future__ import annotations

import asyncio
from typing import Any

from drumlin.engines.redis.address import RedisAddress, Server
from drumlin.engines.redis.client import RedisClient
from drumlin.engines.redis.commands import Command, packed
from drumlin.engines.redis.topology import slot_of
from drumlin.errors import Cause, EngineError

REPEATED_SHARE = 0.5
"""Share of the time limit during which a check repeats commands that fail with a passing error. The rest is left for
finding out which cause to report."""
SURE_S_MAX = 2.0
READ_S = 0.05
"""After the time limit, how long to read what has arrived meanwhile before a server counts as silent: our own process
may have been too busy to read it."""


class Looks:
    """The checks that this process makes, and the counters that it saw. `root` is a key that exists as long as the
    frontier does; `tags` are the hash tags of all shards."""

    def __init__(self, client: RedisClient, address: RedisAddress, root: str, tags: list[str]) -> None:
        self._client = client
        self._address = address
        self._root = Command(slot_of(address.namespace), packed("EXISTS", root))
        self._tags = tags
        self._counts: dict[str, int] = {}
        self._connects = client.connects
        self._lost: EngineError | None = None
        self._told = False

    async def check(self, within_s: float) -> None:
        """Write to one shard of each master. An `EngineError` names the cause when that is not done within `within_s`,
        or when data is gone. After a loss, `be_sure` raises as well until the next call of `check`."""
        if self._told:
            self._lost, self._told = None, False
        await self._look(within_s)
        if self._lost is not None:
            self._told = True
            raise self._lost

    async def be_sure(self) -> None:
        """Raise if the leases just given may come from a server that came back and has forgotten earlier leases, which
        would let two nodes hold one host. Only a server to which a connection was made since the last look can be such
        a one, so mostly there is nothing to do."""
        if self._lost is None and self._connects != self._client.connects:
            await self._look(SURE_S_MAX)
        if self._lost is not None:
            raise self._lost

    async def _look(self, within_s: float) -> None:
        connects = self._client.connects
        counted, before = _counted(self._client, self._tags), dict(self._counts)
        commands = [self._root, *(_count(tag) for tag in counted.values())]
        replies = await _run_within(self._client, self._address, list(counted), commands, within_s)
        if replies:
            there, *counts = replies
            self._counts.update(zip(counted.values(), map(int, counts), strict=True))
            older = any(self._counts[tag] <= before[tag] for tag in counted.values() if tag in before)
            self._lost = self._lost or self._loss(bool(there), older)
            self._connects = connects

    def _loss(self, there: bool, older: bool) -> EngineError | None:
        if not there:
            hint = (
                "Restore its data and the crawl goes on; or start all coordinators again with the seeds to begin anew."
            )
            return EngineError(f"{self._address} has lost the whole crawl.", hint, code=Cause.LOST)
        if older:
            hint = "Look at how its data is kept (`appendonly yes`); what it has lost is fetched again."
            return EngineError(f"{self._address} has lost some of what it had acknowledged.", hint, code=Cause.LOST)
        return None


async def _run_within(
    client: RedisClient, address: RedisAddress, servers: list[Server], commands: list[Command], within_s: float
) -> list[Any]:
    """The replies; an empty list when a server is too busy with other calls to answer in time."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    try:
        async with asyncio.timeout(within_s):
            return await client.run(commands, patience_s=within_s * REPEATED_SHARE)
    except TimeoutError:
        await asyncio.sleep(READ_S)
        for server in servers:
            _raise_if_silent(client, address, server, began, within_s)
        return []


def _counted(client: RedisClient, tags: list[str]) -> dict[Server, str]:
    """For each master, the tag of the shard that keeps its counter."""
    counted: dict[Server, str] = {}
    for tag in tags:
        counted.setdefault(client.master_of(slot_of(tag[1:-1])), tag)
    return counted


def _count(tag: str) -> Command:
    return Command(slot_of(tag[1:-1]), packed("INCR", tag + "%"), tag)


def _raise_if_silent(client: RedisClient, address: RedisAddress, server: Server, began: float, within_s: float) -> None:
    """Raise if nothing at all came from the server. One that answers other calls is only busy: ours waits in line."""
    connection = client.connection_to(server)
    if connection is None:
        hint = "Check that it runs and that the network lets us through."
        raise EngineError(f"{address} cannot be reached: {server} takes no connection.", hint, code=Cause.UNREACHABLE)
    if connection.heard_at < began:
        hint = "It is frozen, cut off, or busy with one long command."
        raise EngineError(
            f"{address} does not answer: {server} has said nothing for {within_s:g} s.", hint, code=Cause.SILENT
        )
