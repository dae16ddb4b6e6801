"""How large a body may be, by the type that its header names. Otherwise a link to a film would have the film stored.

A rule is a type (`application/pdf`), a family of types (`video/*`) or all types (`*/*`), and a number of bytes; 0 means
that such bodies are not fetched at all. Of several rules the most specific decides. Any rule of the user comes before
all built-in ones, so a user's `*/*` replaces all of those. A type without a rule is limited like a page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from drumlin.http.mime import extract_mime_type

ANY_TYPE: Final = "*/*"
MIB: Final = 2**20
TYPES_REMEMBERED: Final = 1024
"""How many verdicts are cached: sites repeat a few headers on all their pages."""

_ARCHIVES: Final = (
    *("gzip", "java-archive", "vnd.rar", "x-7z-compressed", "x-bzip", "x-bzip2", "x-compress", "x-compressed-tar"),
    *("x-gtar", "x-gzip", "x-java-archive", "x-lzip", "x-rar-compressed", "x-tar", "x-xz", "x-zip-compressed"),
    *("zip", "zstd"),
)
_PROGRAMS: Final = (
    *("vnd.android.package-archive", "vnd.debian.binary-package", "vnd.microsoft.portable-executable"),
    *("x-apple-diskimage", "x-debian-package", "x-dosexec", "x-executable", "x-iso9660-image", "x-ms-installer"),
    *("x-msdos-program", "x-msdownload", "x-msi", "x-raw-disk-image", "x-redhat-package-manager", "x-rpm"),
)
BUILT_IN: Final[dict[str, int]] = {
    "audio/*": 0,
    "video/*": 0,
    **{f"application/{name}": 0 for name in (*_ARCHIVES, *_PROGRAMS)},
    "application/octet-stream": 1 * MIB,
    "image/*": 8 * MIB,
}
"""Films, sounds, archives and programs are not fetched. Pictures are, and small files whose type the server does not
know."""

_TYPE: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+/[!#$%&'*+\-.^_`|~0-9a-z]+")


def is_type(text: str) -> bool:
    """Whether a rule may have this name: a type in lower case, with a star only for a whole family or all types."""
    kind, _, subtype = text.partition("/")
    starred = "*" in text
    return _TYPE.fullmatch(text) is not None and (not starred or (subtype == "*" and (kind == "*" or "*" not in kind)))


class TypeLimits:
    """The limits of a crawl: `rules` on top of those built in."""

    def __init__(self, rules: Mapping[str, int]) -> None:
        self._layers = (rules, BUILT_IN)
        self._known: dict[bytes, int | None] = {}
        self.unbounded_lines: set[bytes] = set()
        """Content-Type lines, as they were received, of types without a rule."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TypeLimits) and self._layers == other._layers

    __hash__ = None  # type: ignore[assignment]  # rules may be any mapping

    def of(self, content_type: bytes) -> int | None:
        """How many bytes a body with this Content-Type may have; None if there is no rule for it."""
        try:
            return self._known[content_type]
        except KeyError:
            limit = self._find(extract_mime_type(content_type.decode("latin-1")).essence)
        if len(self._known) >= TYPES_REMEMBERED:
            self._known.clear()
        self._known[content_type] = limit
        return limit

    def remember_unbounded(self, line: bytes) -> None:
        if len(self.unbounded_lines) >= TYPES_REMEMBERED:
            self.unbounded_lines.clear()
        self.unbounded_lines.add(line)

    def _find(self, essence: str) -> int | None:
        kind = essence.partition("/")[0] + "/*"
        for rules in self._layers:
            for name in (essence, kind, ANY_TYPE):
                # A body without a valid type is subject only to the rule for all types.
                if name in rules and (essence or name == ANY_TYPE):
                    return rules[name]
        return None
