"""How well language and text of real pages are found: `python -m bench.texts [--language eng] DIRECTORY...`.

For each directory of HTML in one language (ISO 639-3) it counts:

- the pages that are taken to be in another language, by language, and those for which none is found;
- the `<pre>` elements that are not in the page's text byte for byte. Those in parts that do not belong to the text of a
  page (navigation and the like) do not count, nor those that contain elements which end lines or are not shown.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from selectolax.lexbor import LexborHTMLParser, LexborNode

from bench.near import html_files
from drumlin.parse import Source, parse_all
from drumlin.parse.page import PARSE_BYTES_MAX

BATCH = 64
TEXT_CHARS_MAX = 1_000_000
"""Pages whose text would be cut off, or of which only the beginning is parsed, are not looked at."""
SHOWN_MAX = 5
ENDS_LINES = "br, div, p, li, tr, script, style, table, h1, h2, h3, h4"
NO_TEXT = frozenset({"nav", "header", "footer", "aside", "form", "dialog", "menu", "noscript", "template", "head"})


class Seen(NamedTuple):
    """A page: the language that it is said to be in, and its preformatted elements that did and did not survive."""

    path: Path
    language: str
    kept: int
    lost: list[str]


def look(files: list[Path]) -> Iterator[Seen]:
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        bodies = [path.read_bytes() for path in batch]
        pages = parse_all([Source(body, "text/html", "") for body in bodies])
        for path, body, page in zip(batch, bodies, pages, strict=True):
            text = page.text.decode("utf-8", "replace")
            whole = len(text) < TEXT_CHARS_MAX and len(body) <= PARSE_BYTES_MAX
            found = list(preformatted(body)) if whole else []
            lost = [one for one in found if one not in text]
            yield Seen(path, page.languages, len(found) - len(lost), lost)


def preformatted(body: bytes) -> Iterator[str]:
    tree = LexborHTMLParser(body)
    if tree.css_first("main, article") is not None:
        return  # only a part of the page may be its text
    for element in tree.css("pre"):
        text = element.text(deep=True)
        if text.strip() and element.css_first(ENDS_LINES) is None and not _is_apart(element):
            yield text


def _is_apart(element: LexborNode) -> bool:
    above = element.parent
    while above is not None:
        if above.tag in NO_TEXT:
            return True
        above = above.parent
    return False


def measure(directory: Path, language: str, limit: int) -> None:
    files = html_files(directory)
    random.Random(1).shuffle(files)
    seen = list(look(files[:limit]))
    wrong = [one for one in seen if one.language and one.language != language]
    silent = sum(not one.language for one in seen)
    lost = [(one.path, text) for one in seen for text in one.lost]
    kept = sum(one.kept for one in seen)
    share = 100 * len(wrong) / len(seen)
    named = Counter(one.language for one in wrong)
    print(
        f"{directory}: {len(seen)} pages, {len(wrong)} in a wrong language ({share:.2f} %) {dict(named)},"
        f" {silent} in none; {kept + len(lost)} <pre>, {len(lost)} not byte for byte"
    )
    for one in wrong[:SHOWN_MAX]:
        print(f"  {one.language}: {one.path}")
    for path, text in lost[:SHOWN_MAX]:
        print(f"  {path}: {text[:80]!r}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--language", default="eng", help="of all pages")
    parser.add_argument("--limit", type=int, default=sys.maxsize, help="pages of a directory at most")
    options = parser.parse_args()
    for directory in options.directories:
        measure(directory, options.language, options.limit)


if __name__ == "__main__":
    main()
