"""The clocks of simulated machines. Each has a boot clock of its own, which drifts a little, and a calendar that can be
stepped."""

from __future__ import annotations

from drumlin.clock import Clocks
from drumlin.sim.machines.loop import VirtualLoop

BEGINNING = 1_800_000_000.0
"""The calendar's time when a simulation begins."""


DRIFT_MAX = 1e-4
"""How far a machine's clock may be off: ten seconds a day."""


class MachineClock:
    """The clocks of one machine. `ahead_s` is how much its boot clock shows at the beginning, `rate` how fast it
    runs."""

    def __init__(self, loop: VirtualLoop, ahead_s: float, rate: float) -> None:
        self._loop = loop
        self._ahead_s = ahead_s
        self._rate = rate
        self.step_s = 0.0
        """How far the calendar is wrong."""

    def boot(self) -> float:
        return self._ahead_s + self._loop.now * self._rate

    def wall(self) -> float:
        return BEGINNING + self._loop.now + self.step_s

    def when(self, boot: float) -> float:
        """The virtual moment at which the boot clock shows `boot`."""
        return (boot - self._ahead_s) / self._rate

    @property
    def both(self) -> Clocks:
        return Clocks(self.boot, self.wall, lambda: 0.0)
