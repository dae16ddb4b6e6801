"""What comes of a simulation in which something breaks: it is told, made small, and explained."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from drumlin.sim import shrinking
from drumlin.sim.faults import Fault
from drumlin.sim.recalling import EVENTS_MAX, Recall
from drumlin.sim.running import NO_CRASH, Broken, Outcome, minimal_log, recalled, run
from drumlin.sim.scenario import Scenario, of_seed
from drumlin.sim.shrinking import TRIES_MAX, OutOfTime, shrunk
from drumlin.sim.simulation import Simulation
from drumlin.urls import host_of
from tests.harness.planted import BUGS, planted

SMALL = Scenario(nodes=5, hosts=30, duration_s=60.0, heartbeat_s=10.0)


# Crashes


def raise_in(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def broken(self: Simulation) -> None:
        raise error

    monkeypatch.setattr(Simulation, "_look", broken)


@pytest.mark.parametrize("error", [KeyError("oops\nagain"), GeneratorExit("oops\nagain")])
def test_a_crash_of_the_simulated_code_is_a_broken_promise(
    error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_in(monkeypatch, error)
    found = run(SMALL)
    assert found.broken is not None
    assert (found.broken.checker, found.broken.at) == (NO_CRASH, 5.0)
    assert found.broken.said.startswith(f"{type(error).__name__}: ")
    assert "\n" not in found.broken.said
    told = minimal_log(found)
    assert any("in broken" in line for line in told)
    assert told[-1].endswith(found.broken.said)
    small = shrunk(found)
    assert small.scenario.duration_s == 6.0
    assert small.broken == found.broken


def test_ctrl_c_is_no_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    raise_in(monkeypatch, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(SMALL)


def test_what_a_listener_raises_is_no_crash_of_what_is_simulated() -> None:
    def fail(heard: object) -> None:
        raise BrokenPipeError

    faulty = msgspec.structs.replace(SMALL, faults=(Fault("hosts_down", 5.0, 1.0),))
    with pytest.raises(BrokenPipeError):
        run(faulty, tell=fail)
    with pytest.raises(BrokenPipeError):
        run(faulty, progress=fail)


# Making it small

BROKEN = Broken("least_gap", 50.0, "h1.example is asked")
LARGE = msgspec.structs.replace(of_seed(0, short=True), nodes=40, hosts=160, suspends=0.2)


def found_in(scenario: Scenario, broken: Broken | None = BROKEN) -> Outcome:
    return Outcome(scenario, {}, [], [], broken)


def test_a_try_that_raises_is_not_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(smaller: Scenario, **more: Any) -> Outcome:
        raise GeneratorExit

    monkeypatch.setattr(shrinking, "run", run)
    assert shrunk(found_in(LARGE)).scenario is LARGE


def test_ctrl_c_in_a_try_keeps_what_was_found_before(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = list[Outcome]()

    def run(smaller: Scenario, **more: Any) -> Outcome:
        if kept:
            raise KeyboardInterrupt
        return found_in(smaller)

    monkeypatch.setattr(shrinking, "run", run)
    with pytest.raises(KeyboardInterrupt):
        shrunk(found_in(LARGE), better=kept.append)
    assert [one.scenario.duration_s for one in kept] == [130.0]


@pytest.mark.parametrize(("said", "smaller"), [("ValueError: 'oops'", False), ("KeyError: 'other'", True)])
def test_a_crash_of_another_kind_is_not_the_same(said: str, smaller: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before, other = (found_in(LARGE, Broken(NO_CRASH, 50.0, one)) for one in ("KeyError: 'oops'", said))
    monkeypatch.setattr(shrinking, "run", lambda tried, **more: found_in(tried, other.broken))
    assert (shrunk(before).scenario.nodes < LARGE.nodes) is smaller


def test_each_try_is_told_with_what_changed_and_none_is_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    tried, told = list[Scenario](), list[str]()

    def run(smaller: Scenario, **more: Any) -> Outcome:
        tried.append(smaller)
        return found_in(smaller, BROKEN if smaller.nodes > 15 else None)

    monkeypatch.setattr(shrinking, "run", run)
    faults = tuple(Fault("nodes_killed", 10.0 + n, 1.0, 0.1) for n in range(3))
    small = shrunk(found_in(msgspec.structs.replace(LARGE, faults=faults)), told.append).scenario
    assert (small.nodes, small.faults, small.suspends) == (16, (), 0.0)
    assert len(tried) == len(set(tried)) == len(told)
    changes = [line.partition(": ")[2] for line in told]
    assert told[0] == "Try 1 of 60: 130 s in place of 420: still broken."
    assert changes[1] == ("without nodes_killed at 10 s and nodes_killed at 11 s and 1 more fault: still broken.")
    assert changes[2] == "10 nodes in place of 40: not broken."
    assert "no call of the engine lets others come first: still broken." in changes


def test_a_search_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    many = msgspec.structs.replace(LARGE, faults=tuple(Fault("nodes_killed", float(n), 1.0) for n in range(45)))
    tried, told = list[Scenario](), list[str]()

    def run(smaller: Scenario, **more: Any) -> Outcome:
        tried.append(smaller)
        return found_in(smaller, None)

    monkeypatch.setattr(shrinking, "run", run)
    shrunk(found_in(many))
    assert len(tried) == TRIES_MAX

    def watch(smaller: Scenario, now: float) -> None:
        if len(tried) == TRIES_MAX + 2:
            raise OutOfTime

    assert shrunk(found_in(many), told.append, watch=watch).scenario is many
    assert len(tried) == TRIES_MAX + 2
    assert told[-1] == "The time for looking is over."


def test_whoever_watches_ends_a_try_that_takes_long() -> None:
    seen = list[float]()

    def watch(smaller: Scenario, now: float) -> None:
        seen.append(now)
        if now >= 10.0:
            raise OutOfTime

    shrunk(found_in(SMALL), watch=watch)
    assert seen == [0.0, 5.0, 10.0]


# What led to it


def test_the_last_events_of_the_host_are_told_with_a_violation() -> None:
    with planted(BUGS["a lost settle"]):
        found = run(of_seed(0, short=True))
        explained = recalled(found)
    assert found.recalled == []
    told = minimal_log(explained)
    assert told[-1] == minimal_log(found)[-1]
    assert found.broken is not None
    node, host = found.broken.said.split()[0], host_of(found.broken.said.split()[4])
    start = told.index(f"What happened last to {host}:")
    events = "\n".join(told[start:-1])
    for said in (
        f"is leased to {node} until",
        f"{node} sends a request for",
        "reaches the host",
        "result for",
        "counts",
    ):
        assert said in events
    assert told[-2].split()[0] == told[-1].split()[0]


def test_a_simulation_goes_the_same_way_if_its_events_are_kept_and_few_are() -> None:
    kept = list[Recall]()

    def also(*seen: Any) -> Recall:
        kept.append(Recall(*seen))
        return kept[0]

    faulty = msgspec.structs.replace(SMALL, faults=(Fault("nodes_killed", 20.0, 20.0, 0.4),))
    assert run(faulty, also=also).figures == run(faulty).figures
    lengths = {name: len(events) for name, events in kept[0]._events.items()}
    assert max(lengths.values()) == EVENTS_MAX
    assert {"n0", "h0.example"} <= lengths.keys()


def test_leases_are_told_in_virtual_seconds() -> None:
    """Engine time goes from one coordinator to the next, and stands still between them."""
    kept = list[Recall]()

    def also(*seen: Any) -> Recall:
        kept.append(Recall(*seen))
        return kept[0]

    faults = (Fault("all_coordinators_killed", 15.0, 10.0), Fault("nodes_killed", 30.0, 29.0, 1.0))
    run(msgspec.structs.replace(SMALL, faults=faults, page_s=0.5), also=also)
    leases = [line for events in kept[0]._events.values() for line in events if "is leased" in line]
    late = [line for line in leases if float(line.split()[0]) > 26.0]
    assert late
    for line in late:
        begun, until = float(line.split()[0]), float(line.partition("until about ")[2].partition(",")[0])
        assert SMALL.lease_s - 1.5 < until - begun < SMALL.lease_s + 1.5
    ended = [line for events in kept[0]._events.values() for line in events if "loses" in line]
    assert ended


def test_a_sentence_without_a_host_leads_to_its_nodes() -> None:
    simulation = Simulation(SMALL, also=Recall)
    recall = simulation.checkers[0]
    assert isinstance(recall, Recall)
    simulation.run()
    assert recall.about("n3 has no host, and one has been ready for 60 s")[0] == "What happened last to n3:"
    assert recall.about("n3 asks for http://h0.example/p/0, but n1 holds the host")[0].endswith(" h0.example:")
    assert recall.about("5 URLs were accepted and 4 are known") == []


# The log


def test_the_log_tells_a_share_only_of_faults_that_strike_nodes() -> None:
    faults = (Fault("nodes_killed", 5.0, 1.0, 0.4), Fault("coordinator_cut_off", 6.0, 1.0, 0.4))
    log = run(msgspec.structs.replace(SMALL, duration_s=8.0, faults=faults)).log
    assert "     5.000 nodes_killed for 1 s, 40% of the nodes" in log
    assert "     6.000 coordinator_cut_off for 1 s" in log


def test_progress_is_told_at_every_look() -> None:
    heard = list[float]()
    run(msgspec.structs.replace(SMALL, duration_s=20.0), progress=heard.append)
    assert heard == [5.0, 10.0, 15.0, 20.0]
