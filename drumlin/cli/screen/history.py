"""How fast the crawl was: rates from the samples of its history, and a chart of them made of blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

BLOCKS = " ▁▂▃▄▅▆▇█"
EIGHTHS = len(BLOCKS) - 1
TIME, PAGES = 0, 1
"""Where these stand in a sample of the history."""


def rates(samples: Sequence[Sequence[float]], step_s: float, count: int) -> list[float]:
    """Pages a second in each of the last `count` steps, the latest last. A sample may be missing: then the rate over
    the whole gap stands for each of its steps. Steps before the first sample are left out."""
    found: list[float] = []
    for before, after in pairwise(samples[-(count + 1) :]):
        passed_s = after[TIME] - before[TIME]
        if passed_s <= 0:
            continue
        rate = max(0.0, (after[PAGES] - before[PAGES]) / passed_s)
        found += [rate] * min(count, max(1, round(passed_s / step_s)))
    return found[-count:]


def chart(values: Sequence[float], rows: int) -> list[str]:
    """Columns of blocks as high as the values, the highest filling all rows; the top row first. A value above zero is
    never drawn as nothing."""
    top = max(values, default=0.0)
    heights = [math.ceil(value / top * rows * EIGHTHS) if top else 0 for value in values]
    return [
        "".join(BLOCKS[min(EIGHTHS, max(0, height - row * EIGHTHS))] for height in heights)
        for row in reversed(range(rows))
    ]
