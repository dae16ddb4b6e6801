"""What is stored, for people: sums over all pages, answers to SQL, and copies of single pages.

All of it is for whoever may look: a viewer sees stored pages too. Nothing here needs the engine.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from drumlin.access.tokens import Permission
from drumlin.api.bodies import MSGPACK
from drumlin.api.explaining.copies import HTML, SHOWN_TYPES, Copy, copy_view, shown_body, stored_copy
from drumlin.api.explaining.store_answers import StoreAnswers
from drumlin.api.explaining.stories import searched
from drumlin.api.messages.data import (
    CaptureBodyQuery,
    CaptureQuery,
    CaptureView,
    ContentView,
    DuplicateShare,
    LanguageShare,
    ReadyQuestion,
    SizeShare,
    SqlAbout,
    SqlAnswer,
    SqlName,
    SqlQuestion,
    TypeShare,
)
from drumlin.api.routing import Answer, Call, Route, Text
from drumlin.config.quantities import format_size
from drumlin.coordinator.taking.fair_line import FairLine
from drumlin.disk import temporary_folder
from drumlin.errors import StorageError
from drumlin.http.refusal import Refused
from drumlin.protocol import paths
from drumlin.sql.answerer import NOT_CONFINED, Wrong
from drumlin.sql.asking import ROWS_MAX, SECONDS_MAX, ask
from drumlin.sql.ready import QUESTIONS
from drumlin.sql.views import TABLES, VIEWS
from drumlin.store.files import StoreFiles
from drumlin.store.opening import in_bucket
from drumlin.store.tables.contents import EXACT, NEAR, SIZE_BOUNDS, Contents, Summed
from drumlin.store.tables.reading import has_moved_tables
from drumlin.store.tables.schema import COLUMNS
from drumlin.urls import canonical

QUESTIONS_AT_ONCE = 2
"""One of each token: whoever asks one long question after the other leaves a place to others."""
COPIED_BYTES_MAX = 256 * 1024**2
"""How much of the tables in a bucket is copied for a question."""
LAST_ENDS_S = 2.0
"""How long a question waits for the last one of its token to end. The dashboard gives a question up by hanging up,
which is noticed a moment later, and asks the next one at once."""
COPIES_AT_ONCE = 2
COPIES_MAX, COPIES_EACH_MAX = 32, 8
"""How many requests for stored pages may be under way or wait, in all and of one person."""
BUSY_RETRY_S = 3.0
FILE_TYPE = "application/octet-stream"
NO_STORE_HINT = "Ask a coordinator that was started with --store, or use `drumlin query` where the store is."
NOT_STARTED_HINT = "Ask again later, or use `drumlin query` where the store is."

# A stored page is hostile: it runs nothing, loads nothing, sends no form, and has an origin of its own, so it cannot
# use the cookie of whoever looks at it. Only our own page may frame it.
HOSTILE: tuple[tuple[bytes, bytes], ...] = (
    (
        b"content-security-policy",
        b"sandbox; default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-dns-prefetch-control", b"off"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)


class DataCalls:
    """The calls about what is stored. `store` is None for a coordinator without one."""

    def __init__(self, answers: StoreAnswers, store: Path | None, files: StoreFiles | None = None) -> None:
        self._answers = answers
        self._files = files
        self._store = store
        self._asking: dict[str, asyncio.Event] = {}
        """Whose questions are being answered. Each event tells that one has ended."""
        self._copies = FairLine(
            what="requests for stored pages",
            at_once=COPIES_AT_ONCE,
            each=COPIES_AT_ONCE,
            most=COPIES_MAX,
            each_most=COPIES_EACH_MAX,
            retry_after_s=BUSY_RETRY_S,
        )

    def routes(self) -> list[Route]:
        no_store = {409: "This coordinator has no store."}
        no_copy = no_store | {
            404: "No page of this URL is stored, or it is not one to look at.",
            410: "Retention has deleted the page.",
        }
        return [
            _look(paths.CONTENT, "What the stored pages are", self.content, gives=ContentView),
            _look(paths.SQL, "What can be asked in SQL", self.about, gives=SqlAbout),
            Route(
                method="POST",
                path=paths.SQL,
                summary="Ask the tables a question in SQL",
                answer=self.ask,
                permission=Permission.READ,
                takes=SqlQuestion,
                gives=SqlAnswer,
                refusals={409: "There is no store here, there are no tables yet, or questions cannot be confined."},
                without_engine=True,
            ),
            _look(
                paths.CAPTURE,
                "The stored copy of a page",
                self.capture,
                takes=CaptureQuery,
                gives=CaptureView,
                refusals=no_copy,
            ),
            _look(
                paths.CAPTURE_BODY,
                "The body of a stored page, to look at or as a file",
                self.body,
                takes=CaptureBodyQuery,
                gives=bytes,
                gives_media_types=(*SHOWN_TYPES, FILE_TYPE),
                refusals=no_copy,
            ),
        ]

    # Sums

    async def content(self, call: Call, message: None) -> ContentView:
        return content_view(await self._answers.contents())

    # SQL

    async def about(self, call: Call, message: None) -> SqlAbout:
        questions = [ReadyQuestion(name, one.asks, one.sql) for name, one in QUESTIONS.items()]
        tables = [SqlName(name, meaning, _meanings(name)) for name, meaning in TABLES.items()]
        views = [SqlName(name, view.meaning, view.columns) for name, view in VIEWS.items()]
        return SqlAbout(questions, [*tables, *views], SECONDS_MAX, ROWS_MAX)

    async def ask(self, call: Call, question: SqlQuestion) -> SqlAnswer:
        if self._store is None:
            raise _no_store()
        started = time.perf_counter()
        async with self._place(call.identity.subject), self._tables(self._store, call) as tables:
            try:
                found = await ask(
                    tables,
                    question.sql,
                    question.rows_max,
                    lambda: not call.gone(),
                    packed=call.media_type == MSGPACK,
                )
            except OSError as cause:
                # The machine has no memory or processes left, or an upgrade has taken the program away.
                message = f"The process that answers cannot be started: {cause.strerror or cause}."
                raise Refused(503, "not_started", message, NOT_STARTED_HINT, retry_after_s=BUSY_RETRY_S) from cause
        call.refuse_given_up()
        if isinstance(found, Wrong):
            raise Refused(409 if found.code == NOT_CONFINED else 422, found.code, found.message, found.hint)
        seconds = round(time.perf_counter() - started, 3)
        return SqlAnswer(found.columns, found.types, found.rows, found.complete, seconds)

    @contextlib.asynccontextmanager
    async def _tables(self, store: Path, call: Call) -> AsyncIterator[Path]:
        """The folder of the tables. The process that answers is confined and can reach no network, so what is in a
        bucket is copied for it, if it is not too large."""
        bucket = in_bucket(self._files)
        if bucket is None:
            if self._files is not None and await asyncio.to_thread(has_moved_tables, self._files):
                # It cannot read another disk either.
                message = "Retention has moved some tables elsewhere, where questions of the network cannot look."
                raise Refused(409, "no_tables", message, "Use `drumlin query` where the store is.")
            if not (store / "tables").is_dir():
                raise Refused(409, "no_tables", "There are no tables yet.", "The first pages bring them.")
            yield store / "tables"
            return
        from drumlin.store.objects.copying import TooLarge, copy_tables

        deadline = time.monotonic() + SECONDS_MAX

        def is_awaited() -> bool:
            return time.monotonic() < deadline and not call.gone()

        hint = "Use `drumlin query --store` where its credentials are."
        with temporary_folder("sql") as copied:
            try:
                await asyncio.to_thread(copy_tables, bucket, copied, COPIED_BYTES_MAX, is_awaited)
            except TooLarge as large:
                size, most = format_size(large.args[0]), format_size(COPIED_BYTES_MAX)
                message = f"The tables in {bucket} have {size}, and a coordinator copies {most} at most."
                raise Refused(409, "too_large", message, hint) from large
            except (StorageError, OSError) as away:
                message = f"The tables cannot be read now: {away}"
                raise Refused(503, "store_away", message, retry_after_s=BUSY_RETRY_S) from away
            if time.monotonic() >= deadline:
                message = f"The tables in {bucket} could not be copied within {SECONDS_MAX:.0f} s."
                raise Refused(422, "too_slow", message, hint)
            yield copied / "tables"

    @contextlib.asynccontextmanager
    async def _place(self, who: str) -> AsyncIterator[None]:
        """Take a place for a question, or refuse it."""
        if (last := self._asking.get(who)) is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(last.wait(), LAST_ENDS_S)
        if who in self._asking:
            raise _busy("Your last question is still being answered.")
        if len(self._asking) >= QUESTIONS_AT_ONCE:
            raise _busy(f"{QUESTIONS_AT_ONCE} questions are being answered already.")
        self._asking[who] = ended = asyncio.Event()
        try:
            yield
        finally:
            del self._asking[who]
            ended.set()

    # Copies

    async def capture(self, call: Call, query: CaptureQuery) -> CaptureView:
        url = _meant(query.url)
        async with self._copying(call):
            copy = await stored_copy(self._answers, url, query.record, call.identity.subject)
            return await asyncio.to_thread(copy_view, copy)

    async def body(self, call: Call, query: CaptureBodyQuery) -> Text:
        url = _meant(query.url)
        async with self._copying(call):
            copy = await stored_copy(self._answers, url, query.record, call.identity.subject)
            return await self._text_of(copy, call, query)

    @contextlib.asynccontextmanager
    async def _copying(self, call: Call) -> AsyncIterator[None]:
        """Wait for a place to read, decode and show a copy, which takes many times its size."""
        async with self._copies.turn(call.identity.subject):
            call.refuse_given_up()
            yield

    async def _text_of(self, copy: Copy, call: Call, query: CaptureBodyQuery) -> Text:
        call.answer_headers += HOSTILE
        if query.form == "file":
            call.answer_headers.append((b"content-disposition", b'attachment; filename="capture"'))
            return Text(copy.body, FILE_TYPE)
        if copy.shown_as is None:
            hint = "form=file gives it as a file."
            raise Refused(404, "not_shown", f"A copy of the type {copy.type[:100]} is not shown.", hint)
        charset = "; charset=utf-8" if copy.shown_as == HTML else ""
        return Text(await asyncio.to_thread(shown_body, copy), copy.shown_as + charset)


def content_view(summed: Summed | None) -> ContentView:
    """The sums as people see them, the largest first; None: there is no store."""
    found = summed.contents if summed else Contents()
    read, segments = (summed.read, summed.segments) if summed else (0, 0)
    bounds = zip(SIZE_BOUNDS, (*SIZE_BOUNDS[1:], None), found.sizes, found.size_bytes, strict=True)
    return ContentView(
        pages=found.pages,
        bytes=found.bytes,
        types=[TypeShare(name, count, found.type_bytes[name]) for name, count in found.types.most_common()],
        sizes=[SizeShare(*one) for one in bounds],
        languages=[LanguageShare(name or None, count) for name, count in found.languages.most_common()],
        duplicates=_duplicates(found),
        truncated=found.flags["truncated"],
        soft_404=found.flags["soft_404"],
        noindex=found.flags["noindex"],
        nofollow=found.flags["nofollow"],
        newest=found.newest or None,
        segments=segments,
        segments_read=read,
        store=searched(read == segments, summed is not None),
    )


def _duplicates(found: Contents) -> list[DuplicateShare]:
    return [
        DuplicateShare("exact", found.duplicates[EXACT], found.duplicate_bytes[EXACT]),
        DuplicateShare("near", found.duplicates[NEAR], found.duplicate_bytes[NEAR]),
    ]


def _meanings(table: str) -> dict[str, str]:
    return {name: column.meaning for name, column in COLUMNS[table].items()}


def _meant(text: str) -> str:
    url = canonical(text)
    if url is None:
        raise Refused(404, "no_copy", "That is not a web address.", "One looks like https://example.org/a.")
    return url


def _busy(message: str) -> Refused:
    return Refused(503, "busy", message, "Wait as Retry-After says.", retry_after_s=BUSY_RETRY_S)


def _no_store() -> Refused:
    return Refused(409, "no_store", "This coordinator has no store to look into.", NO_STORE_HINT)


def _look(path: str, summary: str, answer: Answer, **more: Any) -> Route:
    return Route(
        method="GET",
        path=path,
        summary=summary,
        answer=answer,
        permission=Permission.READ,
        without_engine=True,
        **more,
    )
