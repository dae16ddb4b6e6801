"""A run of retention: makes the plan, carries it out step by step, and notes in the book what was done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from drumlin.lifecycle.book import (
    RETENTION_WAITS,
    Book,
    RemovalUnderWay,
    Signature,
    begin_run,
    check_no_removal,
    end_run,
    holds_of,
    open_book,
    policy_of,
    runs_not_done,
)
from drumlin.lifecycle.retention.planning import Left, Plan, Step, Tally, Unit, held_by, make_plan
from drumlin.lifecycle.retention.policy import Policy
from drumlin.store.files import DirectoryFiles, StoreFiles
from drumlin.store.places import check_apart


class Store(Protocol):
    """A store in which retention works."""

    def units(self, policy: Policy) -> Iterator[Unit]:
        """What there is of the kinds that have a rule."""

    def working(self, now: float) -> AbstractContextManager[None]:
        """To be held while steps are carried out."""

    def perform(self, step: Step, now: float) -> Left | None:
        """Carry out a step. Returns why not, if it was not possible."""


def store_of(files: StoreFiles, logs: Path | None) -> Store:
    """The store in these files. `logs` is the directory of the crawl whose logs belong to it, if there is one."""
    if isinstance(files, DirectoryFiles):
        from drumlin.lifecycle.retention.in_directory import DirectoryStore

        return DirectoryStore(files.root, logs)
    # It loads a library that only stores in a bucket need.
    from drumlin.lifecycle.retention.in_bucket import BucketStore
    from drumlin.store.objects.files import ObjectFiles

    if not isinstance(files, ObjectFiles):
        raise TypeError(f"a store of an unknown kind: {files}")
    return BucketStore(files, logs)


def planned(files: StoreFiles, logs: Path | None, now: float) -> Tally:
    """What a run would do now. Nothing is changed, and nothing is noted."""
    return _plan(files, store_of(files, logs), open_book(files), now).tally


def apply(files: StoreFiles, logs: Path | None, who: Signature) -> Tally:
    """Carry out the policy. Returns what was done."""
    store, book = store_of(files, logs), open_book(files)
    with store.working(who.at):
        # A removal does not reach what was moved elsewhere, and what it has begun is only put right by its end.
        check_no_removal(book.orders(), *RETENTION_WAITS)
        plan = _plan(files, store, book, who.at)
        if plan.steps or runs_not_done(book.orders()):
            begin_run(book, who, plan.tally.said)
        done = Tally(left=plan.tally.left, held_by=plan.tally.held_by)
        try:
            for step in plan.steps:
                _perform(store, book, plan, step, who.at, done)
        except RemovalUnderWay:
            # It touches nothing from here on, so the removal need not wait for another run.
            end_run(book, who, done.said)
            raise
    end_run(book, who, done.said)
    return done


def _perform(store: Store, book: Book, plan: Plan, step: Step, now: float, done: Tally) -> None:
    """Carry out a step, unless a hold has come since the plan was made: a run may take hours. It may also have been
    taken for a killed one, so that a removal has begun."""
    orders = book.orders()
    check_no_removal(orders, *RETENTION_WAITS)
    holds = holds_of(orders)
    hold = held_by(step.unit, holds) if holds.all != plan.holds.all else None
    why = Left.HELD if hold is not None else store.perform(step, now)
    if why is None:
        done.add(step)
    else:
        done.leave(step.unit.kind, why, hold)


def _plan(files: StoreFiles, store: Store, book: Book, now: float) -> Plan:
    orders = book.orders()
    policy = policy_of(orders)
    for rule in policy.rules.values():
        if rule.move_to:
            # It was looked at when the rule was set, but since then a link may have changed, or the store its place.
            check_apart(str(files), rule.move_to)
    return make_plan(store.units(policy), policy, holds_of(orders), now)
