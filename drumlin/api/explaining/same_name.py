"""Hosts that have the name somebody gave, at other ports: a port is forgotten more often than a name."""

from __future__ import annotations

from typing import Final

from drumlin.engines.base import Engine
from drumlin.urls import name_of

SHOWN_MAX: Final = 5


async def at_other_ports(engine: Engine, host: str) -> list[str]:
    """Hosts of the crawl whose name or address is that of this one."""
    name = name_of(host)
    bare = await engine.host_state(engine.shard_of(name), name)
    found = [*([bare] if bare else []), *await engine.find_hosts_all(f"{name}:", limit=SHOWN_MAX + 1)]
    return [one.host for one in found if one.host != host][:SHOWN_MAX]


def known_as(hosts: list[str]) -> str:
    """A sentence about them; empty if there is none."""
    return f"The crawl knows this name as {', '.join(hosts)}." if hosts else ""
