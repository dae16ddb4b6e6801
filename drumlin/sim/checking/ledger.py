"""A second set of books: who holds which host and what became of which URL, kept from the engine's answers alone.

Checkers compare what happens with these books, so a mistake in the engine or in a coordinator is seen at the first
moment at which it contradicts what was said before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from drumlin.engines.base import Added
from drumlin.model import Lease, Renewal, Settled, Settlement, TaskState, Verdict


class Held:
    """A lease that is live as far as was told."""

    __slots__ = ("deadline", "host", "lease_id", "node", "shard", "urls")

    def __init__(self, lease: Lease) -> None:
        self.host = lease.host
        self.lease_id = lease.lease_id
        self.node = lease.node
        self.shard = lease.shard
        self.deadline = lease.deadline
        self.urls = {task.url for task in lease.tasks}


class Reader(Protocol):
    """A checker, as far as the ledger tells it what is noted here (`base.Checker` says what that means)."""

    def granted(self, lease: Lease, before: Held | None) -> None: ...

    def expired(self, held: Held, now: float) -> None: ...

    def settled(self, host: str, lease_id: str, one: Settled) -> None: ...

    def passed(self, now: float) -> None: ...


class Ledger:
    """The books. The checkers on its lists are told of what is noted here."""

    def __init__(self) -> None:
        self.leases: dict[str, Held] = {}
        self._hosts_of: dict[str, dict[str, None]] = {}
        """The hosts that each node holds."""
        self.engine_now = 0.0
        """The latest time that any coordinator has told the engine."""
        self.accepted = 0
        """How many URLs were accepted."""
        self.pages = 0
        """How many URLs ended with a page, each counted once."""
        self.bytes = 0
        """How many bytes these pages have."""
        self.settled = 0
        self.leases_lost = 0
        self.on_granted: list[Reader] = []
        self.on_expired: list[Reader] = []
        self.on_settled: list[Reader] = []
        self.on_passed: list[Reader] = []
        self._take: dict[str, Callable[[Any, Any], None]] = {
            "add_all": self._added,
            "lease": self._leased,
            "visit": self._visited,
            "extend_all": self._extended,
            "settle_all": self._settled,
            "expire_all": self._expired,
            "release_nodes": self._released,
            "keep_time": self._kept_time,
        }

    def listener(self, name: str) -> Callable[[Any, Any], None] | None:
        """Who takes down the calls of the engine of this name."""
        return self._take.get(name)

    def _added(self, arguments: tuple[Any, ...], answer: dict[int, list[Added]]) -> None:
        self.accepted += sum([added.count(Added.ADDED) for added in answer.values()])

    def _leased(self, arguments: tuple[Any, ...], answer: list[Lease]) -> None:
        for lease in answer:
            self._grant(lease)

    def _visited(self, arguments: tuple[Any, ...], answer: Lease | None) -> None:
        if answer is not None:
            self._grant(answer)

    def _grant(self, lease: Lease) -> None:
        before = self.leases.get(lease.host)
        for checker in self.on_granted:
            checker.granted(lease, before)
        self.leases[lease.host] = Held(lease)
        self._hosts_of.setdefault(lease.node, {})[lease.host] = None

    def _extended(self, arguments: tuple[Sequence[Renewal], float], answer: list[Lease | None]) -> None:
        for lease in answer:
            held = self.leases.get(lease.host) if lease is not None else None
            if lease is not None and held is not None and held.lease_id == lease.lease_id:
                held.deadline = lease.deadline
                held.urls.update([task.url for task in lease.tasks])

    def _settled(
        self,
        arguments: tuple[Mapping[int, Sequence[Settlement]], float],
        answer: dict[int, list[list[Verdict]]],
    ) -> None:
        for shard, settlements in arguments[0].items():
            for settlement, verdicts in zip(settlements, answer[shard], strict=True):
                self._settle(settlement, verdicts)

    def _settle(self, settlement: Settlement, verdicts: list[Verdict]) -> None:
        held = self.leases.get(settlement.host)
        for one, verdict in zip(settlement.settled, verdicts, strict=True):
            if verdict is not Verdict.SETTLED:
                continue
            for checker in self.on_settled:
                checker.settled(settlement.host, settlement.lease_id, one)
            self.settled += 1
            if one.state is TaskState.DONE and one.size is not None:
                self.pages += 1
                self.bytes += one.size
            if held is not None:
                held.urls.discard(one.url)
        if settlement.release and held is not None and held.lease_id == settlement.lease_id:
            self._end(held)

    def _end(self, held: Held) -> None:
        del self.leases[held.host]
        self._hosts_of[held.node].pop(held.host, None)

    def _expired(self, arguments: tuple[Any, ...], answer: list[str]) -> None:
        for host in answer:
            held = self.leases.get(host)
            if held is not None:
                self._end(held)
                self.leases_lost += 1
                for checker in self.on_expired:
                    checker.expired(held, arguments[0])

    def _released(self, arguments: tuple[Any, ...], answer: int) -> None:
        """The leases of nodes were ended: all of them, or those of the shards that are named."""
        if not answer:
            return
        nodes, shards = arguments[0], arguments[2] if len(arguments) > 2 else None
        for node in nodes:
            for held in [self.leases[host] for host in self._hosts_of.get(node, ())]:
                if shards is None or held.shard in shards:
                    self._end(held)

    def _kept_time(self, arguments: tuple[float], answer: float) -> None:
        self.engine_now = max(self.engine_now, answer)
        for checker in self.on_passed:
            checker.passed(answer)
