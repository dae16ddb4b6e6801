"""Counts what nodes did that no honest node does. Dispatching notices it; `drumlin.api.gate` takes and judges it.

Only what an honest node can never cause is noted. Results that come late, twice or from a dead neighbour's journal are
not misdeeds, nor is anything that an outage, a restart or a change of the crawl's secret can bring about.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum


class Misdeed(StrEnum):
    MADE_UP = "made_up"
    """It returned, renewed or reported on something that no coordinator gave out under this id."""
    FOREIGN_HOST = "foreign_host"
    """It reported on a host under the lease of another node that is at work."""
    FOREIGN_LINKS = "foreign_links"
    """It claimed that links are canonical and in scope, but they are not."""
    MALFORMED = "malformed"
    """It sent results that make no sense, for instance with a hash that is not hexadecimal."""
    FOREIGN_URL = "foreign_url"
    """It asked to queue a URL that is out of scope."""
    BAD_BUNDLE = "bad_bundle"
    """It sent a bundle that no drumlin node makes: unreadable, or with rows of other nodes or that never counted."""
    FLOOD = "flood"
    """It sent requests too fast, and went on after it was told to wait."""


class Misdeeds:
    """How often each node did which misdeed, until `take` hands that over."""

    def __init__(self) -> None:
        self._noted: dict[str, Counter[Misdeed]] = {}

    def __bool__(self) -> bool:
        return bool(self._noted)

    def note(self, node: str, misdeed: Misdeed, count: int = 1) -> None:
        if count:
            self._noted.setdefault(node, Counter())[misdeed] += count

    def take(self, node: str) -> Counter[Misdeed]:
        """Return what was noted about a node, and forget it here."""
        return self._noted.pop(node, None) or Counter()
