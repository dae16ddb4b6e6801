"""What follows when the engine has lost data that it had acknowledged, above all leases.

After a loss a node may still hold a host whose lease the engine has forgotten, so the engine would give that host to a
second node. Therefore all calls are refused from the moment a loss is noticed until every lease from before must have
run out; nodes stop by their own clocks. With their next work nodes are told of the loss (`Work.lost_at`), and they send
all links again that they sent before, because the frontier may have forgotten those too. The coordinator that notices a
loss writes its time into the engine, so coordinators that start later know of it.
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
        """Learn what other coordinators have noticed."""
        saved = await self._engine.get_meta(LOST_KEY)
        self.last = max(self.last, float(saved)) if saved else self.last

    async def note(self, now: float) -> None:
        """Note that data was lost."""
        self.last = max(self.last, now)
        await self._engine.put_meta(LOST_KEY, repr(self.last).encode())

    def problem(self, now: float, lease_s: float) -> EngineError | None:
        """Why calls are still refused, or None if they need not be."""
        left_s = self.last + lease_s - now
        if not self.last or left_s <= 0:
            return None
        message = "The engine has lost data that it had acknowledged; nodes with leases from before must stop first."
        hint = "The crawl then goes on by itself and fetches again what was lost. Check how the engine keeps its data."
        return EngineError(message, hint, code=Cause.LOST)
