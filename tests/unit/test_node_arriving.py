"""robots.txt as it arrives, and the request as the archive records it."""

from __future__ import annotations

import gzip

import pytest

from drumlin.fetch import Transfer
from drumlin.model import FailureKind
from drumlin.node.arriving import request_block, robots_body
from drumlin.robots import BODY_BYTES_MAX, decide

RULES = b"User-agent: *\nDisallow: /\n"


def arrived(body: bytes, failure: str = "", encoding: str = "") -> Transfer:
    transfer = Transfer(None)
    transfer.status, transfer.failure = 200, failure
    transfer.body.write(body)
    coding = [f"Content-Encoding: {encoding}\r\n".encode()] if encoding else []
    transfer.header_lines = [b"HTTP/1.1 200 OK\r\n", *coding, b"\r\n"]
    return transfer


@pytest.mark.parametrize(
    ("body", "encoding", "failure", "expected"),
    [
        (RULES, "", "", (RULES, "")),
        (gzip.compress(RULES, mtime=0), "gzip", "", (RULES, "")),
        (gzip.compress(RULES, mtime=0), "", "", (RULES, "")),
        (gzip.compress(RULES, mtime=0), "none", "", (RULES, "")),
        (RULES, "UTF-8", "", (RULES, "")),
        (b"\x28\xb5\x2f\xfd broken", "", "", (b"", FailureKind.DECODE)),
        (b"no gzip", "gzip", "", (b"", FailureKind.DECODE)),
        (gzip.compress(b"#" * (BODY_BYTES_MAX + 9), mtime=0), "gzip", "", (b"", FailureKind.TOO_LARGE)),
    ],
    ids=[
        "plain",
        "packed",
        "packed in secret",
        "packed and denied",
        "no coding",
        "packed otherwise",
        "undecodable",
        "long when unpacked",
    ],
)
def test_a_robots_txt_is_read_as_far_as_needed(
    body: bytes, encoding: str, failure: str, expected: tuple[bytes, str]
) -> None:
    assert robots_body(arrived(body, failure, encoding)) == expected


def test_a_robots_txt_that_could_not_be_read_allows_nothing() -> None:
    transfer = arrived(b"", FailureKind.TOO_LARGE)
    body, failure = robots_body(transfer)
    decision = decide(200, body, 0, failure or transfer.failure, 0.0)
    assert decision.deny_all


@pytest.mark.parametrize(
    ("url", "host", "line"),
    [
        ("http://a.test/", "a.test", b"GET / HTTP/1.1\r\nHost: a.test\r\n"),
        ("http://a.test:8080/x?y=a.test", "a.test:8080", b"GET /x?y=a.test HTTP/1.1\r\nHost: a.test:8080\r\n"),
        ("http://t/t/t", "t", b"GET /t/t HTTP/1.1\r\nHost: t\r\n"),
        ("http://http/", "http", b"GET / HTTP/1.1\r\nHost: http\r\n"),
        ("https://s/s", "s", b"GET /s HTTP/1.1\r\nHost: s\r\n"),
    ],
)
def test_the_request_is_recorded_as_it_was_sent(url: str, host: str, line: bytes) -> None:
    assert request_block(url, host, b"User-Agent: x\r\n\r\n") == line + b"User-Agent: x\r\n\r\n"
