"""What a coordinator's store answers, how many may ask at once, and the indexes that are made meanwhile."""

from __future__ import annotations

import asyncio
import codecs
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from drumlin.access.tokens import Identity, Role
from drumlin.api.calls.data import COPIES_AT_ONCE, COPIES_EACH_MAX, DataCalls
from drumlin.api.explaining import store_answers
from drumlin.api.explaining.copies import HTML, SHOWN_CHARS_MAX, Copy, shown_body
from drumlin.api.explaining.store_answers import LOOKS_AT_ONCE, LOOKS_EACH_MAX, Attempts, StoreAnswers
from drumlin.api.messages.data import CaptureBodyQuery, CaptureQuery
from drumlin.api.routing import Call
from drumlin.http.refusal import Refused
from drumlin.model import Capture, Duplicate
from drumlin.store.files import DirectoryFiles
from drumlin.store.tables.contents import Contents, ContentsReader, Summed
from drumlin.store.tables.lookup import StoredFetch, StoreReader
from tests.harness.recent import NothingRecent
from tests.unit.store_captures import make_capture

WITHIN_S = 10.0
MANY = 50
URL = "http://a.test/"


async def told(asking: Awaitable[Any]) -> str:
    """The code of a refusal; "answered" if there was none."""
    try:
        await asking
    except Refused as refused:
        return refused.code
    return "answered"


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0)


class SlowAnswers:
    """A store that has a copy of every page, and tells nothing else of it until it is `released`."""

    def __init__(self) -> None:
        self.released = asyncio.Event()
        self.read = self.held = self.held_most = 0

    async def attempts(self, url: str, *_: str) -> Attempts:
        stored = StoredFetch(1.0, "fetched", 200, "", "", "n0", "", "n0-1", page=True, warc_filename="w", url=url)
        return Attempts([stored], complete=True, has_store=True)

    async def capture(self, *_: object) -> Capture:
        self.read += 1
        self.held += 1
        self.held_most = max(self.held, self.held_most)
        return make_capture(URL)

    async def page(self, *_: object) -> dict[str, Any]:
        await self.released.wait()
        self.held -= 1
        return {}


def call_of(token: str, *, gone: bool = False) -> Call:
    def refuse_given_up() -> None:
        if gone:
            raise Refused(499, "given_up", "")

    identity = Identity(Role.VIEWER, token)
    return cast(Call, SimpleNamespace(identity=identity, refuse_given_up=refuse_given_up, answer_headers=[]))


@pytest.mark.parametrize("form", ["view", "shown", "file"])
def test_requests_for_copies_wait_before_they_hold_a_page(form: str) -> None:
    async def story() -> None:
        answers = SlowAnswers()
        calls = DataCalls(cast(StoreAnswers, answers), None)

        def asked(token: str) -> Awaitable[Any]:
            if form == "view":
                return calls.capture(call_of(token), CaptureQuery(URL))
            return calls.body(call_of(token), CaptureBodyQuery(URL, form="file" if form == "file" else "shown"))

        tasks = [asyncio.create_task(told(asked("a"))) for _ in range(MANY)]
        await reached(lambda: answers.read > 0 and sum(task.done() for task in tasks) == MANY - COPIES_EACH_MAX)
        tasks.append(asyncio.create_task(told(asked("b"))))
        assert answers.held <= COPIES_AT_ONCE
        answers.released.set()
        async with asyncio.timeout(WITHIN_S):
            ends = await asyncio.gather(*tasks)
        assert Counter(ends) == {"answered": COPIES_EACH_MAX + 1, "busy": MANY - COPIES_EACH_MAX}
        assert ends[-1] == "answered", "others have places of their own"
        assert answers.held_most <= COPIES_AT_ONCE

    asyncio.run(story())


def test_a_copy_that_nobody_waits_for_any_more_is_not_read() -> None:
    async def story() -> None:
        answers = SlowAnswers()
        answers.released.set()
        calls = DataCalls(cast(StoreAnswers, answers), None)
        assert await told(calls.capture(call_of("a", gone=True), CaptureQuery(URL))) == "given_up"
        assert answers.read == 0

    asyncio.run(story())


@pytest.mark.parametrize("named", ["http://a.test/?" + "b&" * 450_000, "javascript:alert(1)", "http://", ""])
def test_a_record_that_repeats_something_that_is_no_url_is_shown_as_one_without_a_body(named: str) -> None:
    """A node wrote the name, and whoever asks would have it taken apart each time."""

    class Repeating(SlowAnswers):
        asked: list[str]

        async def attempts(self, url: str, *_: str) -> Attempts:
            self.asked = [*getattr(self, "asked", []), url]
            return await super().attempts(url)

        async def capture(self, *_: object) -> Capture:
            headers = b"HTTP/1.1 200 OK\r\nX: " + b"x" * SHOWN_CHARS_MAX + b"\r\n\r\n"
            return make_capture(URL, duplicate=Duplicate(named, 1.0, ""), response_headers=headers)

    async def story() -> None:
        answers = Repeating()
        answers.released.set()
        view = await DataCalls(cast(StoreAnswers, answers), None).capture(call_of("a"), CaptureQuery(URL))
        assert answers.asked == [URL]
        assert (view.same_as, view.shown_as) == ("", None)
        assert (len(view.headers), view.cut) == (SHOWN_CHARS_MAX, True)

    asyncio.run(story())


@pytest.mark.parametrize("mark", [codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF8, b""])
def test_a_shown_page_begins_with_the_mark_of_the_encoding_that_it_was_searched_in(mark: bytes) -> None:
    """Browsers believe a byte-order mark before any header, so no other one may stand at the beginning."""
    names = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
    page = "<link rel=preconnect href=//b.test><p>é".encode(names.get(mark, "utf-8"))
    for first in (b"", codecs.BOM_UTF8):
        capture = make_capture(URL, first + mark + page)
        shown = shown_body(Copy(capture, capture.body, {}, HTML, ""))
        assert shown.startswith(codecs.BOM_UTF8)
        assert "<link" not in shown.decode("utf-8-sig", "replace")
        if not (first and mark):
            assert shown.decode("utf-8-sig") == "<no-link rel=preconnect href=//b.test><p>é"


def test_few_looks_are_made_at_once_and_of_one_asker_only_so_many_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_work, most, released = list[str](), list[int](), threading.Event()

    def slowly(reader: StoreReader, url: str, in_time: object) -> tuple[list[StoredFetch], bool]:
        at_work.append(url)
        most.append(len(at_work))
        assert released.wait(WITHIN_S)
        at_work.pop()
        return [], True

    async def story() -> None:
        answers = StoreAnswers(DirectoryFiles(tmp_path), NothingRecent())
        tasks = [asyncio.create_task(told(answers.attempts(URL, "viewer/a"))) for _ in range(MANY)]
        await reached(lambda: sum(task.done() for task in tasks) == MANY - LOOKS_EACH_MAX)
        tasks.append(asyncio.create_task(told(answers.attempts(URL, "viewer/b"))))
        await reached(lambda: len(at_work) == LOOKS_AT_ONCE)
        released.set()
        async with asyncio.timeout(WITHIN_S):
            ends = await asyncio.gather(*tasks)
        assert Counter(ends) == {"answered": LOOKS_EACH_MAX + 1, "busy": MANY - LOOKS_EACH_MAX}
        assert ends[-1] == "answered"

    monkeypatch.setattr(StoreReader, "fetches", slowly)
    asyncio.run(story())
    assert max(most) == LOOKS_AT_ONCE


def test_all_who_ask_for_the_sums_meanwhile_get_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even a look that has nothing to read lists the folder."""
    begun, released = list[int](), threading.Event()

    def slowly(reader: ContentsReader, in_time: object) -> Summed:
        begun.append(1)
        assert released.wait(WITHIN_S)
        return Summed(Contents(), len(begun), len(begun))

    async def story() -> None:
        answers = StoreAnswers(DirectoryFiles(tmp_path), NothingRecent())
        tasks = [asyncio.create_task(answers.contents()) for _ in range(MANY)]
        await reached(lambda: len(begun) == 1)
        # Who hangs up does not take the answer from the others.
        tasks.pop(0).cancel()
        released.set()
        async with asyncio.timeout(WITHIN_S):
            found = await asyncio.gather(*tasks)
        assert {summed.read for summed in found if summed} == {1}
        later = await answers.contents()
        assert later is not None
        assert later.read == 2

    monkeypatch.setattr(ContentsReader, "sum_up", slowly)
    asyncio.run(story())


def test_what_goes_wrong_with_indexes_is_logged_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[float] = []

    def failing(reader: StoreReader, now: float, in_time: object) -> int:
        tries.append(now)
        raise ValueError("substring not found")

    async def asked() -> None:
        answers = StoreAnswers(DirectoryFiles(tmp_path), NothingRecent())
        async with answers.running(), asyncio.timeout(WITHIN_S):
            assert (await answers.attempts("http://a.test/", "viewer/a")).complete
            while len(tries) < 2:
                await asyncio.sleep(0)

    monkeypatch.setattr(StoreReader, "index_some", failing)
    monkeypatch.setattr(store_answers, "INDEX_REST_S", 0.0)
    asyncio.run(asked())
    assert "cannot make indexes" in caplog.text
