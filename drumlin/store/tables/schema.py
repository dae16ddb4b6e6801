"""The columns of the three tables, under Common Crawl's names where those exist, and what each means.

One rule holds for all: NULL means that a value does not apply or is not known. No text is empty, except the text of a
page without any, and the rel and text of a link: turning those into NULL would cost too much, as there are so many.
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
    """A column's type and its meaning, for docs/reference/tables.md and the files' own metadata."""

    type: Any
    meaning: str


TABLE_MEANINGS: Final = {
    PAGES: "A row for each page that was fetched: an answer that is not a redirect, a 304 or a failure.",
    LINKS: "A row for each link of each page, in the order of the page, whether it was followed or not.",
    FETCHES: (
        "A row for each attempt at a URL, however it ended; for each URL that a node settled without an attempt, such "
        "as one that robots.txt denies; and for each request for a robots.txt. URLs that a narrower scope left out "
        "have no row, because no node was given them."
    ),
}

# The order is that of the tuples in drumlin.store.tables.rows.
PAGE_COLUMNS: Final[dict[str, Column]] = {
    "url_surtkey": Column(_TEXT, "The URL with its host turned round, for sorting: `org,example)/a`."),
    "url": Column(_TEXT, "The page's URL, as it was requested."),
    "url_host_name": Column(_TEXT, "The host's name or address, without a port."),
    "url_port": Column(pa.int32(), "The port, if the URL names one; NULL means the default port of its scheme."),
    "url_host_registered_domain": Column(_TEXT, "The domain that somebody registered: `example.co.uk`."),
    "url_protocol": Column(_TEXT, "`http` or `https`."),
    "url_path": Column(_TEXT, "The URL's path."),
    "url_query": Column(_TEXT, "What follows the question mark, if anything does."),
    "fetch_time": Column(_TIME, "When the page had arrived completely."),
    "fetch_status": Column(pa.int16(), "The status code of the answer."),
    "fetch_redirect": Column(_TEXT, "The Location of an answer of 300 to 399 that is stored as a page."),
    "content_digest": Column(
        _TEXT,
        "`sha256:` and the hash of the body without its content encoding, in hexadecimal."
        " (WARC files and the index have that of the body as it was sent.)",
    ),
    "content_mime_type": Column(_TEXT, "The type that the site named. (The index has `unk` if it named none.)"),
    "content_mime_detected": Column(_TEXT, "The type that the page was read as."),
    "content_charset": Column(_TEXT, "The encoding that the text was read in."),
    "content_languages": Column(_TEXT, "The language of the text (ISO 639-3); NULL if it is uncertain."),
    "content_truncated": Column(_TEXT, "Why the body is not complete: `disconnect`, `length`, `unspecified`."),
    "warc_filename": Column(_TEXT, "The file in `warc/` that holds the answer; NULL if there is no record of it."),
    "warc_record_offset": Column(pa.int64(), "The offset of the record in that file."),
    "warc_record_length": Column(pa.int64(), "The length of the record in that file, compressed."),
    "title": Column(_TEXT, "What `<title>` says."),
    "description": Column(_TEXT, 'What `<meta name="description">` says.'),
    "text": Column(_TEXT, "The text of the page; empty for a page without any, NULL if it is not known."),
    "canonical": Column(_TEXT, "The URL that the page calls its own."),
    "sketch": Column(pa.binary(), "A summary by which the overlap of two texts is estimated: docs/reference/store.md."),
    "depth": Column(pa.int32(), "How many links the page is away from a seed."),
    "found_on": Column(_TEXT, "The page that led here; NULL for a seed, and for a sitemap that robots.txt names."),
    "redirects": Column(pa.list_(_TEXT), "The URLs that redirected here, in the order of the redirects."),
    "duplicate_of": Column(_TEXT, "The earlier page with the same content, or the one with nearly the same text."),
    "duplicate_kind": Column(_TEXT, "`exact` or `near`."),
    "duplicate_overlap": Column(
        pa.float32(), "The share of three-word shingles that the two texts have in common, 0 to 1; NULL for `exact`."
    ),
    "noindex": Column(pa.bool_(), "Whether the page asks not to be indexed."),
    "nofollow": Column(pa.bool_(), "Whether the page asks that its links are not followed."),
    "soft_404": Column(pa.bool_(), "Whether the page says that it does not exist, though its status says it does."),
    "body_bytes": Column(pa.int64(), "The size of the body without its content encoding."),
    "duration_s": Column(pa.float32(), "From the request to the end of the answer, in seconds."),
    "protocol": Column(_TEXT, "The version of HTTP, as WARC-Protocol has it: `http/1.1`, `h2`."),
    "ip": Column(_TEXT, "The address that answered."),
    "record_id": Column(_TEXT, "The WARC-Record-ID of the answer; also in `fetches`."),
    "node": Column(_TEXT, "The node that fetched it."),
    "text_data_url": Column(_TEXT, "Where the text is, for results of workers that keep the text themselves."),
}

LINK_COLUMNS: Final[dict[str, Column]] = {
    "url": Column(_WORD, "The page that has the link."),
    "target": Column(_TEXT, "The URL that it leads to."),
    "kind": Column(_WORD, "Its kind: `a`, `area`, `frame`, `refresh`, `feed`, `img`, `script`, `style` and so on."),
    "rel": Column(_WORD, "The link's `rel`, empty if it has none. A long one is cut, but keeps `nofollow`."),
    "text": Column(_TEXT, "The text of the link, empty if it has none."),
    "fetch_time": Column(_TIME, "When the page had arrived completely."),
}

FETCH_COLUMNS: Final[dict[str, Column]] = {
    "url": Column(_TEXT, "The URL that was tried."),
    "host": Column(_TEXT, "Its host, with the port if the URL names one; delays and robots rules are kept per host."),
    "fetch_time": Column(_TIME, "When the attempt ended, or when the URL was settled without one."),
    "outcome": Column(_TEXT, "`fetched`, `redirected`, `not_modified`, `failed`, `denied`, `skipped` or `robots`."),
    "fetch_status": Column(
        pa.int16(), "The status code; NULL without an answer. An answer that broke off or was too large has one."
    ),
    "kind": Column(_TEXT, "The kind of failure, or why it was not fetched: see docs/reference/failures.md."),
    "error": Column(_TEXT, "What went wrong, in words."),
    "duration_s": Column(pa.float32(), "From the request to the end of the answer or the failure, in seconds."),
    "attempt": Column(pa.int32(), "1 for the first attempt and 1 more for each failed one before; NULL without one."),
    "wire_bytes": Column(
        pa.int64(), "How many bytes of the body arrived, in its content encoding; NULL without an answer."
    ),
    "redirect_to": Column(_TEXT, "Where a redirect leads."),
    "protocol": Column(_TEXT, "The version of HTTP, as in `pages`."),
    "ip": Column(_TEXT, "The address that answered."),
    "node": Column(_TEXT, "The node that tried it."),
    "record_id": Column(_TEXT, "The WARC-Record-ID of the answer, if one is stored."),
}

COLUMNS: Final = {PAGES: PAGE_COLUMNS, LINKS: LINK_COLUMNS, FETCHES: FETCH_COLUMNS}


SCHEMAS: Final = {
    table: pa.schema([(name, column.type) for name, column in columns.items()]) for table, columns in COLUMNS.items()
}


def _metadata(table: str) -> dict[str, str]:
    meanings = {name: column.meaning for name, column in COLUMNS[table].items()}
    return {"drumlin.table": TABLE_MEANINGS[table], "drumlin.columns": msgspec.json.encode(meanings).decode()}


METADATA: Final = {table: _metadata(table) for table in COLUMNS}
"""The metadata in every file of a table: what the table holds, and what each column means, as JSON."""

TEXT_DELETED: Final = b"drumlin.text_deleted"
"""The key in the metadata of a table of pages whose texts retention has taken out; its value is when."""

# Columns whose values repeat within a row group. A dictionary for the others would cost time and gain nothing.
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

# The targets of one page share long prefixes, so writing their differences is faster and smaller than a dictionary.
ENCODINGS: Final[dict[str, dict[str, str] | None]] = {PAGES: None, LINKS: {"target": "DELTA_BYTE_ARRAY"}, FETCHES: None}

# For these columns, by which queries filter, each row group states minimum and maximum, so readers can skip it.
SUMMARISED: Final[dict[str, list[str]]] = {
    PAGES: ["url_surtkey", "url_host_name", "url_host_registered_domain", "fetch_time", "fetch_status"],
    LINKS: ["url"],
    FETCHES: ["host", "fetch_time", "fetch_status"],
}
