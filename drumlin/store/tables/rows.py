"""Turns captures and fetch records into Arrow tables, a row group at a time.

Rows are gathered as tuples and turned into columns together, so a page costs one tuple and no call of Arrow. Text stays
bytes all the way; that Arrow checks it for UTF-8 is many times faster than decoding and encoding it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

from drumlin.http.mime import extract_mime_type
from drumlin.model import Capture, Duplicate
from drumlin.protocol import NAMED_BY_ROBOTS
from drumlin.store.tables.schema import COLUMNS, FETCHES, LINKS, PAGES, SCHEMAS
from drumlin.store.warc.surt import surt

MICROSECONDS: Final = 1_000_000
TIME_MAX: Final = 10**10 * MICROSECONDS
"""The latest time of a row, in the year 2286; results may not name a later one either (`protocol.Seconds`)."""
BODY_BYTES_MAX: Final = 2**36
"""No body is larger than this, so a hundred million rows are needed until their sum does not fit into 64 bits."""
ROBOTS_OUTCOME: Final = "robots"
"""The outcome of a request for a robots.txt. Such a row settles no URL."""


class FetchRecord(msgspec.Struct):
    """One attempt, however it ended: a page, a failure, or a URL that was denied without a request. A field that is
    empty, 0 or None does not apply or is not known."""

    url: str
    host: str
    fetched: float
    outcome: str
    status: int = 0
    kind: str = ""
    error: str = ""
    duration_s: float = 0.0
    attempt: int = 0
    bytes: int | None = None
    redirect_to: str = ""
    protocol: str = ""
    ip: str = ""
    node: str = ""
    record_id: str = ""


def micros(when: float) -> int:
    return round(when * MICROSECONDS)


def moment_of(time: int | None) -> float:
    """A time of a table, in microseconds, as seconds since the epoch. A stranger may have written anything: it is
    brought between 1970 and 2286, so everybody can make a date of it. NULL is 1970."""
    return min(max(time or 0, 0), TIME_MAX) / MICROSECONDS


def page_row(capture: Capture, node: str) -> tuple[Any, ...]:
    """The row of `pages`, in the order of `schema.PAGE_COLUMNS`. None stands for "does not apply"."""
    url = capture.url
    scheme, _, rest = url.partition("://")
    path, _, query = rest[rest.find("/") :].partition("?")
    headers = capture.headers
    of, kind, overlap = _duplicate(capture.duplicate)
    name, port = split_port(capture.host)
    told = capture.told
    return (
        surt(url),
        url,
        name,
        port,
        capture.domain,
        scheme,
        path,
        query or None,
        micros(capture.fetched),
        capture.status,
        headers.get("location") if 300 <= capture.status < 400 else None,
        "sha256:" + capture.digest.hex() if capture.digest else None,
        extract_mime_type(headers.get("content-type", "")).essence or None,
        capture.mime or None,
        capture.charset or None,
        capture.languages or None,
        capture.truncated or None,
        capture.warc_filename or None,
        capture.warc_offset if capture.warc_filename else None,
        capture.warc_length if capture.warc_filename else None,
        capture.title or None,
        capture.description or None,
        capture.text if told is None or told.has_text else None,
        capture.canonical or None,
        capture.sketch,
        capture.depth,
        capture.found_on if capture.found_on not in ("", NAMED_BY_ROBOTS) else None,
        capture.redirects,
        of,
        kind,
        overlap,
        capture.noindex,
        capture.nofollow,
        capture.soft_404,
        len(capture.body) if told is None else told.size,
        capture.duration_s or None,
        capture.protocol or None,
        capture.ip or None,
        capture.record_id or None,
        node or None if told is None else told.node,
        told.text_data_url or None if told is not None else None,
    )


def split_port(host: str) -> tuple[str, int | None]:
    """A host without its port, and the port; the colons of an IPv6 address stand between brackets."""
    name, colon, port = host.rpartition(":")
    return (name, int(port)) if colon and port.isdigit() else (host, None)


def _duplicate(duplicate: Duplicate | None) -> tuple[str | None, str | None, float | None]:
    if duplicate is None:
        return None, None, None
    if duplicate.exact:
        return duplicate.url, "exact", None
    return duplicate.url, "near", duplicate.overlap


class LinkRows:
    """The links of a row group as parallel lists, and how many each page had."""

    def __init__(self) -> None:
        self.sources: list[str] = []
        self.times: list[int] = []
        self.counts: list[int] = []
        self.targets: list[str | None] = []
        self.kinds: list[str] = []
        self.rels: list[str] = []
        self.texts: list[str] = []

    def __len__(self) -> int:
        return len(self.targets)

    def add(self, capture: Capture) -> None:
        """Add a page's links, except those that are not web addresses."""
        links = capture.links
        if not links.urls:
            return
        before = len(self.targets)
        if None in links.urls:
            usable = [url is not None for url in links.urls]
            self.targets += compress(links.urls, usable)
            self.kinds += compress(links.kinds, usable)
            self.rels += compress(links.rels, usable)
            self.texts += compress(links.texts, usable)
        else:
            self.targets += links.urls
            self.kinds += links.kinds
            self.rels += links.rels
            self.texts += links.texts
        self.sources.append(capture.url)
        self.times.append(micros(capture.fetched))
        self.counts.append(len(self.targets) - before)

    def table(self) -> Any:
        """The rows as Arrow. A page's URL and time are kept once and repeated by index."""
        counts = np.array(self.counts, dtype=np.int64)
        sources = np.repeat(np.arange(len(self.counts), dtype=np.int32), counts)
        times = np.repeat(np.array(self.times, dtype=np.int64), counts)
        columns = [
            pa.DictionaryArray.from_arrays(pa.array(sources), _strings(self.sources)),
            _lines(self.targets),
            _dictionary(self.kinds),
            _dictionary(self.rels),
            _lines(self.texts),
            pa.array(times).view(pa.timestamp("us", tz="UTC")),
        ]
        return pa.Table.from_arrays(columns, schema=SCHEMAS[LINKS])


def page_table(rows: Sequence[tuple[Any, ...]]) -> Any:
    return _table(PAGES, rows)


def fetch_table(records: Sequence[FetchRecord]) -> Any:
    return _table(FETCHES, [_fetch_row(record) for record in records])


def _fetch_row(record: FetchRecord) -> tuple[Any, ...]:
    """The row of `fetches`, in the order of `schema.FETCH_COLUMNS`."""
    return (
        record.url,
        record.host,
        micros(record.fetched),
        record.outcome,
        record.status or None,
        record.kind or None,
        record.error or None,
        record.duration_s or None,
        record.attempt or None,
        record.bytes,
        record.redirect_to or None,
        record.protocol or None,
        record.ip or None,
        record.node or None,
        record.record_id or None,
    )


def _table(name: str, rows: Sequence[tuple[Any, ...]]) -> Any:
    """Columns from rows. Zipping an empty list gives no columns, hence the second branch."""
    columns = COLUMNS[name]
    values: Iterable[Any] = zip(*rows, strict=True) if rows else [[] for _ in columns]
    arrays = [_array(column, kind.type) for column, kind in zip(values, columns.values(), strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMAS[name])


def _array(column: Sequence[Any], kind: Any) -> Any:
    if kind != pa.string():
        return pa.array(column, kind)
    if column and isinstance(column[0], bytes) and None not in column:
        return _utf8(column)
    return _strings(column)


def _strings(column: Sequence[Any]) -> Any:
    """Strings as Arrow; a lone surrogate, which UTF-8 cannot hold, becomes a question mark."""
    try:
        return pa.array(column, pa.string())
    except UnicodeEncodeError:
        return pa.array([value and value.encode("utf-8", "replace").decode() for value in column], pa.string())


def _lines(column: Sequence[Any]) -> Any:
    """Strings without line ends, as Arrow. They are joined, encoded at once and split again, which is faster than
    encoding them one by one."""
    joined = "\n".join(column).encode("utf-8", "replace")
    ends = np.flatnonzero(np.frombuffer(joined, np.uint8) == ord("\n"))
    if len(ends) != len(column) - 1:
        return _strings(column)
    offsets = np.zeros(len(column) + 1, np.int32)
    offsets[1:-1] = ends - np.arange(len(ends))
    offsets[-1] = len(joined) - len(ends)
    return pa.StringArray.from_buffers(len(column), pa.py_buffer(offsets), pa.py_buffer(joined.replace(b"\n", b"")))


def _dictionary(column: Sequence[str]) -> Any:
    """A column of few distinct values. Arrow could do this, but importing its compute module takes 0.3 s."""
    places = {value: place for place, value in enumerate(dict.fromkeys(column))}
    indices = np.fromiter(map(places.__getitem__, column), np.int32, len(column))
    return pa.DictionaryArray.from_arrays(pa.array(indices), _strings(list(places)))


def _utf8(column: Sequence[bytes]) -> Any:
    """UTF-8 bytes as strings, with one copy. Bytes that are not valid UTF-8 become replacement characters."""
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum([len(value) for value in column], out=offsets[1:])
    array = pa.StringArray.from_buffers(len(column), pa.py_buffer(offsets), pa.py_buffer(b"".join(column)))
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in column], pa.string())
    return array
