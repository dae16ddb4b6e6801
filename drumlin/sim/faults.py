"""Faults: what can go wrong in a simulation, and when. `striking` does it.

To add a kind, give it a row in `KINDS` and a function in `striking.STRIKES`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """How a kind of fault is drawn: how often in a simulation, for how long, and which share of the nodes it strikes
    (0: it strikes something else, of which there are few)."""

    times: tuple[int, int]
    lasts_s: tuple[float, float]
    share: tuple[float, float] = (0.0, 0.0)


KINDS: dict[str, Kind] = {
    # nodes
    "nodes_killed": Kind((1, 3), (5.0, 60.0), (0.02, 0.3)),
    "nodes_killed_with_disks": Kind((1, 2), (5.0, 60.0), (0.02, 0.1)),
    "nodes_frozen": Kind((1, 3), (1.0, 60.0), (0.02, 0.2)),
    "nodes_lagging": Kind((1, 2), (30.0, 120.0), (0.02, 0.2)),
    "nodes_cut_off": Kind((1, 3), (5.0, 90.0), (0.02, 0.3)),
    "nodes_mute": Kind((1, 2), (5.0, 60.0), (0.02, 0.2)),
    "nodes_deaf": Kind((1, 2), (5.0, 60.0), (0.02, 0.2)),
    "nodes_drained": Kind((1, 2), (10.0, 60.0), (0.02, 0.1)),
    "nodes_calendars_stepped": Kind((1, 2), (30.0, 120.0), (0.1, 0.5)),
    "disks_full": Kind((1, 2), (10.0, 60.0), (0.02, 0.1)),
    "nodes_lie": Kind((1, 2), (10.0, 60.0), (0.01, 0.03)),
    # coordinators
    "coordinator_killed": Kind((1, 3), (2.0, 60.0)),
    "coordinator_frozen": Kind((1, 3), (1.0, 30.0)),
    "coordinator_calendar_stepped": Kind((1, 3), (10.0, 200.0)),
    "all_coordinators_killed": Kind((1, 1), (3.0, 40.0)),
    # the engine
    "engine_fails_over": Kind((1, 4), (0.5, 12.0)),
    # the network between them
    "messages_lost": Kind((1, 2), (20.0, 120.0)),
    "messages_doubled": Kind((1, 2), (20.0, 120.0)),
    "messages_overtaken": Kind((1, 2), (20.0, 120.0)),
    # sites
    "hosts_down": Kind((1, 3), (10.0, 120.0)),
}
SWITCHED_ON = 0.45
"""The chance that a simulation has faults of a kind: with some kinds off, rare combinations of the others are met."""
STRENGTHS = 1 << 30


class Fault(msgspec.Struct, frozen=True):
    """One fault: what, when and for how long. `share` is how much of the fleet it strikes, and `drawn` decides whom."""

    kind: str
    at: float
    lasts_s: float
    share: float = 0.0
    drawn: int = 0

    @property
    def over_at(self) -> float:
        return self.at + self.lasts_s


def swarm(chance: random.Random, first_at: float, last_at: float, kinds: Sequence[str] = ()) -> tuple[Fault, ...]:
    """Faults of some kinds (or of exactly these), all over by `last_at`, in the order in which they begin."""
    chosen = kinds or [kind for kind in KINDS if chance.random() < SWITCHED_ON]
    faults = [
        fault
        for name in chosen
        for _ in range(chance.randint(*KINDS[name].times))
        if (fault := _drawn(chance, name, first_at, last_at)) is not None
    ]
    return tuple(sorted(faults, key=lambda fault: (fault.at, fault.kind)))


def _drawn(chance: random.Random, name: str, first_at: float, last_at: float) -> Fault | None:
    kind = KINDS[name]
    lasts_s = min(chance.uniform(*kind.lasts_s), last_at - first_at)
    at = chance.uniform(first_at, max(first_at, last_at - lasts_s))
    share, drawn = chance.uniform(*kind.share), chance.randrange(STRENGTHS)
    return Fault(name, round(at, 3), round(lasts_s, 3), round(share, 4), drawn) if lasts_s > 0 else None
