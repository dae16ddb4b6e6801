"""Which bodies are wanted, by the types that their heads name."""

from __future__ import annotations

import pycurl
import pytest

from drumlin.config.types import format_rule, parse_rule, parse_rules
from drumlin.fetch.transfer import Transfer, header_taker
from drumlin.http.type_limits import BUILT_IN, TypeLimits, is_type

MIB = 2**20


@pytest.mark.parametrize(
    ("rules", "content_type", "limit"),
    [
        ([], "text/html; charset=utf-8", None),
        ([], "application/pdf", None),
        ([], "", None),
        ([], "rubbish", None),
        ([], "video/mp4", 0),
        ([], "VIDEO/MP4; codecs=avc1", 0),
        ([], "text/html, video/mp4", 0),
        ([], "application/zip", 0),
        ([], "image/svg+xml", 8 * MIB),
        ([], "application/octet-stream", MIB),
        (["video/*=1MiB"], "video/mp4", MIB),
        (["video/*=1MiB", "video/mp4=0"], "video/mp4", 0),
        (["video/mp4=0", "video/*=1MiB"], "video/mp4", 0),
        (["video/*=1MiB"], "audio/ogg", 0),
        (["*/*=1MiB"], "audio/ogg", MIB),
        (["*/*=1MiB"], "", MIB),
        (["*/*=0", "text/*=2MiB"], "text/plain", 2 * MIB),
        (["*/*=0", "text/*=2MiB"], "image/png", 0),
    ],
)
def test_the_most_exact_rule_decides_and_those_given_come_first(
    rules: list[str], content_type: str, limit: int | None
) -> None:
    limits = TypeLimits(parse_rules(rules))
    assert limits.of(content_type.encode()) == limit
    assert limits.of(content_type.encode()) == limit, "remembered as it was"


def test_all_rules_built_in_can_be_written_and_read() -> None:
    for name, size in BUILT_IN.items():
        assert is_type(name)
        assert parse_rule(format_rule(name, size)) == (name, size)


@pytest.mark.parametrize("text", ["video", "video/", "/mp4", "*", "*/mp4", "v*/x", "video/m*", "a/b/c", "a b/c"])
def test_what_is_no_type_is_refused(text: str) -> None:
    assert not is_type(text)


def judged(*lines: bytes) -> tuple[int | None, str]:
    """What is made of a head: what the last line is answered with, and why."""
    transfer = Transfer(pycurl.Curl())
    transfer.types = TypeLimits({})
    take = header_taker(transfer, lambda: 0.0, set())
    answers = [take(line + b"\r\n") for line in (*lines, b"")]
    assert answers[:-1] == [None] * len(lines), "only a whole head is judged"
    return answers[-1], transfer.unwanted


@pytest.mark.parametrize(
    "lines",
    [
        (b"HTTP/1.1 200 OK", b"Content-Type: text/html"),
        (b"HTTP/1.1 200 OK",),
        (b"HTTP/1.1 302 Found", b"Content-Type: video/mp4"),
        (b"HTTP/1.1 404 No", b"Content-Type: video/mp4"),
        (b"HTTP/1.1 429 No", b"Content-Type: video/mp4"),
        (b"HTTP/1.1 100 Go on", b"Content-Type: video/mp4"),
        (b"HTTP/1.1 200 OK", b"Content-Type: image/png", b"Content-Length: 8388608"),
        (b"HTTP/1.1 200 OK", b"Content-Type: image/png"),
        (b"HTTP/1.1 200 OK", b"X-Content-Type: video/mp4"),
    ],
)
def test_a_head_of_something_wanted_lets_the_body_come(lines: tuple[bytes, ...]) -> None:
    assert judged(*lines) == (None, "")


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((b"HTTP/1.1 200 OK", b"Content-Type: video/mp4"), "video/mp4: --types does not permit it"),
        ((b"HTTP/2 200 ", b"content-type: video/mp4"), "video/mp4: --types does not permit it"),
        ((b"HTTP/1.1 206 P", b"CONTENT-TYPE:audio/ogg", b"content-length: 1000"),
         "audio/ogg of 1,000 bytes: --types does not permit it"),
        ((b"HTTP/1.1 200 OK", b"Content-Length: 8388609", b"Content-Type: image/png"),
         "image/png of 8,388,609 bytes: --types does not permit more than 8,388,608 bytes of it"),
        ((b"HTTP/1.1 100 Go on", b"", b"HTTP/1.1 200 OK", b"Content-Type: video/mp4"),
         "video/mp4: --types does not permit it"),
    ],
)  # fmt: skip
def test_a_head_of_something_unwanted_ends_the_transfer(lines: tuple[bytes, ...], why: str) -> None:
    answer, said = judged(*lines)
    assert (answer, said) == (-1, why)
