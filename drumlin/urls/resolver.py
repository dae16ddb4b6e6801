"""Raw hrefs of a page to canonical URLs, remembering the answers: nearly all links of a page were seen before.

An href that begins with a scheme and "//" means the same everywhere, one that begins with "/" on every page of an
origin. Any other means the same on every page of a directory, except those that keep the page's own path ("", "#top",
"?page=2", "http:?x").
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

ENTRIES_MAX = 300_000  # remembered hrefs, directories and origins; about 70 MB

# A longer href is not remembered: it rarely comes twice, and a hostile page could fill the memory with few.
HREF_CACHED_MAX = 300  # characters

_ORIGIN_WIDE = ("/", "http://", "https://")

# An href that is appended to its origin if it begins with "/", else to its directory after the climb, and then is
# canonical. A colon could end a scheme, so a relative path must not have it.
# Groups: rooted path (or else) climb, path; query.
_PLAIN_RELATIVE = re.compile(
    rf"(?:(/(?!/){PLAIN_PATH})|((?:\.\.?/)*)([A-Za-z0-9_~%-][A-Za-z0-9_.~/%-]*)){PLAIN_TAIL}", re.DOTALL
).fullmatch

# Path segments of harmless characters, none of which is a dot segment: what follows a "/" at the start of an href, or
# any climb, is appended as it is. Most links are so simple, and this is the quickest look that can tell.
_SIMPLE_PATH = r"(?:[A-Za-z0-9_~-][A-Za-z0-9_.~-]*/)*[A-Za-z0-9_~-][A-Za-z0-9_.~-]*/?"
_SIMPLE_ROOTED = re.compile("/" + _SIMPLE_PATH).fullmatch
_SIMPLE_RELATIVE = re.compile(rf"((?:\.\./)*){_SIMPLE_PATH}").fullmatch
_CLIMB = len("../")

# What the WHATWG parser ignores: controls and spaces around, tabs and newlines anywhere.
_AROUND = "".join(map(chr, range(0x21)))
_WITHIN = re.compile("[\t\n\r]+")
_KEEPS_PATH_OF_PAGE = re.compile(r"(?:https?:)?(?:[?#]|\Z)", re.IGNORECASE).match


class _Directory(dict[str, str | None]):
    """What hrefs mean on the pages of one directory; `page` is the one being resolved."""

    __slots__ = ("_absolute", "_ancestors", "_origin", "_origin_wide", "_roomy", "page", "path")

    def __init__(self, path: str, origin: str, origin_wide: dict[str, str], absolute: dict[str, str]) -> None:
        super().__init__()
        self.path = path
        self.page = path
        self._origin = origin
        self._origin_wide = origin_wide
        self._absolute = absolute
        self._ancestors = _ancestors(path, len(origin) + 1)
        # Here no href that may be remembered makes a URL that is too long.
        self._roomy = len(path) + HREF_CACHED_MAX <= URL_LENGTH_MAX

    def __missing__(self, href: str) -> str | None:
        """What an href means that is not known from this directory, remembered."""
        if len(href) > HREF_CACHED_MAX or not self._roomy:
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
        """What an href means that takes more than a look."""
        if href.startswith(_ORIGIN_WIDE):
            return self._learn_origin_wide(href)
        if href.startswith("#"):
            return self.page if len(href) <= HREF_LENGTH_MAX else None
        url = self._join(href)
        if len(href) <= HREF_CACHED_MAX and not _keeps_path_of_page(href):
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
        """The directory that a run of "./" and "../" leads to; the root is its own parent."""
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
    """Resolves pages' hrefs with a bounded memory, all of which is dropped when it is full."""

    def __init__(self, entries_max: int = ENTRIES_MAX) -> None:
        self._entries_max = entries_max
        self._entries = 0
        self._absolute: dict[str, str] = {}
        self._origins: dict[str, dict[str, str]] = {}
        self._directories: dict[str, _Directory] = {}

    def resolve(self, base_url: str, hrefs: list[str]) -> list[str | None]:
        """What `canonical(href, base_url)` gives for each href, in order."""
        page = canonical(base_url)
        if page is None or len(hrefs) > self._entries_max:
            return [canonical(href, base_url) for href in hrefs]
        if self._entries + len(hrefs) > self._entries_max:
            self._forget()
        directory, origin_wide = self._place(page)
        directory.page = page
        before = len(directory) + len(origin_wide) + len(self._absolute)
        everywhere, anywhere = origin_wide.get, self._absolute.get
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
            directory = self._directories[path] = _Directory(path, origin, origin_wide, self._absolute)
            self._entries += 1
        return directory, origin_wide

    def _forget(self) -> None:
        self._entries = 0
        self._absolute = {}
        self._origins = {}
        self._directories = {}
