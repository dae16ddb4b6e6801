"""Asks a coordinator how the crawl is, again and again, on a thread of its own. One that goes away is waited for."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import msgspec

from drumlin.cli.status import as_it_stands, has_ended
from drumlin.config.quantities import show_duration
from drumlin.errors import DrumlinError
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote

EVERY_S = 1.0
LIST_EVERY_S = 2.0
HISTORY_EVERY_S = 5.0
"""How often the figures, the list that is shown, and the history are asked for. Coordinators add to the history every
five seconds."""
HOSTS_ASKED = 50
"""Of each state."""
NODES_ASKED = 500
LETTERS_ASKED = 100
HOST_STATES = ("leased", "backoff", "waiting", "ready", "blocked")


class Sample(msgspec.Struct, frozen=True):
    """The crawl at a moment, in the words of the HTTP API. Lists that nobody looks at are as old as the last look."""

    stats: dict[str, Any]
    why: dict[str, Any]
    crawl: dict[str, Any]
    history: dict[str, Any]
    hosts: list[dict[str, Any]] = []
    nodes: list[dict[str, Any]] = []
    causes: list[dict[str, Any]] = []
    dead_letters: list[dict[str, Any]] = []

    @property
    def time(self) -> float:
        return float(self.stats["time"])


class Seen(msgspec.Struct, frozen=True):
    """The latest sample, and what is to be said of the coordinator: since when it has not answered (by the monotonic
    clock) and why, and when it came back. `number` grows with each look."""

    sample: Sample
    number: int = 0
    lost_at: float | None = None
    trouble: str = ""
    returns: tuple[tuple[float, str], ...] = ()
    ended: bool = False


def first_sample(remote: Remote) -> Sample:
    """Everything at once. CoordinatorError if nobody answers."""
    stats, why = as_it_stands(remote, remote.get(paths.STATS)), remote.get(paths.WHY_IDLE)
    sample = Sample(stats, why, remote.get(paths.CRAWL), remote.get(paths.HISTORY))
    for pane in ASKED:
        sample = msgspec.structs.replace(sample, **ASKED[pane](remote))
    return sample


def _hosts(remote: Remote) -> dict[str, Any]:
    """Hosts by state: those being fetched first, each once."""
    found: dict[str, dict[str, Any]] = {}
    for state in HOST_STATES:
        for host in remote.get(paths.HOSTS, state=state, limit=HOSTS_ASKED)["hosts"]:
            found.setdefault(host["host"], host)
    return {"hosts": list(found.values())}


def _nodes(remote: Remote) -> dict[str, Any]:
    return {"nodes": remote.get(paths.NODES, limit=NODES_ASKED)["nodes"]}


def _failures(remote: Remote) -> dict[str, Any]:
    letters = remote.get(paths.DEAD_LETTERS, limit=LETTERS_ASKED)["dead_letters"]
    return {"causes": remote.get(paths.DEAD_LETTER_GROUPS)["groups"], "dead_letters": letters}


ASKED = {"hosts": _hosts, "nodes": _nodes, "failures": _failures}
"""What each list needs, as fields of a sample."""


class Sampler:
    """Looks at the crawl until it is closed. `seen` is the latest look; `pane` is the list that is asked for."""

    def __init__(self, remote: Remote, sample: Sample, pane: str) -> None:
        self._remote = remote
        self.seen = Seen(sample)
        self.pane = pane
        self.asked_at: float | None = None
        """Since when an answer is waited for, by the monotonic clock."""
        self._closed = threading.Event()
        self._wanted = threading.Event()
        self._next: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="top", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ask no more. A question that is under way is not waited for."""
        self._closed.set()
        self._wanted.set()

    def show(self, pane: str) -> None:
        """Ask for this list from now on, and at once."""
        if pane != self.pane:
            self.pane = pane
            self._next.pop(pane, None)
            self._wanted.set()

    def _run(self) -> None:
        while not self._closed.is_set() and not self.seen.ended:
            self.asked_at = time.monotonic()
            self.look(self.asked_at)
            self.asked_at = None
            self._wanted.wait(EVERY_S)
            self._wanted.clear()

    def look(self, now: float) -> None:
        """Ask once. `now` is by the monotonic clock."""
        seen = self.seen
        try:
            sample = self._ask(seen.sample, now)
        except DrumlinError as lost:
            self.seen = self._without_answer(seen, lost.message, now)
            return
        ended = has_ended(self._remote, sample.stats) and not self._remote.of_one_machine
        self.seen = Seen(sample, seen.number + 1, returns=_returns(seen, sample, now), ended=ended)

    def _ask(self, before: Sample, now: float) -> Sample:
        remote, changed = self._remote, dict[str, Any]()
        changed["stats"], changed["why"] = remote.get(paths.STATS), remote.get(paths.WHY_IDLE)
        changed["crawl"] = remote.get(paths.CRAWL)
        if self._is_due("history", HISTORY_EVERY_S, now):
            changed["history"] = remote.get(paths.HISTORY)
        if self._is_due(pane := self.pane, LIST_EVERY_S, now):
            changed |= ASKED[pane](remote)
        return msgspec.structs.replace(before, **changed)

    def _is_due(self, what: str, every_s: float, now: float) -> bool:
        if now < self._next.get(what, 0.0):
            return False
        self._next[what] = now + every_s
        return True

    def _without_answer(self, seen: Seen, trouble: str, now: float) -> Seen:
        self._next.clear()
        if self._remote.of_one_machine and not self._runs():
            return msgspec.structs.replace(seen, number=seen.number + 1, ended=True)
        lost_at = now if seen.lost_at is None else seen.lost_at
        return msgspec.structs.replace(seen, number=seen.number + 1, lost_at=lost_at, trouble=trouble)

    def _runs(self) -> bool:
        """Whether the crawl on this machine still runs: a busy one may miss an answer."""
        from drumlin.local.crawl import socket_of

        return self._remote.folder is not None and socket_of(self._remote.folder) is not None


def _returns(seen: Seen, sample: Sample, now: float) -> tuple[tuple[float, str], ...]:
    """What is told among the events of coordinators that have come back."""
    if seen.lost_at is None:
        return seen.returns
    return (*seen.returns, (sample.time, f"the coordinator answers again, after {show_duration(now - seen.lost_at)}"))
