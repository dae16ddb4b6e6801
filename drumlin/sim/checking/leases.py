"""Checkers of leases and of the time by which they are judged."""

from __future__ import annotations

from drumlin.contact.actions import FetchPage, FetchRobots
from drumlin.coordinator.engine_time import AGREED_S
from drumlin.model import Lease
from drumlin.sim.checking.base import Checker, World
from drumlin.sim.checking.ledger import Held, Ledger
from drumlin.sim.machines.clocks import DRIFT_MAX
from drumlin.sim.machines.node import SimNode

ENDED_WITHIN_S = 15.0
"""How long after its deadline a lease may still be live while a coordinator leads: a claim lasts 5 s, and a tick
comes every second."""


class OneLiveLease(Checker):
    """A host has at most one live lease, and is asked only by the node that holds it, while it does."""

    name = "one_live_lease"

    def granted(self, lease: Lease, before: Held | None) -> None:
        if before is not None:
            said = f"{lease.host} was leased to {lease.node} while {before.node} held it until {before.deadline:.3f}"
            raise self.broken(said)

    def expired(self, held: Held, now: float) -> None:
        if now < held.deadline:
            raise self.broken(f"the lease of {held.host} was ended {held.deadline - now:.3f} s before its time")

    def sent(self, node: SimNode, fetch: FetchPage | FetchRobots) -> None:
        held = self._ledger.leases.get(fetch.host.host)
        lease_id = fetch.host.lease_id.rpartition(".")[0]
        if held is None or held.lease_id != lease_id:
            holder = "nobody" if held is None else held.node
            raise self.broken(f"{node.name} asks for {fetch.url}, but {holder} holds the host")
        if self._ledger.engine_now > held.deadline:
            late_s = self._ledger.engine_now - held.deadline
            raise self.broken(f"{node.name} asks for {fetch.url}, {late_s:.3f} s after its lease was over")


class LeasesEnd(Checker):
    """A lease whose time is over ends soon, so its host does not stay with a node that is gone."""

    name = "leases_end"

    def looked(self) -> None:
        leads = any(one.dispatcher is not None and one.dispatcher.leads for one in self._world.coordinators)
        if not leads or self._world.quiet_s < ENDED_WITHIN_S:
            return
        for held in self._ledger.leases.values():
            over_s = self._ledger.engine_now - held.deadline
            if over_s > ENDED_WITHIN_S:
                raise self.broken(f"the lease of {held.host} is live {over_s:.0f} s after its time")


class EngineTimeIsSteady(Checker):
    """Engine time never goes back and never passes faster than time does, whatever calendars say. It may stand still,
    while no coordinator reaches the engine, and that is never made up for."""

    name = "engine_time_is_steady"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._ahead_s: float | None = None
        self._latest = 0.0

    def passed(self, now: float) -> None:
        if now <= 0.0:
            return
        ahead_s = now - self._world.now * (1.0 + DRIFT_MAX)
        if self._ahead_s is None:
            self._ahead_s = ahead_s
        if ahead_s > self._ahead_s + AGREED_S:
            raise self.broken(f"engine time is {ahead_s - self._ahead_s:.3f} s ahead of the time that has passed")
        if now < self._latest:
            raise self.broken(f"engine time went back by {self._latest - now:.3f} s")
        self._latest = now
