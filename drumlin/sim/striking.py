"""Does what faults say. Each function begins a fault and returns what ends it."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import Any, TypeVar

import msgspec

from drumlin.sim.faults import Fault
from drumlin.sim.machines.calling import Network
from drumlin.sim.machines.coordinator import SimCoordinator
from drumlin.sim.machines.engine import EngineLink, EngineServers
from drumlin.sim.machines.loop import VirtualLoop
from drumlin.sim.machines.node import SimNode
from drumlin.sim.web import Web

LAG_S = (0.5, 4.0)
STEPS_S = (-86_400.0, -3_600.0, -30.0, 30.0, 3_600.0, 86_400.0)
LOSS = (0.01, 0.2)
DUPLICATION = (0.05, 0.3)
JITTER_S = (0.05, 0.8)
ENGINE_SLOW_S = (0.02, 0.3)
HOSTS_DOWN_SHARE = (0.01, 0.1)
LIES_EVERY_S = 3.0

End = Callable[[], None]
Machine = TypeVar("Machine", SimNode, SimCoordinator)
DOWN, FROZEN = "down", "frozen"


class Machines(msgspec.Struct):
    """All that faults can strike."""

    loop: VirtualLoop
    nodes: list[SimNode]
    coordinators: list[SimCoordinator]
    network: Network
    servers: EngineServers
    web: Web
    numbers: Iterator[int] = msgspec.field(default_factory=lambda: count(1))
    """Each change by a fault has a number of its own."""
    troubles: dict[tuple[int, str], dict[int, Any]] = {}
    """For each thing and field that faults have changed: what it was before, and what each fault at work wants."""
    at_work: Counter[tuple[int, str]] = msgspec.field(default_factory=Counter)
    """How many faults of a kind are at work on each machine."""

    def struck(self, fault: Fault, chance: random.Random) -> list[SimNode]:
        """The nodes that a fault strikes: at least one."""
        return chance.sample(self.nodes, max(1, round(fault.share * len(self.nodes))))


Strike = Callable[[Machines, Fault, random.Random], End]


def strike(machines: Machines, fault: Fault) -> End:
    """Begin a fault; call what is returned to end it."""
    return STRIKES[fault.kind](machines, fault, random.Random(fault.drawn))


def _all(acts: list[End]) -> End:
    def end() -> None:
        for act in acts:
            act()

    return end


# Faults of the same kind may overlap. One that ends must not end the others.


def _change(machines: Machines, thing: object, field: str, value: Any) -> End:
    """Give a field another value while the fault lasts. Of several faults the latest counts; sets are joined."""
    key, number = (id(thing), field), next(machines.numbers)
    wanted = machines.troubles.setdefault(key, {0: getattr(thing, field)})
    wanted[number] = value

    def apply() -> None:
        before, *values = wanted.values()
        joined = isinstance(before, frozenset)
        setattr(thing, field, before.union(*values) if joined else values[-1] if values else before)

    def end() -> None:
        del wanted[number]
        apply()
        if len(wanted) == 1:
            del machines.troubles[key]

    apply()
    return end


def _when_over(machines: Machines, kind: str, struck: Sequence[Machine], act: Callable[[Machine], None]) -> End:
    """Have something done to each machine when no fault of this kind is at work on it any more."""
    at_work = machines.at_work
    at_work.update((id(machine), kind) for machine in struck)

    def end() -> None:
        for machine in struck:
            at_work[id(machine), kind] -= 1
            if not at_work[id(machine), kind]:
                act(machine)

    return end


# Nodes


def _kill_nodes(machines: Machines, fault: Fault, chance: random.Random) -> End:
    # Nodes that are away come back when it is their time.
    struck = [node for node in machines.struck(fault, chance) if node.alive or machines.at_work[id(node), DOWN]]
    for node in struck:
        node.kill(disk_lost=fault.kind == "nodes_killed_with_disks")
    return _when_over(machines, DOWN, struck, SimNode.start)


def _freeze_nodes(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = machines.struck(fault, chance)
    for node in struck:
        node.freeze()
    return _when_over(machines, FROZEN, struck, SimNode.thaw)


def _slow_nodes(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = machines.struck(fault, chance)
    return _all([_change(machines, node, "lag_s", chance.uniform(*LAG_S)) for node in struck])


def _cut_off(machines: Machines, fault: Fault, chance: random.Random) -> End:
    """Cut nodes off from all coordinators or from some, in one direction or both."""
    struck = machines.struck(fault, chance)
    return _cut(machines, fault, struck, range(len(machines.coordinators)), chance)


def _cut(
    machines: Machines,
    fault: Fault,
    struck: Sequence[SimNode | EngineLink],
    places: Sequence[int],
    chance: random.Random,
) -> End:
    cut = frozenset(chance.sample(places, chance.randint(1, len(places))))
    fields = [field for field in ("mute", "deaf") if not fault.kind.endswith(_OTHER_WAY[field])]
    return _all([_change(machines, one, field, cut) for one in struck for field in fields])


_OTHER_WAY = {"mute": "_deaf", "deaf": "_mute"}


def _drain_nodes(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = machines.struck(fault, chance)
    for node in struck:
        node.drain()
    # A node that has not left by then is killed: whoever started it again would do so.
    return _all([node.restart for node in struck])


def _step_calendars(machines: Machines, fault: Fault, chance: random.Random) -> End:
    clocks = [node.clock for node in machines.struck(fault, chance)]
    if fault.kind == "coordinator_calendar_stepped":
        clocks = [chance.choice(machines.coordinators).clock]
    return _all([_change(machines, clock, "step_s", chance.choice(STEPS_S)) for clock in clocks])


def _fill_disks(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = machines.struck(fault, chance)
    room = [_change(machines, node.disk, "full", True) for node in struck]
    return _all(room + [node.start for node in struck])


def _lie(machines: Machines, fault: Fault, chance: random.Random) -> End:
    """Some nodes send results that nobody gave them, and speak of hosts that others hold."""
    struck = machines.struck(fault, chance)
    honest = [node for node in machines.nodes if node not in struck]
    for node in struck:
        node.lie(chance.choice(honest) if honest else None, LIES_EVERY_S)
    # Liars are in quarantine by then. Whoever runs them puts honest ones into their places, under other names.
    return _all([node.replace for node in struck])


# Coordinators


def _kill_coordinators(machines: Machines, fault: Fault, chance: random.Random) -> End:
    everyone = fault.kind == "all_coordinators_killed"
    struck = machines.coordinators if everyone else [chance.choice(machines.coordinators)]
    for coordinator in struck:
        coordinator.kill()
    return _when_over(machines, DOWN, struck, SimCoordinator.start)


def _freeze_coordinator(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = [chance.choice(machines.coordinators)]
    struck[0].freeze()
    return _when_over(machines, FROZEN, struck, SimCoordinator.thaw)


def _cut_coordinator_off(machines: Machines, fault: Fault, chance: random.Random) -> End:
    """Cut a coordinator off from all servers of the engine or from some, in one direction or both."""
    link = chance.choice(machines.coordinators).link
    return _cut(machines, fault, [link], range(machines.servers.count), chance)


# The engine, the network, sites


def _slow_engine(machines: Machines, fault: Fault, chance: random.Random) -> End:
    return _change(machines, machines.servers, "slow_s", chance.uniform(*ENGINE_SLOW_S))


def _fail_over(machines: Machines, fault: Fault, chance: random.Random) -> End:
    server = chance.randrange(machines.servers.count)
    return _change(machines, machines.servers, "down", frozenset({server}))


def _trouble_messages(machines: Machines, fault: Fault, chance: random.Random) -> End:
    field, bounds = _TROUBLES[fault.kind]
    return _change(machines, machines.network, field, chance.uniform(*bounds))


_TROUBLES = {
    "messages_lost": ("loss", LOSS),
    "messages_doubled": ("duplication", DUPLICATION),
    "messages_overtaken": ("jitter_s", JITTER_S),
}


def _take_hosts_down(machines: Machines, fault: Fault, chance: random.Random) -> End:
    hosts = machines.web.hosts
    for host in chance.sample(hosts, max(1, int(chance.uniform(*HOSTS_DOWN_SHARE) * len(hosts)))):
        host.down_until = max(host.down_until, machines.loop.now + fault.lasts_s)
    return lambda: None


STRIKES: dict[str, Strike] = {
    "nodes_killed": _kill_nodes,
    "nodes_killed_with_disks": _kill_nodes,
    "nodes_frozen": _freeze_nodes,
    "nodes_lagging": _slow_nodes,
    "nodes_cut_off": _cut_off,
    "nodes_mute": _cut_off,
    "nodes_deaf": _cut_off,
    "nodes_drained": _drain_nodes,
    "nodes_calendars_stepped": _step_calendars,
    "disks_full": _fill_disks,
    "nodes_lie": _lie,
    "coordinator_killed": _kill_coordinators,
    "coordinator_frozen": _freeze_coordinator,
    "coordinator_calendar_stepped": _step_calendars,
    "all_coordinators_killed": _kill_coordinators,
    "engine_fails_over": _fail_over,
    "engine_slow": _slow_engine,
    "coordinator_cut_off": _cut_coordinator_off,
    "coordinator_mute": _cut_coordinator_off,
    "coordinator_deaf": _cut_coordinator_off,
    "messages_lost": _trouble_messages,
    "messages_doubled": _trouble_messages,
    "messages_overtaken": _trouble_messages,
    "hosts_down": _take_hosts_down,
}
