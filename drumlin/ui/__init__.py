"""The dashboard's own files: one page, one stylesheet, and scripts that browsers load as they are.

There is nothing to build and nothing of others. `static/index.html` is the page; `static/style.css` begins with every
colour, space and size; `static/app.js` starts everything, and `static/screens/` has a file for each screen. The scripts
are ES modules with types in JSDoc comments. Text of the web gets into the page as text, never as markup.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

FOLDER = Path(__file__).parent / "static"
INDEX = "index.html"
MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class PageFile(msgspec.Struct, frozen=True):
    """A file of the page; `name` is its path below the folder of all of them."""

    name: str
    content: bytes

    @property
    def media_type(self) -> str:
        return MEDIA_TYPES[Path(self.name).suffix]


@cache
def page_files() -> tuple[PageFile, ...]:
    """All files of the page, in the order of their names. They are read once, when a process starts: an upgrade may
    replace them while it runs, and files of another version would not fit its answers."""
    files = (path for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES)
    return tuple(PageFile(path.relative_to(FOLDER).as_posix(), path.read_bytes()) for path in sorted(files))
