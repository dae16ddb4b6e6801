"""Creates a frontier on Redis. The first process to do so decides the number of shards, once and for all."""

from __future__ import annotations

from drumlin.engines.redis.address import RedisAddress
from drumlin.engines.redis.client import RedisClient
from drumlin.engines.redis.commands import Command, packed
from drumlin.engines.redis.topology import slot_of
from drumlin.errors import EngineError

SHARDS_PER_MASTER = 32
"""A new frontier has so many shards for each master that exists at the time. That is enough to spread them evenly if
masters are added later, yet few enough that a batch of links takes few calls and all shards can be asked every second.
"""
FORMAT = b"2"
"""In format 2, marks of seen URLs and of attempts follow from the hash that the other engines keep, so a frontier can
be moved from one to the other."""


async def found_frontier(client: RedisClient, address: RedisAddress, shard_count: int | None) -> int:
    """Create the frontier unless it exists, and return how many shards it has."""
    tag = address.namespace
    key, slot = f"{{{tag}}}", slot_of(tag)
    wanted = shard_count or SHARDS_PER_MASTER * client.masters_count
    commands = [
        Command(slot, packed("HSETNX", key, "shards", wanted), key),
        Command(slot, packed("HSETNX", key, "format", FORMAT), key),
        Command(slot, packed("HMGET", key, "shards", "format")),
    ]
    _, _, (shards, form) = await client.run(commands)
    if form != FORMAT:
        raise EngineError(
            f"The crawl at {address} is in format {form.decode()}, and this version reads {FORMAT.decode()}.",
            "Finish it with the version of drumlin that began it, or begin another under another namespace.",
        )
    return int(shards)
