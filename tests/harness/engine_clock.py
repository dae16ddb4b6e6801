"""A process that follows engine time for a while and prints what it showed, to compare it with other processes.

    python -m tests.harness.engine_clock ENGINE SECONDS

It prints one line of JSON: pairs of a time of the machine's boot-time clock, and how far engine time was ahead of it.
"""

from __future__ import annotations

import asyncio
import json
import sys

from drumlin.clock import monotonic
from drumlin.coordinator.engine_time import EngineTime
from drumlin.engines import open_engine

LOOK_EVERY_S = 0.02


async def show(spec: str, seconds: float) -> list[tuple[float, float]]:
    engine = await open_engine(spec)
    shown = []
    try:
        one = EngineTime(engine)
        async with one.running():
            end = monotonic() + seconds
            while (at := monotonic()) < end:
                shown.append((at, one.reading() - at))
                await asyncio.sleep(LOOK_EVERY_S)
    finally:
        await engine.close()
    return shown


if __name__ == "__main__":
    print(json.dumps(asyncio.run(show(sys.argv[1], float(sys.argv[2])))))
