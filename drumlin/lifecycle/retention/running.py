"""A run of retention: makes the plan, carries it out step by step, and notes in the book what was done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from drumlin.lifecycle.book import (
    BEGUN,
    DONE,
    Book,
    Signature,
    check_no_removal,
    holds_of,
    note_run,
    open_book,
    policy_of,
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
        check_no_removal(book.orders(), "retention could move what it has to remove", "apply retention")
        plan = _plan(files, store, book, who.at)
        if plan.steps:
            note_run(book, who, BEGUN, plan.tally.said)
        done = Tally(left=plan.tally.left, held_by=plan.tally.held_by)
        for step in plan.steps:
            # A hold may have come since the plan was made: a run may take hours.
            holds = holds_of(book.orders())
            hold = held_by(step.unit, holds) if holds.all != plan.holds.all else None
            why = Left.HELD if hold is not None else store.perform(step, who.at)
            if why is None:
                done.add(step)
            else:
                done.leave(step.unit.kind, why, hold)
    note_run(book, who, DONE, done.said)
    return done


def _plan(files: StoreFiles, store: Store, book: Book, now: float) -> Plan:
    orders = book.orders()
    policy = policy_of(orders)
    for rule in policy.rules.values():
        if rule.move_to:
            # It was looked at when the rule was set, but since then a link may have changed, or the store its place.
            check_apart(str(files), rule.move_to)
    return make_plan(store.units(policy), policy, holds_of(orders), now)
