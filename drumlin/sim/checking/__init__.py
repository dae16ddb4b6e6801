"""What must hold at every moment of a simulation, whatever fails. One class for each invariant, named for it.

- `base`: what a checker may hear, and what it raises.
- `ledger`: who holds which host and what became of which URL, as the engine's own answers say; the checkers read it.
- `leases`, `sites`, `results`, `health`: the checkers.

To add one, write a class with a `name` and any of the methods of `base.Checker`, and put it into `every_checker`.
"""

from __future__ import annotations

from drumlin.sim.checking.base import Checker, Violation, World
from drumlin.sim.checking.health import (
    BudgetedHostsAreGiven,
    LagIsBounded,
    NeverIdle,
    NodesComeBack,
    NothingWaitsTooLong,
    QueuesAreBounded,
    SpeedReturns,
)
from drumlin.sim.checking.leases import EngineTimeIsSteady, LeasesEnd, OneLiveLease
from drumlin.sim.checking.ledger import Ledger
from drumlin.sim.checking.results import (
    AcknowledgedSurvives,
    BudgetsHold,
    HonestAreBelieved,
    HostBudgetsHold,
    LinksSurvive,
    OneState,
    PagesAreKept,
    PagesWereFetched,
    RetriesAreCounted,
    SettlesOnce,
    SettlesUnderItsLease,
)
from drumlin.sim.checking.sites import LeastGap, NothingDenied, RetryAfterIsHonoured

__all__ = ["Checker", "Ledger", "Violation", "World", "every_checker"]


def every_checker(world: World, ledger: Ledger) -> list[Checker]:
    """All checkers, for one simulation."""
    return [
        OneLiveLease(world, ledger),
        LeasesEnd(world, ledger),
        EngineTimeIsSteady(world, ledger),
        LeastGap(world, ledger),
        RetryAfterIsHonoured(world, ledger),
        NothingDenied(world, ledger),
        OneState(world, ledger),
        AcknowledgedSurvives(world, ledger),
        PagesAreKept(world, ledger),
        PagesWereFetched(world, ledger),
        HonestAreBelieved(world, ledger),
        LinksSurvive(world, ledger),
        SettlesOnce(world, ledger),
        SettlesUnderItsLease(world, ledger),
        RetriesAreCounted(world, ledger),
        BudgetsHold(world, ledger),
        HostBudgetsHold(world, ledger),
        BudgetedHostsAreGiven(world, ledger),
        NeverIdle(world, ledger),
        NodesComeBack(world, ledger),
        NothingWaitsTooLong(world, ledger),
        LagIsBounded(world, ledger),
        QueuesAreBounded(world, ledger),
        SpeedReturns(world, ledger),
    ]
