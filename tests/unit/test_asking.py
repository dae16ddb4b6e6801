"""The process that answers a question is not believed: whatever it says, the coordinator holds and tells little."""

from __future__ import annotations

import msgspec
import pytest

from drumlin.sql.answerer import Found, Wrong
from drumlin.sql.asking import _read
from drumlin.sql.database import SENTENCE_CHARS_MAX

FOUND = b'{"type":"Found","columns":["a"],"types":["INTEGER"],"rows":%b,"complete":true}'


def test_rows_are_kept_as_they_were_written() -> None:
    found = _read(FOUND % b"[[1],[[2, 3]]]", msgspec.json.decode)
    assert isinstance(found, Found)
    assert bytes(found.rows) == b"[[1],[[2, 3]]]"


@pytest.mark.parametrize(
    "said",
    [b"", b"{", FOUND % b"[[1]", FOUND % (b"[" * 100_000 + b"]" * 100_000), b'{"type":"Other"}', b"\xff", b'"\xff"'],
    ids=["nothing", "no end", "a cut row", "nested", "another message", "no text", "a wrong text"],
)
def test_what_is_no_answer_is_said_to_be_none(said: bytes) -> None:
    for decode in (msgspec.json.decode, msgspec.msgpack.decode):
        found = _read(said, decode)
        assert isinstance(found, Wrong)
        assert found.code == "too_much"


def test_sentences_are_cut_and_codes_are_ours() -> None:
    said = msgspec.json.encode(Wrong("made_up", "x" * 1_000_000, "y" * 1_000_000))
    found = _read(said, msgspec.json.decode)
    assert found == Wrong("bad_sql", "x" * SENTENCE_CHARS_MAX, "y" * SENTENCE_CHARS_MAX)
