"""How well near-duplicates are found on real pages: `python -m bench.near [--limit N] DIRECTORY...`.

Each directory counts as one domain: its HTML files are parsed and recorded in the order of their paths, as a crawl
would, and the answers are compared with the exact overlap (Jaccard index of the sets of three-word shingles) of the
texts that sketches are made from. Words are found by a regular expression in this file, not by the product's code.
Files with the same bytes as an earlier one are left out: they are exact duplicates. `--short BYTES` keeps only pages
with less text.

- precision: of the pages called near, the share that overlaps its original by `PRECISE_MIN` or more;
- recall: of the pages with an earlier page that overlaps by `RECALLED_MIN` or more, the share that is called near.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from drumlin.dedupe import OVERLAP_MIN, TEXT_BYTES_MAX, ContentIndex, digest, sketches
from drumlin.engines.memory.values import DictKeyValue
from drumlin.model import Content
from drumlin.parse import Source, parse_all

PRECISE_MIN = 0.8
RECALLED_MIN = 0.95
BATCH = 64
FILES_MAX = 100_000

# Characters from the CJK blocks on are words of their own.
_WORD = re.compile(r"[\u3000-\uffff]|[^\W\u3000-\uffff]+")

Shingles = frozenset[tuple[str, ...]]


class Page(NamedTuple):
    """A file with the part of its text that sketches are made from."""

    name: str
    digest: bytes
    text: bytes


def html_files(directory: Path) -> list[Path]:
    """The HTML files below a directory. If there are none, this is an error: a manual that is not installed must not
    look like one without faults."""
    files = sorted(file for file in directory.rglob("*.htm*") if file.is_file() and not file.is_symlink())
    if not files:
        sys.exit(f"There is no HTML in {directory}: is the manual installed? `make bench-manuals` installs some.")
    return files


def pages_of(directory: Path, limit: int, short_bytes: int) -> list[Page]:
    """The distinct HTML files below a directory; with a limit, every n-th of them."""
    files = html_files(directory)
    files = files[:: max(1, math.ceil(len(files) / limit))]
    pages: dict[bytes, Page] = {}
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        bodies = [file.read_bytes() for file in batch]
        for file, body, parsed in zip(
            batch, bodies, parse_all([Source(body, "text/html", "") for body in bodies]), strict=True
        ):
            if len(parsed.text) < short_bytes:
                pages.setdefault(digest(body), Page(str(file), digest(body), parsed.text[:TEXT_BYTES_MAX]))
    return list(pages.values())


def shingles(text: bytes) -> Shingles:
    words = _WORD.findall(text.decode("utf-8", "ignore"))
    return frozenset(zip(words, words[1:], words[2:], strict=False))


def overlap(one: Shingles, other: Shingles) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def marked(pages: list[Page], overlap_min: float) -> dict[int, tuple[int, float]]:
    """The pages that are called near, by number: the number of the original, and the estimated overlap."""
    index = ContentIndex(DictKeyValue())
    numbers = {page.name: number for number, page in enumerate(pages)}
    found = {}
    for start in range(0, len(pages), BATCH):
        batch = pages[start : start + BATCH]
        made = sketches([page.text for page in batch])
        contents = [
            Content("domain", page.name, page.digest, sketch, 0.0, page.name)
            for page, sketch in zip(batch, made, strict=True)
        ]
        for number, answer in enumerate(index.record(contents, overlap_min), start):
            if answer is not None and answer.overlap is not None:
                found[number] = (numbers[answer.url], answer.overlap)
    return found


def repeating(sets: list[Shingles], least: float) -> Iterator[int]:
    """The pages with an earlier one that overlaps by `least` or more.

    If at most m shingles of a set may be missing from the other, the other has at least one of its m + 1 rarest ones.
    So only pages that share one of these are compared.
    """
    counts = Counter(shingle for one in sets for shingle in one)
    by_shingle: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, one in enumerate(sets):
        rare = sorted(one, key=lambda shingle: (counts[shingle], shingle))
        rare = rare[: len(rare) - math.ceil(least * len(rare) - 1e-9) + 1] if rare else []
        candidates = {other for shingle in rare for other in by_shingle[shingle]}
        if any(overlap(one, sets[other]) >= least for other in candidates):
            yield number
        for shingle in rare:
            by_shingle[shingle].append(number)


def measure(directory: Path, options: argparse.Namespace) -> None:
    pages = pages_of(directory, options.limit, options.short)
    started = time.process_time()
    near = marked(pages, options.overlap)
    spent_us = (time.process_time() - started) / max(1, len(pages)) * 1e6
    sets = [shingles(page.text) for page in pages]
    exact = {number: overlap(sets[number], sets[original]) for number, (original, _) in near.items()}
    wrong = [number for number, share in exact.items() if share < PRECISE_MIN]
    wanted = list(repeating(sets, RECALLED_MIN))
    missed = [number for number in wanted if number not in near]
    print(
        f"{directory}: {len(pages)} pages, {len(near)} near, {len(wrong)} of them below {PRECISE_MIN}"
        f" (precision {_percent(len(near) - len(wrong), len(near))}); {len(wanted)} overlap by {RECALLED_MIN},"
        f" {len(missed)} missed (recall {_percent(len(wanted) - len(missed), len(wanted))}); {spent_us:.0f} µs a page"
    )
    if options.list:
        for number in wrong:
            original, estimate = near[number]
            print(f"  {exact[number]:.3f}, taken for {estimate:.3f}: {pages[number].name} = {pages[original].name}")
        for number in missed:
            print(f"  missed: {pages[number].name}")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2f} %" if whole else "-"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--limit", type=int, default=FILES_MAX, help="files of a directory at most")
    parser.add_argument("--short", type=int, default=1 << 30, help="only pages with less text than this, in bytes")
    parser.add_argument("--overlap", type=float, default=OVERLAP_MIN, help="from which on pages are near")
    parser.add_argument("--list", action="store_true", help="name the pages that are wrong or missed")
    options = parser.parse_args()
    for directory in options.directories:
        measure(directory, options)


if __name__ == "__main__":
    main()
