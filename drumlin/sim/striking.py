"""Does what faults say. Each function begins a fault and returns what ends it."""

from __future__ import annotations

import random
from collections.abc import Callable

import msgspec

from drumlin.sim.faults import Fault
from drumlin.sim.machines.calling import Network
from drumlin.sim.machines.coordinator import SimCoordinator
from drumlin.sim.machines.engine import EngineServers
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


class Machines(msgspec.Struct):
    """All that faults can strike."""

    loop: VirtualLoop
    nodes: list[SimNode]
    coordinators: list[SimCoordinator]
    network: Network
    servers: EngineServers
    web: Web

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


# Nodes


def _kill_nodes(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = machines.struck(fault, chance)
    for node in struck:
        node.kill(disk_lost=fault.kind == "nodes_killed_with_disks")
    return _all([node.start for node in struck])


def _freeze_nodes(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = machines.struck(fault, chance)
    for node in struck:
        node.freeze()
    return _all([node.thaw for node in struck])


def _slow_nodes(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = machines.struck(fault, chance)
    for node in struck:
        node.lag_s = chance.uniform(*LAG_S)

    def end() -> None:
        for node in struck:
            node.lag_s = 0.0

    return end


def _cut_off(machines: Machines, fault: Fault, chance: random.Random) -> End:
    """Cut nodes off from all coordinators or from some, in one direction or both."""
    struck = machines.struck(fault, chance)
    places = range(len(machines.coordinators))
    cut = frozenset(chance.sample(places, chance.randint(1, len(places))))
    for node in struck:
        node.mute = cut if fault.kind != "nodes_deaf" else frozenset()
        node.deaf = cut if fault.kind != "nodes_mute" else frozenset()

    def end() -> None:
        for node in struck:
            node.mute = node.deaf = frozenset()

    return end


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
    for clock in clocks:
        clock.step_s = chance.choice(STEPS_S)

    def end() -> None:
        for clock in clocks:
            clock.step_s = 0.0

    return end


def _fill_disks(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = machines.struck(fault, chance)
    for node in struck:
        node.disk.full = True

    def end() -> None:
        for node in struck:
            node.disk.full = False
            node.start()

    return end


def _lie(machines: Machines, fault: Fault, chance: random.Random) -> End:
    """Some nodes send results that nobody gave them, and speak of hosts that others hold."""
    struck = machines.struck(fault, chance)
    for node in struck:
        node.lie(chance.choice(machines.nodes).name, LIES_EVERY_S)
    # Liars are in quarantine by then. Whoever runs them puts honest ones into their places, under other names.
    return _all([node.replace for node in struck])


# Coordinators


def _kill_coordinators(machines: Machines, fault: Fault, chance: random.Random) -> End:
    everyone = fault.kind == "all_coordinators_killed"
    struck = machines.coordinators if everyone else [chance.choice(machines.coordinators)]
    for coordinator in struck:
        coordinator.kill()
    return _all([coordinator.start for coordinator in struck])


def _freeze_coordinator(machines: Machines, fault: Fault, chance: random.Random) -> End:
    struck = chance.choice(machines.coordinators)
    struck.freeze()
    return struck.thaw


def _cut_coordinator_off(machines: Machines, fault: Fault, chance: random.Random) -> End:
    """Cut a coordinator off from all servers of the engine or from some, in one direction or both."""
    link = chance.choice(machines.coordinators).link
    servers = range(machines.servers.count)
    cut = frozenset(chance.sample(servers, chance.randint(1, len(servers))))
    link.mute = cut if fault.kind != "coordinator_deaf" else frozenset()
    link.deaf = cut if fault.kind != "coordinator_mute" else frozenset()

    def end() -> None:
        link.mute = link.deaf = frozenset()

    return end


# The engine, the network, sites


def _slow_engine(machines: Machines, fault: Fault, chance: random.Random) -> End:
    machines.servers.slow_s = chance.uniform(*ENGINE_SLOW_S)

    def end() -> None:
        machines.servers.slow_s = 0.0

    return end


def _fail_over(machines: Machines, fault: Fault, chance: random.Random) -> End:
    server = chance.randrange(machines.servers.count)
    machines.servers.down.add(server)
    return lambda: machines.servers.down.discard(server)


def _trouble_messages(machines: Machines, fault: Fault, chance: random.Random) -> End:
    network, (field, bounds) = machines.network, _TROUBLES[fault.kind]
    setattr(network, field, chance.uniform(*bounds))
    return lambda: setattr(network, field, 0.0)


_TROUBLES = {
    "messages_lost": ("loss", LOSS),
    "messages_doubled": ("duplication", DUPLICATION),
    "messages_overtaken": ("jitter_s", JITTER_S),
}


def _take_hosts_down(machines: Machines, fault: Fault, chance: random.Random) -> End:
    hosts = machines.web.hosts
    for host in chance.sample(hosts, max(1, int(chance.uniform(*HOSTS_DOWN_SHARE) * len(hosts)))):
        host.down_until = machines.loop.now + fault.lasts_s
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
