"""What retention decides, and how orders are kept: policies, plans, holds, and the book in which they stand."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.errors import ConfigError, StorageError
from drumlin.lifecycle.book import (
    DirectoryBook,
    Signature,
    add_hold,
    holds_of,
    lift_hold,
    policy_of,
    set_rule,
    signature,
)
from drumlin.lifecycle.holds import Hold, Holds, make_hold
from drumlin.lifecycle.retention.planning import Left, Unit, make_plan
from drumlin.lifecycle.retention.policy import Action, Kind, Policy, Rule, make_rule

NOW = 1_800_000_000.0
DAY_S = 86_400.0
WHO = Signature("alice", "root", NOW)
NOBODY = Holds([])


def unit(kind: Kind = Kind.WARC, name: str = "u", age_s: float = 0.0, host: str = "a.test", **more: object) -> Unit:
    fields = {"paths": ["x"], "movable": ["x"], "rows": 2, "bytes": 10, "bytes_movable": 10, "hosts": lambda: [host]}
    return Unit(kind=kind, name=name, newest=NOW - age_s, **(fields | more))  # type: ignore[arg-type]


# Policies


@pytest.mark.parametrize(
    ("keep", "move_after", "move_to", "said"),
    [
        ("soon", "", "", "no duration"),
        ("10m", "", "", "too short"),
        ("9d", "5d", "", "only one is given"),
        ("9d", "", "/cold", "only one is given"),
        ("9d", "9d", "/cold", "deleted before it is moved"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(keep: str, move_after: str, move_to: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_rule(keep, move_after, move_to)


def test_text_is_not_moved_and_not_taken_out_of_moved_tables() -> None:
    with pytest.raises(ConfigError, match="cannot be moved without it"):
        Policy({Kind.TEXT: Rule(0.0, DAY_S, "/cold")}).check()
    with pytest.raises(ConfigError, match="moved away"):
        Policy({Kind.TEXT: Rule(9 * DAY_S), Kind.TABLES: Rule(0.0, 5 * DAY_S, "/cold")}).check()
    Policy({Kind.TEXT: Rule(4 * DAY_S), Kind.TABLES: Rule(0.0, 5 * DAY_S, "/cold")}).check()


@given(age=st.floats(0, 1e9), keep=st.floats(0, 1e9), move=st.floats(0, 1e9), moved=st.booleans())
def test_what_is_old_enough_is_deleted_or_moved_and_nothing_else(
    age: float, keep: float, move: float, moved: bool
) -> None:
    rule = Rule(keep, move, "/cold" if move else "")
    action = rule.due(-age, 0.0, moved=moved)
    assert (action is Action.DELETE) == (keep > 0 and age >= keep)
    assert (action is Action.MOVE) == (move > 0 and not moved and age >= move and not (keep > 0 and age >= keep))


# Plans


ages = st.floats(0, 100 * DAY_S)
units = st.lists(
    st.builds(
        lambda kind, name, age, host, busy: unit(kind, name, age, host, busy=busy),
        st.sampled_from(Kind),
        st.sampled_from("abcdef"),
        ages,
        st.sampled_from(["a.test", "b.test", "sub.b.test"]),
        st.none() | st.sampled_from([Left.GROWING, Left.EVENTS_OWED]),
    ),
    max_size=20,
)


@given(units, ages)
def test_a_plan_touches_nothing_that_is_young_busy_or_held(found: list[Unit], keep: float) -> None:
    policy = Policy(dict.fromkeys(Kind, Rule(keep)))
    holds = Holds([Hold("h", "because", "me", NOW, domain="b.test")])
    plan = make_plan(found, policy, holds, NOW)
    for step in plan.steps:
        assert NOW - step.unit.newest >= keep > 0
        assert step.unit.busy is None
        assert step.unit.hosts is not None
        assert list(step.unit.hosts()) == ["a.test"]
    done = sum(one.units for one in plan.tally.numbers.values())
    assert done == len(plan.steps)
    due = [one for one in found if keep > 0 and NOW - one.newest >= keep]
    doomed = {step.unit.name for step in plan.steps if step.unit.kind is Kind.TABLES}
    spared = [one for one in due if one.kind is Kind.TEXT and one.name in doomed]
    assert done + sum(plan.tally.left.values()) + len(spared) == len(due)


def test_what_cannot_be_told_apart_is_covered_by_any_hold() -> None:
    holds = Holds([Hold("h", "because", "me", NOW, host="a.test")])
    log = unit(Kind.LOGS, age_s=9 * DAY_S, hosts=None)
    plan = make_plan([log], Policy({Kind.LOGS: Rule(DAY_S)}), holds, NOW)
    assert (plan.steps, dict(plan.tally.held_by)) == ([], {"h": 1})


def test_what_is_dated_ahead_is_told_of() -> None:
    plan = make_plan([unit(age_s=-9 * DAY_S)], Policy({Kind.WARC: Rule(DAY_S)}), NOBODY, NOW)
    assert (plan.steps, dict(plan.tally.left)) == ([], {"warc ahead": 1})


def test_text_goes_before_its_tables_are_moved() -> None:
    policy = Policy({Kind.TEXT: Rule(DAY_S), Kind.TABLES: Rule(0.0, 2 * DAY_S, "/cold")})
    found = [unit(Kind.TABLES, age_s=9 * DAY_S), unit(Kind.TEXT, age_s=9 * DAY_S)]
    assert [step.unit.kind for step in make_plan(found, policy, NOBODY, NOW).steps] == [Kind.TEXT, Kind.TABLES]


# Holds


def test_a_hold_covers_its_host_or_the_hosts_of_its_domain() -> None:
    on_host = make_hold("a", "why", "me", NOW, host="Example.org")
    assert on_host.covers("example.org")
    assert on_host.covers("example.org:8080")
    assert not on_host.covers("www.example.org")
    on_port = make_hold("a", "why", "me", NOW, host="example.org:8080")
    assert on_port.covers("example.org:8080")
    assert not on_port.covers("example.org")
    on_domain = make_hold("a", "why", "me", NOW, domain="example.org")
    assert on_domain.covers("example.org")
    assert on_domain.covers("a.b.example.org:81")
    assert not on_domain.covers("notexample.org")
    assert make_hold("a", "why", "me", NOW).covers("whatever.test")
    # As a stranger's node may write it.
    assert not on_domain.covers("[a")
    holds = Holds([on_host, on_domain])
    assert holds.covering("www.example.org") == on_domain
    assert holds.covering("other.test") is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"name": ""}, "has a name"),
        ({"name": "a\nb"}, "has a name"),
        ({"reason": " "}, "has a reason"),
        ({"host": "http://a.test/"}, "is no host"),
        ({"host": "a.test:80"}, "a port that it cannot have"),
        ({"domain": "a.test:8080"}, "a port that it cannot have"),
        ({"host": "a.test", "domain": "b.test"}, "not on both"),
    ],
)
def test_a_hold_that_makes_no_sense_is_refused(fields: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_hold(**({"name": "n", "reason": "why", "by": "me", "at": NOW} | fields))  # type: ignore[arg-type]


# The book


def test_the_book_says_what_is_in_force_and_who_ordered_it(tmp_path: Path) -> None:
    book = DirectoryBook(tmp_path)
    set_rule(book, WHO, Kind.WARC, Rule(9 * DAY_S))
    set_rule(book, WHO, Kind.WARC, Rule(5 * DAY_S))
    add_hold(book, WHO, make_hold("a", "why", "alice", NOW))
    add_hold(book, WHO, make_hold("b", "why", "alice", NOW, host="b.test"))
    lift_hold(book, signature("", NOW), "a")
    orders = DirectoryBook(tmp_path).orders()
    assert policy_of(orders).rules == {Kind.WARC: Rule(5 * DAY_S)}
    assert [hold.name for hold in holds_of(orders).all] == ["b"]
    assert [(order.action, order.by) for order in orders[:2]] == [("retention.set", "alice")] * 2
    assert orders[-1].by == orders[-1].user
    with pytest.raises(ConfigError, match="already"):
        add_hold(book, WHO, make_hold("b", "why", "alice", NOW))
    with pytest.raises(ConfigError, match="There are: b"):
        lift_hold(book, WHO, "a")


def test_a_line_that_a_kill_cut_off_is_dropped(tmp_path: Path) -> None:
    book = DirectoryBook(tmp_path)
    set_rule(book, WHO, Kind.WARC, Rule(DAY_S))
    path = tmp_path / "lifecycle" / "book.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-20])
    assert len(book.orders()) == 1
    set_rule(book, WHO, Kind.TEXT, Rule(DAY_S))
    assert len(DirectoryBook(tmp_path).orders()) == 2
    assert path.read_bytes().startswith(whole)


def test_a_disk_that_takes_only_a_part_of_an_order_has_refused_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room, write = 20, os.pwrite

    def pwrite(descriptor: int, content: bytes, at: int) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "full")
        done = write(descriptor, content[:room], at)
        room -= done
        return done

    monkeypatch.setattr(os, "pwrite", pwrite)
    book = DirectoryBook(tmp_path)
    with pytest.raises(StorageError, match="the disk is full"):
        add_hold(book, WHO, make_hold("one", "why", "alice", NOW))
    room = 1_000
    add_hold(book, WHO, make_hold("two", "why", "alice", NOW))
    assert [hold.name for hold in holds_of(DirectoryBook(tmp_path).orders()).all] == ["two"]
