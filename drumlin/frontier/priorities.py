"""The priority of a URL, 0 to 9, the highest first. Depth lowers it, and a sitemap's hint raises or lowers it by
one."""

from __future__ import annotations

from drumlin.model import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN

DEPTH_PENALTY_MAX = 3
SITEMAP_NEUTRAL = 0.5
SITEMAP_WEIGHT = 2.0


def priority_of(depth: int, *, sitemap_hint: float | None = None) -> int:
    """The priority of a URL that is `depth` links away from a seed. `sitemap_hint` is a sitemap's `<priority>`, 0.0 to
    1.0; 0.5 changes nothing."""
    score = PRIORITY_DEFAULT - min(depth, DEPTH_PENALTY_MAX)
    if sitemap_hint is None:
        return score
    hinted = score + (sitemap_hint - SITEMAP_NEUTRAL) * SITEMAP_WEIGHT
    return max(PRIORITY_MIN, min(PRIORITY_MAX, round(hinted)))


def priority_parts(priority: int, depth: int) -> tuple[int, int, int]:
    """What a priority is made of: what every URL begins with, what its depth takes away, and what a sitemap's hint or a
    person's order added or took."""
    by_depth = priority_of(depth) - PRIORITY_DEFAULT
    return PRIORITY_DEFAULT, by_depth, priority - PRIORITY_DEFAULT - by_depth
