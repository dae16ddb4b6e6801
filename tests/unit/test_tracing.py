"""What travels of a trace, what a span shows of a URL, and that nothing is loaded where nobody traces."""

from __future__ import annotations

import msgspec
import pytest

from drumlin.protocol import Results, Work
from drumlin.tracing import SpanId, read_traceparent, shown_url, traceparent

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_a_traceparent_is_read_as_it_is_written() -> None:
    one = read_traceparent(PARENT)
    assert one == SpanId(0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7)
    assert traceparent(one) == PARENT
    assert (one.trace, one.span) == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00-" + "0" * 32 + "-00f067aa0ba902b7-01",
        "00-4bf92f3577b34da6a3ce929d0e0e4736-" + "0" * 16 + "-01",
        PARENT.replace("-01", "-00"),
        PARENT.upper(),
        PARENT + "\n",
    ],
)
def test_what_is_no_parent_of_a_recorded_trace_is_none(text: str) -> None:
    assert read_traceparent(text) is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example/p/q", "https://a.example/p/q"),
        ("https://a.example:8443/?token=hunter2", "https://a.example:8443/?REDACTED"),
        ("http://me:hunter2@a.example/x?a=1&b=hunter2", "http://a.example/x?REDACTED"),
    ],
)
def test_a_span_shows_a_url_without_its_query_and_its_user(url: str, shown: str) -> None:
    assert shown_url(url) == shown


def test_messages_without_traces_are_as_they_were_and_others_are_checked() -> None:
    encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode
    assert decode(encode({"results": []}), type=Results).traces == {}
    told = decode(encode({"results": [], "traces": {"n0:1.2/3": PARENT}}), type=Results)
    assert told.traces == {"n0:1.2/3": PARENT}
    with pytest.raises(msgspec.ValidationError):
        decode(encode({"results": [], "traces": {"n0:1.2/3": f"{PARENT}\r\nX-Evil: 1"}}), type=Results)
    old = {"leases": [], "assignments": [], "retry_after_s": 0.0}
    assert decode(encode(old), type=Work).traces == {}
