"""Stored data to take away, for readers: the record of a page, the files of a table, and rows as text.

Whoever may look sees single pages; to take data away as it is needs a role of its own. Each time is in the audit log,
before the first byte is sent; if the log cannot be written, nothing is given. Answers are sent in pieces, and whatever
a page holds, a browser keeps it as a file.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from typing import Any, BinaryIO

import msgspec

from drumlin.access.audit import AuditLog
from drumlin.access.tokens import Permission
from drumlin.api.calls.data import BUSY_RETRY_S, HOSTILE, NO_STORE_HINT
from drumlin.api.explaining.copies import refuse_deleted, unreadable
from drumlin.api.explaining.store_answers import StoreAnswers
from drumlin.api.messages.data import (
    CaptureQuery,
    ExportQuery,
    TableFile,
    TableFileQuery,
    TableFiles,
    TableQuery,
)
from drumlin.api.routing import Answer, Call, Route, Stream
from drumlin.clock import monotonic
from drumlin.errors import DrumlinError, StorageError
from drumlin.http.refusal import Refused
from drumlin.lifecycle.holds import Hold
from drumlin.protocol import paths
from drumlin.store.copies import opened_warc, record_pieces
from drumlin.store.files import StoreFiles
from drumlin.store.names import node_of_segment
from drumlin.store.places import chunks_of
from drumlin.store.tables.exporting import Taken, Wanted, columns_of, exported
from drumlin.store.tables.lookup import StoredFetch
from drumlin.store.tables.rows import MICROSECONDS
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.urls import canonical

AT_ONCE, EACH_AT_ONCE = 4, 2
"""How many answers may be under way, in all and of one token."""
WARC, PARQUET, JSON_LINES, CSV = (
    "application/warc",
    "application/vnd.apache.parquet",
    "application/x-ndjson",
    "text/csv",
)
RECORD_ACTION, TABLE_ACTION, EXPORT_ACTION = "data.capture", "data.table", "data.export"


class _Place:
    """A place among those who take something. It is free again when it is freed, or when nobody knows it any more: an
    answer whose reader is gone before its first byte is never begun, nor ended."""

    def __init__(self, taken: Counter[str], who: str) -> None:
        self._taken, self._who = taken, who
        taken[who] += 1

    def free(self) -> None:
        who, self._who = self._who, ""
        if who:
            self._taken[who] -= 1

    def __del__(self) -> None:
        self.free()


class TakingCalls:
    """The calls by which data is taken away. `files` is None for a coordinator without a store."""

    def __init__(self, answers: StoreAnswers, files: StoreFiles | None, audit: AuditLog) -> None:
        self._answers, self._files, self._audit = answers, files, audit
        self._taken: Counter[str] = Counter()

    def routes(self) -> list[Route]:
        no_store = {409: "This coordinator has no store."}
        no_record = no_store | {404: "No page of this URL is stored.", 410: "Retention has deleted the page."}
        no_column = no_store | {404: "The table has no such column."}
        no_file = no_store | {404: "The table has no such file."}
        return [
            _route(paths.CAPTURE_RECORD, "The WARC record of a page, as stored", self.record)(
                takes=CaptureQuery, gives_media_types=(WARC,), refusals=no_record, writes=RECORD_ACTION
            ),
            _route(paths.TABLES, "The files of a table", self.tables, gives=TableFiles, gives_out=False)(
                takes=TableQuery, refusals=no_store
            ),
            _route(paths.TABLE_FILE, "One Parquet file of a table", self.table)(
                takes=TableFileQuery, gives_media_types=(PARQUET,), refusals=no_file, writes=TABLE_ACTION
            ),
            _route(paths.EXPORT, "Rows of a table, as lines of JSON or CSV", self.rows)(
                takes=ExportQuery, gives_media_types=(JSON_LINES, CSV), refusals=no_column, writes=EXPORT_ACTION
            ),
        ]

    # A record

    async def record(self, call: Call, query: CaptureQuery) -> Stream:
        files, url = self._store(), canonical(query.url)
        if url is None:
            raise Refused(404, "no_copy", "That is not a web address.", "One looks like https://example.org/a.")
        place = self._place(call)
        attempts = (await self._answers.attempts(url, call.identity.subject)).fetches
        stored = [one for one in attempts if one.page and one.warc_filename and query.record in ("", one.record_id)]
        if not stored:
            hint = "`drumlin why URL` tells what happened to it."
            raise Refused(404, "no_copy", "No page of this URL is stored.", hint)
        refuse_deleted(stored[0])
        file, size = await asyncio.to_thread(_opened_record, files, stored[0])
        call.note = f"{url} at byte {stored[0].warc_offset} of {stored[0].warc_filename}: {size} bytes"
        _as_file(call, "capture.warc.gz")
        return Stream(_sent(_closing(file, record_pieces(file, stored[0].warc_offset or 0)), place), WARC)

    # Tables

    async def tables(self, call: Call, query: TableQuery) -> TableFiles:
        files = self._store()

        def listed() -> TableFiles:
            folder = f"tables/{query.table}"
            found = sorted(one for one in files.files(folder, PARQUET_SUFFIX) if one.name > query.after)
            shown = found[: query.limit]
            moved = {one.name: files.retired(f"{folder}/{one.name}") for one in shown}
            return TableFiles(
                query.table,
                [
                    TableFile(one.name, one.bytes, one.written, retired.to if (retired := moved[one.name]) else "")
                    for one in shown
                ],
                len(found) > len(shown),
            )

        return await asyncio.to_thread(listed)

    async def table(self, call: Call, query: TableFileQuery) -> Stream:
        files = self._store()
        # Only names that segments have: no other file can be meant.
        if not query.name.endswith(PARQUET_SUFFIX) or not node_of_segment(query.name.removesuffix(PARQUET_SUFFIX)):
            raise _no_file(query)
        place = self._place(call)
        try:
            file, size = await asyncio.to_thread(_opened, files, f"tables/{query.table}/{query.name}")
        except (OSError, StorageError) as wrong:
            raise _no_file(query) from wrong
        call.note = f"{query.table}/{query.name}: {size} bytes"
        _as_file(call, query.name)
        return Stream(_sent(_closing(file, chunks_of(file)), place), PARQUET)

    # Exports

    async def rows(self, call: Call, query: ExportQuery) -> Stream:
        files, wanted, place, taken = self._store(), _wanted(query), self._place(call), Taken()
        call.note = f"begun: {msgspec.json.encode(query).decode()}"
        _as_file(call, f"{query.table}.{query.form}")
        pieces = self._noted(call, query, _sent(exported(files, wanted, taken), place), taken)
        return Stream(pieces, CSV if wanted.as_csv else JSON_LINES)

    async def _noted(
        self, call: Call, query: ExportQuery, pieces: AsyncGenerator[bytes, None], taken: Taken
    ) -> AsyncGenerator[bytes, None]:
        """The pieces of an export, and at its end a second entry in the audit log, which says how much it was."""
        outcome, began = "cut_off", monotonic()
        try:
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    yield piece
            outcome = "done"
        finally:
            unread = f", {taken.unread} files could not be read" if taken.unread else ""
            now = call.today + monotonic() - began
            said = f"{call.path} {query.table}: {taken.rows} rows, {taken.bytes} bytes{unread}"
            with contextlib.suppress(DrumlinError):
                await self._audit.record(call.identity, EXPORT_ACTION, said, outcome, call.address, now)

    # Bounds

    def _store(self) -> StoreFiles:
        if self._files is None:
            raise Refused(409, "no_store", "This coordinator has no store to look into.", NO_STORE_HINT)
        return self._files

    def _place(self, call: Call) -> _Place:
        who = call.identity.subject
        if self._taken[who] >= EACH_AT_ONCE or self._taken.total() >= AT_ONCE:
            message = "As much as possible is being taken already."
            raise Refused(503, "busy", message, "Wait as Retry-After says.", retry_after_s=BUSY_RETRY_S)
        return _Place(self._taken, who)


def _opened(files: StoreFiles, path: str) -> tuple[BinaryIO, int]:
    """A file and its size. It stays what it is, also if it is replaced meanwhile."""
    file = files.open(path)
    size = file.seek(0, 2)
    file.seek(0)
    return file, size


def _opened_record(files: StoreFiles, stored: StoredFetch) -> tuple[BinaryIO, int]:
    """The WARC file of a record, and the size of the record. It is read through: a damaged one is told of before the
    first byte is sent."""
    try:
        file = opened_warc(files, stored.warc_filename)
        try:
            return file, sum(map(len, record_pieces(file, stored.warc_offset or 0)))
        except BaseException:
            file.close()
            raise
    except (OSError, StorageError) as wrong:
        raise unreadable(stored) from wrong


def _closing(file: BinaryIO, pieces: Iterator[bytes]) -> Iterator[bytes]:
    with file:
        yield from pieces


async def _sent(pieces: Iterator[bytes], place: _Place) -> AsyncGenerator[bytes, None]:
    """Pieces that are read beside the event loop, while the place is held."""
    try:
        while (piece := await asyncio.to_thread(next, pieces, None)) is not None:
            yield piece
    finally:
        place.free()


def _wanted(query: ExportQuery) -> Wanted:
    try:
        columns = columns_of(query.table, query.columns)
    except ValueError as unknown:
        hint = f"GET {paths.SQL} tells the columns of each table."
        raise Refused(
            404, "no_column", f"The table {query.table} has no column {str(unknown)[:100]!r}.", hint
        ) from None
    return Wanted(
        query.table,
        columns,
        _hosts(query) if query.host or query.domain else None,
        int(query.since * MICROSECONDS),
        int(query.before * MICROSECONDS),
        query.form == "csv",
    )


def _hosts(query: ExportQuery) -> Callable[[str], bool]:
    """Whether a host is meant: if a hold on what was named would cover it."""
    host = Hold("", "", "", 0.0, host=query.host.lower())
    domain = Hold("", "", "", 0.0, domain=query.domain.lower())
    return lambda name: host.covers(name) and domain.covers(name)


def _as_file(call: Call, name: str) -> None:
    """Whatever it is, a browser keeps it and shows nothing of it."""
    call.answer_headers += HOSTILE
    call.answer_headers.append((b"content-disposition", f'attachment; filename="{name}"'.encode()))


def _no_file(query: TableFileQuery) -> Refused:
    return Refused(404, "no_file", f"The table {query.table} has no such file.", f"GET {paths.TABLES} lists them.")


def _route(path: str, summary: str, answer: Answer, **more: Any) -> Callable[..., Route]:
    """A call that takes data. HEAD is not offered: what is asked for is noted as given."""
    fixed: dict[str, Any] = {
        "method": "GET",
        "path": path,
        "summary": summary,
        "answer": answer,
        "permission": Permission.TAKE,
    }
    return partial(Route, **(fixed | {"gives": bytes, "gives_out": True} | more))
