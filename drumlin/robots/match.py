"""Matching one URL against one crawler's rules: longest match wins, allow wins ties, no backtracking.

Rules are sorted by kind, so in an ordinary file a URL costs a few dictionary look-ups, however long the file is. Plain
prefixes are looked up by their length, `/exact$` rules by the whole path, and only rules with a `*` are tried one by
one, longest first. A file may have ten thousand rules, and somebody with many hosts can serve as many such files. So
preparing must be cheap too: all rules are normalised in one go, and a rule with a star is split only when a URL
contains its longest part.

URL and pattern are compared in a normal form in which every character that must not stand raw in a URL is an escape.
So a raw `*` of a URL becomes `%2A`, three characters that the URL does not have. A rule such as `*A` or `/x%2` must not
match a part of them; `_RawPath` takes care of that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

ROBOTS_PATH = "/robots.txt"
_INDEX_PAGE = "/index.htm"

_PERCENT = ord("%")
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_RESERVED = bytes(octet for octet in range(256) if octet not in _UNRESERVED)
# A run of escapes, or a run of characters that must not stand raw in a URL and so are escaped. Runs and not single
# ones, since each match costs a call. `*` and `$` are left alone here: they are special in a pattern.
_ESCAPES_OR_ILLEGAL = re.compile(rb"(?:%[0-9A-Fa-f]{2})+|[^A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=%*$]+")
_ESCAPES_OR_ILLEGAL_IN_LINES = re.compile(rb"(?:%[0-9A-Fa-f]{2})+|[^A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=%*$\n]+")
_ESCAPES_ILLEGAL_OR_SPECIAL = re.compile(rb"(?:%[0-9A-Fa-f]{2})+|[^A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=%]+")
# Characters that a URL has raw although they are compared as escapes.
_RAW = re.compile(rb"([^A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=%]+)")
_HAS_RAW = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=%]").search
_NEEDS_NORMALISING = re.compile(r"[^A-Za-z0-9\-._~:/?#\[\]@!&'()+,;=]").search
_NORMAL_IN_LINES = bytes(sorted(_UNRESERVED)) + b":/?#[]@!&'()+,;=*$\n"
_STARS = re.compile(r"\*+")

_ESCAPE_CHARS = len("%2A")

LOOKS_MAX = 10_000
"""How many matches that cut through an escape are skipped for one URL. A URL with more was made to be slow, and is
denied."""
LOOK_CHARS = 256
"""A long match counts as one more look for every so many characters, since comparing them takes time."""

# The earliest place where the path of a URL can start: in "http://h/", after the scheme and one character of host.
_PATH_OFFSET_MIN = 8


ALLOWED = 0
NO_LINE = -1
"""In place of the number of the line that denies a URL: no line does; or one does, but its number is not known."""


class Rule(NamedTuple):
    """One `Allow` or `Disallow` line; the pattern is as it stands in the file. Lines are counted from 1."""

    allow: bool
    pattern: bytes
    line: int = NO_LINE


class _Glob(NamedTuple):
    """A pattern with wildcards, cut at its stars. `tail` is None unless the pattern ends in `$`."""

    head: str
    pieces: tuple[str, ...]
    tail: str | None


class _Starred(NamedTuple):
    """A rule with wildcards. `needle` is its longest literal part: a URL without it cannot match, which settles almost
    every case with one quick search."""

    needle: str
    pattern: str
    line: int


class Matcher:
    """The rules that bind one crawler on one host. Immutable; safe to keep as long as the robots.txt is fresh. Verdicts
    are numbers: the line that denies, or `ALLOWED`."""

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
        "_starred",
    )

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._prefixes: dict[str, int] = {}
        self._exact: dict[str, int] = {}
        self._globs: dict[str, _Glob] = {}
        starred: dict[tuple[str, bool], int] = {}
        every = list(rules)
        # Allow comes last, so it overwrites an equal Disallow: it wins ties.
        for allow in (False, True):
            chosen = [rule for rule in every if rule[0] is allow]
            lines = [ALLOWED if allow else rule[2] for rule in chosen]
            self._add(allow, normalise_patterns([rule[1] for rule in chosen]), lines, starred)
        # "/" matches every path, so it is the verdict when nothing longer matches and needs no look-up.
        root = self._prefixes.pop("/", None)
        self._default_weight = -1 if root is None else 1
        self._default = root or ALLOWED
        self._lengths = sorted({len(prefix) for prefix in self._prefixes}, reverse=True)
        self._shortest = min(self._lengths, default=0)
        self._heads = {prefix[: self._shortest] for prefix in self._prefixes}
        in_order = sorted([(pattern, line) for (pattern, _), line in starred.items()], key=_by_precedence)
        self._starred = [_Starred(_needle(pattern), pattern, line) for pattern, line in in_order]
        self._free = not self._default and not self._has_disallow()

    def allowed(self, url: str) -> bool:
        """Whether this crawler may request `url` (absolute, or a path starting with "/")."""
        return self._free or self.denying_line(url) == ALLOWED

    def denying_line(self, url: str) -> int:
        """The line that denies `url`: the first of the longest that match. `ALLOWED` if none does."""
        path = _path_of(url)
        raw: _RawPath | None = None
        if _NEEDS_NORMALISING(path) is not None:
            raw = _RawPath(path) if _HAS_RAW(path) is not None else None
            path = normalise_path(path)
        weight, verdict = self._best_plain(path, _NOWHERE if raw is None else raw.inside)
        for needle, pattern, line in self._starred:
            if needle in path and self._matches(pattern, path, raw):
                # The first rule that matches is the longest, so no later one can change the verdict. Its weight is its
                # length as written: `/*` outweighs `/`, although both match everything.
                if len(pattern) > weight or (len(pattern) == weight and line == ALLOWED):
                    verdict = line
                break
        if raw is not None and raw.looks_left < 0:
            return NO_LINE
        return ALLOWED if path == ROBOTS_PATH else verdict

    def _best_plain(self, path: str, inside: frozenset[int]) -> tuple[int, int]:
        """Weight and verdict of the best rule without a star in its middle."""
        exact = self._exact.get(path)
        if exact is not None:
            return len(path) + 1, exact
        if path[: self._shortest] in self._heads:
            prefixes = self._prefixes
            for length in self._lengths:
                prefix = path[:length]
                if prefix in prefixes and length not in inside:
                    return len(prefix), prefixes[prefix]
        return self._default_weight, self._default

    def _add(self, allow: bool, patterns: list[str], lines: list[int], starred: dict[tuple[str, bool], int]) -> None:
        # Other patterns are empty or do not begin like a path, so they can never match. The last of equal ones is kept,
        # so the order is turned round: a denial names the first line.
        rules = [rule for rule in zip(patterns, lines, strict=True) if rule[0][:1] in ("/", "*")]
        rules.reverse()
        if allow:
            rules += [(_directory_of_index(pattern), line) for pattern, line in rules if _INDEX_PAGE in pattern]
        starred.update({(pattern, allow): line for pattern, line in rules if "*" in pattern})
        plain = [rule for rule in rules if "*" not in rule[0]]
        self._exact.update({pattern[:-1]: line for pattern, line in plain if pattern[-1:] == "$"})
        self._prefixes.update({pattern: line for pattern, line in plain if pattern[-1:] not in ("$", "")})

    def _matches(self, pattern: str, path: str, raw: _RawPath | None) -> bool:
        glob = self._glob(pattern)
        return _glob_matches(glob, path) and (raw is None or raw.matches(glob, path))

    def _glob(self, pattern: str) -> _Glob:
        glob = self._globs.get(pattern)
        if glob is None:
            glob = self._globs[pattern] = _cut(pattern)
        return glob

    def _has_disallow(self) -> bool:
        plain = any(self._prefixes.values()) or any(self._exact.values())
        return plain or any(rule.line for rule in self._starred)


class _RawPath:
    """A path with raw characters that are compared as escapes: `*` as `%2A`. Each of them is one symbol, so a pattern
    that begins or ends within the escape, such as `*A` or `/x%2`, does not match it."""

    __slots__ = ("inside", "looks_left")

    def __init__(self, path: str) -> None:
        self.looks_left = LOOKS_MAX
        self.inside = _inside_raw(path)
        """The places in the normal form at which such an escape would be cut."""

    def matches(self, glob: _Glob, path: str) -> bool:
        """Whether a pattern for which `_glob_matches` is true also matches without cutting through an escape."""
        inside = self.inside
        position = len(glob.head)
        if position in inside:
            return False
        for piece in glob.pieces:
            position = self._end_of(piece, path, position)
            if position < 0:
                return False
        if glob.tail is None:
            return True
        tail_start = len(path) - len(glob.tail)
        return tail_start >= position and tail_start not in inside

    def _end_of(self, piece: str, path: str, position: int) -> int:
        """The end of the first match of a piece that does not cut through an escape, or -1."""
        inside, length = self.inside, len(piece)
        found = path.find(piece, position)
        while found >= 0 and (found in inside or found + length in inside):
            self.looks_left -= 1 + length // LOOK_CHARS
            found = path.find(piece, found + 1) if self.looks_left >= 0 else -1
        return found + length if found >= 0 else -1


_NOWHERE: frozenset[int] = frozenset()


def _inside_raw(path: str) -> frozenset[int]:
    """The places in the normal form of a path that are inside the escape of a raw character."""
    inside: set[int] = set()
    length = 0
    for number, part in enumerate(_RAW.split(path.encode("utf-8", "surrogatepass"))):
        is_raw = number % 2 == 1
        end = length + (_ESCAPE_CHARS * len(part) if is_raw else len(_ESCAPES_OR_ILLEGAL.sub(_normal_run, part)))
        if is_raw:
            inside.update(range(length, end))
            inside.difference_update(range(length, end, _ESCAPE_CHARS))
        length = end
    return frozenset(inside)


def normalise_path(path: str) -> str:
    """The normal form of a URL's path and query. Raw `*` and `$` become escapes: only patterns have wildcards."""
    return _ESCAPES_ILLEGAL_OR_SPECIAL.sub(_normal_run, path.encode("utf-8", "surrogatepass")).decode("ascii")


def normalise_pattern(pattern: bytes) -> str:
    """The normal form of a rule's pattern: `*`, and `$` at its end, stay special; any other `$` is a character."""
    return _only_last_dollar(_ESCAPES_OR_ILLEGAL.sub(_normal_run, pattern).decode("ascii"))


def normalise_patterns(patterns: list[bytes]) -> list[str]:
    """`normalise_pattern` for each. All are done in one go if none contains a line feed; those of a file never do."""
    lines = b"\n".join(patterns)
    if lines.count(b"\n") != len(patterns) - 1:
        return [normalise_pattern(pattern) for pattern in patterns]
    if lines.translate(None, _NORMAL_IN_LINES):
        lines = _ESCAPES_OR_ILLEGAL_IN_LINES.sub(_normal_run, lines)
    normal = lines.decode("ascii").split("\n")
    return [_only_last_dollar(one) for one in normal] if b"$" in lines else normal


def _only_last_dollar(pattern: str) -> str:
    if pattern.find("$", 0, -1) < 0:
        return pattern
    anchored = pattern.endswith("$")
    return pattern.removesuffix("$").replace("$", "%24") + ("$" if anchored else "")


def _normal_run(found: re.Match[bytes]) -> bytes:
    """Decode escaped unreserved characters, write other escapes in upper case, escape illegal characters."""
    run = found[0]
    if run[0] != _PERCENT:
        return b"%" + run.hex("%").upper().encode()
    octets = bytes.fromhex(run.replace(b"%", b"").decode())
    if not octets.translate(None, _RESERVED):
        return run.upper()
    return b"".join(bytes((octet,)) if octet in _UNRESERVED else b"%%%02X" % octet for octet in octets)


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
    """`/x/$` for `/x/index.html`: a site that allows the index page means the directory's own address as well."""
    directory, _slash, name = pattern.rpartition("/")
    return directory + "/$" if name.startswith("index.htm") else ""


def _cut(pattern: str) -> _Glob:
    anchored = pattern.endswith("$")
    head, *pieces = _STARS.split(pattern[:-1] if anchored else pattern)
    tail = pieces.pop() if anchored else None
    return _Glob(head, tuple(piece for piece in pieces if piece), tail)


def _needle(pattern: str) -> str:
    return max(pattern.removesuffix("$").split("*"), key=len)


def _glob_matches(glob: _Glob, path: str) -> bool:
    """Put each piece at the first place where it fits after the one before. If any placement fits, this one does too,
    so a single pass is enough."""
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


def _by_precedence(rule: tuple[str, int]) -> tuple[int, bool, int]:
    """The longest first, then those that allow, then as they stand in the file."""
    pattern, line = rule
    return -len(pattern), line != ALLOWED, line
