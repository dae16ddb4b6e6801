"""Pages that kill the process that reads them: a few tries, then a dead letter, whichever node reports it."""

from __future__ import annotations

from drumlin.config import CrawlConfig
from drumlin.coordinator.taking.strikes import strike
from drumlin.engines.blocking import drive
from drumlin.model import FailureKind, Outcome
from drumlin.node.limits import PARSE_CPU_S
from drumlin.protocol import KILLED, KILLS_MAX, Assignment, Result, Results
from tests.harness.dispatching import SEEDS, Asker, Driven, dispatcher, result

LEASE_S = 10.0
URL = SEEDS[0]


def told(task: Assignment) -> Result:
    """The report of a process whose predecessor was killed by a page."""
    kind = FailureKind.CRASH if task.attempts + 1 >= KILLS_MAX else KILLED
    return result(task, Outcome.FAILED, status_code=0, content_hash="", kind=kind, error="ended", capture_id="killed")


def tell(made: Driven, node: str, task: Assignment, now: float) -> None:
    made.results(Results([told(task)], []), now, node)


def leased(made: Driven, node: str, now: float) -> Assignment:
    made.tick(now)
    (lease,) = Asker(made, node).work(now)
    (task,) = lease.assignments
    return task


def kinds_of_dead(made: Driven) -> list[str]:
    return [letter.kind for letter in drive(made.made.engine.dead_letters_all())]


def test_a_page_that_kills_its_process_twice_is_a_dead_letter() -> None:
    made = dispatcher([URL])
    assert not drive(strike(made.made.engine, URL, 1.0, error="SIGSEGV"))
    assert drive(strike(made.made.engine, URL, 2.0, error="SIGSEGV"))
    assert made.totals(2.0).group("dead.") == {"crash": 1}


def test_a_page_that_outlasts_its_leases_ends_nodes_only_so_often() -> None:
    """Each of two nodes dies of the page after the other has got it, and reports it then."""
    made = dispatcher([URL], lease_s=LEASE_S)
    now, given = 0.0, 0
    had: dict[str, Assignment] = {}
    while not kinds_of_dead(made) and given < 20:
        node = f"n{given % 2}"
        if node in had:
            tell(made, node, had[node], now)
            if kinds_of_dead(made):
                break
        had[node] = leased(made, node, now)
        given += 1
        now += 2 * LEASE_S
    assert kinds_of_dead(made) == ["crash"]
    assert given <= 2 * KILLS_MAX
    assert made.totals(now).group("dead.") == {"crash": 1}


def test_telling_late_counts_once_however_often_it_is_told() -> None:
    made = dispatcher([URL], lease_s=LEASE_S)
    first = leased(made, "n0", 0.0)
    leased(made, "n1", 2 * LEASE_S)
    for _ in range(10):
        tell(made, "n0", first, 2 * LEASE_S + 1)
    assert kinds_of_dead(made) == []
    third = leased(made, "n2", 4 * LEASE_S)
    assert third.attempts == 1


def test_other_failures_that_come_late_are_held_against_nothing() -> None:
    made = dispatcher([URL], lease_s=LEASE_S)
    first = leased(made, "n0", 0.0)
    leased(made, "n1", 2 * LEASE_S)
    late = result(first, Outcome.FAILED, status_code=0, content_hash="", kind="timeout")
    made.results(Results([late], []), 2 * LEASE_S + 1, "n0")
    assert leased(made, "n2", 4 * LEASE_S).attempts == 0


def test_a_parse_is_ended_before_a_lease_that_is_renewed_in_time_can_be() -> None:
    assert CrawlConfig().lease_s / 2 > PARSE_CPU_S
