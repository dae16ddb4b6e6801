"""The one parser of header blocks: line ends, folding, blocks before and after, and Location."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from drumlin.http.headers import final_block, header_fields, header_values, lines, location_of, status_of

FIELDS = ["A: 1", "Location: /to", "a :  2 ", "no colon", "X-Robots-Tag: x: noindex", "X-Robots-Tag: nofollow"]


@pytest.mark.parametrize("ends", [["\r\n"], ["\n"], ["\r\n", "\n"], ["\n", "\r\n", "\r\n"]])
def test_fields_are_the_same_however_lines_end(ends: list[str]) -> None:
    said = ["HTTP/1.1 200 OK", *FIELDS, ""]
    block = "".join(line + ends[place % len(ends)] for place, line in enumerate(said)).encode()
    assert header_fields(block) == {"a": "1, 2", "location": "/to", "x-robots-tag": "x: noindex, nofollow"}
    assert header_values(block, "x-robots-tag") == ["x: noindex", "nofollow"]
    assert (status_of(block), final_block(block)) == (200, block)


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_a_folded_line_goes_on_with_its_field(end: bytes) -> None:
    block = end.join([b"HTTP/1.1 200 OK", b"A: 1", b" \t2", b"\t3", b"B: 4", b"", b""])
    assert header_fields(block) == {"a": "1 2 3", "b": "4"}
    assert lines(block)[:3] == ["HTTP/1.1 200 OK", "A: 1 2 3", "B: 4"]


def test_a_return_within_a_line_neither_ends_it_nor_stays() -> None:
    assert header_fields(b"HTTP/1.1 200 OK\nA: 1\rB: 2\r\r\n\n") == {"a": "1 B: 2"}


@pytest.mark.parametrize("end", [b"\r\n", b"\n"])
def test_the_block_of_the_body_is_found_among_others(end: bytes) -> None:
    early = end.join([b"HTTP/1.1 103 Early Hints", b"Link: </x>", b"", b""])
    moved = end.join([b"HTTP/1.1 302 Found", b"Location: /x", b"", b""])
    final = end.join([b"HTTP/1.1 200 OK", b"A: 1", b"", b""])
    trailers = end.join([b"Content-Type: text/html", b"HTTP/odd: 3", b""])
    for received in (final, early + final, final + trailers, early + final + trailers, final + moved, final + early):
        assert final_block(received) == final
        assert final_block(early + moved + received, 200) == final
    assert header_fields(final_block(final + trailers)) == {"a": "1"}


@pytest.mark.parametrize(("line", "status"), [(b"HTTP/2 404", 404), (b"HTTP/1.1 200\n", 200), (b"200 OK", 0), (b"", 0)])
def test_a_status_line_is_known_by_its_start(line: bytes, status: int) -> None:
    assert status_of(line) == status


@pytest.mark.parametrize(
    ("fields", "target"),
    [
        (b"Location: /to", "/to"),
        (b"Location: /caf\xc3\xa9", "/caf%C3%A9"),
        (b"Location: /caf\xe9?x=\xfc", "/caf%E9?x=%FC"),
        (b"Location: /to\r\nLOCATION: /to", "/to"),
        (b"Location: /a\r\nLocation: /b", ""),
        (b"Location: /a,b", "/a,b"),
        (b"Location:", ""),
        (b"X: y", ""),
    ],
)
def test_a_location_keeps_its_bytes_and_two_that_are_equal_are_one(fields: bytes, target: str) -> None:
    assert location_of(b"HTTP/1.1 302 Found\r\n" + fields + b"\r\n\r\n") == target


@given(some.binary(max_size=300) | some.text(alphabet="HTP/1. 20\r\n\t:aX", max_size=80).map(str.encode))
def test_no_bytes_raise_and_no_field_holds_a_line_end(received: bytes) -> None:
    block = final_block(received)
    assert block in received
    for name, value in header_fields(block).items():
        assert not set("\r\n") & set(name + value)
    location_of(block).encode("ascii")
