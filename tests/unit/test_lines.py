"""Text from strangers never begins a line of a log, and never controls a terminal."""

from __future__ import annotations

import json

import pytest

from drumlin.lines import folded, one_line, safe_json


@pytest.mark.parametrize(
    "unsafe", ["\n", "\r", "\x1b[2J", "\x00", "\x7f", "\x9b31m", "\x85", "\u2028", "\u202e", "\ud800"]
)
def test_characters_that_end_lines_or_steer_terminals_are_shown_as_escapes(unsafe: str) -> None:
    shown = one_line(f"before{unsafe}after")
    assert shown.isprintable()
    assert shown.startswith("before\\")
    assert shown.endswith("after")
    assert len(shown.splitlines()) == 1


def test_what_people_write_stays_as_it_is() -> None:
    for text in ("plain", "Grüße, 日本 🙂", "a\\nb", "http://a.example/%0A"):
        assert one_line(text) == text


@pytest.mark.parametrize("unsafe", ["\x7f", "\x9b31m", "\x85", "\u2028", "\u202e", "é\u2066"])
def test_json_on_a_terminal_means_the_same_and_steers_nothing(unsafe: str) -> None:
    document = json.dumps({"title": f"a{unsafe}b"}, ensure_ascii=False, indent=2)
    shown = safe_json(document)
    assert json.loads(shown) == json.loads(document)
    assert all(line.isprintable() for line in shown.split("\n"))


def test_a_sentence_is_folded_between_words_and_its_urls_stay_whole() -> None:
    url = "http://a.example/" + "x" * 40
    said = folded(f"This is what was said of {url} and its like-minded neighbours.", 30)
    assert said.split("\n") == ["This is what was said of", f"  {url}", "  and its like-minded", "  neighbours."]
    assert folded("short", 30) == "short"
