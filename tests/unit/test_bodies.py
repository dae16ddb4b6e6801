"""Bodies from strangers: whatever they send, it is a message or a refusal, and memory stays within the limit."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.bodies import (
    JSON,
    MSGPACK,
    Format,
    Receive,
    answers_in,
    decompress,
    encode,
    header_of,
    read_body,
    reply_refused,
)
from drumlin.http.refusal import Refused

LIMIT = 1_000_000
DEEP = 200_000


class Batch(msgspec.Struct):
    name: str
    sizes: list[Annotated[int, msgspec.Meta(ge=0)]] = []


FORMAT = Format(Batch)
ANYTHING: Format[Any] = Format(Any)


def events(*events: dict[str, Any]) -> Receive:
    """The ASGI events of a request; after the last one nothing comes."""
    left = list(events)

    async def receive() -> dict[str, Any]:
        if not left:
            await asyncio.Event().wait()
        return left.pop(0)

    return receive


def chunks(*parts: bytes, ends: bool = True) -> Receive:
    last = len(parts) - 1
    sent = [
        {"type": "http.request", "body": part, "more_body": number < last or not ends}
        for number, part in enumerate(parts)
    ]
    return events(*sent)


def read(receive: Receive, headers: Sequence[tuple[bytes, bytes]] = (), **limits: Any) -> bytes:
    return asyncio.run(read_body(headers, receive, **({"bytes_max": LIMIT} | limits)))


def refused_reading(receive: Receive, headers: Sequence[tuple[bytes, bytes]] = (), **limits: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        read(receive, headers, **limits)
    return refused.value


# Reading


def test_a_body_is_read_as_it_was_sent() -> None:
    assert read(chunks(b"")) == b""
    assert read(chunks(b"abc"), [(b"content-length", b"3")]) == b"abc"
    assert read(chunks(b"a", b"", b"bc")) == b"abc"
    assert read(chunks(b"x" * LIMIT)) == b"x" * LIMIT


def test_a_body_that_says_it_is_too_large_is_refused_before_any_of_it_is_read() -> None:
    async def receive() -> dict[str, Any]:
        raise AssertionError("read")

    for length in (b"%d" % (LIMIT + 1), b"9" * 5_000):
        refused = refused_reading(receive, [(b"content-length", length)])
        assert (refused.status, refused.closes) == (413, True)


def test_a_body_that_grows_too_large_is_refused_without_reading_on() -> None:
    asked = 0

    async def receive() -> dict[str, Any]:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"x" * 100_000, "more_body": True}

    refused = refused_reading(receive)
    assert (refused.status, refused.closes, asked) == (413, True, 11)


@pytest.mark.parametrize("length", [b"-1", b"1e3", b"0x10", "٣".encode(), b" 3", b"+3"])
def test_a_length_that_is_no_number_is_refused(length: bytes) -> None:
    assert refused_reading(chunks(b"abc"), [(b"content-length", length)]).code == "bad_length"


def test_a_sender_that_goes_away_is_a_refusal_that_nobody_hears() -> None:
    receive = events({"type": "http.request", "body": b"a", "more_body": True}, {"type": "http.disconnect"})
    assert refused_reading(receive).code == "disconnected"


def test_a_body_that_never_ends_is_cut_off() -> None:
    for receive in (chunks(b"abc", ends=False), events()):
        refused = refused_reading(receive, grace_s=0.05)
        assert (refused.status, refused.code, refused.closes) == (408, "too_slow", True)


def test_a_body_that_drips_is_cut_off_although_it_never_stops() -> None:
    drops = 0

    async def receive() -> dict[str, Any]:
        nonlocal drops
        drops += 1
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    assert refused_reading(receive, grace_s=0.1, rate_min=1_000_000).status == 408
    assert drops < 200


def test_a_body_at_the_least_rate_may_take_its_time_but_not_forever() -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.sleep(0.01)
        return {"type": "http.request", "body": b"x", "more_body": True}

    refused = refused_reading(receive, grace_s=0.01, rate_min=0.001, time_s_max=0.3)
    assert refused.status == 408


# Decompressing


def bomb(compress: Any, size: int = 200 * LIMIT) -> bytes:
    compressor = compress()
    parts = [compressor.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join([*parts, compressor.flush()])


def gzip_compressor() -> Any:
    return zlib.compressobj(9, wbits=31)


def zstd_compressor() -> Any:
    return zstandard.ZstdCompressor(level=19).compressobj()


def test_every_encoding_gives_back_what_was_encoded() -> None:
    body = b"drumlin" * 1000
    assert decompress(body, "", LIMIT) == decompress(body, "identity", LIMIT) == body
    assert decompress(gzip.compress(body), "gzip", LIMIT) == body
    assert decompress(gzip.compress(body), " GZip ", LIMIT) == body
    assert decompress(gzip.compress(body), "x-gzip", LIMIT) == body
    assert decompress(zstandard.compress(body), "zstd", LIMIT) == body


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd,gzip", "rot13", "x" * 10_000])
def test_an_encoding_that_is_not_in_the_contract_is_refused(encoding: str) -> None:
    with pytest.raises(Refused) as refused:
        decompress(b"abc", encoding, LIMIT)
    assert refused.value.status == 415
    assert len(refused.value.message) < 200


@pytest.mark.parametrize(("encoding", "compressor"), [("gzip", gzip_compressor), ("zstd", zstd_compressor)])
def test_a_bomb_is_refused_without_being_unpacked(encoding: str, compressor: Any) -> None:
    packed = bomb(compressor)
    assert len(packed) < LIMIT
    tracemalloc.start()
    with pytest.raises(Refused) as refused:
        decompress(packed, encoding, LIMIT)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (refused.value.status, refused.value.closes) == (413, False)
    assert peak_bytes < 4 * LIMIT


def test_a_zstd_frame_that_claims_to_be_huge_allocates_nothing() -> None:
    honest = zstandard.ZstdCompressor(write_content_size=True).compress(bytes(300))
    # A frame header with an 8-byte content size of 2**62 before the same blocks.
    claimed = honest[:4] + bytes([0xE0]) + (1 << 62).to_bytes(8, "little") + honest[7:]
    with pytest.raises(Refused):
        decompress(claimed, "zstd", LIMIT)


@given(st.sampled_from(["gzip", "zstd"]), st.binary(max_size=300))
def test_rubbish_is_refused_or_gives_something_within_the_limit(encoding: str, rubbish: bytes) -> None:
    with suppress(Refused):
        assert len(decompress(rubbish, encoding, 1_000)) <= 1_000


@given(st.data())
def test_a_damaged_body_is_never_taken_for_another_message(data: st.DataObject) -> None:
    """Gzip carries a checksum; a flipped byte in its middle shows."""
    packed = gzip.compress(encode(Batch("node", list(range(100))), JSON))
    place = data.draw(st.integers(10, len(packed) - 1))
    damaged = packed[:place] + bytes([packed[place] ^ data.draw(st.integers(1, 255))]) + packed[place + 1 :]
    with suppress(Refused):
        assert FORMAT.decode(decompress(damaged, "gzip", LIMIT), JSON) == Batch("node", list(range(100)))


# Decoding


@pytest.mark.parametrize(
    "content_type", [JSON, "Application/JSON", "application/json; charset=utf-8", 'application/json;charset="UTF-8"']
)
def test_json_is_read_however_its_type_is_written(content_type: str) -> None:
    assert FORMAT.decode(b'{"name": "a", "sizes": [1]}', content_type) == Batch("a", [1])


def test_msgpack_and_json_mean_the_same() -> None:
    batch = Batch("a", [1, 2])
    for media_type in (JSON, MSGPACK):
        assert FORMAT.decode(encode(batch, media_type), media_type) == batch


@pytest.mark.parametrize(
    "content_type", ["", "text/plain", "application/json; charset=latin-1", "application/xml", "é"]
)
def test_another_type_is_refused(content_type: str) -> None:
    with pytest.raises(Refused) as refused:
        FORMAT.decode(b"{}", content_type)
    assert refused.value.status == 415


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (b"", 400, "truncated"),
        (b"{", 400, "truncated"),
        (b"[]", 422, "Expected `object`, got `array`"),
        (b"{}", 422, "missing required field `name`"),
        (b'{"name": 1}', 422, "$.name"),
        (b'{"name": 1', 400, "truncated"),
        (b'{"name": "a", "sizes": [1, -1]}', 422, "$.sizes[1]"),
        (b'{"name": "a"} x', 400, "trailing"),
        (b'{"name": "\xff"}', 400, ""),
        (b'{"name": "\\ud800"}', 400, ""),
    ],
)
def test_a_message_that_cannot_be_read_is_400_and_one_of_another_shape_is_422(
    body: bytes, status: int, says: str
) -> None:
    with pytest.raises(Refused) as refused:
        FORMAT.decode(body, JSON)
    assert refused.value.status == status
    assert says in refused.value.message


@pytest.mark.parametrize(
    ("body", "media_type"),
    [
        (b"[" * DEEP, JSON),
        (b'{"a":' * DEEP, JSON),
        (b'{"name": "a", "unknown": ' + b"[" * DEEP + b"]" * DEEP + b"}", JSON),
        (b"\x91" * DEEP, MSGPACK),
        (b"\x81\xa1a" * DEEP, MSGPACK),
        (b"\x82\xa4name\xa1a\xa1u" + b"\x91" * DEEP + b"\xc0", MSGPACK),
    ],
)
@pytest.mark.parametrize("form", [FORMAT, ANYTHING])
def test_a_deeply_nested_message_is_refused(body: bytes, media_type: str, form: Format[Any]) -> None:
    with pytest.raises(Refused) as refused:
        form.decode(body, media_type)
    assert refused.value.status == 400


@given(st.binary(max_size=200), st.sampled_from([JSON, MSGPACK]))
def test_any_bytes_are_a_message_or_a_refusal(body: bytes, media_type: str) -> None:
    with suppress(Refused):
        ANYTHING.decode(body, media_type)


# Answering


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", JSON),
        ("*/*", JSON),
        (MSGPACK, MSGPACK),
        ("application/json, application/msgpack", JSON),
        ("application/json;q=0.5, application/msgpack", MSGPACK),
        ("application/msgpack;q=0.1, */*", JSON),
        ("Application/MsgPack ; q=0.9, text/html;q=0.8", MSGPACK),
        ("application/msgpack;q=0", JSON),
        ("application/msgpack;q=nan", JSON),
        ("application/msgpack;q=x", JSON),
        ("text/html", JSON),
    ],
)
def test_the_answer_comes_in_the_form_that_is_preferred(accept: str, expected: str) -> None:
    assert answers_in(accept) == expected


@given(st.text(max_size=100))
def test_any_accept_header_has_an_answer(accept: str) -> None:
    assert answers_in(accept) in (JSON, MSGPACK)


def sent(refused: Refused) -> tuple[int, dict[str, str], dict[str, Any]]:
    """Status, headers and document of a refusal as it is sent."""
    messages: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        messages.append(message)

    asyncio.run(reply_refused(send, refused, JSON))
    start, body = messages
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers, json.loads(body["body"])


def test_a_refusal_is_sent_as_the_api_says() -> None:
    status, headers, document = sent(Refused(429, "too_fast", "Too fast.", "Wait.", retry_after_s=0.2))
    assert status == 429
    assert headers["retry-after"] == "1"
    assert "connection" not in headers
    assert document == {"error": {"code": "too_fast", "message": "Too fast.", "hint": "Wait."}}


def test_a_refusal_of_an_unread_body_ends_the_connection() -> None:
    assert sent(Refused(413, "too_large", "Large.", closes=True))[1]["connection"] == "close"


def test_who_has_no_token_is_asked_for_one() -> None:
    assert sent(Refused(401, "no_token", "Token?"))[1]["www-authenticate"] == "Bearer"


def test_a_header_is_found_by_its_lower_case_name() -> None:
    headers = [(b"accept", b"a"), (b"x", b"\xff"), (b"accept", b"b")]
    assert (header_of(headers, b"accept"), header_of(headers, b"x"), header_of(headers, b"y")) == ("a", "ÿ", "")
