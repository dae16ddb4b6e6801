"""What follows when the engine has lost something that it had acknowledged: leases, above all.

A node may hold a host that the engine would give to another, since it has forgotten the lease. So from when a loss is
noticed all calls are refused until every lease from before has run out: nodes stop by their own clocks. Then they are
told of it with their next work, and tell all links anew that they told before: the frontier may have forgotten those.
Whoever notices a loss writes that down in the engine, so that coordinators that have just begun know of it too.
"""

from __future__ import annotations

from drumlin.engines.base import Engine
from drumlin.errors import Cause, EngineError

LOST_KEY = "lost"


class Losses:
    """When the engine last lost something, as far as this coordinator knows."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.last = 0.0
        """In engine time; 0 for never."""

    async def follow(self) -> None:
        """Hear what other coordinators have noticed."""
        saved = await self._engine.get_meta(LOST_KEY)
        self.last = max(self.last, float(saved)) if saved else self.last

    async def note(self, now: float) -> None:
        """Something was lost."""
        self.last = max(self.last, now)
        await self._engine.put_meta(LOST_KEY, repr(self.last).encode())

    def problem(self, now: float, lease_s: float) -> EngineError | None:
        """Why nothing may be given out yet."""
        left_s = self.last + lease_s - now
        if not self.last or left_s <= 0:
            return None
        message = "The engine has lost some of what it had acknowledged; leases from before must run out."
        hint = "The crawl then goes on by itself and fetches again what was lost. Look at how its data is kept."
        return EngineError(message, hint, code=Cause.LOST)
