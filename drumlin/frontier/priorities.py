"""The priority of a URL, 0 to 9, higher first: what the operator gave its seed, less for depth, with the sitemap's
hint.
"""

from __future__ import annotations

from drumlin.model import PRIORITY_DEFAULT, PRIORITY_MAX, PRIORITY_MIN

DEPTH_PENALTY_MAX = 3
SITEMAP_NEUTRAL = 0.5
SITEMAP_WEIGHT = 2.0


def priority_of(depth: int, *, operator: int = PRIORITY_DEFAULT, sitemap_hint: float | None = None) -> int:
    """Blend the operator's priority, the depth and a sitemap's `<priority>` (0.0 to 1.0) into one class."""
    score = float(operator - min(depth, DEPTH_PENALTY_MAX))
    if sitemap_hint is not None:
        score += (sitemap_hint - SITEMAP_NEUTRAL) * SITEMAP_WEIGHT
    return max(PRIORITY_MIN, min(PRIORITY_MAX, round(score)))
