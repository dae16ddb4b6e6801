"""Which URLs a crawl may follow: a mode that widens the seeds, and regular expressions that narrow the result."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from drumlin.errors import ConfigError
from drumlin.urls.canonical import canonical
from drumlin.urls.host import domain_of, host_of

ScopeMode = Literal["page", "prefix", "host", "domain", "any"]
Search = Callable[[str], object]


@dataclass(frozen=True, slots=True, init=False)
class Scope:
    """The URLs that a crawl may follow. Schemes do not count: a site that moves to https stays in scope.

    page: the seeds alone; prefix: the seeds' directories and all below; host: the seeds' hosts; domain: the seeds'
    registrable domains; any: everything. A URL that an exclude matches is out; where there are includes, one must
    match, except for a seed.
    """

    mode: ScopeMode
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    _places: frozenset[str]  # hosts or domains
    _directories: array[int]  # hashes, sorted: of millions, an array takes a tenth of a set's memory
    _directory_depth_max: int
    _seeds: array[int]  # hashes, sorted; only kept where they decide something
    _includes: tuple[Search, ...]
    _excludes: tuple[Search, ...]

    def __init__(
        self, mode: ScopeMode, seeds: Iterable[str], include: Sequence[str] = (), exclude: Sequence[str] = ()
    ) -> None:
        if mode not in get_args(ScopeMode):
            raise ConfigError(f"There is no scope {mode!r}.", f"Choose one of {', '.join(get_args(ScopeMode))}.")
        places: set[str] = set()
        directories: set[int] = set()
        kept_seeds: set[int] = set()
        depth_max = 0
        for seed in seeds:
            url = _required(seed)
            if mode == "host":
                places.add(host_of(url))
            elif mode == "domain":
                places.add(domain_of(host_of(url)))
            elif mode == "prefix":
                directory = _directory(_schemeless(url))
                directories.add(hash(directory))
                depth_max = max(depth_max, directory.count("/"))
            if mode == "page" or include:
                kept_seeds.add(hash(_schemeless(url)))
        set_field = object.__setattr__
        set_field(self, "mode", mode)
        set_field(self, "include", tuple(include))
        set_field(self, "exclude", tuple(exclude))
        set_field(self, "_places", frozenset(places))
        set_field(self, "_directories", array("q", sorted(directories)))
        set_field(self, "_directory_depth_max", depth_max)
        set_field(self, "_seeds", array("q", sorted(kept_seeds)))
        set_field(self, "_includes", tuple(_compiled(pattern, "include") for pattern in include))
        set_field(self, "_excludes", tuple(_compiled(pattern, "exclude") for pattern in exclude))

    def allows(self, url: str) -> bool:
        """Whether a canonical URL is in scope."""
        if self.mode == "host":
            start = 8 if url[4] == "s" else 7
            within = url[start : url.index("/", start)] in self._places
        else:
            within = self._within(url)
        return within and not ((self._excludes or self._includes) and self._narrowed(url))

    def why_not(self, url: str) -> Literal["", "scope", "exclude", "include"]:
        """The rule that keeps a canonical URL out, or "" if none does."""
        return self._narrowed(url) if self._within(url) else "scope"

    def filter(self, urls: Iterable[str | None]) -> list[str]:
        """Those URLs that are in scope, in order; None (an href that is no web address) is not."""
        allows = self.allows
        return [url for url in urls if url is not None and allows(url)]

    def _within(self, url: str) -> bool:
        match self.mode:
            case "host":
                return host_of(url) in self._places
            case "domain":
                return domain_of(host_of(url)) in self._places
            case "prefix":
                return self._below_a_seed(_schemeless(url))
            case "page":
                return _contains(self._seeds, hash(_schemeless(url)))
            case "any":
                return True

    def _below_a_seed(self, location: str) -> bool:
        """Walk down from the host, a directory at a time, no deeper than the deepest seed."""
        path = location.partition("?")[0]
        end = 0
        for _ in range(self._directory_depth_max):
            end = path.find("/", end) + 1
            if end == 0:
                return False
            if _contains(self._directories, hash(path[:end])):
                return True
        return False

    def _narrowed(self, url: str) -> Literal["", "exclude", "include"]:
        if any(search(url) for search in self._excludes):
            return "exclude"
        if not self._includes or any(search(url) for search in self._includes):
            return ""
        return "" if _contains(self._seeds, hash(_schemeless(url))) else "include"


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


def _schemeless(url: str) -> str:
    return url[8 if url[4] == "s" else 7 :]


def _directory(location: str) -> str:
    path = location.partition("?")[0]
    return path[: path.rindex("/") + 1]


def _contains(hashes: array[int], wanted: int) -> bool:
    position = bisect_left(hashes, wanted)
    return position < len(hashes) and hashes[position] == wanted
