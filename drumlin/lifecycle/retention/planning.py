"""Decides what retention does: which units are due, and which of those are left alone. Reads no clock and no file; a
unit tells what costs time to find out, such as its hosts, only if it is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from drumlin.lifecycle.holds import Hold, Holds
from drumlin.lifecycle.retention.policy import Action, Kind, Policy

CLOCKS_DIFFER_S: Final = 86_400.0
"""By how much a unit may be ahead of our clock before somebody should look at it."""


class Left(StrEnum):
    """Why a unit that would be due is left alone."""

    HELD = "held"
    GROWING = "growing"
    EVENTS_OWED = "events_owed"
    UNREADABLE = "unreadable"
    AHEAD = "ahead"
    BEING_READ = "being_read"
    CHANGED = "changed"


LEFT_MEANINGS: Final = {
    Left.HELD: "a hold covers them",
    Left.GROWING: "more may come to them, or a journal needs them",
    Left.EVENTS_OWED: "Kafka was not told of all that is in them",
    Left.UNREADABLE: "they cannot be read",
    Left.AHEAD: "they are dated more than a day ahead",
    Left.BEING_READ: "a question in SQL was reading them; run it again",
    Left.CHANGED: "something else changed them meanwhile; run it again",
}


class CannotTell(Exception):  # it is no error of the run
    """Whose data is in a unit cannot be found out."""


class Unit(msgspec.Struct, frozen=True, kw_only=True):
    """What is deleted or moved as a whole. `paths` are its files; those to be moved may be fewer. `newest` is the time
    of its newest part. `hosts` finds out whose data is in it; any hold covers a unit without it, and one of which it
    raises `CannotTell`."""

    kind: Kind
    name: str
    paths: Sequence[str]
    movable: Sequence[str] = ()
    rows: int
    bytes: int
    bytes_movable: int = 0
    newest: float
    moved: bool = False
    busy: Left | None = None
    hosts: Callable[[], Iterable[str]] | None = None


class Step(msgspec.Struct, frozen=True):
    """What is done with one unit."""

    action: Action
    unit: Unit
    to: str = ""

    @property
    def files(self) -> int:
        return len(self.unit.paths) if self.action is Action.DELETE else len(self.unit.movable)

    @property
    def bytes(self) -> int:
        return self.unit.bytes if self.action is Action.DELETE else self.unit.bytes_movable


class Numbers(msgspec.Struct):
    """How much of one kind was, or would be, deleted or moved, and how much was left alone and why."""

    kind: Kind
    action: Action
    units: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0


class Tally(msgspec.Struct):
    """What a run does, or would do."""

    numbers: dict[str, Numbers] = {}
    left: Counter[str] = msgspec.field(default_factory=Counter)
    held_by: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, step: Step) -> None:
        kind, action = step.unit.kind, step.action
        one = self.numbers.setdefault(f"{kind} {action}", Numbers(kind, action))
        one.units += 1
        one.files += step.files
        one.rows += step.unit.rows
        one.bytes += step.bytes

    def leave(self, kind: Kind, why: Left, hold: Hold | None = None) -> None:
        self.left[f"{kind} {why}"] += 1
        if hold is not None:
            self.held_by[hold.name] += 1

    @property
    def said(self) -> str:
        """The numbers on one line, for the audit log."""
        done = [
            f"{one.action} {one.kind}: {one.units} units, {one.files} files, {one.rows} rows, {one.bytes} bytes"
            for one in self.numbers.values()
        ]
        left = [f"left alone {name}: {count}" for name, count in sorted(self.left.items())]
        return "; ".join([*done, *left]) or "nothing was due"


class Plan(msgspec.Struct):
    """The steps of a run, what it leaves alone, and the holds that were in force."""

    steps: list[Step]
    tally: Tally
    holds: Holds


def make_plan(units: Iterable[Unit], policy: Policy, holds: Holds, now: float) -> Plan:
    """What is to be done by this policy. Units of text whose tables are deleted too are left to that."""
    plan, doomed = Plan([], Tally(), holds), set[str]()
    for unit in sorted(units, key=lambda unit: (_ORDER[unit.kind], unit.newest, unit.name)):
        if unit.kind is Kind.TEXT and unit.name in doomed:
            continue
        rule = policy.rule(unit.kind)
        action = rule.due(unit.newest, now, moved=unit.moved)
        if (rule.keep_s or rule.move_to) and unit.newest > now + CLOCKS_DIFFER_S:
            plan.tally.leave(unit.kind, Left.AHEAD)
        elif action is not None and unit.busy is not None:
            plan.tally.leave(unit.kind, unit.busy)
        elif action is not None and (hold := held_by(unit, holds)) is not None:
            plan.tally.leave(unit.kind, Left.HELD, hold)
        elif action is not None:
            plan.steps.append(Step(action, unit, rule.move_to if action is Action.MOVE else ""))
            plan.tally.add(plan.steps[-1])
            if unit.kind is Kind.TABLES and action is Action.DELETE:
                doomed.add(unit.name)
    # Text is taken out of tables before these are moved.
    plan.steps.sort(key=lambda step: step.action is Action.MOVE)
    return plan


_ORDER: Final = {Kind.WARC: 0, Kind.TABLES: 1, Kind.TEXT: 2, Kind.LOGS: 3}


def held_by(unit: Unit, holds: Holds) -> Hold | None:
    """The hold that covers a unit, if one does."""
    if not holds.all:
        return None
    if holds.of_all is not None or unit.hosts is None:
        return holds.of_all or holds.all[0]
    try:
        return holds.covering_any(unit.hosts())
    except CannotTell:
        return holds.all[0]
