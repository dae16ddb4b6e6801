"""What parsing a page costs, step by step: `python -m bench.parse` prints CPU-µs per page."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from selectolax.lexbor import LexborHTMLParser

from drumlin.parse import Source, keep_freed_memory, parse_all, sniff
from drumlin.parse.blocks import mark_blocks
from drumlin.parse.encoding.charset import to_utf8
from drumlin.parse.hostile import tame
from drumlin.parse.text import tidy

Item = TypeVar("Item")

CONTENT_TYPE = "text/html; charset=utf-8"
PAGE_BYTES = 37_000
PAGES = 20
REAL_PAGES_MAX = 60
ROUNDS = 7
MANUALS = (Path("/usr/share/doc/python3.11/html"), Path("/usr/share/doc/python3.11-doc/html"))
WORDS = (
    "time year people way day man thing woman life child world school state family student group country problem hand "
    "part place case week company system program question work government number night point home water room mother"
)


def made_page(seed: int, size_bytes: int = PAGE_BYTES) -> bytes:
    """A page of prose with 50 links, about 290 other elements and a size near the one asked for."""
    chance = random.Random(seed)
    vocabulary = WORDS.split()

    def words(count: int) -> str:
        return " ".join(chance.choices(vocabulary, k=count))

    prose = max(2, size_bytes // 90 // 17)
    head = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{words(5)}</title>\n'
        f'<meta name="description" content="{words(15)}">\n<link rel="canonical" href="/p/{seed}">\n'
        '<link rel="stylesheet" href="/s.css">\n<script>var x = a < 3 && b > 1;</script>\n</head>\n<body class="h">\n'
    )
    menu = "".join(f'<li class="item"><a href="/nav/{i}" class="nav">{words(2)}</a></li>\n' for i in range(10))
    footer = "".join(f'<li><a href="http://other{i}.example/" rel="nofollow">{words(2)}</a></li>\n' for i in range(10))
    blocks = "".join(_block(index, seed, prose, words) for index in range(90))
    return (
        f"{head}<header><nav><ul>\n{menu}</ul></nav></header>\n<main>\n<h1>{words(5)}</h1>\n{blocks}</main>\n"
        f'<footer><ul>\n{footer}</ul><script src="/a.js"></script></footer>\n</body></html>\n'
    ).encode()


def _block(index: int, seed: int, prose: int, words: Callable[[int], str]) -> str:
    link = f'<a href="/section/{index}/page-{seed + index}.html?x={index}">{words(3)}</a> ' if index % 3 == 0 else ""
    image = f'<img src="/img/{index}.png" alt="{words(2)}" width="10">\n' if index % 10 == 0 else ""
    text = f"{words(prose)} {link}<b>{words(2)}</b> {words(prose)}"
    return f'<div class="c" id="d{index}"><p class="para">{text}</p></div>\n{image}'


def real_pages() -> list[bytes]:
    """Pages of the Python manual, as far as Debian's package of it is installed."""
    files = sorted(path for manual in MANUALS if manual.is_dir() for path in manual.rglob("*.html"))
    step = max(1, len(files) // REAL_PAGES_MAX)
    return [path.read_bytes() for path in files[::step]]


def cost_us(step: Callable[[Item], object], items: Sequence[Item]) -> float:
    """The least CPU time of a step over several rounds, in µs per item."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        for item in items:
            step(item)
        best = min(best, time.process_time() - started)
    return best / len(items) * 1e6


def measure(pages: Sequence[bytes]) -> Iterable[tuple[str, float]]:
    """Each step's name and cost; the last is everything."""
    marked = mark_blocks(pages)
    trees = [LexborHTMLParser(page, options=1) for page in marked]
    texts = [tree.body.text_lexbor() if tree.body else "" for tree in trees]
    yield "sniff", cost_us(lambda page: sniff(CONTENT_TYPE, page), pages)
    yield "charset", cost_us(lambda page: to_utf8(page, CONTENT_TYPE), pages)
    yield "hostile", cost_us(tame, pages)
    yield "mark blocks", cost_us(mark_blocks, [pages]) / len(pages)
    yield "lexbor", cost_us(lambda page: LexborHTMLParser(page, options=1), marked)
    yield "walk", cost_us(lambda tree: [node.tag_id for node in tree.css("html")[0].traverse()], trees)
    yield "text walk", cost_us(lambda tree: tree.body.text_lexbor() if tree.body else "", trees)
    yield "text tidy", cost_us(tidy, texts)
    yield "parse (all)", cost_us(lambda page: parse_all([Source(page, CONTENT_TYPE, "")]), pages)


def main() -> None:
    """Print the table for made pages and real ones."""
    keep_freed_memory()
    for name, pages in (("made", [made_page(seed) for seed in range(PAGES)]), ("real", real_pages())):
        if pages:
            print(f"{name}: {len(pages)} pages of {sum(map(len, pages)) // len(pages)} bytes")
            for step, cost in measure(pages):
                print(f"  {step:12} {cost:8.1f} µs")


if __name__ == "__main__":
    main()
