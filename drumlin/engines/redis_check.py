"""Whether a frontier on Redis can be written just now, and if not, why; and whether it still has what it acknowledged.

A small write goes to every master that has shards. Reading would not do: a server whose memory or disk is full, or that
became a replica, still answers reads. The write counts the looks of all coordinators. A count that is not above the one
before means that the server was emptied, or came back with older data.
"""

from __future__ import annotations

import asyncio
from typing import Any

from drumlin.engines.redis_address import RedisAddress, Server
from drumlin.engines.redis_client import RedisClient
from drumlin.engines.redis_commands import Command, packed
from drumlin.engines.redis_topology import slot_of
from drumlin.errors import Cause, EngineError

REPEATED_SHARE = 0.5
"""The part of the time for which an answer that may pass is asked for again, so that its cause can still be told."""
SURE_S_MAX = 2.0
READ_S = 0.05
"""How long we have to read what has arrived, before a server counts as silent: we may have been busy ourselves."""


class Looks:
    """What the looks of this process found so far. `root` is the key that a frontier has from its founding on, and
    `tags` are those of all shards."""

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
        """Write to one of the shards of each master; an `EngineError` names the cause when that is not done within
        `within_s`, or when something is gone that was there. A loss is told until the next call."""
        if self._told:
            self._lost, self._told = None, False
        await self._look(within_s)
        if self._lost is not None:
            self._told = True
            raise self._lost

    async def be_sure(self) -> None:
        """After leases were given: that they are not of a server which has come back and has forgotten others. It can
        only be one that was connected to since the last look."""
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
    """The replies; none when a server is busy with what others asked."""
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
    """For each master, the shard where looks are counted."""
    counted: dict[Server, str] = {}
    for tag in tags:
        counted.setdefault(client.master_of(slot_of(tag[1:-1])), tag)
    return counted


def _count(tag: str) -> Command:
    return Command(slot_of(tag[1:-1]), packed("INCR", tag + "%"), tag)


def _raise_if_silent(client: RedisClient, address: RedisAddress, server: Server, began: float, within_s: float) -> None:
    """A server that answers others is busy, not gone: what was asked is in line behind them."""
    connection = client.connection_to(server)
    if connection is None:
        hint = "Check that it runs and that the network lets us through."
        raise EngineError(f"{address} cannot be reached: {server} takes no connection.", hint, code=Cause.UNREACHABLE)
    if connection.heard_at < began:
        hint = "It is frozen, cut off, or busy with one long command."
        raise EngineError(
            f"{address} does not answer: {server} has said nothing for {within_s:g} s.", hint, code=Cause.SILENT
        )
