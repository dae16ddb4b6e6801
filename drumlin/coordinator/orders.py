"""What people have ordered and every coordinator must heed: nodes to drain or to keep out, hosts to leave alone.

Orders live in two small tables of the engine and are read again at every tick, so that an order given through one
coordinator binds all of them within a second. A node's record says how it does; an order says what is to become of it,
and no heartbeat can overwrite it.
"""

from __future__ import annotations

from drumlin.engines.base import Engine
from drumlin.protocol import NodeStatus

NODES_TABLE = "ordered_nodes"
HOSTS_TABLE = "blocked_hosts"
BLOCKED_HOSTS_MAX = 1_000
"""Blocked hosts are passed over one by one when hosts are leased, so there must not be too many."""
ORDERED = frozenset({NodeStatus.DRAINING, NodeStatus.QUARANTINED})


class Orders:
    """The orders in force, as of the last `refresh` or the last order given here."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.nodes: dict[str, NodeStatus] = {}
        self.blocked: frozenset[str] = frozenset()
        self._blocked_in: dict[int, frozenset[str]] = {}

    def blocked_in(self, shard: int) -> frozenset[str]:
        """The blocked hosts of one shard."""
        return self._blocked_in.get(shard, frozenset())

    def _leave_alone(self, hosts: frozenset[str]) -> None:
        self.blocked = hosts
        by_shard: dict[int, set[str]] = {}
        for host in hosts:
            by_shard.setdefault(self._engine.shard_of(host), set()).add(host)
        self._blocked_in = {shard: frozenset(members) for shard, members in by_shard.items()}

    async def refresh(self) -> None:
        """Learn what was ordered through other coordinators."""
        nodes = await self._engine.get_entries(NODES_TABLE)
        self.nodes = {node: NodeStatus(status.decode()) for node, status in nodes.items()}
        self._leave_alone(frozenset(await self._engine.get_entries(HOSTS_TABLE)))

    async def order(self, node: str, status: NodeStatus) -> None:
        """Drain a node or put it into quarantine; any other status ends what was ordered before."""
        if status in ORDERED:
            await self._engine.put_entries(NODES_TABLE, {node: status.encode()})
            self.nodes[node] = status
        else:
            await self._engine.delete_entries(NODES_TABLE, [node])
            self.nodes.pop(node, None)

    async def block(self, host: str) -> bool:
        """Give this host to nobody from now on; False when there are too many blocked hosts."""
        if len(self.blocked) >= BLOCKED_HOSTS_MAX:
            return False
        await self._engine.put_entries(HOSTS_TABLE, {host: b""})
        self._leave_alone(self.blocked | {host})
        return True

    async def unblock(self, host: str) -> None:
        await self._engine.delete_entries(HOSTS_TABLE, [host])
        self._leave_alone(self.blocked - {host})
