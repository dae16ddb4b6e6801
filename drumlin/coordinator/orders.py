"""What people have ordered and every coordinator must heed: nodes to drain or to keep out, hosts to leave alone or to
take only so many pages of.

Orders live in small tables of the engine and are read again at every tick, so that an order given through one
coordinator binds all of them within a second. A node's record says how it does; an order says what is to become of it,
and no heartbeat can overwrite it.
"""

from __future__ import annotations

from drumlin.engines.base import Engine
from drumlin.protocol import NodeStatus

NODES_TABLE = "ordered_nodes"
HOSTS_TABLE = "blocked_hosts"
BUDGETS_TABLE = "host_budgets"
HOSTS_APART_MAX = 1_000
"""Blocked hosts, and those on a budget, are passed over one by one when hosts are leased, so there must not be too many
of either."""
ORDERED = frozenset({NodeStatus.DRAINING, NodeStatus.QUARANTINED})


class Orders:
    """The orders in force, as of the last `refresh` or the last order given here."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.nodes: dict[str, NodeStatus] = {}
        self.blocked: frozenset[str] = frozenset()
        self.budgets: dict[str, int] = {}
        """The most pages that are wanted of some hosts."""
        self._apart_in: dict[int, frozenset[str]] = {}

    def apart_in(self, shard: int) -> frozenset[str]:
        """The hosts of one shard that nobody is given in the common line: blocked ones, and those on a budget."""
        return self._apart_in.get(shard, frozenset())

    def _set_apart(self, blocked: frozenset[str], budgets: dict[str, int]) -> None:
        self.blocked, self.budgets = blocked, budgets
        by_shard: dict[int, set[str]] = {}
        for host in blocked | budgets.keys():
            by_shard.setdefault(self._engine.shard_of(host), set()).add(host)
        self._apart_in = {shard: frozenset(members) for shard, members in by_shard.items()}

    async def refresh(self) -> None:
        """Learn what was ordered through other coordinators."""
        nodes = await self._engine.get_entries(NODES_TABLE)
        self.nodes = {node: NodeStatus(status.decode()) for node, status in nodes.items()}
        blocked = frozenset(await self._engine.get_entries(HOSTS_TABLE))
        budgets = await self._engine.get_entries(BUDGETS_TABLE)
        self._set_apart(blocked, {host: int(pages) for host, pages in budgets.items()})

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
        if len(self.blocked | {host}) > HOSTS_APART_MAX:
            return False
        await self._engine.put_entries(HOSTS_TABLE, {host: b""})
        self._set_apart(self.blocked | {host}, self.budgets)
        return True

    async def unblock(self, host: str) -> None:
        await self._engine.delete_entries(HOSTS_TABLE, [host])
        self._set_apart(self.blocked - {host}, self.budgets)

    async def limit(self, host: str, pages: int) -> bool:
        """Take no more than so many pages of this host; False when there are too many such hosts."""
        if len(self.budgets | {host: pages}) > HOSTS_APART_MAX:
            return False
        await self._engine.put_entries(BUDGETS_TABLE, {host: str(pages).encode()})
        self._set_apart(self.blocked, self.budgets | {host: pages})
        return True

    async def unlimit(self, host: str) -> None:
        await self._engine.delete_entries(BUDGETS_TABLE, [host])
        self._set_apart(self.blocked, {other: pages for other, pages in self.budgets.items() if other != host})
