"""Bodies in and out: how a coordinator reads what strangers send, within limits, and how it answers.

`read_body` returns the bytes as they were sent, because signatures cover those; `decompress` and `Format.decode` make a
message of them. Guarantees: no more than `bytes_max` is ever kept, compressed or not; a body that comes too slowly is
cut off; whatever is wrong with a body raises a `Refused` that says so, never another exception.

If a request is refused before its body was read, its connection must be closed, or the server would have to read the
rest of the body after all. `Refused.closes` marks that, and `reply_refused` then sends `Connection: close`.

A large answer is handed over in pieces, each when the reader has taken most of the one before. So what waits for a slow
reader waits here, where it is counted (`UnreadAnswers`), and not in a buffer of the server.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from drumlin.api.plainly import plainly
from drumlin.errors import SiteError
from drumlin.fetch.decode import decode as undo_encoding
from drumlin.http.refusal import Refused
from drumlin.model import FailureKind
from drumlin.protocol.refusals import RefusalCode

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Headers = Iterable[tuple[bytes, bytes]]
Message = TypeVar("Message")

JSON = "application/json"
MSGPACK = "application/msgpack"
ENCODINGS = ("zstd", "gzip", "identity")
OTHER_NAMES = {"x-gzip": "gzip"}
"""RFC 9110, 8.4.1.3."""

BODY_TIME_S_MAX = 60.0
"""The longest time that a whole body may take to arrive."""
BODY_GRACE_S = 5.0
"""How long a body may take at any rate: a slow start is not an attack."""
BODY_RATE_MIN = 16 * 1024
"""Bytes a second at which a body must arrive on average, once the grace is over."""

PIECE_BYTES = 64 * 1024
"""Answers up to this size are sent in one piece, longer ones in pieces of it."""
ANSWERS_BYTES_MAX = 256 * 1024 * 1024
"""How much all answers that are sent in pieces may have together."""

INTEGRAL_BYTES_MAX = 256 * 1024
"""Larger bodies must write integers without a decimal point: checking each number is slow."""
INTEGRAL_MAX = 2.0**53
"""Beyond this a float does not stand for exactly one integer."""

_json_encoder = msgspec.json.Encoder()
_msgpack_encoder = msgspec.msgpack.Encoder()


def header_of(headers: Headers, name: bytes) -> str:
    """The first value of a header; empty when there is none. ASGI's names are lower-case."""
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


# In


async def read_body(
    headers: Headers,
    receive: Receive,
    *,
    bytes_max: int,
    time_s_max: float = BODY_TIME_S_MAX,
    rate_min: float = BODY_RATE_MIN,
    grace_s: float = BODY_GRACE_S,
) -> bytes:
    """The body as sent: `bytes_max` at most, within `time_s_max`, at `rate_min` bytes a second after `grace_s`."""
    _check_length(header_of(headers, b"content-length"), bytes_max)
    chunks: list[bytes] = []
    received, started = 0, asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(min(time_s_max, grace_s)) as limit:
            while True:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise Refused(400, "disconnected", "The connection ended before the body did.", closes=True)
                chunk = event.get("body", b"")
                received += len(chunk)
                if received > bytes_max:
                    raise _too_large(bytes_max)
                chunks.append(chunk)
                if not event.get("more_body", False):
                    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
                limit.reschedule(started + min(time_s_max, grace_s + received / rate_min))
    except TimeoutError:
        message = f"The body came too slowly: {received} bytes in {asyncio.get_running_loop().time() - started:.0f} s."
        raise Refused(408, "too_slow", message, "Send smaller batches, or over a better line.", closes=True) from None


async def read_arrived(content_length: str, receive: Receive, *, bytes_max: int) -> bytes:
    """The body of a request that is here in full, as nearly all are when their turn comes. Nothing is waited for, so no
    timer is needed, which would cost more than the rest."""
    _check_length(content_length, bytes_max)
    event = await receive()
    if event["type"] == "http.disconnect":
        raise Refused(400, "disconnected", "The connection ended before the body did.", closes=True)
    body: bytes = event.get("body", b"")
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    return body


def decompress(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """The body without its Content-Encoding; no more than `bytes_max` bytes of it are ever made."""
    name = encoding.strip().lower() or "identity"
    name = OTHER_NAMES.get(name, name)
    if name not in ENCODINGS:
        raise Refused(415, "unknown_encoding", "The Content-Encoding is not known.", f"Use {', '.join(ENCODINGS)}.")
    try:
        return undo_encoding(body, name, bytes_max)
    except SiteError as wrong:
        if wrong.kind == FailureKind.TOO_LARGE:
            raise _too_large(bytes_max, closes=False) from wrong
        raise Refused(400, RefusalCode.DAMAGED, f"The body is not valid {name}.") from wrong


def _check_length(content_length: str, bytes_max: int) -> None:
    """Refuse a body whose Content-Length is too large before any of it is read."""
    if not content_length:
        return
    if not (content_length.isascii() and content_length.isdigit()):
        raise Refused(400, "bad_length", "The Content-Length is not a number.", closes=True)
    if len(content_length) > len(str(bytes_max)) + 1 or int(content_length) > bytes_max:
        raise _too_large(bytes_max)


def _too_large(bytes_max: int, *, closes: bool = True) -> Refused:
    message = f"A body may have at most {bytes_max} bytes here, before and after decompression."
    return Refused(413, RefusalCode.TOO_LARGE, message, "Send smaller batches.", closes=closes)


class Format(Generic[Message]):
    """How messages of one type are read, from JSON or MessagePack as the Content-Type says."""

    def __init__(self, message: type[Message]) -> None:
        self._message = message
        self._hint = getattr(message, "HINT", "")
        """The hint for senders of something else, if the type has one."""
        self._decode_json = msgspec.json.Decoder(message).decode
        self._decoders: dict[str, Callable[[bytes], Message]] = {
            JSON: self._from_json,
            MSGPACK: msgspec.msgpack.Decoder(message).decode,
        }
        self._whole: dict[str, Callable[[bytes], msgspec.Raw]] = {
            JSON: msgspec.json.Decoder(msgspec.Raw).decode,
            MSGPACK: msgspec.msgpack.Decoder(msgspec.Raw).decode,
        }

    def decode(self, body: bytes, content_type: str) -> Message:
        media_type = content_type if content_type in self._decoders else _media_type(content_type)
        decode = self._decoders.get(media_type)
        if decode is None:
            raise Refused(415, "unknown_type", "The Content-Type is not known.", f"Use {JSON} or {MSGPACK}.")
        try:
            try:
                return decode(body)
            except msgspec.ValidationError as wrong:
                # The decoder may stop at an invalid field before it has seen that the body is cut off or damaged.
                self._whole[media_type](body)
                message = f"The body does not fit this call: {plainly(wrong)}."
                raise Refused(422, "invalid", message, self._hint) from wrong
        except msgspec.DecodeError as wrong:
            raise Refused(400, "malformed", f"The body does not fit this call: {wrong}.") from wrong
        except (RecursionError, UnicodeDecodeError) as wrong:
            reason = "it is nested too deeply" if isinstance(wrong, RecursionError) else "it is not UTF-8"
            raise Refused(400, "malformed", f"The body does not fit this call: {reason}.") from wrong

    def _from_json(self, body: bytes) -> Message:
        try:
            return self._decode_json(body)
        except msgspec.ValidationError as wrong:
            if "got `float`" not in str(wrong) or len(body) > INTEGRAL_BYTES_MAX:
                raise
            return msgspec.convert(_integral(msgspec.json.decode(body)), self._message)


def _integral(value: Any) -> Any:
    """The value with 2.0 as 2: JSON has one kind of number, and some languages write all with a decimal point."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= INTEGRAL_MAX else value
    if isinstance(value, dict):
        return {key: _integral(one) for key, one in value.items()}
    return [_integral(one) for one in value] if isinstance(value, list) else value


def _media_type(header: str) -> str:
    """`application/json; charset=utf-8` is `application/json`; with any other charset the type is unknown."""
    name, _, parameters = header.lower().replace(" ", "").replace('"', "").partition(";")
    return name if not parameters or parameters == "charset=utf-8" else header


# Out


def answers_in(accept: str) -> str:
    """The media type to answer in: MessagePack for clients that prefer it, else JSON."""
    if accept == MSGPACK:
        return MSGPACK
    wishes = [_wish(part) for part in accept.lower().split(",")]
    msgpack = max((quality for name, quality in wishes if name == MSGPACK), default=0.0)
    other = max((quality for name, quality in wishes if name in (JSON, "application/*", "*/*")), default=0.0)
    return MSGPACK if msgpack > other else JSON


def _wish(part: str) -> tuple[str, float]:
    name, _, parameters = part.replace(" ", "").partition(";")
    try:
        quality = float(parameters.removeprefix("q=")) if parameters.startswith("q=") else 1.0
    except ValueError:
        quality = 0.0
    return name, quality if 0.0 <= quality <= 1.0 else 0.0


def encode(message: Any, media_type: str) -> bytes:
    return _msgpack_encoder.encode(message) if media_type == MSGPACK else _json_encoder.encode(message)


async def reply(send: Send, status: int, body: bytes, media_type: str, headers: Headers = ()) -> None:
    """Send a whole answer."""
    fixed = [(b"content-type", media_type.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*fixed, *headers]})
    if len(body) <= PIECE_BYTES:
        await send({"type": "http.response.body", "body": body})
        return
    for begin in range(0, len(body), PIECE_BYTES):
        end = begin + PIECE_BYTES
        await send({"type": "http.response.body", "body": body[begin:end], "more_body": end < len(body)})


async def reply_refused(send: Send, refused: Refused, media_type: str) -> None:
    """Send a refusal as the API's error document."""
    headers = list(refused.headers)
    if refused.retry_after_s is not None:
        # Rounded up: a client that comes back a moment too early is refused again.
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(refused.retry_after_s))))
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.closes:
        headers.append((b"connection", b"close"))
    await reply(send, refused.status, encode(refused.document(), media_type), media_type, headers)


class _Held(NamedTuple):
    who: str
    size: int
    cut: Callable[[], None]


class UnreadAnswers:
    """The large answers that are being sent, oldest first. All of them together have a bound.

    Whoever asks for much and reads nothing would otherwise fill this process's memory. To refuse further answers would
    let such a reader keep all others from theirs. So, beyond the bound, connections are cut: of whoever has most left
    unread, the one that has waited longest. Who reads what they ask for is not the one."""

    def __init__(self) -> None:
        self._held: dict[object, _Held] = {}
        self._bytes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._held)

    async def reply(
        self, send: Send, status: int, body: bytes, media_type: str, *, who: str, cut: Callable[[], None]
    ) -> None:
        """Send a whole answer to `who`. While it is sent it counts, if it is large."""
        if len(body) <= PIECE_BYTES:
            await reply(send, status, body, media_type)
            return
        with self.holding(who, len(body), cut):
            await reply(send, status, body, media_type)

    @contextlib.contextmanager
    def holding(self, who: str, size: int, cut: Callable[[], None]) -> Iterator[None]:
        """Count an answer to `who` while it is being sent. `cut` ends its connection at once."""
        mark = object()
        self._held[mark] = _Held(who, size, cut)
        self._bytes[who] += size
        while self._bytes.total() > ANSWERS_BYTES_MAX:
            self._cut_one()
        try:
            yield
        finally:
            self._let_go(mark)

    def _cut_one(self) -> None:
        greediest = max(self._bytes, key=self._bytes.__getitem__)
        mark = next(mark for mark, held in self._held.items() if held.who == greediest)
        self._held[mark].cut()
        self._let_go(mark)

    def _let_go(self, mark: object) -> None:
        held = self._held.pop(mark, None)
        if held is None:
            return
        self._bytes[held.who] -= held.size
        if not self._bytes[held.who]:
            del self._bytes[held.who]
