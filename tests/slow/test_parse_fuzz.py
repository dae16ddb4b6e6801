"""Real pages, mutated at random, through the parse stage in a process of its own.

`python test_parse_fuzz.py PAGES SEED` is that process: it prints what it saw as JSON. A page that hangs ends it with a
traceback, one that crashes the native parser ends it with a signal; both name the page by its number.
"""

from __future__ import annotations

import faulthandler
import json
import random
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MANUALS = (Path("/usr/share/doc/python3.11/html"), Path("/usr/share/doc/postgresql-doc-15/html"))
SOURCES_MAX = 400
SOURCE_BYTES_MAX = 60_000
HANG_S = 20.0
PAGE_CPU_S_MAX = 1.0
GROWTH_BYTES_MAX = 16 * 1024 * 1024
SNIPPETS = (
    *(
        b"<",
        b">",
        b"</",
        b"<!--",
        b"-->",
        b"'",
        b'"',
        b"&",
        b"&#x",
        b"\x00",
        b"\xff\xfe",
        b"\xed\xa0\x80",
        b"<![CDATA[",
        b"]]>",
    ),
    *(
        b"<a href=x>",
        b"</a>",
        b"<table>",
        b"<tr><td>",
        b"</table>",
        b"<svg>",
        b"<math><mi>",
        b"<template>",
        b"</template>",
    ),
    *(
        b"<select>",
        b"<option>",
        b"<script>",
        b"</script>",
        b"<style>",
        b"<title>",
        b"<textarea>",
        b"<noscript>",
        b"<frameset>",
    ),
    *(
        b"<b><p>",
        b"</b>",
        b"<form>",
        b"</form>",
        b"<main>",
        b"</main>",
        b"<nav>",
        b"</nav>",
        b"<body>",
        b"<html lang=de>",
    ),
    *(
        b"<base href=//>",
        b"<meta http-equiv=refresh content=0;x>",
        b"<img srcset='a 1x,b'>",
        b"<plaintext>",
        b"<iframe src=x>",
    ),
)
CONTENT_TYPES = (
    *("text/html; charset=utf-8", "text/html", "", "text/html; charset=shift_jis", "text/html; charset=utf-16le"),
    *("application/xhtml+xml", "text/plain", "text/xml"),
)


def sources(chance: random.Random) -> list[bytes]:
    """Some pages of the installed manuals, or made-up ones if none is installed."""
    from bench.parse import made_page

    files = sorted(path for manual in MANUALS if manual.is_dir() for path in manual.rglob("*.html"))
    chosen = chance.sample(files, min(SOURCES_MAX, len(files)))
    return [path.read_bytes()[:SOURCE_BYTES_MAX] for path in chosen] + [made_page(seed, 9000) for seed in range(20)]


def mutated(page: bytes, chance: random.Random) -> bytes:
    """The page with a handful of places cut out, repeated, moved, overwritten or made into something else."""
    for _ in range(chance.randint(1, 12)):
        start = chance.randrange(len(page) + 1)
        end = min(len(page), start + int(chance.expovariate(1 / 200)))
        piece = page[start:end]
        choice = chance.randrange(6)
        if choice == 0:
            page = page[:start] + page[end:]
        elif choice == 1:
            page = page[:start] + piece * chance.randint(2, 40) + page[end:]
        elif choice == 2:
            place = chance.randrange(len(page) + 1)
            page = page[:place] + piece + page[place:]
        elif choice == 3:
            page = page[:start] + chance.randbytes(len(piece) // 8 + 1) + page[start + 1 :]
        else:
            page = (
                page[:start] + chance.choice(SNIPPETS) * (1 if choice == 4 else chance.randint(1, 300)) + page[start:]
            )
    return page


def resident_bytes() -> int:
    """What the process holds in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def run(pages: int, seed: int) -> dict[str, float]:
    """Parse so many mutated pages. Returns the CPU seconds of the slowest, and the memory after a tenth and at the
    end."""
    from drumlin.parse import Source, keep_freed_memory, looks_like_sitemap, parse_all, parse_sitemap, sniff

    keep_freed_memory()
    chance = random.Random(seed)
    originals = sources(chance)
    slowest = 0.0
    warm = 0
    for number in range(pages):
        page = mutated(chance.choice(originals), chance)
        content_type = chance.choice(CONTENT_TYPES)
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        started = time.process_time()
        mime = sniff(content_type, page)
        (parsed,) = parse_all([Source(page, content_type, "http://site.example/")])
        if looks_like_sitemap(mime, page) or number % 50 == 0:
            parse_sitemap(page, "http://site.example/")
        slowest = max(slowest, time.process_time() - started)
        parsed.text.decode()
        assert len(parsed.hrefs) == len(parsed.kinds) == len(parsed.rels) == len(parsed.texts), number
        if number == pages // 10:
            warm = resident_bytes()
    faulthandler.cancel_dump_traceback_later()
    return {"pages": pages, "slowest_s": slowest, "grown_bytes": resident_bytes() - warm}


def fuzz(pages: int, seed: int, timeout_s: float) -> dict[str, float]:
    """`run` in a child process, so a crash fails the test and does not end pytest."""
    command = [sys.executable, str(Path(__file__)), str(pages), str(seed)]
    child = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=timeout_s, check=False)
    assert child.returncode == 0, f"exit {child.returncode}: {child.stderr[-3000:]}"
    report: dict[str, float] = json.loads(child.stdout)
    return report


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_hundred_thousand_mutated_pages_neither_crash_nor_hang_nor_leak() -> None:
    report = fuzz(100_000, seed=20240501, timeout_s=1700)
    print(report)
    assert report["pages"] == 100_000
    assert report["slowest_s"] < PAGE_CPU_S_MAX
    assert report["grown_bytes"] < GROWTH_BYTES_MAX


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    faulthandler.enable()
    json.dump(run(int(sys.argv[1]), int(sys.argv[2])), sys.stdout)
