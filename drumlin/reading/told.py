"""What a node remembers of links: which it told the frontier lately, and which it counted lately as not followed.

The frontier knows every URL, so this memory decides nothing. It saves work: nearly all links of a page were on an
earlier page of the same site, and they need not travel again. There are two sets: when the newer one is full it becomes
the older one, and the older one is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable

from drumlin.dedupe import digest

RECENT_URLS_MAX = 100_000
REMEMBERED_CHARS_MAX = 500


def mark_of(url: str) -> str:
    """What is remembered of a URL: the URL itself, or its hash if it is long. Few real URLs are, and a hostile page
    could otherwise fill the memory with made-up ones."""
    return url if len(url) <= REMEMBERED_CHARS_MAX else digest(url.encode()).hex()


class ToldLinks:
    """Marks of links told lately and of links left out lately."""

    def __init__(self) -> None:
        self._recent: set[str] = set()
        self._recent_before: set[str] = set()
        self._left_out: set[str] = set()

    def not_told(self, urls: Iterable[str | None]) -> set[str | None]:
        """Those of a page's links that may be new. A set operation drops the others without a look at each."""
        return set(urls).difference(self._recent, self._recent_before)

    def not_counted(self, urls: Iterable[str | None]) -> set[str | None]:
        """Those of a page's links that were neither told nor counted as left out."""
        return set(urls).difference(self._recent, self._recent_before, self._left_out)

    def has(self, mark: str) -> bool:
        return mark in self._recent or mark in self._recent_before

    def remember(self, mark: str) -> None:
        self._recent.add(mark)
        if len(self._recent) >= RECENT_URLS_MAX:
            self._recent_before = self._recent
            self._recent = set()

    def leave_out(self, mark: str) -> bool:
        """Remember a link that is not followed; False if it was remembered already. It is kept apart from those told,
        because a link of another page may still lead there."""
        if mark in self._left_out:
            return False
        if len(self._left_out) >= RECENT_URLS_MAX:
            self._left_out.clear()
        self._left_out.add(mark)
        return True

    def forget(self, marks: list[str]) -> None:
        self._recent.difference_update(marks)
        self._recent_before.difference_update(marks)

    def forget_all(self) -> None:
        self._recent.clear()
        self._recent_before.clear()
