"""What is wrong with the engine and the store, since when, in a sentence; and how long requests wait meanwhile.

`Watch` (`watch.py`) looks every second, so that a cause is known without a victim. What one look cannot see, since it
writes next to nothing, calls that fail report: such a report counts for `REPORT_COUNTS_S`.

While the engine is in trouble every request is still tried, because a part of the engine may work, but only for
`TROUBLED_ANSWER_S`; then it is answered with the cause. So nobody waits for long, and nothing is lost: senders repeat.
"""

from __future__ import annotations

import asyncio
import logging
from enum import StrEnum
from types import TracebackType

import msgspec

from drumlin.coordinator.bodies import Refused
from drumlin.errors import Cause, DrumlinError

TROUBLED_ANSWER_S = 1.0
CAUGHT_ANSWER_S = 0.25
"""The same for requests that were under way when the trouble became known."""
RETRY_AFTER_S = 1.0
REPORT_COUNTS_S = 5.0
TOLD_EVERY_S = 60.0
"""How often the log repeats a trouble that lasts, or that one call and then another meets."""
REPORTABLE = frozenset({Cause.OUT_OF_MEMORY, Cause.DISK_FULL, Cause.READ_ONLY, Cause.STORE_FULL})
"""Causes that a failing call proves. Others, such as one lost connection, are left to the next look."""

log = logging.getLogger("drumlin.coordinator")


class Part(StrEnum):
    """What a coordinator cannot do without."""

    ENGINE = "engine"
    STORE = "store"


class Trouble(msgspec.Struct, frozen=True):
    """What is wrong: a code for programs, a sentence and a hint for people. `since` is in seconds since the epoch."""

    part: Part
    code: str
    message: str
    hint: str
    since: float


class Health:
    """Knows what is wrong. `now` is a time that goes on while the engine is gone."""

    def __init__(self) -> None:
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

    # What is found out

    def looked(self, part: Part, problem: DrumlinError | None, now: float) -> None:
        """A look found this problem, or none."""
        if problem is not None:
            self._enter(part, problem, now)
        elif not 0 <= now - self._reported.get(part, -REPORT_COUNTS_S) < REPORT_COUNTS_S:
            self._leave(part, now)

    def reported(self, part: Part, problem: DrumlinError, now: float) -> None:
        """A call failed."""
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
        if part is Part.ENGINE and before is None:
            # Whoever waits for it waits in vain, and has done so since it was looked at.
            for limit in self._waiting:
                if limit.when() is None:
                    limit.reschedule(asyncio.get_running_loop().time() + CAUGHT_ANSWER_S)

    def _leave(self, part: Part, now: float) -> None:
        trouble = self._troubles.pop(part, None)
        if trouble is not None:
            self._told = {key: at for key, at in self._told.items() if key[0] is not part}
            log.warning("the %s can be used again, after %.0f s", part, now - trouble.since)

    def _tell(self, part: Part, sentence: str, code: str, now: float) -> None:
        """Once at first, and seldom again."""
        if not 0 <= now - self._told.get((part, code), -TOLD_EVERY_S) < TOLD_EVERY_S:
            self._told[part, code] = now
            log.error("%s", sentence)

    # What requests do meanwhile

    def patience(self) -> Patience:
        """Around what may need the engine: `Refused`, with the cause, when the engine is in trouble for too long."""
        troubled = Part.ENGINE in self._troubles
        return Patience(self, asyncio.get_running_loop().time() + TROUBLED_ANSWER_S if troubled else None)

    def wait(self, limit: asyncio.Timeout) -> None:
        self._waiting.add(limit)

    def waited(self, limit: asyncio.Timeout) -> None:
        self._waiting.discard(limit)


class Patience:
    """How long one request waits. A class, since every request passes it: a generator would cost twice as much."""

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
    """The answer of a coordinator that cannot serve; None is a trouble that has just ended."""
    if trouble is None:
        message, hint = "The engine did not answer in time.", "It does now: repeat the request."
        return Refused(503, Cause.SILENT, message, hint, retry_after_s=RETRY_AFTER_S)
    return Refused(503, trouble.code, trouble.message, trouble.hint, retry_after_s=RETRY_AFTER_S)
