"""Whether a frontier on Redis can be written just now, and if not, why.

A small write goes to every master that has shards. Reading would not do: a server whose memory or disk is full, or that
became a replica, still answers reads.
"""

from __future__ import annotations

import asyncio

from drumlin.engines.redis_address import RedisAddress, Server
from drumlin.engines.redis_client import RedisClient
from drumlin.engines.redis_commands import Command, packed
from drumlin.engines.redis_topology import slot_of
from drumlin.errors import Cause, EngineError

REPEATED_SHARE = 0.5
"""The part of the time for which an answer that may pass is asked for again, so that its cause can still be told."""
READ_S = 0.05
"""How long we have to read what has arrived, before a server counts as silent: we may have been busy ourselves."""


async def check(client: RedisClient, address: RedisAddress, tags: list[str], within_s: float) -> None:
    """Write to one of the shards of each master (`tags` are those of all shards); an `EngineError` names the cause
    when that is not done within `within_s`."""
    loop = asyncio.get_running_loop()
    began, commands = loop.time(), _commands(client, tags)
    try:
        async with asyncio.timeout(within_s):
            await client.run(list(commands.values()), patience_s=within_s * REPEATED_SHARE)
    except TimeoutError:
        await asyncio.sleep(READ_S)
        for server in commands:
            _raise_if_silent(client, address, server, began, within_s)


def _commands(client: RedisClient, tags: list[str]) -> dict[Server, Command]:
    commands: dict[Server, Command] = {}
    for tag in tags:
        slot = slot_of(tag[1:-1])
        server = client.master_of(slot)
        if server not in commands:
            commands[server] = Command(slot, packed("SET", tag + "+", 1), tag)
    return commands


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
