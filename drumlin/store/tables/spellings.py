"""Finds the spellings of one URL among the values of a column."""

from __future__ import annotations

import re
from typing import Any, Final

import pyarrow as pa

from drumlin.store.tables.reading import compute, places_in
from drumlin.urls import identity

ESCAPABLE_CHARS_MAX: Final = 200
"""How much of a path is compared with spellings that escape some of its characters. That leaves out most other URLs;
those that are left are compared by identity."""
_SPELLED: Final = re.compile("[%?;]")
_ESCAPABLE: Final = re.compile("[A-Za-z0-9._~-]")


class Spellings:
    """All spellings of a URL. They are alike up to the first `%`, `?` or `;`, unless an earlier character is
    percent-encoded."""

    def __init__(self, url: str) -> None:
        self._identity = identity(url)
        self._common = _SPELLED.split(self._identity, maxsplit=1)[0]
        root = self._common.find("/", len("https://")) + 1
        path = self._common[root : root + ESCAPABLE_CHARS_MAX]
        self._root, self._escaped = self._common[:root], f"^{re.escape(self._common[:root])}{_any_escaped(path)}"

    def among(self, values: Any) -> list[int]:
        """The places of the spellings among some values. Arrow leaves those out that cannot be any: whoever links to a
        site's every page must not cost a step of Python for each link."""
        places = places_in(compute().starts_with(values, self._root))
        if not places:
            return []
        of_host = values.take(pa.array(places))
        likely = places_in(self._likely(of_host))
        return [places[place] for place in likely if identity(of_host[place].as_py()) == self._identity]

    def _likely(self, values: Any) -> Any:
        pc = compute()
        spelled = pc.match_substring_regex(values, _SPELLED.pattern)
        alike = pc.and_(pc.starts_with(values, self._common), pc.or_(spelled, pc.equal(values, self._identity)))
        escaped = pc.match_substring(values, "%")
        if pc.any(escaped).as_py():
            escaped = pc.and_(escaped, pc.match_substring_regex(values, self._escaped))
        return pc.or_(alike, escaped)


def _any_escaped(path: str) -> str:
    """A pattern of all ways to write the beginning of a path: characters that need no escape may have one."""
    return "".join(
        f"(?:{re.escape(one)}|(?i:%{ord(one):02x}))" if _ESCAPABLE.match(one) else re.escape(one) for one in path
    )
