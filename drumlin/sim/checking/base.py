"""What a checker may hear of a simulation, and what it raises when an invariant is broken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from drumlin.contact.actions import FetchPage, FetchRobots
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.model import Lease, Settled
from drumlin.protocol import Accepted, Results
from drumlin.sim.checking.ledger import Held, Ledger
from drumlin.sim.machines.coordinator import SimCoordinator
from drumlin.sim.machines.node import SimNode
from drumlin.sim.scenario import Scenario
from drumlin.sim.web import Web, WebHost


class Violation(Exception):
    """An invariant is broken: which, when (seconds since the simulation began), and how."""

    def __init__(self, checker: str, at: float, said: str) -> None:
        super().__init__(f"{checker}: at {at:.3f} s {said}")
        self.checker = checker
        self.at = at
        self.said = said


class Pace(Protocol):
    """A moment: how many pages were settled so far, for how many seconds in all requests for pages could be under way
    since the moment before, and the longest time that a page has waited to be settled."""

    @property
    def at(self) -> float: ...

    @property
    def pages(self) -> int: ...

    @property
    def possible_s(self) -> float: ...

    @property
    def lag_s(self) -> float: ...


class World(Protocol):
    """The simulation, as checkers see it."""

    scenario: Scenario
    nodes: list[SimNode]
    coordinators: list[SimCoordinator]
    web: Web
    budgets: dict[str, int]
    """How many pages may be fetched of some hosts."""
    liars: set[str]
    """The nodes that lie or have lied."""

    @property
    def now(self) -> float: ...

    @property
    def memory(self) -> MemoryEngine: ...

    @property
    def quiet_s(self) -> float:
        """For how long no fault has been at work."""

    @property
    def paces(self) -> Sequence[Pace]:
        """What was measured so far."""

    @property
    def seconds_a_page(self) -> float:
        """For how long a page keeps a connection busy on average, with all requests that bring no page."""


class Checker:
    """Verifies one invariant. All of its methods are optional; a method that is not overridden costs nothing."""

    name = ""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self._world = world
        self._ledger = ledger

    def broken(self, said: str) -> Violation:
        return Violation(self.name, self._world.now, said)

    # What happens

    def granted(self, lease: Lease, before: Held | None) -> None:
        """The engine has leased a host that, as far as was told, `before` holds."""

    def expired(self, held: Held, now: float) -> None:
        """The engine has ended a lease because its time is over, at this engine time."""

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        """The engine has changed a URL's state because of a settlement, under this lease."""

    def passed(self, now: float) -> None:
        """A coordinator has told the engine this engine time."""

    def sent(self, node: SimNode, fetch: FetchPage | FetchRobots) -> None:
        """A request leaves a node."""

    def contacted(self, host: WebHost, url: str, now: float) -> None:
        """A request reaches a host."""

    def accepted(self, node: str, results: Results, accepted: Accepted) -> None:
        """A coordinator is about to answer this to results."""

    def published(self, urls: Sequence[str]) -> None:
        """A node has heard that its pages of these URLs count, and keeps them."""

    def disk_lost(self, urls: Sequence[str]) -> None:
        """Pages of these URLs are lost with their node's disk. It had not heard whether they count."""

    def looked(self) -> None:
        """Some seconds have passed: look around."""

    def ended(self) -> None:
        """The simulation is over."""


def overriding(checkers: Sequence[Checker], method: str) -> list[Checker]:
    """The checkers that want to hear of something."""
    return [one for one in checkers if getattr(type(one), method) is not getattr(Checker, method)]


def listen(ledger: Ledger, checkers: Sequence[Checker]) -> None:
    """Have the ledger tell the checkers what they want to hear."""
    ledger.on_granted += overriding(checkers, "granted")
    ledger.on_expired += overriding(checkers, "expired")
    ledger.on_settled += overriding(checkers, "settled")
    ledger.on_passed += overriding(checkers, "passed")
