"""What is wrong with the engine and the store, since when, in a sentence; and how long requests wait meanwhile.

`api/watch.py` tests both every second, so a cause is known before a request fails. A test writes very little and so
cannot see everything, for instance a disk that is nearly full. Calls that fail therefore report their cause too; such a
report counts for `REPORT_COUNTS_S`, even if a test succeeds meanwhile.

While the engine is in trouble every request is still tried, because a part of the engine may work, but only for
`TROUBLED_ANSWER_S`; then it is answered with the cause. So no sender waits for long. Nothing is lost, because senders
repeat their requests.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from types import TracebackType

import msgspec

from drumlin.errors import Cause, DrumlinError
from drumlin.http.refusal import Refused
from drumlin.logs import Event, event
from drumlin.logs.events import Happenings

TROUBLED_ANSWER_S = 1.0
CAUGHT_ANSWER_S = 0.25
"""The same for requests that were already waiting when the trouble became known."""
RETRY_AFTER_S = 1.0
REPORT_COUNTS_S = 5.0
TOLD_EVERY_S = 60.0
"""How often the log repeats a trouble that lasts or returns."""
REPORTABLE = frozenset({Cause.OUT_OF_MEMORY, Cause.DISK_FULL, Cause.READ_ONLY, Cause.STORE_FULL})
"""Causes that one failing call proves. Others, such as a single lost connection, are left to the next test."""

log = logging.getLogger("drumlin.coordinator")


class Part(StrEnum):
    """A part that a coordinator needs to work."""

    ENGINE = "engine"
    STORE = "store"


LOST = {Part.ENGINE: Event.ENGINE_LOST, Part.STORE: Event.STORE_LOST}
BACK = {Part.ENGINE: Event.ENGINE_BACK, Part.STORE: Event.STORE_BACK}


class Trouble(msgspec.Struct, frozen=True):
    """What is wrong: a code for programs, a sentence and a hint for people. `since` is in seconds since the epoch."""

    part: Part
    code: str
    message: str
    hint: str
    since: float


class Health:
    """Knows what is wrong. `now` must be a time that passes even while the engine is gone."""

    def __init__(self, happened: Happenings | None = None) -> None:
        self._happened = happened or Happenings()
        self._troubles: dict[Part, Trouble] = {}
        self._reported: dict[Part, float] = {}
        self._told: dict[tuple[Part, str], float] = {}
        self._waiting: set[asyncio.Timeout] = set()

    @property
    def troubles(self) -> list[Trouble]:
        """Everything that is wrong, the engine first."""
        return [self._troubles[part] for part in Part if part in self._troubles]

    def trouble(self, part: Part) -> Trouble | None:
        return self._troubles.get(part)

    # Learning what is wrong

    def looked(self, part: Part, problem: DrumlinError | None, now: float) -> None:
        """Note that a test found this problem, or none."""
        if problem is not None:
            self._enter(part, problem, now)
        elif not 0 <= now - self._reported.get(part, -REPORT_COUNTS_S) < REPORT_COUNTS_S:
            self._leave(part, now)

    def reported(self, part: Part, problem: DrumlinError, now: float) -> None:
        """Note that a call failed with this problem."""
        if problem.code in REPORTABLE:
            self._reported[part] = now
            self._enter(part, problem, now)
        elif part not in self._troubles:
            self._tell(part, f"the {part} failed a call: {problem}", problem.code, now)

    def _enter(self, part: Part, problem: DrumlinError, now: float) -> None:
        before = self._troubles.get(part)
        code = problem.code or f"{part}_failed"
        since = now if before is None else before.since
        self._troubles[part] = Trouble(part, code, problem.message, problem.hint, since)
        self._tell(part, f"the {part} cannot be used: {problem}", code, now)
        if before is None:
            self._happened.note(LOST[part], code.replace("_", " "))
        if part is Part.ENGINE and before is None:
            # Requests that wait for the engine wait in vain, and have done so since the test began.
            for limit in self._waiting:
                if limit.when() is None:
                    limit.reschedule(asyncio.get_running_loop().time() + CAUGHT_ANSWER_S)

    def _leave(self, part: Part, now: float) -> None:
        trouble = self._troubles.pop(part, None)
        if trouble is not None:
            self._told = {key: at for key, at in self._told.items() if key[0] is not part}
            log.warning("the %s can be used again, after %.0f s", part, now - trouble.since, extra=event(BACK[part]))
            self._happened.note(BACK[part])

    def _tell(self, part: Part, sentence: str, code: str, now: float) -> None:
        """Write a trouble to the log: at once when it is new, and then every `TOLD_EVERY_S`."""
        if not 0 <= now - self._told.get((part, code), -TOLD_EVERY_S) < TOLD_EVERY_S:
            self._told[part, code] = now
            log.error("%s", sentence, extra=event(LOST[part], code=code))

    # What requests do meanwhile

    def patience(self) -> Patience:
        """A context for work that may need the engine. It raises `Refused`, with the cause, when the work takes too
        long while the engine is in trouble."""
        troubled = Part.ENGINE in self._troubles
        return Patience(self, asyncio.get_running_loop().time() + TROUBLED_ANSWER_S if troubled else None)

    def wait(self, limit: asyncio.Timeout) -> None:
        self._waiting.add(limit)

    def waited(self, limit: asyncio.Timeout) -> None:
        self._waiting.discard(limit)


class Patience:
    """How long one request waits. A class because every request uses it, and a generator would cost twice as much."""

    __slots__ = ("_health", "_limit")

    def __init__(self, health: Health, until: float | None) -> None:
        self._health = health
        self._limit = asyncio.timeout_at(until)

    async def __aenter__(self) -> None:
        self._health.wait(self._limit)
        await self._limit.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._health.waited(self._limit)
        try:
            await self._limit.__aexit__(kind, error, trace)
        except TimeoutError:
            raise refusal(self._health.trouble(Part.ENGINE)) from None


def refusal(trouble: Trouble | None) -> Refused:
    """The answer of a coordinator that cannot serve; None means a trouble that has just ended."""
    if trouble is None:
        message, hint = "The engine did not answer in time.", "It does now: repeat the request."
        return Refused(503, Cause.SILENT, message, hint, retry_after_s=RETRY_AFTER_S)
    return Refused(503, trouble.code, trouble.message, trouble.hint, retry_after_s=RETRY_AFTER_S)
