"""Pages that workers send are read in a process that may die of them."""

from __future__ import annotations

import asyncio
import gzip
import os
import signal
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from drumlin.api.intake import reading
from drumlin.api.intake.reading import UNREADABLE, Order, Reader, read_page
from drumlin.api.intake.telling import Telling, ToldResult, telling_of
from drumlin.http.refusal import Refused
from drumlin.reading import Reading

READING = Reading(agent="drumlin", body_decoded_bytes_max=1 << 20)
BODY = b"<title>A</title><p>Words. <a href=/b>b</a> <a href=/c rel=nofollow>c</a>"
GZIP_OF_X = gzip.compress(b"x", mtime=0)


def told(**more: Any) -> Telling:
    fields: dict[str, Any] = {
        "assignment_id": "w:x.0.0.5ea1/1.0.0.5ea1",
        "url": "http://a.example/a",
        "status_code": 200,
    } | more
    return telling_of(ToldResult(**fields), "w", 1_790_000_000.0)


def read_by_process(*tellings: Telling) -> None:
    async def story() -> None:
        reader = Reader(READING)
        try:
            for telling in tellings:
                await reader.read(telling)
        finally:
            await reader.close()

    asyncio.run(story())


def test_a_page_is_read_with_its_links_unless_others_are_told() -> None:
    page, given = told(body=BODY, content_type="text/html"), told(body=BODY, links=["/other"])
    read_by_process(page, given)
    assert page.result.links == ["http://a.example/b"]
    assert given.result.links == ["/other"]
    assert page.capture is not None
    assert (page.capture.title, page.capture.text) == ("A", b"Words. b c")
    assert page.result.content_hash == sha256(BODY).hexdigest()
    assert page.capture.body_raw == BODY, "the WARC file is still to be written"


def test_a_told_text_is_taken_before_that_of_the_body() -> None:
    page = told(body=BODY, content_type="text/html", text_data_url="data:,What%20was%20read")
    read_by_process(page)
    assert page.capture is not None
    assert page.capture.text == b"What was read"


def test_a_hash_may_be_that_of_the_body_as_sent_or_as_decoded() -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n"
    for digest in (sha256(b"x"), sha256(GZIP_OF_X)):
        page = told(body=GZIP_OF_X, response_head=head, content_hash=digest.hexdigest())
        read_by_process(page)
        assert page.result.content_hash == sha256(b"x").hexdigest()


def test_a_body_that_is_not_what_is_told_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        read_by_process(told(body=BODY, content_hash="0" * 64))
    assert (refused.value.status, "SHA-256" in refused.value.message) == (422, True)


def test_a_body_that_curl_has_unpacked_is_refused_with_a_word_on_how_to_send_it() -> None:
    head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Encoding: gzip\r\n\r\n"
    with pytest.raises(Refused) as refused:
        read_by_process(told(body=BODY, response_head=head))
    assert ("--compressed" in refused.value.hint, ".." in refused.value.message) == (True, False)


def test_a_bomb_is_refused() -> None:
    telling = told(body=GZIP_OF_X, response_head="HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n")
    assert telling.capture is not None
    small = Reading(agent="drumlin", body_decoded_bytes_max=0)
    assert read_page(Order(small, telling.capture, with_body=True)).flaw


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_page_that_ends_or_hangs_the_process_is_left_without_its_text_and_the_next_is_read(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    hostile, honest = told(body=BODY), told(body=BODY)
    warm_up = told(body=BODY)

    async def story() -> None:
        reader = Reader(READING)
        await reader.read(warm_up)
        assert reader._process is not None
        os.kill(reader._process.pid, number)
        monkeypatch.setattr(reading, "READ_S_MAX", 1.0)
        await reader.read(hostile)
        monkeypatch.setattr(reading, "READ_S_MAX", 30.0)
        await reader.read(honest)
        await reader.close()

    asyncio.run(story())
    assert hostile.fetch.error == UNREADABLE
    assert hostile.capture is not None
    assert hostile.capture.told is not None
    assert not hostile.capture.told.has_text
    assert honest.capture is not None
    assert honest.capture.title == "A"


def test_what_needs_no_parser_needs_no_process() -> None:
    assert not told().to_be_read
    assert not told(text_data_url="http://elsewhere.example/text").to_be_read
    assert not told(status_code=503, body=BODY).to_be_read, "a failure is no page"


def test_the_process_gets_no_settings_because_one_may_hold_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRUMLIN_ENGINE", "redis://:hunter2@127.0.0.1:9/")

    async def environment() -> bytes:
        reader = Reader(READING)
        await reader.read(told(body=BODY))
        assert reader._process is not None
        found = Path(f"/proc/{reader._process.pid}/environ").read_bytes()
        await reader.close()
        return found

    inherited = asyncio.run(environment())
    assert b"PATH=" in inherited
    assert b"DRUMLIN_" not in inherited


def test_the_process_imports_nothing_from_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "drumlin.py").write_text("raise SystemExit('this file is not the drumlin that was started')\n")
    monkeypatch.chdir(tmp_path)
    page = told(body=BODY)
    read_by_process(page)
    assert page.result.links == ["http://a.example/b"]
