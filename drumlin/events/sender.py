"""Sends what a writer owes to the broker, a window at a time, and moves the cursors.

A window is a few hundred events of one segment or log. The next is made when the broker has confirmed the last one, so
a cursor is moved only over what is confirmed, and no more than a window is ever produced twice by a process that is
killed. If the broker refuses a message, the window is made again after a while. What is larger than the client may send
is sent in smaller messages. A broker that finds something too large refuses all that came with it: that is sent again
in halves, until the one that is too large is found. Only what cannot be made smaller is put aside (`dead`), counted and
logged; the rest goes on.

Nothing here waits: `step` is called from a loop, as often as `due` says. `drained` tells when nothing is owed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

from drumlin.events.dead import put_aside
from drumlin.events.owed import (
    LOG_SUFFIX,
    Cursor,
    Signature,
    forget,
    forget_unborn,
    grows,
    keep_cursor,
    owed_names,
    read_cursor,
    signature_of,
)
from drumlin.events.rows import Batch, batches
from drumlin.events.schema import Message, smaller
from drumlin.events.told import messages_from
from drumlin.logs import Event, event

LOOK_EVERY_S: Final = 1.0
POLL_S: Final = 0.01
POLL_AWAY_S: Final = 0.5
AWAY_AFTER_S: Final = 5.0
"""A broker that has confirmed nothing for so long counts as away."""
AGAIN_AFTER_S: Final = 5.0
"""After a refusal, a window is produced again so much later."""
TOLD_AT_ONCE: Final = 500
TOO_LARGE: Final = "larger than the client may send (message.max.bytes) or the topic takes (max.message.bytes)"

log = logging.getLogger("drumlin.kafka")


class Producer(Protocol):
    """What `broker.BrokerProducer` does."""

    error: str
    failed: int
    too_large: list[Message]
    refused_large: list[Message]

    def send(self, messages: Sequence[Message]) -> None: ...

    def poll(self) -> None: ...

    @property
    def unconfirmed(self) -> int: ...

    def forget_error(self) -> None: ...


class Standing(msgspec.Struct, frozen=True):
    """How a sender stands: how many events are confirmed and were refused, how much waits and since when, and for how
    long the broker has been away."""

    produced: int = 0
    refused: int = 0
    waiting_bytes: int = 0
    lag_s: float = 0.0
    away_s: float = 0.0
    full: bool = False
    error: str = ""
    too_large: int = 0


class Sender:
    """Sends what is owed in one spool. `make` makes a producer; another is made after a refusal, since some errors are
    final for a producer. `growing` names the log that its owner still appends to. If more than `bytes_max` waits, the
    sender is `full`, and whoever fetches should stop until it is not."""

    def __init__(
        self,
        spool: Path,
        tables: Path,
        make: Callable[[], Producer],
        *,
        crawl: str,
        bytes_max: int,
        growing: Callable[[], str] = lambda: "",
    ) -> None:
        self._spool, self._tables = spool, tables
        self._make, self._producer = make, make()
        self._crawl, self._bytes_max = crawl, bytes_max
        self._growing = growing
        self._name = ""
        self._open: Iterator[Batch] | None = None
        self._cursor = Cursor()
        self._window: Batch | None = None
        self._began = self._poll_at = self._look_at = self._measure_at = 0.0
        self._refused = False
        self._waiting: dict[str, tuple[float, int]] = {}
        """What waits: since when, and its size."""
        self._passed: dict[str, Signature] = {}
        """What has nothing new: how its files were when that was seen."""
        self._away_since: float | None = None
        self.produced = 0
        """How many events the broker has confirmed."""
        self.refused = 0
        """How many it has refused; they were produced again."""
        self.too_large = 0
        """How many were put aside, because they are too large and could not be made smaller."""
        self._over: list[Message] = []
        """Those of this window."""
        self._group = 0
        """How many messages were sent together the last time."""
        self._groups: list[list[Message]] = []
        """Those of this window that are to be sent apart from each other, because the broker refused them together."""
        self._sent = 0
        """How many messages of this window the client has taken, or will."""
        forget_unborn(spool, tables)

    @property
    def full(self) -> bool:
        """Whether so much waits that nothing more should be fetched."""
        return self._waiting_bytes >= self._bytes_max

    @property
    def drained(self) -> bool:
        """Whether nothing is owed any more."""
        return self._window is None and not owed_names(self._spool)

    @property
    def _waiting_bytes(self) -> int:
        # A list at once: others ask while a thread steps.
        return sum(size for _, size in list(self._waiting.values()))

    def standing(self, now: float) -> Standing:
        oldest = min((since for since, _ in list(self._waiting.values())), default=now)
        away_s = now - self._away_since if self._away_since is not None else 0.0
        error = self._producer.error if away_s else ""
        lag_s = max(0.0, now - oldest)
        waiting = self._waiting_bytes
        return Standing(self.produced, self.refused, waiting, lag_s, away_s, self.full, error, self.too_large)

    def due(self) -> float:
        """When the next step has something to do, by the clock of `step`."""
        if self._window is not None:
            return min(self._poll_at, self._measure_at)
        return 0.0 if self._open is not None else self._look_at

    def step(self, now: float) -> None:
        """Confirm the last window, if the broker has, and produce the next."""
        if now < self.due():
            return
        if now >= self._measure_at:
            self._measure(now)
        self._producer.poll()
        if self._window is None or self._confirm(self._window, now):
            self._next(now)

    def look_soon(self) -> None:
        """More is owed than at the last look."""
        self._look_at = 0.0

    # The window

    def _confirm(self, window: Batch, now: float) -> bool:
        """Whether the window is confirmed; its cursor is moved then. If not, a later step looks again."""
        if now < self._poll_at:
            return False
        if self._refused:
            self._refused, self._producer = False, self._make()
            self._produce(window, now)
            return False
        if self._producer.unconfirmed:
            if now - self._began >= AWAY_AFTER_S:
                self._is_away()
            self._poll_at = now + (POLL_S if self._away_since is None else POLL_AWAY_S)
            return False
        if self._producer.failed:
            self.refused += self._producer.failed
            self._is_away()
            self._refused, self._poll_at = True, now + AGAIN_AFTER_S
            return False
        if self._send_smaller():
            self._poll_at = now + POLL_S
            return False
        self._put_aside()
        self._window = None
        self.produced += self._sent
        self._is_back()
        if read_cursor(self._spool, self._name) == self._cursor:
            keep_cursor(self._spool, self._name, window.after)
            self._cursor = window.after
        else:
            # The segment was made anew meanwhile, and all of it is owed again.
            self._open = None
        return True

    def _produce(self, window: Batch, now: float) -> None:
        self._window = window
        self._began, self._poll_at = now, now + POLL_S
        self._over, self._groups, self._sent = [], [], len(window.messages)
        self._send(window.messages)

    def _send(self, messages: list[Message]) -> None:
        self._group = len(messages)
        self._producer.send(messages)

    def _send_smaller(self) -> bool:
        """Send again, in smaller messages or fewer at a time, what was too large; whether there is any such."""
        producer, alone = self._producer, self._group == 1
        large, together = producer.too_large, producer.refused_large
        producer.too_large, producer.refused_large = [], []
        if alone:
            # What was refused was sent alone, so it is this one that is too large.
            large, together = [*large, *together], []
        if len(together) == 1:
            self._groups.append(together)
        elif together:
            middle = len(together) // 2
            self._groups += [together[:middle], together[middle:]]
        again = self._cut(large)
        if again:
            self._groups.append(again)
        if self._groups:
            self._send(self._groups.pop())
            return True
        return False

    def _cut(self, large: Sequence[Message]) -> list[Message]:
        """The same in smaller messages, without those that cannot be made smaller."""
        again: list[Message] = []
        for message in large:
            parts = smaller(message)
            again += parts
            self._sent += len(parts) - 1
            if not parts:
                self._over.append(message)
        return again

    def _put_aside(self) -> None:
        """Put aside what is too large. If that fails, the window is not confirmed, and the next step tries again."""
        if self._over:
            path = put_aside(self._spool, self._over, TOO_LARGE)
            self.too_large += len(self._over)
            sentence = "%d events are too large for the broker and were put aside in %s; one has %d bytes"
            log.error(sentence, len(self._over), path, len(self._over[0].value), extra=event(Event.REFUSED))
            self._over = []

    def _is_away(self) -> None:
        if self._away_since is None:
            self._away_since = self._began
            said = self._producer.error or "it does not answer"
            sentence = "the broker takes no events, which wait on disk: %s"
            log.warning(sentence, said, extra=event(Event.BROKER_LOST))

    def _is_back(self) -> None:
        self._producer.forget_error()
        if self._away_since is not None:
            self._away_since = None
            log.info("the broker takes events again", extra=event(Event.BROKER_BACK))

    # What is owed

    def _measure(self, now: float) -> None:
        """Look how much waits, also while the broker is away."""
        self._measure_at = now + LOOK_EVERY_S
        signatures = {name: self._signature(name) for name in owed_names(self._spool)}
        self._waiting = {
            name: (self._waiting.get(name, (now, 0))[0], sum(size for size, _ in signature))
            for name, signature in signatures.items()
            if self._passed.get(name) != signature
        }

    def _next(self, now: float) -> None:
        """Produce the next window: of what is open, or of the oldest that has something new."""
        batch = next(self._open, None) if self._open is not None else None
        if batch is None and now >= self._look_at:
            batch = self._first_new()
        if batch is None:
            # What has just been read to its end may have grown meanwhile.
            self._look_at = now if self._open is not None else now + LOOK_EVERY_S
            self._open = None
        else:
            self._produce(batch, now)

    def _first_new(self) -> Batch | None:
        """Look at all that is owed. What is confirmed and complete is forgotten."""
        for name in owed_names(self._spool):
            # Asked before its rows are read: what ends meanwhile is forgotten at the next look.
            unfinished = grows(self._spool, name) or name == self._growing()
            signature = self._signature(name)
            if unfinished and self._passed.get(name) == signature:
                continue
            self._open, self._name = self._batches(name), name
            batch = next(self._open, None)
            if batch is not None:
                return batch
            self._open = None
            self._passed[name] = signature
            if not unfinished and any(size for size, _ in signature):
                self._forget(name)
        return None

    def _forget(self, name: str) -> None:
        forget(self._spool, name)
        self._passed.pop(name, None)
        self._waiting.pop(name, None)

    def _signature(self, name: str) -> Signature:
        return signature_of(self._spool, self._tables, name)

    def _batches(self, name: str) -> Iterator[Batch]:
        cursor, told = read_cursor(self._spool, name), self._spool / (name + LOG_SUFFIX)
        self._cursor = cursor
        found = _told_batches(told, cursor) if told.exists() else batches(self._tables, name, cursor, self._crawl)
        return (batch for batch in found if batch.messages)


def _told_batches(path: Path, cursor: Cursor) -> Iterator[Batch]:
    messages: list[Message] = []
    end = cursor.told
    with path.open("rb") as file:
        for message, end in messages_from(file, cursor.told):
            messages.append(message)
            if len(messages) == TOLD_AT_ONCE:
                yield Batch(messages, Cursor(told=end))
                messages = []
    if messages:
        yield Batch(messages, Cursor(told=end))
