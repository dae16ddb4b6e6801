"""Nothing that a stranger says begins a line of a log, or speaks to a terminal."""

from __future__ import annotations

import logging
import sys

import pytest

from drumlin.lines import TRACEBACK_MARK, LineFormatter, one_line

FORGED = "n1\n2026-11-16 10:00:00,000 INFO drumlin.audit: forged"


def entry(message: str, *arguments: object, exc_info: object = None) -> str:
    record = logging.LogRecord("drumlin.coordinator", logging.INFO, "", 0, message, arguments, None)
    record.exc_info = exc_info  # type: ignore[assignment]
    return LineFormatter().format(record)


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


def test_a_message_is_one_line_whatever_its_parts_hold() -> None:
    line = entry("node %s failed", FORGED)
    assert "\n" not in line
    assert line.endswith("drumlin.coordinator: node " + FORGED.replace("\n", "\\n") + " failed")


def test_no_line_of_a_traceback_looks_like_an_entry() -> None:
    try:
        raise ValueError(FORGED)
    except ValueError:
        first, *rest = entry("it failed", exc_info=sys.exc_info()).split("\n")
    assert first.endswith("drumlin.coordinator: it failed")
    assert rest
    assert all(line.startswith(TRACEBACK_MARK) for line in rest)
