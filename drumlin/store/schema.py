"""The columns of the three tables, under Common Crawl's names where those exist."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

PAGES: Final = "pages"
LINKS: Final = "links"
FETCHES: Final = "fetches"

_TIME: Final = pa.timestamp("us", tz="UTC")
_TEXT: Final = pa.string()
_WORD: Final = pa.dictionary(pa.int32(), pa.string())
"""A column of few distinct values."""

# The order is that of the tuples in drumlin.store.rows.
PAGE_COLUMNS: Final[dict[str, Any]] = {
    "url_surtkey": _TEXT,
    "url": _TEXT,
    "url_host_name": _TEXT,
    "url_host_registered_domain": _TEXT,
    "url_protocol": _TEXT,
    "url_path": _TEXT,
    "url_query": _TEXT,
    "fetch_time": _TIME,
    "fetch_status": pa.int16(),
    "fetch_redirect": _TEXT,
    "content_digest": _TEXT,
    "content_mime_type": _TEXT,
    "content_mime_detected": _TEXT,
    "content_charset": _TEXT,
    "content_languages": _TEXT,
    "content_truncated": _TEXT,
    "warc_filename": _TEXT,
    "warc_record_offset": pa.int64(),
    "warc_record_length": pa.int64(),
    "title": _TEXT,
    "description": _TEXT,
    "text": _TEXT,
    "canonical": _TEXT,
    "simhash": pa.uint64(),
    "depth": pa.int32(),
    "found_on": _TEXT,
    "redirects": pa.list_(_TEXT),
    "duplicate_of": _TEXT,
    "duplicate_kind": _TEXT,
    "duplicate_distance": pa.int16(),
    "noindex": pa.bool_(),
    "nofollow": pa.bool_(),
    "soft_404": pa.bool_(),
    "bytes": pa.int64(),
    "duration_s": pa.float32(),
    "protocol": _TEXT,
    "ip": _TEXT,
    "record_id": _TEXT,
    "node": _TEXT,
    "text_data_url": _TEXT,
}

LINK_COLUMNS: Final[dict[str, Any]] = {
    "url": _WORD,
    "target": _TEXT,
    "kind": _WORD,
    "rel": _WORD,
    "text": _TEXT,
    "fetch_time": _TIME,
}

FETCH_COLUMNS: Final[dict[str, Any]] = {
    "url": _TEXT,
    "host": _TEXT,
    "fetch_time": _TIME,
    "outcome": _TEXT,
    "fetch_status": pa.int16(),
    "kind": _TEXT,
    "error": _TEXT,
    "duration_s": pa.float32(),
    "attempt": pa.int32(),
    "bytes": pa.int64(),
    "redirect_to": _TEXT,
    "protocol": _TEXT,
    "ip": _TEXT,
    "node": _TEXT,
    "record_id": _TEXT,
}

COLUMNS: Final = {PAGES: PAGE_COLUMNS, LINKS: LINK_COLUMNS, FETCHES: FETCH_COLUMNS}
SCHEMAS: Final = {table: pa.schema(list(columns.items())) for table, columns in COLUMNS.items()}

# Columns whose values repeat within a row group; a dictionary on the others costs time and gains nothing.
REPEATING: Final[dict[str, list[str]]] = {
    PAGES: [
        "url_host_name",
        "url_host_registered_domain",
        "url_protocol",
        "content_mime_type",
        "content_mime_detected",
        "content_charset",
        "content_languages",
        "content_truncated",
        "warc_filename",
        "found_on",
        "duplicate_kind",
        "protocol",
        "ip",
        "node",
    ],
    LINKS: ["url", "kind", "rel", "text", "fetch_time"],
    FETCHES: ["host", "outcome", "kind", "error", "protocol", "ip", "node"],
}

# The targets of one page share long prefixes: writing the differences is quicker than a dictionary, and smaller.
ENCODINGS: Final[dict[str, dict[str, str] | None]] = {PAGES: None, LINKS: {"target": "DELTA_BYTE_ARRAY"}, FETCHES: None}

# Minimum and maximum let a query skip row groups; they are kept where queries filter.
SUMMARISED: Final[dict[str, list[str]]] = {
    PAGES: ["url_surtkey", "url_host_name", "url_host_registered_domain", "fetch_time", "fetch_status"],
    LINKS: ["url"],
    FETCHES: ["host", "fetch_time", "fetch_status"],
}
