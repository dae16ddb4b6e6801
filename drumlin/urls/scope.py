"""Which URLs a crawl may follow. A mode widens the seeds to a page, a directory, a host, a domain or everything, and
regular expressions narrow the result."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from drumlin.errors import ConfigError
from drumlin.model import ScopeMode
from drumlin.urls.canonical import canonical, identity
from drumlin.urls.host import domain_of, host_of

Search = Callable[[str], object]


@dataclass(frozen=True, slots=True, init=False, repr=False, eq=False)
class Scope:
    """The URLs that a crawl may follow. Schemes do not count: a site that moves to https stays in scope.

    page: the seeds alone; prefix: the seeds' directories and all below them; host: the seeds' hosts; domain: the seeds'
    registrable domains; any: everything. A URL is out of scope if an exclude matches it. If there are includes, one of
    them must match, except for seeds.
    """

    mode: ScopeMode
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    _places: frozenset[str]  # hosts or domains
    _directories: array[int]  # hashes, sorted: of millions, an array takes a tenth of a set's memory
    _depths: frozenset[int]  # how many slashes the seeds' directories have
    _seeds: array[int]  # hashes, sorted; only kept where they decide something
    _includes: tuple[Search, ...]
    _excludes: tuple[Search, ...]

    def __init__(
        self, mode: ScopeMode, seeds: Iterable[str], include: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> None:
        # Python's `hash` of a text differs between processes. That does no harm: a scope never leaves its process.
        if mode not in get_args(ScopeMode):
            raise ConfigError(f"There is no scope {mode!r}.", f"Choose one of {', '.join(get_args(ScopeMode))}.")
        set_field = object.__setattr__
        set_field(self, "mode", mode)
        set_field(self, "include", tuple(include))
        set_field(self, "exclude", tuple(exclude))
        set_field(self, "_includes", tuple(_compiled(pattern, "include") for pattern in include))
        set_field(self, "_excludes", tuple(_compiled(pattern, "exclude") for pattern in exclude))
        self._read_seeds(seeds)

    def _read_seeds(self, seeds: Iterable[str]) -> None:
        """Keep only what this mode needs of each seed: a generator may give millions of them."""
        places: set[str] = set()
        directories, kept_seeds, depths = array("q"), array("q"), set()
        for seed in seeds:
            url = _required(seed)
            if self.mode in ("host", "prefix"):
                places.add(host_of(url))
            elif self.mode == "domain":
                places.add(domain_of(host_of(url)))
            url = identity(url)
            if self.mode == "prefix":
                directory = _directory(url)
                directories.append(hash(directory))
                depths.add(directory.count("/"))
            if self.mode == "page" or self.include:
                kept_seeds.append(hash(_schemeless(url)))
        set_field = object.__setattr__
        set_field(self, "_places", frozenset(places))
        set_field(self, "_directories", array("q", sorted(directories)))
        set_field(self, "_depths", frozenset(depths))
        set_field(self, "_seeds", array("q", sorted(kept_seeds)))

    def allows(self, url: str) -> bool:
        """Whether a canonical URL is in scope."""
        within = url.split("/", 3)[2] in self._places if self.mode == "host" else self._within(url)
        return within and not ((self._excludes or self._includes) and self._narrowed(url))

    def excludes(self, url: str) -> bool:
        """Whether an exclude keeps a canonical URL out, wherever it leads."""
        return any(search(url) for search in self._excludes)

    def why_not(self, url: str) -> Literal["", "scope", "exclude", "include"]:
        """The rule that keeps a canonical URL out, or "" if none does."""
        return self._narrowed(url) if self._within(url) else "scope"

    def _within(self, url: str) -> bool:
        if self.mode == "page":
            return _contains(self._seeds, hash(_schemeless(identity(url))))
        if self.mode == "any":
            return True
        host = host_of(url)
        if (domain_of(host) if self.mode == "domain" else host) not in self._places:
            return False
        return self.mode != "prefix" or self._below_a_seed(url)

    def _below_a_seed(self, url: str) -> bool:
        """Whether a directory that the URL is in is that of a seed. The walk goes down from the host, no deeper than
        the deepest seed. (A "/" in the query does no harm: no seed's directory contains a "?".)"""
        url = identity(url)
        start = end = _scheme_end(url)
        for depth in range(1, max(self._depths) + 1):
            end = url.find("/", end) + 1
            if end == 0:
                break
            if depth in self._depths and _contains(self._directories, hash(url[start:end])):
                return True
        return False

    def _narrowed(self, url: str) -> Literal["", "exclude", "include"]:
        if self.excludes(url):
            return "exclude"
        if not self._includes or any(search(url) for search in self._includes):
            return ""
        return "" if _contains(self._seeds, hash(_schemeless(identity(url)))) else "include"


def _required(seed: str) -> str:
    url = canonical(seed)
    if url is None:
        raise ConfigError(f"The seed {seed!r} is not a web address.", "Write it like https://example.com/.")
    return url


def _compiled(pattern: str, option: str) -> Search:
    try:
        return re.compile(pattern).search
    except re.error as error:
        raise ConfigError(
            f"The {option} pattern {pattern!r} is not a regular expression: {error}.",
            "Write it in Python's syntax; a literal dot is \\. and a literal question mark is \\?.",
        ) from None


def _scheme_end(url: str) -> int:
    return len("https://") if url[4] == "s" else len("http://")


def _schemeless(url: str) -> str:
    return url[_scheme_end(url) :]


def _directory(url: str) -> str:
    """The host and the path as far as its last slash."""
    location = _schemeless(url).partition("?")[0]
    return location[: location.rindex("/") + 1]


def _contains(hashes: array[int], wanted: int) -> bool:
    position = bisect_left(hashes, wanted)
    return position < len(hashes) and hashes[position] == wanted
