"""Matching one URL against one crawler's rules: longest match wins, allow wins ties, never any backtracking.

Rules are prepared by kind, so that an ordinary file costs a few dictionary look-ups for a URL whatever its length:
plain prefixes are looked up by their length, `/exact$` rules by the whole path, and only rules with a `*` are tried
one by one, longest first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

ROBOTS_PATH = "/robots.txt"
_INDEX_PAGE = "/index.htm"

_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
# An escape; or a character that must not stand raw in a URL and so is escaped; `*` and `$` are left to the caller.
_ESCAPE_OR_ILLEGAL = re.compile(rb"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=%*$]")
_ESCAPE_ILLEGAL_OR_SPECIAL = re.compile(rb"%[0-9A-Fa-f]{2}|[^A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=%]")
_NEEDS_NORMALISING = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=]").search
_STARS = re.compile(r"\*+")

# Where the path of "http://h/" can start at the earliest: behind the scheme and one character of host.
_PATH_OFFSET_MIN = 8


class Rule(NamedTuple):
    """One `Allow` or `Disallow` line with the bytes of its pattern as the file has them."""

    allow: bool
    pattern: bytes


class _Glob(NamedTuple):
    """A pattern with wildcards, cut at its stars. `tail` is None unless the pattern ends in `$`.

    `needle` is its longest literal part: almost every URL is told apart by not containing it.
    """

    needle: str
    weight: int
    allow: bool
    head: str
    pieces: tuple[str, ...]
    tail: str | None


class Matcher:
    """The rules that bind one crawler on one host. Immutable; safe to keep as long as the robots.txt is fresh."""

    __slots__ = (
        "_default",
        "_default_weight",
        "_exact",
        "_free",
        "_globs",
        "_heads",
        "_lengths",
        "_prefixes",
        "_shortest",
    )

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._prefixes: dict[str, bool] = {}
        self._exact: dict[str, bool] = {}
        globs: set[_Glob] = set()
        for allow, pattern in rules:
            self._add(allow, normalise_pattern(pattern), globs)
        # "/" matches every path, so it is the verdict when nothing longer matches and needs no look-up.
        root = self._prefixes.pop("/", None)
        self._default_weight = -1 if root is None else 1
        self._default = root is not False
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)
        self._shortest = min(self._lengths, default=0)
        self._heads = {prefix[: self._shortest] for prefix in self._prefixes}
        self._globs = sorted(globs, key=_by_precedence)
        self._free = self._default and not self._has_disallow()

    def allowed(self, url: str) -> bool:
        """Whether this crawler may request `url` (absolute, or a path starting with "/")."""
        if self._free:
            return True
        path = _path_of(url)
        if _NEEDS_NORMALISING(path) is not None:
            path = normalise_path(path)
        weight, allow = self._best_plain(path)
        for glob in self._globs:
            if glob[0] in path and _glob_matches(glob, path):
                # The first to match is the longest, so none behind it can change the verdict.
                if glob.weight > weight or (glob.weight == weight and glob.allow):
                    allow = glob.allow
                break
        return allow or path == ROBOTS_PATH

    def _best_plain(self, path: str) -> tuple[int, bool]:
        """Weight and verdict of the best rule without a star in its middle."""
        exact = self._exact.get(path)
        if exact is not None:
            return len(path) + 1, exact
        if path[: self._shortest] in self._heads:
            prefixes = self._prefixes
            for length in self._lengths:
                prefix = path[:length]
                if prefix in prefixes:
                    return len(prefix), prefixes[prefix]
        return self._default_weight, self._default

    def _add(self, allow: bool, pattern: str, globs: set[_Glob]) -> None:
        if pattern[:1] not in ("/", "*"):
            return  # Empty, or no path at all: it can match no URL.
        if allow and _INDEX_PAGE in pattern:
            self._add(True, _directory_of_index(pattern), globs)
        if "*" in pattern:
            globs.add(_glob(allow, pattern))
        elif pattern.endswith("$"):
            path = pattern[:-1]
            self._exact[path] = allow or self._exact.get(path, False)
        else:
            self._prefixes[pattern] = allow or self._prefixes.get(pattern, False)

    def _has_disallow(self) -> bool:
        return (
            not all(self._prefixes.values())
            or not all(self._exact.values())
            or not all(glob.allow for glob in self._globs)
        )


def normalise_path(path: str) -> str:
    """The normal form of a URL's path and query. Raw `*` and `$` become escapes: only patterns have wildcards."""
    return _ESCAPE_ILLEGAL_OR_SPECIAL.sub(_normal_escape, path.encode("utf-8", "surrogatepass")).decode("ascii")


def normalise_pattern(pattern: bytes) -> str:
    """The normal form of a rule's pattern: `*`, and `$` at its end, stay special; any other `$` is a character."""
    anchored = pattern.endswith(b"$")
    body = _ESCAPE_OR_ILLEGAL.sub(_normal_escape, pattern[:-1] if anchored else pattern).decode("ascii")
    return body.replace("$", "%24") + ("$" if anchored else "")


def _normal_escape(found: re.Match[bytes]) -> bytes:
    """Decode an escaped unreserved character, write any other escape in upper case, escape an illegal character."""
    matched = found.group()
    if len(matched) == 1:
        return b"%%%02X" % matched[0]
    octet = int(matched[1:], 16)
    return bytes((octet,)) if octet in _UNRESERVED else matched.upper()


def _path_of(url: str) -> str:
    """Path and query of an absolute URL, or of a bare path, without the fragment."""
    if url[:1] != "/":
        start = url.find("/", _PATH_OFFSET_MIN)
        if start < 0 or url.find("?", _PATH_OFFSET_MIN, start) >= 0 or url.find("#", _PATH_OFFSET_MIN, start) >= 0:
            return _path_of_pathless(url)
        url = url[start:]
    return url.partition("#")[0] if "#" in url else url


def _path_of_pathless(url: str) -> str:
    """The path of "http://host?query": such a URL means the root."""
    _host, mark, query = url.partition("#")[0].partition("?")
    return "/" + mark + query


def _directory_of_index(pattern: str) -> str:
    """`/x/$` for `/x/index.html`: who allows the index page means the directory's own address as well."""
    directory, _slash, name = pattern.rpartition("/")
    return directory + "/$" if name.startswith("index.htm") else ""


def _glob(allow: bool, pattern: str) -> _Glob:
    # The weight is the pattern as written: `/*` is longer than `/`, though both match everything.
    weight = len(pattern)
    anchored = pattern.endswith("$")
    head, *pieces = _STARS.split(pattern[:-1] if anchored else pattern)
    needle = max((head, *pieces), key=len)
    tail = pieces.pop() if anchored else None
    return _Glob(needle, weight, allow, head, tuple(piece for piece in pieces if piece), tail)


def _glob_matches(glob: _Glob, path: str) -> bool:
    """Each piece at its first place behind the one before: if any placing fits, this one does, so one pass will do."""
    head, pieces, tail = glob.head, glob.pieces, glob.tail
    if not path.startswith(head):
        return False
    position = len(head)
    for piece in pieces:
        found = path.find(piece, position)
        if found < 0:
            return False
        position = found + len(piece)
    return tail is None or (len(path) - len(tail) >= position and path.endswith(tail))


def _by_precedence(glob: _Glob) -> tuple[int, bool]:
    return -glob.weight, not glob.allow
