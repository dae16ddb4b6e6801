"""Creates a frontier on Redis, or finds one. The first process to create it decides the number of shards, once and for
all."""

from __future__ import annotations

import re

from drumlin.engines.redis.address import RedisAddress
from drumlin.engines.redis.client import RedisClient
from drumlin.engines.redis.commands import Command, packed
from drumlin.engines.redis.topology import slot_of
from drumlin.errors import ConfigError, EngineError

SHARDS_PER_MASTER = 32
"""A new frontier has so many shards for each master that exists at the time. That is enough to spread them evenly if
masters are added later, yet few enough that a batch of links takes few calls and all shards can be asked every second.
"""
FORMAT = b"2"
"""In format 2, marks of seen URLs and of attempts follow from the hash that the other engines keep, so a frontier can
be moved from one to the other."""
SCAN_KEYS = 10_000
SCANS_MAX = 50
"""How far to look for the names of crawls on each server: it may have many millions of keys, and this is only a hint.
"""
NAMED_MAX = 10
_TIME_KEY = re.compile(rb"\{([A-Za-z0-9_.-]{1,64})\}time")
"""The key under which a crawl keeps its time, which every crawl has."""


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


async def check_exists(client: RedisClient, address: RedisAddress) -> None:
    """Raise a `ConfigError` that names the crawls there are, if nobody has used this namespace yet. (A namespace with
    nothing in it but a number of shards is what is left of a mistyped name.)"""
    root, slot = f"{{{address.namespace}}}", slot_of(address.namespace)
    asked = [packed("EXISTS", root + "time", root + "meta"), packed("HGET", root, "format")]
    known, form = await client.run([Command(slot, one) for one in asked])
    if not known and form in (None, FORMAT):
        raise ConfigError(*no_crawl(address, await _namespaces(client)))


def no_crawl(address: RedisAddress, known: list[str]) -> tuple[str, str]:
    """What to say where a crawl was expected and is none, with the names of those that are known."""
    more = " and others" if len(known) > NAMED_MAX else ""
    names = f"Known there: {', '.join(known[:NAMED_MAX])}{more}." if known else "Check the address."
    return f"There is no crawl at {address}.", names


async def _namespaces(client: RedisClient) -> list[str]:
    """The names of the crawls on these servers, as far as a short look finds them."""
    found: set[str] = set()
    for slot in client.slots_of_masters():
        cursor: bytes = b"0"
        for _ in range(SCANS_MAX):
            scan = packed("SCAN", cursor, "MATCH", "{*}time", "COUNT", SCAN_KEYS)
            ((cursor, keys),) = await client.run([Command(slot, scan)])
            found |= {match[1].decode() for key in keys if (match := _TIME_KEY.fullmatch(key))}
            if cursor == b"0":
                break
    return sorted(found)
