"""What people have ordered and every coordinator must follow: nodes to drain or keep out, hosts to block or to fetch
only so many pages of.

Orders are in small tables of the engine and are read again at every tick, so an order that is given through one
coordinator binds all of them within a second. They are separate from the nodes' records, so no heartbeat can overwrite
them.
"""

from __future__ import annotations

from drumlin.engines.base import Engine
from drumlin.protocol import ORDERS, NodeEvent, NodeStatus

NODES_TABLE = "ordered_nodes"
HOSTS_TABLE = "blocked_hosts"
BUDGETS_TABLE = "host_budgets"
HOSTS_APART_MAX = 1_000
"""Blocked hosts, and hosts with a budget, are skipped one by one when hosts are leased, so there must not be too many
of either."""

_ORDER_OF: dict[NodeStatus | None, NodeEvent] = {status: event for event, status in ORDERS.items()}


class Orders:
    """The orders in force, as of the last `refresh` or the last order given here."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.nodes: dict[str, NodeStatus] = {}
        self.blocked: frozenset[str] = frozenset()
        self.budgets: dict[str, int] = {}
        """How many pages of a host are wanted at most, for hosts with a budget."""
        self._apart_in: dict[int, frozenset[str]] = {}

    def apart_in(self, shard: int) -> frozenset[str]:
        """The hosts of one shard that are not given out with the others: blocked ones, and those with a budget."""
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

    async def order(self, node: str, event: NodeEvent) -> None:
        """Drain a node or put it into quarantine; any other event cancels what was ordered before."""
        if (status := ORDERS.get(event)) is not None:
            await self._engine.put_entries(NODES_TABLE, {node: status.encode()})
            self.nodes[node] = status
        else:
            await self._engine.delete_entries(NODES_TABLE, [node])
            self.nodes.pop(node, None)

    def event_of(self, node: str) -> NodeEvent:
        """What was ordered of a node last, as an event that changes its status."""
        return _ORDER_OF.get(self.nodes.get(node), NodeEvent.RELEASE)

    async def block(self, host: str) -> bool:
        """Lease this host to no node from now on; False when there are too many blocked hosts."""
        if len(self.blocked | {host}) > HOSTS_APART_MAX:
            return False
        await self._engine.put_entries(HOSTS_TABLE, {host: b""})
        self._set_apart(self.blocked | {host}, self.budgets)
        return True

    async def unblock(self, host: str) -> None:
        await self._engine.delete_entries(HOSTS_TABLE, [host])
        self._set_apart(self.blocked - {host}, self.budgets)

    async def limit(self, host: str, pages: int) -> bool:
        """Fetch no more than `pages` pages of this host; False when too many hosts have a budget."""
        if len(self.budgets | {host: pages}) > HOSTS_APART_MAX:
            return False
        await self._engine.put_entries(BUDGETS_TABLE, {host: str(pages).encode()})
        self._set_apart(self.blocked, self.budgets | {host: pages})
        return True

    async def unlimit(self, host: str) -> None:
        await self._engine.delete_entries(BUDGETS_TABLE, [host])
        self._set_apart(self.blocked, {other: pages for other, pages in self.budgets.items() if other != host})
