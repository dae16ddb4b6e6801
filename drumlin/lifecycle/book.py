"""The book of a store: every order about its retention and holds, and what was carried out, in the order of time.

In a directory it is a file of lines. In a bucket it is a row of numbered objects, each of which is written only if
there is none of its number. Entries are never changed, so the book says what is in force, and who wanted it since when.
"""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import msgspec

from drumlin.errors import BusyError, ConfigError
from drumlin.lifecycle.holds import HOLDS_MAX, Hold, Holds
from drumlin.lifecycle.retention.policy import Kind, Policy, Rule
from drumlin.lines import one_line
from drumlin.store.files import DirectoryFiles, StoreFiles
from drumlin.store.ledger import LIFECYCLE, READERS_LOCK, LineFile

if TYPE_CHECKING:
    from drumlin.store.objects.bucket import Bucket

BOOK_NAME: Final = "book.jsonl"
SET, APPLY, HOLD, LIFT = "retention.set", "retention.apply", "hold.add", "hold.lift"
REMOVAL: Final = "removal"
BEGUN, DONE = "begun", "done"
NAME_CHARS_MAX: Final = 100
TRIES_MAX: Final = 100
RETENTION_WAITS: Final = ("retention could move what it has to remove", "apply retention")


class RemovalUnderWay(BusyError):
    """Something cannot be done before a removal is done."""


class Order(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry: who ordered what, and when. `user` is the user of the operating system, whatever name was given."""

    at: float
    by: str
    user: str
    action: str
    kind: Kind | None = None
    rule: Rule | None = None
    hold: Hold | None = None
    name: str = ""
    outcome: str = DONE
    said: str = ""

    @property
    def target(self) -> str:
        """What it is about, in words, for the audit log."""
        if self.hold is not None:
            return f"{self.hold.name}: {self.hold.what}, because {self.hold.reason}"
        if self.kind is not None and self.rule is not None:
            return f"{self.kind}: {self.rule.shown}"
        return self.said or self.name


class Book(Protocol):
    """Calls block. `StorageError` if the store cannot be read or written."""

    def orders(self) -> Sequence[Order]:
        """All entries, oldest first."""

    def add(self, decide: Callable[[Sequence[Order]], Order]) -> Order:
        """Add the entry that follows from all before it. `decide` may raise, and is asked again if another process was
        faster."""


class DirectoryBook:
    """The book of a store that is a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = LineFile(root / LIFECYCLE / BOOK_NAME, Order)

    def orders(self) -> Sequence[Order]:
        return self._file.read().copy()

    def add(self, decide: Callable[[Sequence[Order]], Order]) -> Order:
        order = self._file.append(decide)
        # From now on tables may be deleted, so their readers need a lock.
        (self._root / LIFECYCLE / READERS_LOCK).touch()
        return order


class BucketBook:
    """The book of a store in a bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._known: list[Order] = []
        self._lock = threading.Lock()

    def orders(self) -> Sequence[Order]:
        with self._lock:
            listed = self._bucket.listed(LIFECYCLE, after=_object(len(self._known)))
            for name in [one.name for one in listed]:
                if name != _object(len(self._known) + 1):
                    # A listing that is made while entries come may lack one: the rest is read next time.
                    break
                self._known.append(msgspec.json.decode(self._bucket.get(name), type=Order))
            return self._known.copy()

    def add(self, decide: Callable[[Sequence[Order]], Order]) -> Order:
        for _ in range(TRIES_MAX):
            before = self.orders()
            order = decide(before)
            if self._bucket.create(_object(len(before) + 1), msgspec.json.encode(order)):
                return order
        raise BusyError(f"Too many others write to {self._bucket.address}.", "Try again.")


def _object(number: int) -> str:
    return f"{LIFECYCLE}/{number:010}.json"


def open_book(files: StoreFiles) -> Book:
    """The book of a store."""
    if isinstance(files, DirectoryFiles):
        return DirectoryBook(files.root)
    # It loads a library that only stores in a bucket need.
    from drumlin.store.objects.files import ObjectFiles

    if not isinstance(files, ObjectFiles):
        raise TypeError(f"a store of an unknown kind: {files}")
    return BucketBook(files.bucket)


def policy_of(orders: Sequence[Order]) -> Policy:
    """The policy that is in force: the last rule of each kind."""
    rules = {order.kind: order.rule for order in orders if order.kind is not None and order.rule is not None}
    return Policy(rules)


def holds_of(orders: Sequence[Order]) -> Holds:
    """The holds that are in force."""
    holds: dict[str, Hold] = {}
    for order in orders:
        if order.hold is not None:
            holds[order.hold.name] = order.hold
        elif order.action == LIFT:
            holds.pop(order.name, None)
    return Holds(holds.values())


def holds_in(files: StoreFiles) -> Holds:
    """The holds that are in force on a store."""
    return holds_of(open_book(files).orders())


class Signature(msgspec.Struct, frozen=True):
    """Who gives an order, and when."""

    by: str
    user: str
    at: float


def signature(by: str, now: float) -> Signature:
    """Who runs this process, under the name that is given, if one is."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    if len(by) > NAME_CHARS_MAX or one_line(by) != by:
        raise ConfigError(f"A name after --by has at most {NAME_CHARS_MAX} printable characters.")
    return Signature(by or user, user, now)


def set_rule(book: Book, who: Signature, kind: Kind, rule: Rule) -> Policy:
    """Have a kind kept by this rule from now on."""

    def decide(orders: Sequence[Order]) -> Order:
        Policy({**policy_of(orders).rules, kind: rule}).check()
        return Order(who.at, who.by, who.user, SET, kind=kind, rule=rule)

    book.add(decide)
    return policy_of(book.orders())


def add_hold(book: Book, who: Signature, hold: Hold) -> None:
    def decide(orders: Sequence[Order]) -> Order:
        check_no_removal(orders, "a hold could come too late", "add the hold")
        holds = holds_of(orders).all
        if any(one.name == hold.name for one in holds):
            raise ConfigError(f"There is a hold {hold.name!r} already.", "Give it another name, or lift that one.")
        if len(holds) >= HOLDS_MAX:
            raise ConfigError(f"There are {HOLDS_MAX} holds already.", "Lift those that are not needed.")
        return Order(who.at, who.by, who.user, HOLD, hold=hold)

    book.add(decide)


def lift_hold(book: Book, who: Signature, name: str) -> None:
    def decide(orders: Sequence[Order]) -> Order:
        names = [one.name for one in holds_of(orders).all]
        if name not in names:
            hint = f"There are: {', '.join(names[:10])}." if names else "There is none at all."
            raise ConfigError(f"There is no hold {name!r}.", hint)
        return Order(who.at, who.by, who.user, LIFT, name=name)

    book.add(decide)


def begin_run(book: Book, who: Signature, said: str) -> None:
    """Note that retention begins, with what it is going to do. A removal then waits for it, or else it for a removal:
    whichever is noted first."""

    def decide(orders: Sequence[Order]) -> Order:
        check_no_removal(orders, *RETENTION_WAITS)
        return Order(who.at, who.by, who.user, APPLY, outcome=BEGUN, said=said)

    book.add(decide)


def end_run(book: Book, who: Signature, said: str) -> None:
    """Note that retention has ended, with what it has done."""
    book.add(lambda _: Order(who.at, who.by, who.user, APPLY, said=said))


def runs_not_done(orders: Sequence[Order]) -> list[Order]:
    """The runs of retention that have begun and may be under way. One that was killed never says that it is done, so
    the end of a later one counts for it too: that has done what the killed one had left."""
    runs: list[Order] = []
    for order in orders:
        if order.action == APPLY and order.outcome == BEGUN:
            runs.append(order)
        elif order.action == APPLY:
            ended = [place for place, run in enumerate(runs, 1) if _is_of_run(order, run)]
            del runs[: max(ended, default=0)]
    return runs


def _is_of_run(order: Order, run: Order) -> bool:
    return (order.at, order.by, order.user) == (run.at, run.by, run.user)


def begin_removal(book: Book, who: Signature, names: str, check: Callable[[Holds], None]) -> None:
    """Note that a removal begins, unless retention is at work, or `check` refuses it because of a hold. From then on,
    until `end_removal`, retention waits, and nobody can add a hold, which might come too late. `names` are those of the
    tombstones."""

    def decide(orders: Sequence[Order]) -> Order:
        check_no_run(orders)
        check(holds_of(orders))
        return Order(who.at, who.by, who.user, REMOVAL, name=names, outcome=BEGUN)

    book.add(decide)


def end_removal(book: Book, who: Signature, names: str) -> None:
    book.add(lambda _: Order(who.at, who.by, who.user, REMOVAL, name=names))


def check_no_removal(orders: Sequence[Order], why_not: str, then: str) -> None:
    """RemovalUnderWay if the last one is not done: it says `why_not` to do something else, and what to do `then`."""
    last = _removal_not_done(orders)
    if last is not None:
        sentence = f"A removal from this crawl is under way, or was broken off, so {why_not}."
        hint = f"Have {last.by} end it, by the same `drumlin remove` command again, and then {then}."
        raise RemovalUnderWay(sentence, hint)


def check_no_run(orders: Sequence[Order]) -> None:
    """BusyError if retention may be at work: what it copies to another place is out of a removal's reach. A removal
    that goes on need not wait: since it began, no run can have begun."""
    runs = runs_not_done(orders)
    if runs and _removal_not_done(orders) is None:
        sentence = "Retention is under way, or was broken off, so a removal could miss what it moves elsewhere."
        hint = f"Let the run of {runs[-1].by} end. If it was killed, `drumlin retention apply` ends it. Then repeat."
        raise BusyError(sentence, hint)


def _removal_not_done(orders: Sequence[Order]) -> Order | None:
    last = next((order for order in reversed(orders) if order.action == REMOVAL), None)
    return last if last is not None and last.outcome == BEGUN else None
