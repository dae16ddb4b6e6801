"""Faults: what can go wrong in a simulation, and when. `striking` does it.

To add a kind, give it a row in `KINDS` and a function in `striking.STRIKES`.
"""

from __future__ import annotations

import random
from typing import Annotated

import msgspec

from drumlin.lines import did_you_mean


class Kind(msgspec.Struct, frozen=True):
    """How a kind of fault is drawn: how often in a simulation, for how long, and which share of the nodes it strikes
    (0: it strikes something else, of which there are few). `stalls`: no node gets anything done while it lasts."""

    times: tuple[int, int]
    lasts_s: tuple[float, float]
    share: tuple[float, float] = (0.0, 0.0)
    stalls: bool = False


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
    "all_coordinators_killed": Kind((1, 1), (3.0, 40.0), stalls=True),
    # the engine, and the network between coordinators and it
    "engine_fails_over": Kind((1, 4), (0.5, 12.0), stalls=True),
    "engine_slow": Kind((1, 2), (5.0, 40.0), stalls=True),
    "coordinator_cut_off": Kind((1, 2), (2.0, 40.0)),
    "coordinator_mute": Kind((1, 2), (2.0, 40.0)),
    "coordinator_deaf": Kind((1, 2), (2.0, 40.0)),
    # the network between nodes and coordinators
    "messages_lost": Kind((1, 2), (20.0, 120.0)),
    "messages_doubled": Kind((1, 2), (20.0, 120.0)),
    "messages_overtaken": Kind((1, 2), (20.0, 120.0)),
    # sites
    "hosts_down": Kind((1, 3), (10.0, 120.0)),
}
SWITCHED_ON = 0.45
"""The chance that a simulation has faults of a kind: with some kinds off, rare combinations of the others are met."""
STRENGTHS = 1 << 30
WHOLE_MAX = (1 << 63) - 1
"""The largest whole number in a scenario: what every reader of JSON can hold."""
VIRTUAL_S_MAX = 1e7
"""The longest time in a scenario: more than a hundred days."""

Moment = Annotated[float, msgspec.Meta(ge=0.0, le=VIRTUAL_S_MAX)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]
Drawn = Annotated[int, msgspec.Meta(ge=0, le=WHOLE_MAX)]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One fault: what, when and for how long. `share` is how much of the fleet it strikes, and `drawn` decides whom.
    The bounds hold for faults that are read from files."""

    kind: str
    at: Moment
    lasts_s: Moment
    share: Share = 0.0
    drawn: Drawn = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"there is no fault {self.kind!r}. {did_you_mean(self.kind, KINDS)}".rstrip())

    @property
    def over_at(self) -> float:
        return self.at + self.lasts_s

    @property
    def costs_s(self) -> float:
        """How much of the whole fleet's time it takes, about and at most."""
        return self.lasts_s * (1.0 if KINDS[self.kind].stalls else self.share)


def swarm(chance: random.Random, first_at: float, last_at: float) -> tuple[Fault, ...]:
    """Faults of some kinds, all over by `last_at`, in the order in which they begin. Each kind is drawn by itself, so a
    kind that is added to the table changes nothing about the others."""
    drawn, faults = chance.randrange(STRENGTHS), list[Fault]()
    for name in KINDS:
        own = random.Random(f"{drawn}/{name}")
        if own.random() < SWITCHED_ON:
            faults += [_drawn(own, name, first_at, last_at) for _ in range(own.randint(*KINDS[name].times))]
    return tuple(sorted(faults, key=lambda fault: (fault.at, fault.kind)))


def _drawn(chance: random.Random, name: str, first_at: float, last_at: float) -> Fault:
    kind = KINDS[name]
    lasts_s = min(chance.uniform(*kind.lasts_s), last_at - first_at)
    at = chance.uniform(first_at, max(first_at, last_at - lasts_s))
    share, drawn = chance.uniform(*kind.share), chance.randrange(STRENGTHS)
    return Fault(name, round(at, 3), round(lasts_s, 3), round(share, 4), drawn)
