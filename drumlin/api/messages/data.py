"""What a coordinator says to people about what is stored: sums over all pages, answers to SQL, and copies of pages. The
rules of `drumlin.api.messages.people` apply here too."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from drumlin.api.messages.hosts import StoreSearch
from drumlin.protocol import URLText
from drumlin.sql.asking import ROWS_MAX

SQL_CHARS_MAX = 20_000
ROWS_DEFAULT = 1_000
RECORD_CHARS_MAX = 100


# Content


class TypeShare(msgspec.Struct):
    """Pages of one type, as it was read."""

    type: str
    pages: int
    bytes: int


class SizeShare(msgspec.Struct):
    """Pages whose bodies have from `from_bytes` to less than `to_bytes`; null means any size."""

    from_bytes: int
    to_bytes: int | None
    pages: int
    bytes: int


class LanguageShare(msgspec.Struct):
    """Pages in one language (ISO 639-3); null where it is uncertain."""

    language: str | None
    pages: int


class DuplicateShare(msgspec.Struct):
    """Pages that repeat others, and the size of their bodies."""

    kind: Literal["exact", "near"]
    pages: int
    bytes: int


class ContentView(msgspec.Struct):
    """What the stored pages are, by the table `pages`: `bytes` is the size of their bodies without content encoding.
    Rows are seen within a minute of their pages; `newest` is when the last page that is counted here had arrived. A
    large store is read a part at a time: `segments_read` of its `segments` are counted so far. `store` says
    whether that is all of it, or that there is none here."""

    pages: int
    bytes: int
    types: list[TypeShare]
    sizes: list[SizeShare]
    languages: list[LanguageShare]
    duplicates: list[DuplicateShare]
    truncated: int
    soft_404: int
    noindex: int
    nofollow: int
    newest: float | None
    segments: int
    segments_read: int
    store: StoreSearch


# SQL


class SqlQuestion(msgspec.Struct, forbid_unknown_fields=True):
    """A question in DuckDB's SQL: one SELECT over the tables and views."""

    sql: Annotated[str, msgspec.Meta(min_length=1, max_length=SQL_CHARS_MAX)]
    rows_max: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = ROWS_DEFAULT


Rows = Annotated[msgspec.Raw, msgspec.Meta(extra_json_schema={"type": "array", "items": {"type": "array"}})]
"""A list of lists, passed on as it was written: 16 MiB of text can stand for millions of objects."""


class SqlAnswer(msgspec.Struct):
    """The answer: names and types (DuckDB's) of the columns, and the rows. Whole numbers beyond 2^53 and numbers that
    JSON has not are texts, bytes are hexadecimal. Without `complete` there are more rows than were wanted, or than fit
    into 16 MiB."""

    columns: list[str]
    types: list[str]
    rows: Rows
    complete: bool
    seconds: float


class ReadyQuestion(msgspec.Struct):
    """A question that is ready to be asked."""

    name: str
    asks: str
    sql: str


class SqlName(msgspec.Struct):
    """A table or view that a question may name, with the meaning of its columns."""

    name: str
    meaning: str
    columns: dict[str, str]


class SqlAbout(msgspec.Struct):
    """What can be asked, and within which limits."""

    questions: list[ReadyQuestion]
    names: list[SqlName]
    seconds_max: float
    rows_max: int


# Copies of pages


class CaptureQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The URL, and the record if another copy than the newest is meant."""

    url: URLText
    record: Annotated[str, msgspec.Meta(max_length=RECORD_CHARS_MAX)] = ""


class CaptureBodyQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The same, and what the body is wanted for: to be looked at, or as a file."""

    url: URLText
    record: Annotated[str, msgspec.Meta(max_length=RECORD_CHARS_MAX)] = ""
    form: Literal["shown", "file"] = "shown"


# Data to take away

TableName = Literal["pages", "links", "fetches"]
TABLE_FILES_MAX = 1_000
FILE_NAME_CHARS_MAX = 200
COLUMNS_CHARS_MAX = 2_000
HOST_CHARS_MAX = 300


class TableQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which table; files whose names come after `after`, at most `limit` of them."""

    table: TableName
    after: Annotated[str, msgspec.Meta(max_length=FILE_NAME_CHARS_MAX)] = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=TABLE_FILES_MAX)] = TABLE_FILES_MAX


class TableFile(msgspec.Struct):
    """One Parquet file of a table. `place` is where retention has moved it, empty if it did not."""

    name: str
    bytes: int
    written: float
    place: str


class TableFiles(msgspec.Struct):
    """The files of a table in the order of their names. With `more` there are further ones after the last of them."""

    table: str
    files: list[TableFile]
    more: bool


class TableFileQuery(msgspec.Struct, forbid_unknown_fields=True):
    """A file of a table, by its name in the list."""

    table: TableName
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=FILE_NAME_CHARS_MAX)]


class ExportQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Rows of a table: the columns with these names, between commas, or all but sketches; only those of a host, or of a
    domain with all its hosts; only those fetched since a time and before another one, in unix seconds."""

    table: TableName
    columns: Annotated[str, msgspec.Meta(max_length=COLUMNS_CHARS_MAX)] = ""
    host: Annotated[str, msgspec.Meta(max_length=HOST_CHARS_MAX)] = ""
    domain: Annotated[str, msgspec.Meta(max_length=HOST_CHARS_MAX)] = ""
    since: Annotated[float, msgspec.Meta(ge=0, le=1e11)] = 0.0
    before: Annotated[float, msgspec.Meta(ge=0, le=1e11)] = 0.0
    form: Literal["jsonl", "csv"] = "jsonl"


# What is seen of a copy


class CaptureView(msgspec.Struct):
    """The stored copy of one page. `headers` is what the site sent before the body, `source` the body as text, decoded;
    null if it is no text. `text` is what the page says, by the tables; null before they show it. Each is cut at 500,000
    characters. `body_bytes` is the size of the decoded body, and `truncated` says why it is not all there.
    `same_as` is the page whose body this is, if the record only refers to it. `shown_as` is the type under which
    `captures/body?form=shown` gives it; null if it is not shown."""

    url: str
    fetched: float
    status_code: int
    record_id: str
    warc_filename: str
    warc_record_offset: int
    headers: str
    type: str
    charset: str
    language: str
    title: str
    text: str | None
    source: str | None
    cut: bool
    body_bytes: int
    truncated: str
    same_as: str
    shown_as: str | None
