"""What nodes did that no honest one does, from where it is noticed to where it is judged (`conduct.py`).

Only what cannot happen by itself is noted: results that come late, again, or of a dead neighbour's journal are none of
these, and neither is anything after an outage, a restart or a change of the crawl's secret.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Misdeed(StrEnum):
    MADE_UP = "made_up"
    """Returned, renewed or reported on something that no coordinator gave out under this id."""
    FOREIGN_HOST = "foreign_host"
    """Spoke for a host under the lease of another node that is at work."""
    FOREIGN_LINKS = "foreign_links"
    """Sent links as canonical and in scope that are not."""
    FOREIGN_URL = "foreign_url"
    """Wanted a URL queued that is out of scope."""
    BAD_BUNDLE = "bad_bundle"
    """Sent a bundle that no drumlin node makes: with rows that were never settled, or of other nodes, or unreadable."""
    FLOOD = "flood"
    """Asked too fast, and went on when told to wait."""


class Misdeeds:
    """How often each node did what, until somebody asks."""

    def __init__(self) -> None:
        self._noted: dict[str, Counter[Misdeed]] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, node: str, misdeed: Misdeed, count: int = 1) -> None:
        if count:
            self._noted.setdefault(node, Counter())[misdeed] += count

    def take(self, node: str) -> Counter[Misdeed]:
        """What is noted of a node, which is then forgotten here."""
        return self._noted.pop(node, None) or Counter()
