"""From the raw hrefs of a page to canonical URLs, with a cache: nearly all links of a page were seen before.

How long an answer stays true depends on the href. One that begins with a scheme and "//" means the same everywhere, one
that begins with "/" means the same on every page of an origin, and any other on every page of a directory. Hrefs that
keep the page's own path ("", "#top", "?page=2", "http:?x") are never cached, because they mean something else on every
page.
"""

from __future__ import annotations

import re

from drumlin.urls.canonical import (
    HREF_LENGTH_MAX,
    PLAIN_PATH,
    PLAIN_TAIL,
    URL_LENGTH_MAX,
    canonical,
    is_plain,
    joined,
)

ENTRIES_MAX = 300_000  # cached hrefs, directories and origins; about 70 MB

# A longer href is not cached: it rarely comes twice, and a hostile page could fill the memory with a few of them. For
# the same reason nothing is cached for a directory with a longer path.
HREF_CACHED_MAX = 300  # characters
PATH_CACHED_MAX = 300  # characters

# How many characters the URLs of one page may have together. A page of 4 MB has fewer, unless it was made to harm: a
# long base makes a long URL of every "1", "2", "3".
PAGE_CHARS_MAX = 8 * 1024 * 1024
HREFS_UNCOUNTED_MAX = PAGE_CHARS_MAX // URL_LENGTH_MAX

_ORIGIN_WIDE = ("/", "http://", "https://")

# An href whose canonical URL is a concatenation: it is appended to the origin if it begins with "/", and otherwise to
# the directory that its leading "./" and "../" climb to. A colon could end a scheme, so a relative path has none.
# Groups: rooted path (or else) climb, path; query.
_PLAIN_RELATIVE = re.compile(
    rf"(?:(/(?!/){PLAIN_PATH})|((?:\.\.?/)*)([A-Za-z0-9_~%-][A-Za-z0-9_.~/%-]*)){PLAIN_TAIL}", re.DOTALL
).fullmatch

# Path segments of harmless characters, none of which is a dot segment. After a "/" at the start of an href, or after
# any number of "../", they are appended as they are. Most links are so simple, and this is the quickest test for them.
_SIMPLE_PATH = r"(?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]*/)*[A-Za-z0-9_~-][A-Za-z0-9_.~-]*/?"
_SIMPLE_ROOTED = re.compile("/" + _SIMPLE_PATH).fullmatch
_SIMPLE_RELATIVE = re.compile(rf"((?:\.\./)*){_SIMPLE_PATH}").fullmatch
_CLIMB = len("../")

# What the WHATWG parser ignores: controls and spaces around an href, tabs and newlines anywhere in it.
_AROUND = "".join(map(chr, range(0x21)))
_WITHIN = re.compile("[\t\n\r]+")
_KEEPS_PATH_OF_PAGE = re.compile(r"(?:https?:)?(?:[?#]|\Z)", re.IGNORECASE | re.ASCII).match


class _Directory(dict[str, str | None]):
    """A cache of what hrefs mean on the pages of one directory; `page` is the page whose links are resolved now."""

    __slots__ = ("_absolute", "_ancestors", "_origin", "_origin_wide", "_short", "page", "path")

    def __init__(self, path: str, origin: str, origin_wide: dict[str, str], absolute: dict[str, str]) -> None:
        super().__init__()
        self.path = path
        self.page = path
        self._origin = origin
        self._origin_wide = origin_wide
        self._absolute = absolute
        self._ancestors = _ancestors(path, len(origin) + 1)
        # If so, no href that is short enough to be cached can make a URL that is too long.
        self._short = len(path) <= PATH_CACHED_MAX

    @property
    def depth(self) -> int:
        """How many directories there are from the root to this one, both included."""
        return len(self._ancestors)

    def __missing__(self, href: str) -> str | None:
        """Resolve an href that is not in the cache, and put it there. The simplest hrefs are resolved at once, all
        others by `_learn`."""
        if len(href) > HREF_CACHED_MAX or not self._short:
            return self._learn(href)
        if href.startswith("/"):
            if _SIMPLE_ROOTED(href) is None:
                return self._learn(href)
            url = self._origin_wide[href] = self._origin + href
            return url
        simple = _SIMPLE_RELATIVE(href)
        if simple is None:
            return self._learn(href)
        climb = simple.end(1)
        if climb:
            ancestors = self._ancestors
            url = ancestors[min(climb // _CLIMB, len(ancestors) - 1)] + href[climb:]
        else:
            url = self.path + href
        self[href] = url
        return url

    def _learn(self, href: str) -> str | None:
        """Resolve an href that is not of the simplest kind, and cache it if it means the same on other pages."""
        if href.startswith(_ORIGIN_WIDE):
            return self._learn_origin_wide(href)
        if href.startswith("#"):
            return self.page if len(href) <= HREF_LENGTH_MAX else None
        url = self._join(href)
        if self._short and len(href) <= HREF_CACHED_MAX and not _keeps_path_of_page(href):
            self[href] = url
        return url

    def _learn_origin_wide(self, href: str) -> str | None:
        rooted = href[0] == "/"
        url = self._join(href) if rooted else canonical(href)
        if len(href) <= HREF_CACHED_MAX:
            if url is None:
                self[href] = None
            else:
                (self._origin_wide if rooted else self._absolute)[href] = url
        return url

    def _join(self, href: str) -> str | None:
        plain = _PLAIN_RELATIVE(href)
        if plain is not None and len(href) <= HREF_LENGTH_MAX:
            rooted, climb, path, query = plain.groups()
            if rooted and is_plain(rooted):
                return joined(self._origin, rooted, query)
            if path and is_plain(path):
                return joined(self._climbed(climb), path, query)
        return canonical(href, self.page)

    def _climbed(self, climb: str) -> str:
        """The directory to which a run of "./" and "../" leads; the root is its own parent."""
        return self._ancestors[min(climb.count("../"), len(self._ancestors) - 1)]


def _ancestors(path: str, root_length: int) -> list[str]:
    """A directory, its parent, and so on to the root."""
    ancestors = [path]
    while len(path) > root_length:
        path = path[: path.rindex("/", 0, -1) + 1]
        ancestors.append(path)
    return ancestors


def _keeps_path_of_page(href: str) -> bool:
    if ":" not in href and href[:1] > " ":
        return href[0] in "?#"
    return _KEEPS_PATH_OF_PAGE(_WITHIN.sub("", href.lstrip(_AROUND))) is not None


class LinkResolver:
    """Resolves the hrefs of pages with a cache of bounded size, which is emptied when it is full."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._entries = 0
        self._absolute: dict[str, str] = {}
        self._origins: dict[str, dict[str, str]] = {}
        self._directories: dict[str, _Directory] = {}

    def resolve(self, base_url: str, hrefs: list[str]) -> list[str | None]:
        """`canonical(href, base_url)` for each href, in order. The list is cut short where the URLs would have more
        than `PAGE_CHARS_MAX` characters together."""
        if len(hrefs) <= HREFS_UNCOUNTED_MAX:
            return self._resolve(base_url, hrefs)
        urls: list[str | None] = []
        chars = 0
        for start in range(0, len(hrefs), HREFS_UNCOUNTED_MAX):
            part = self._resolve(base_url, hrefs[start : start + HREFS_UNCOUNTED_MAX])
            chars += sum(len(url) for url in part if url is not None)
            if chars > PAGE_CHARS_MAX:
                break
            urls += part
        return urls

    def _resolve(self, base_url: str, hrefs: list[str]) -> list[str | None]:
        page = canonical(base_url)
        if page is None or len(hrefs) > self._entries_max:
            return [canonical(href, base_url) for href in hrefs]
        if self._entries + len(hrefs) > self._entries_max:
            self._forget()
        directory, origin_wide = self._place(page)
        directory.page = page
        before = len(directory) + len(origin_wide) + len(self._absolute)
        everywhere, anywhere = origin_wide.get, self._absolute.get
        # The two dicts have no None, so `or` goes on only if an href is missing; what cannot be resolved is None in the
        # directory. `directory[href]` calls `__missing__`, which also fills the other two.
        urls = [everywhere(href) or anywhere(href) or directory[href] for href in hrefs]
        self._entries += len(directory) + len(origin_wide) + len(self._absolute) - before
        return urls

    def _place(self, page: str) -> tuple[_Directory, dict[str, str]]:
        origin_end = page.index("/", 8)
        origin = page[:origin_end]
        path_end = page.find("?", origin_end)
        path = page[: page.rindex("/", origin_end, path_end if path_end >= 0 else len(page)) + 1]
        origin_wide = self._origins.get(origin)
        if origin_wide is None:
            origin_wide = self._origins[origin] = {}
            self._entries += 1
        directory = self._directories.get(path)
        if directory is None:
            directory = _Directory(path, origin, origin_wide, self._absolute)
            if len(path) <= PATH_CACHED_MAX:
                self._directories[path] = directory
                self._entries += directory.depth
        return directory, origin_wide

    def _forget(self) -> None:
        self._entries = 0
        self._absolute = {}
        self._origins = {}
        self._directories = {}
