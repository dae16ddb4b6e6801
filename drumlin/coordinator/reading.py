"""Reading pages that workers send, in a process of its own: a page made to crash or hang a parser ends that process,
and not the coordinator.

The process is started with the first page and ends with its standard input. A page that it dies of, or takes too long
for, is stored without its text.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import sys
from datetime import UTC, datetime
from hashlib import sha256
from typing import BinaryIO

import msgspec

from drumlin.coordinator.bodies import Refused
from drumlin.coordinator.forms import read_data_url
from drumlin.coordinator.telling import SHOWN_CHARS, Telling
from drumlin.dedupe import sketches
from drumlin.errors import SiteError
from drumlin.fetch.decode import decode
from drumlin.model import Capture
from drumlin.parse import TEXT_BYTES_MAX, to_utf8
from drumlin.parse.language import detected_language
from drumlin.pipeline import Discovered, Pipeline, Reading
from drumlin.urls import Scope

READ_S_MAX = 30.0
UNREADABLE = "its body could not be read"
FLAW_HINT = "Send the body as it was received (curl without --compressed), or leave out what does not fit it."
_LENGTH = struct.Struct("<I")


class Order(msgspec.Struct, array_like=True):
    """A page to be read: `told_hash` is what its body's SHA-256 should be, `text_url` a `data:` URL with its text."""

    reading: Reading
    capture: Capture
    with_body: bool
    told_hash: str = ""
    text_url: str = ""


class Read(msgspec.Struct, array_like=True):
    """What a page says, without its body. `flaw` says why it cannot be taken at all, `as_received` whether its body can
    be what the site sent."""

    capture: Capture | None = None
    found: Discovered | None = None
    flaw: str = ""
    as_received: bool = True


class Reader:
    """The coordinator's end: pages go to the process one at a time."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def read(self, telling: Telling) -> None:
        """Put into a result what its page says; `Refused` when they contradict each other."""
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
            pipe = asyncio.subprocess.PIPE
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", __name__, stdin=pipe, stdout=pipe, start_new_session=True
            )
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


def _fill(telling: Telling, read: Read) -> None:
    before, capture, result = telling.capture, read.capture, telling.result
    if before is None or capture is None:
        return
    capture.body_raw = before.body_raw
    telling.capture = capture
    # Under a head that names another encoding nobody could read the record.
    telling.with_head = telling.with_head and read.as_received
    telling.fetch.record_id = result.record_id = capture.record_id
    result.sketch = capture.sketch
    result.mime = capture.mime
    if telling.with_body:
        # Only what was seen here is remembered as content: a hash that is merely told could make others' pages
        # duplicates of nothing.
        result.content_hash = capture.digest.hex()
    if read.found is not None:
        result.links, result.link_hints, result.traps = read.found.urls, read.found.hints, read.found.refused


# The process's own end


def read_page(order: Order) -> Read:
    """Read one page, with whatever a worker may have sent."""
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
    """Parse the body, and give the links on it unless others were told."""
    capture, given = order.capture, order.capture.links
    encoding = capture.headers.get("content-encoding", "")
    raw = capture.body_raw
    capture.body = decode(raw, encoding, order.reading.body_decoded_bytes_max) if encoding else raw
    if order.told_hash and order.told_hash not in (sha256(capture.body).hexdigest(), sha256(raw).hexdigest()):
        raise ValueError("the body's SHA-256 is not the one that is told")
    pipeline = Pipeline(
        order.reading, lambda more: Scope("any", [], (), ()), year=datetime.now(UTC).year, before_parse=lambda url: None
    )
    pipeline.read([capture])
    if capture.told is not None:
        capture.told.has_text = True
    if given.urls:
        capture.links = given
        return None
    return pipeline.discover(capture)


def _encoded_as_it_says(capture: Capture) -> bool:
    """Whether a body that came as a text, and so in UTF-8, has the bytes of the site: those of a page that declares
    another encoding are not known, unless it makes no difference."""
    _, utf8 = to_utf8(capture.body, capture.headers.get("content-type", ""), capture.url)
    return utf8 == capture.body


def _read_text(capture: Capture, url: str) -> None:
    """Take the text as it is told, in UTF-8."""
    content, media_type = read_data_url(url)
    _, text = to_utf8(content, media_type)
    capture.text = text[:TEXT_BYTES_MAX].decode("utf-8", "ignore").encode()
    capture.languages = capture.languages or detected_language(capture.text)
    (capture.sketch,) = sketches([capture.text if capture.status < 300 else b""])
    if capture.told is not None:
        capture.told.has_text = True


def serve(orders: BinaryIO, answers: BinaryIO) -> None:
    """Read page after page until nobody sends any more."""
    while len(head := orders.read(_LENGTH.size)) == _LENGTH.size:
        (length,) = _LENGTH.unpack(head)
        order = msgspec.msgpack.decode(orders.read(length), type=Order)
        answer = msgspec.msgpack.encode(read_page(order))
        answers.write(_LENGTH.pack(len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
