"""µs of CPU a page for each part of the store: `python -m bench.store`.

Pages are about 37 KB of HTML with 12 KB of text and 50 links, written to tmpfs where there is one.
"""

from __future__ import annotations

import hashlib
import random
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from isal import igzip_lib

from bench.dedupe import made_up_sketch
from drumlin.model import Capture, LinkSet
from drumlin.store import FetchRecord, SegmentWriter, WarcWriter, record_id_of, surt
from drumlin.store.warc.records import RecordBuilder, payload_digest

PAGES = 2_000
BATCH = 50
ROUNDS = 5
BODY_BYTES = 37_000
TEXT_BYTES = 12_000
LINKS = 50
FETCHED = 1_760_000_000.0
REQUEST = (
    b"GET /section/page HTTP/1.1\r\nHost: 127.0.0.1:8000\r\nUser-Agent: drumlin/0.1 (+https://example.org/bot)\r\n"
    b"Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nAccept-Encoding: gzip, deflate, br, zstd\r\n\r\n"
)


def make_captures(count: int, seed: int = 1) -> list[Capture]:
    """Captures of pages that compress about as real ones do."""
    source = random.Random(seed)
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    words = ["".join(source.choices(letters, k=source.randint(2, 9))) for _ in range(4_000)]
    return [_capture(number, source, words) for number in range(count)]


def _capture(number: int, source: random.Random, words: list[str]) -> Capture:
    host = f"127.0.{number % 200}.1:8000"
    url = f"http://{host}/section-{number % 7}/page-{number}.html"
    text = " ".join(source.choices(words, k=TEXT_BYTES // 6))[:TEXT_BYTES]
    targets: list[str | None] = [
        f"http://{host}/section-{n % 7}/page-{source.randrange(20_000)}.html" for n in range(LINKS)
    ]
    texts = [" ".join(source.choices(words, k=3)) for _ in range(LINKS)]
    body = _html(text, targets, texts, source)
    header = (
        b"HTTP/1.1 200 OK\r\nServer: nginx/1.22.1\r\nDate: Thu, 09 Oct 2025 08:53:20 GMT\r\n"
        b'Content-Type: text/html; charset=utf-8\r\nContent-Length: %d\r\nConnection: keep-alive\r\nETag: "%x"\r\n\r\n'
    ) % (len(body), number)
    return Capture(
        url=url,
        host=host,
        domain=host.partition(":")[0],
        depth=number % 9,
        found_on=f"http://{host}/",
        redirects=(),
        fetched=FETCHED + number * 0.001,
        duration_s=0.01,
        status=200,
        protocol="http/1.1",
        ip=host.partition(":")[0],
        request_headers=REQUEST,
        response_headers=header,
        body_raw=body,
        body=body,
        headers={"content-type": "text/html; charset=utf-8"},
        mime="text/html",
        charset="utf-8",
        title=text[:40],
        description=text[40:120],
        languages="en",
        text=text.encode(),
        links=LinkSet(targets, ["a"] * LINKS, [""] * LINKS, texts),
        digest=hashlib.sha256(body).digest(),
        sketch=made_up_sketch(source),
    )


def _html(text: str, targets: list[str | None], texts: list[str], source: random.Random) -> bytes:
    links = "".join(f'<li class="nav-item"><a href="{t}">{a}</a></li>\n' for t, a in zip(targets, texts, strict=True))
    size = len(text) // 40
    paragraphs = "".join(f'<p class="block b{n % 9}">{text[n * size : (n + 1) * size]}</p>\n' for n in range(40))
    script = "".join(
        f"var v{source.randrange(9_999)}={{id:{source.randrange(99_999)},on:true}};\n" for _ in range(2_000)
    )
    page = f"<!doctype html><html><head><title>{text[:40]}</title></head><body><ul>{links}</ul>{paragraphs}<script>"
    return (page + script)[: BODY_BYTES - 40].encode() + b"</script></body></html>"


def fetch_of(capture: Capture) -> FetchRecord:
    return FetchRecord(capture.url, capture.host, capture.fetched, "fetched", 200, bytes=len(capture.body))


def cpu_micros(work: Callable[[], object], pages: int = PAGES, rounds: int = ROUNDS) -> float:
    """The least CPU time per page of several rounds: more is noise of a shared machine."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best / pages * 1e6


def measure(directory: Path, captures: list[Capture]) -> dict[str, float]:
    """µs a page for each part, with bytes a page where that is the point."""
    batches = [captures[start : start + BATCH] for start in range(0, len(captures), BATCH)]
    fetches = [[fetch_of(capture) for capture in batch] for batch in batches]
    builder = RecordBuilder("urn:uuid:0")
    digests = [payload_digest(capture) for capture in captures]
    records = [builder.response(capture, digest) for capture, digest in zip(captures, digests, strict=True)]

    def write_warc() -> None:
        writer = WarcWriter(directory / "warc", "bench", software="drumlin", info={}, now=FETCHED)
        for batch in batches:
            writer.settle(writer.store(batch))
        writer.close()

    def write_tables() -> None:
        segment = SegmentWriter(directory / "tables", "bench", node="bench")
        for batch, fetched in zip(batches, fetches, strict=True):
            segment.add(batch, fetched)
        segment.finish()

    def build() -> None:
        for capture, digest in zip(captures, digests, strict=True):
            builder.request(capture)
            builder.response(capture, digest)

    surt.cache_clear()
    results = {
        "surt key": cpu_micros(lambda: [surt(capture.url) for capture in captures]),
        "record id": cpu_micros(lambda: [record_id_of(capture) for capture in captures]),
        "record bytes": cpu_micros(build),
        "gzip of responses": cpu_micros(lambda: [igzip_lib.compress(r, 1, igzip_lib.COMP_GZIP) for r in records]),
        "WARC and CDXJ, all": cpu_micros(write_warc),
        "tables, all": cpu_micros(write_tables),
    }
    pages = len(captures)
    results["(WARC bytes a page)"] = next((directory / "warc").glob("*.warc.gz")).stat().st_size / pages
    for table in ("pages", "links", "fetches"):
        results[f"({table} bytes a page)"] = (directory / "tables" / table / "bench.parquet").stat().st_size / pages
    return results


def main() -> None:
    memory = Path("/dev/shm")
    directory = Path(tempfile.mkdtemp(prefix="drumlin-bench-", dir=memory if memory.is_dir() else None))
    try:
        for name, value in measure(directory, make_captures(PAGES)).items():
            print(f"{name:24} {value:9.1f}")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
