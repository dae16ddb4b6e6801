"""How a frontier on Redis begins: how many shards it has is decided once, by whoever is first."""

from __future__ import annotations

from drumlin.engines.redis_address import RedisAddress
from drumlin.engines.redis_client import RedisClient
from drumlin.engines.redis_commands import Command, packed
from drumlin.engines.redis_topology import slot_of
from drumlin.errors import EngineError

SHARDS_PER_MASTER = 32
"""Shards of a new frontier for each master that there is when it is founded: enough to spread evenly over some times as
many, few enough that a batch of links takes few calls, and that all can be asked every second."""
FORMAT = b"1"


async def found(client: RedisClient, address: RedisAddress, shard_count: int | None) -> int:
    """How many shards the namespace has: as it was founded, or is now."""
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
            f"The frontier at {address} is in format {form.decode()}, which this version cannot read.",
            "Use the version of drumlin that made it, or another namespace.",
        )
    return int(shards)
