"""A crawl's budgets: pages, bytes and time.

URLs that are leased count as pages before they are fetched, so the budget of pages is never exceeded. Bytes and time
are known only afterwards: when they are used up, nothing more is leased and URLs that were not started are taken back.
"""

from __future__ import annotations

import msgspec


class Budget(msgspec.Struct, frozen=True):
    """The most that a crawl may fetch; None means no limit."""

    pages_max: int | None = None
    bytes_max: int | None = None
    time_max_s: float | None = None

    def pages_allowed(self, pages: int, leased: int, wanted: int) -> int:
        """How many of `wanted` further URLs may be leased when `pages` are fetched and `leased` are handed out."""
        if self.pages_max is None:
            return wanted
        return max(0, min(wanted, self.pages_max - pages - leased))

    def exhausted(self, pages: int, size_bytes: int, elapsed_s: float) -> str:
        """The name of the budget that is used up, or ""."""
        if self.pages_max is not None and pages >= self.pages_max:
            return "pages_max"
        if self.bytes_max is not None and size_bytes >= self.bytes_max:
            return "bytes_max"
        if self.time_max_s is not None and elapsed_s >= self.time_max_s:
            return "time_max"
        return ""
