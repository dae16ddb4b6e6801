"""The columns of the three tables, under Common Crawl's names where those exist, and what each means.

One rule for all: NULL is what does not apply or is not known. No text is empty, except the text of a page without any,
and the rel and text of a link, of which there are too many to look at each.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa

PAGES: Final = "pages"
LINKS: Final = "links"
FETCHES: Final = "fetches"

_TIME: Final = pa.timestamp("us", tz="UTC")
_TEXT: Final = pa.string()
_WORD: Final = pa.dictionary(pa.int32(), pa.string())
"""A column of few distinct values."""


class Column(NamedTuple):
    """A column's type, and what is in it, for docs/reference/tables.md and the files' own metadata."""

    type: Any
    meaning: str


TABLE_MEANINGS: Final = {
    PAGES: "A row for each page that was fetched: an answer that is no redirect, no 304 and no failure.",
    LINKS: "A row for each link of each page, in the order of the page, whether it was followed or not.",
    FETCHES: "A row for each attempt at a URL, whatever became of it, and for each URL that was settled without one.",
}

# The order is that of the tuples in drumlin.store.rows.
PAGE_COLUMNS: Final[dict[str, Column]] = {
    "url_surtkey": Column(_TEXT, "The URL with its host turned round, for sorting: `org,example)/a`."),
    "url": Column(_TEXT, "The page's URL, as it was requested."),
    "url_host_name": Column(_TEXT, "The host's name or address, without a port."),
    "url_port": Column(pa.int32(), "The port, where the URL names one; NULL is the usual one of its scheme."),
    "url_host_registered_domain": Column(_TEXT, "The domain that somebody registered: `example.co.uk`."),
    "url_protocol": Column(_TEXT, "`http` or `https`."),
    "url_path": Column(_TEXT, "The URL's path."),
    "url_query": Column(_TEXT, "What follows the question mark, if anything does."),
    "fetch_time": Column(_TIME, "When the page had arrived."),
    "fetch_status": Column(pa.int16(), "The status code of the answer."),
    "fetch_redirect": Column(_TEXT, "The Location of an answer of 300 to 399 that is stored as a page."),
    "content_digest": Column(_TEXT, "`sha256:` and the hash of the body without its content encoding, in hexadecimal."),
    "content_mime_type": Column(_TEXT, "The type that the site said."),
    "content_mime_detected": Column(_TEXT, "The type that the page was read as."),
    "content_charset": Column(_TEXT, "The encoding that the text was read in."),
    "content_languages": Column(_TEXT, "The language of the text (ISO 639-3); NULL where it is not sure."),
    "content_truncated": Column(_TEXT, "Why the body is not all there: `disconnect`, `length`, `unspecified`."),
    "warc_filename": Column(_TEXT, "The file in `warc/` that holds the answer; NULL where there is no record of it."),
    "warc_record_offset": Column(pa.int64(), "Where its record begins in that file."),
    "warc_record_length": Column(pa.int64(), "How many bytes of the file the record has, compressed."),
    "title": Column(_TEXT, "What `<title>` says."),
    "description": Column(_TEXT, 'What `<meta name="description">` says.'),
    "text": Column(_TEXT, "The text of the page; empty for a page without any, NULL where it is not known."),
    "canonical": Column(_TEXT, "The URL that the page calls its own."),
    "sketch": Column(pa.binary(), "What tells how much two texts overlap: see docs/reference/store.md."),
    "depth": Column(pa.int32(), "How many links it is from a seed."),
    "found_on": Column(_TEXT, "The page that led here; NULL for a seed."),
    "redirects": Column(pa.list_(_TEXT), "The URLs that redirected here, the first first."),
    "duplicate_of": Column(_TEXT, "The earlier page with the same content, or the one with nearly the same text."),
    "duplicate_kind": Column(_TEXT, "`exact` or `near`."),
    "duplicate_overlap": Column(
        pa.float32(), "The share of three-word shingles that near ones have in common, 0 to 1; NULL for `exact`."
    ),
    "noindex": Column(pa.bool_(), "Whether the page asks not to be indexed."),
    "nofollow": Column(pa.bool_(), "Whether it asks that its links are not followed."),
    "soft_404": Column(pa.bool_(), "Whether it says that it is not there, with a status that says it is."),
    "body_bytes": Column(pa.int64(), "How large the body is without its content encoding."),
    "duration_s": Column(pa.float32(), "From the request to the end of the answer, in seconds."),
    "protocol": Column(_TEXT, "The version of HTTP: `HTTP/1.1`, `HTTP/2`."),
    "ip": Column(_TEXT, "The address that answered."),
    "record_id": Column(_TEXT, "The WARC-Record-ID of the answer; also in `fetches`."),
    "node": Column(_TEXT, "The node that fetched it."),
    "text_data_url": Column(_TEXT, "Where a worker of HTTP alone says that the text is."),
}

LINK_COLUMNS: Final[dict[str, Column]] = {
    "url": Column(_WORD, "The page that has the link."),
    "target": Column(_TEXT, "The URL that it leads to."),
    "kind": Column(_WORD, "What it is: `a`, `area`, `frame`, `refresh`, `feed`, `img`, `script`, `style` and so on."),
    "rel": Column(_WORD, "The link's `rel`, empty where it has none."),
    "text": Column(_TEXT, "The text of the link, empty where it has none."),
    "fetch_time": Column(_TIME, "When the page had arrived."),
}

FETCH_COLUMNS: Final[dict[str, Column]] = {
    "url": Column(_TEXT, "The URL that was tried."),
    "host": Column(_TEXT, "Its host, with the port where the URL names one: delays and robots rules are kept by it."),
    "fetch_time": Column(_TIME, "When the attempt ended, or it was settled without one."),
    "outcome": Column(_TEXT, "`fetched`, `redirected`, `not_modified`, `failed` or `denied`."),
    "fetch_status": Column(pa.int16(), "The status code; NULL without an answer."),
    "kind": Column(_TEXT, "The kind of failure, or who denied it: see docs/reference/failures.md."),
    "error": Column(_TEXT, "What went wrong, in words."),
    "duration_s": Column(pa.float32(), "From the request to the end of the answer, in seconds."),
    "attempt": Column(pa.int32(), "How often it had failed before."),
    "wire_bytes": Column(pa.int64(), "How large the body was as it came, with its content encoding."),
    "redirect_to": Column(_TEXT, "Where a redirect leads."),
    "protocol": Column(_TEXT, "The version of HTTP."),
    "ip": Column(_TEXT, "The address that answered."),
    "node": Column(_TEXT, "The node that tried it."),
    "record_id": Column(_TEXT, "The WARC-Record-ID of the answer, where one is stored."),
}

COLUMNS: Final = {PAGES: PAGE_COLUMNS, LINKS: LINK_COLUMNS, FETCHES: FETCH_COLUMNS}


SCHEMAS: Final = {
    table: pa.schema([(name, column.type) for name, column in columns.items()]) for table, columns in COLUMNS.items()
}


def _metadata(table: str) -> dict[str, str]:
    meanings = {name: column.meaning for name, column in COLUMNS[table].items()}
    return {"drumlin.table": TABLE_MEANINGS[table], "drumlin.columns": msgspec.json.encode(meanings).decode()}


METADATA: Final = {table: _metadata(table) for table in COLUMNS}
"""What every file of a table says of itself: what the table holds, and what each column means, as JSON."""

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
