"""Parses pages that workers send in another process, so a page that crashes or hangs a parser ends only that process.

The process is started with the first page and ends when its standard input is closed. A page that kills it, or takes
too long, is stored without its text.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import sys
from datetime import UTC, datetime
from hashlib import sha256
from typing import BinaryIO

import msgspec

from drumlin.api.intake.forms import read_data_url
from drumlin.api.intake.telling import SHOWN_CHARS, Telling
from drumlin.config.key import VARIABLE_PREFIX
from drumlin.dedupe import sketches
from drumlin.errors import SiteError
from drumlin.fetch.decode import decode
from drumlin.http.refusal import Refused
from drumlin.model import Capture
from drumlin.parse import TEXT_BYTES_MAX, to_utf8
from drumlin.parse.language import detected_language
from drumlin.pipeline import Pipeline
from drumlin.reading import Discovered, Reading
from drumlin.urls import Scope

READ_S_MAX = 30.0
UNREADABLE = "its body could not be read"
FLAW_HINT = "Send the body as it was received (curl without --compressed), or leave out what does not fit it."
_LENGTH = struct.Struct("<I")


class Order(msgspec.Struct, array_like=True):
    """A page to parse. `told_hash` is the SHA-256 that its body should have, `text_url` a `data:` URL with its text."""

    reading: Reading
    capture: Capture
    with_body: bool
    told_hash: str = ""
    text_url: str = ""


class Read(msgspec.Struct, array_like=True):
    """A parsed page, without its body. `flaw` says why it must be refused; `as_received` says whether its body can be
    the bytes that the site sent."""

    capture: Capture | None = None
    found: Discovered | None = None
    flaw: str = ""
    as_received: bool = True


class Reader:
    """The coordinator's end of the pipe. Pages go to the process one at a time."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def read(self, telling: Telling) -> None:
        """Parse the page of a result and complete the result with it; `Refused` when the two contradict each other."""
        capture = telling.capture
        if capture is None or capture.told is None or not telling.to_be_read:
            return
        order = Order(self._reading, capture, telling.with_body, telling.told_hash, telling.text_url)
        async with self._turn:
            try:
                async with asyncio.timeout(READ_S_MAX):
                    read = await self._ask(order)
            except (TimeoutError, EOFError, ConnectionError, OSError):
                await self.close()
                telling.fetch.error = telling.fetch.error or UNREADABLE
                return
        if read.flaw:
            raise Refused(422, "invalid", f"{capture.url[:SHOWN_CHARS]}: {read.flaw.rstrip('.')}.", FLAW_HINT)
        _fill(telling, read)

    async def _ask(self, order: Order) -> Read:
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await _start_process()
        if process.stdin is None or process.stdout is None:
            raise EOFError
        message = msgspec.msgpack.encode(order)
        process.stdin.write(_LENGTH.pack(len(message)) + message)
        await process.stdin.drain()
        (length,) = _LENGTH.unpack(await process.stdout.readexactly(_LENGTH.size))
        return msgspec.msgpack.decode(await process.stdout.readexactly(length), type=Read)

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _start_process() -> asyncio.subprocess.Process:
    """Start the other process. It parses what strangers sent, so it is not given our settings: the address of an engine
    may contain a password. With -P it imports nothing from the working directory."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if not name.startswith(VARIABLE_PREFIX)},
        start_new_session=True,
    )


def _fill(telling: Telling, read: Read) -> None:
    before, capture, result = telling.capture, read.capture, telling.result
    if before is None or capture is None:
        return
    capture.body_raw = before.body_raw
    telling.capture = capture
    # A WARC record whose head names another encoding than its body has could not be read.
    telling.with_head = telling.with_head and read.as_received
    telling.fetch.record_id = result.record_id = capture.record_id
    result.sketch = capture.sketch
    result.mime = capture.mime
    if telling.with_body:
        # Only a hash that was computed here is recorded. A made-up one could turn other pages into duplicates of a page
        # that does not exist.
        result.content_hash = capture.digest.hex()
    if read.found is not None:
        result.links, result.link_hints, result.traps = read.found.urls, read.found.hints, read.found.refused


# The other process


def read_page(order: Order) -> Read:
    """Parse one page, whatever a worker may have sent."""
    capture = order.capture
    try:
        found = _read_body(order) if order.with_body else None
        if order.text_url:
            _read_text(capture, order.text_url)
    except (ValueError, SiteError) as wrong:
        return Read(flaw=str(wrong))
    as_received = capture.told is None or not capture.told.decoded or _encoded_as_it_says(capture)
    capture.body_raw = capture.body = b""
    return Read(capture, found, as_received=as_received)


def _read_body(order: Order) -> Discovered | None:
    """Parse the body; returns its links, unless the worker has sent some."""
    capture, given, given_bytes = order.capture, order.capture.links, order.capture.links_bytes
    encoding = capture.headers.get("content-encoding", "")
    raw = capture.body_raw
    capture.body = decode(raw, encoding, order.reading.body_decoded_bytes_max) if encoding else raw
    if order.told_hash and order.told_hash not in (sha256(capture.body).hexdigest(), sha256(raw).hexdigest()):
        raise ValueError("the body's SHA-256 is not the one that was given")
    pipeline = Pipeline(
        order.reading, lambda more: Scope("any", [], (), ()), year=datetime.now(UTC).year, before_parse=lambda url: None
    )
    pipeline.read([capture])
    if capture.told is not None:
        capture.told.has_text = True
    if given.urls:
        capture.links, capture.links_bytes = given, given_bytes
        return None
    return pipeline.discover(capture)


def _encoded_as_it_says(capture: Capture) -> bool:
    """Whether a body that came as text, and so is UTF-8 now, can be the bytes that the site sent. If the page declares
    another encoding it cannot, unless both give the same bytes."""
    _, utf8 = to_utf8(capture.body, capture.headers.get("content-type", ""), capture.url)
    return utf8 == capture.body


def _read_text(capture: Capture, url: str) -> None:
    """Take the text from the worker's `data:` URL, as UTF-8."""
    content, media_type = read_data_url(url)
    _, text = to_utf8(content, media_type)
    capture.text = text[:TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()
    capture.languages = capture.languages or detected_language(capture.text)
    (capture.sketch,) = sketches([capture.text if capture.status < 300 else b""])
    if capture.told is not None:
        capture.told.has_text = True


def serve(orders: BinaryIO, answers: BinaryIO) -> None:
    """Parse page after page until the input ends."""
    while len(head := orders.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        order = msgspec.msgpack.decode(orders.read(length), type=Order)
        answer = msgspec.msgpack.encode(read_page(order))
        answers.write(_LENGTH.pack(len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
