"""A log has one line for each entry, in either format: with the ids that belong to it, and without any secret."""

from __future__ import annotations

import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.logs import (
    Event,
    LogFormat,
    LogLevel,
    LogSettings,
    current_request,
    event,
    identify,
    log_for_people,
    log_last_words,
    log_to_stderr,
    logging_to,
    message_of,
    without_secrets,
)
from drumlin.logs.formats import TEXT_CHARS_MAX, TRACEBACK_MARK, HumanFormatter, JSONFormatter

FORGED = "n1\n2026-11-16 10:00:00,000 INFO drumlin.audit: forged"
HANGS_S = 60.0
MAC = "abcdefghijklmnopqrstuvwxyz234567"
SAID = logging.getLogger("drumlin.coordinator")
HOW_TO = Path(__file__).parents[2] / "docs" / "how-to" / "read-logs.md"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """Entries of other tests go nowhere special."""
    request = current_request.set("")
    yield
    current_request.reset(request)
    log_for_people()


def record(message: str, *arguments: object, extra: dict[str, object] | None = None) -> logging.LogRecord:
    made = logging.LogRecord("drumlin.coordinator", logging.INFO, "", 0, message, arguments, None)
    made.created = 1_800_000_000.9996
    vars(made).update(extra or {})
    return made


def failed(message: str) -> logging.LogRecord:
    try:
        raise ValueError(FORGED)
    except ValueError:
        made = record(message)
        made.exc_info = sys.exc_info()
    return made


def human(made: logging.LogRecord) -> str:
    return HumanFormatter().format(made)


def parsed(made: logging.LogRecord) -> dict[str, object]:
    line = JSONFormatter().format(made)
    assert line.isprintable(), "it neither ends the line nor speaks to a terminal"
    entry: dict[str, object] = json.loads(line)
    return entry


# For people


def test_a_message_is_one_line_whatever_its_parts_hold() -> None:
    line = human(record("node %s failed", FORGED))
    assert "\n" not in line
    assert line.endswith("drumlin.coordinator: node " + FORGED.replace("\n", "\\n") + " failed")


def test_no_line_of_a_traceback_looks_like_an_entry() -> None:
    first, *rest = human(failed("it failed")).split("\n")
    assert first.endswith("drumlin.coordinator: it failed")
    assert rest
    assert all(line.startswith(TRACEBACK_MARK) for line in rest)


def test_ids_stand_before_the_message_so_no_message_can_forge_one() -> None:
    identify(crawl="3fa9", node="n0")
    line = human(record("told [node=n7]: this", extra=event(Event.REFUSED, lease="n0:a.1.2", code="made_up")))
    assert line.endswith("INFO drumlin.coordinator [crawl=3fa9 node=n0 lease=n0:a.1.2]: told [node=n7]: this")


def test_an_id_that_a_stranger_chose_ends_where_it_ends() -> None:
    line = human(record("refused", extra=event(Event.REFUSED, node="n1] drumlin.audit: forged")))
    assert '[node="n1] drumlin.audit: forged"]: refused' in line


# As lines of JSON


def test_an_entry_has_its_time_in_utc_level_logger_event_message_and_ids() -> None:
    identify(crawl="3fa9", coordinator="c-1")
    current_request.set("9f3a-17")
    said = parsed(record("node %s joined", "n0", extra=event(Event.JOINED, node="n0", starts=2, reason="")))
    assert said == {
        "time": "2027-01-15T08:00:01.000Z",
        "level": "info",
        "logger": "drumlin.coordinator",
        "event": "joined",
        "message": "node n0 joined",
        "crawl": "3fa9",
        "coordinator": "c-1",
        "node": "n0",
        "request": "9f3a-17",
        "starts": 2,
    }
    assert list(said)[:5] == ["time", "level", "logger", "event", "message"]


@pytest.mark.parametrize("unsafe", ["\n", "\x1b[2J", "\x7f", "\x9b31m", "\u2028", "\u202e", "\ud800", '"}\n{"a": "'])
def test_what_strangers_say_stays_inside_its_text_and_harmless_when_it_is_taken_out(unsafe: str) -> None:
    said = parsed(record("node %s failed", unsafe, extra=event(Event.FAILED, node=f"n{unsafe}")))
    assert str(said["message"]).isprintable()
    assert str(said["node"]).isprintable()


def test_a_traceback_is_one_text_of_its_entry() -> None:
    said = parsed(failed("it failed"))
    first, *rest = str(said["traceback"]).split("\n")
    assert first == "Traceback (most recent call last):"
    assert all(line.isprintable() for line in rest)


def test_no_field_takes_the_place_of_what_every_entry_has() -> None:
    said = parsed(record("true", extra=event(Event.AUDIT, message="false", level="error", time=0)))
    assert (said["message"], said["level"], said["time"] != 0) == ("true", "info", True)


# Secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"drumlin_join_k3x_0_{MAC}", "drumlin_join_k3x_0_***"),
        (f"drumlin_node_my_node-1+k3x_1800000000_{MAC}.", "drumlin_node_my_node-1+k3x_1800000000_***."),
        ("redis://:hunter2@redis-1:6379/news failed", "redis://***@redis-1:6379/news failed"),
        ("rediss://me:hun@ter2@redis-1/", "rediss://***@redis-1/"),
        ("Authorization: Bearer hunter2hunter2", "Authorization: Bearer ***"),
        ("{'Authorization': 'Basic aHVudGVyMg=='}", "{'Authorization': 'Basic ***"),
        ("Authorization: Token abc hunter2\nAccept: text/html", "Authorization: Token ***\nAccept: text/html"),
        ("Authorization: Newest k3x hunter2", "Authorization: ***"),
        (
            "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/s3, SignedHeaders=host, Signature=hunter2",
            "Authorization: AWS4-HMAC-SHA256 ***",
        ),
        ('authorization: Digest username="me", response="hunter2"', "authorization: Digest ***"),
        ("1redis://:hunter2@redis-1/", "1redis://***@redis-1/"),
        ("Set-Cookie: sid=hunter2; Path=/", "Set-Cookie: ***"),
        ("X-Drumlin-Signature: v1,2,hunter2", "X-Drumlin-Signature: ***"),
        (
            "https://b.s3.test/k?X-Amz-Expires=9&X-Amz-Signature=f00d#x",
            "https://b.s3.test/k?X-Amz-Expires=9&X-Amz-Signature=***#x",
        ),
        ("http://a.test/?token=hunter2&page=3", "http://a.test/?token=***&page=3"),
        ("http://a.test/x;jsessionid=hunter2", "http://a.test/x;jsessionid=***"),
    ],
)
def test_what_has_the_form_of_a_secret_is_cut_out(text: str, shown: str) -> None:
    assert without_secrets(text) == shown
    made = record("%s", text, extra=event(Event.REFUSED, node=text))
    assert "hunter2" not in human(made) + JSONFormatter().format(made)
    assert MAC not in human(made) + JSONFormatter().format(made)


@pytest.mark.parametrize(
    "text",
    [
        "The token has expired. Ask for a new one.",
        "Authorization header holds no bearer token.",
        "`drumlin tokens create --role join` makes one.",
        "--cookies was chain and is none",
        "http://a.test/@someone?page=3&key_figures=1",
        "the engine cannot be used: redis://10.0.0.1:6379/news does not answer.",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert without_secrets(text) == text


@pytest.mark.parametrize(
    ("beginning", "repeated"),
    [
        ("", "a"),
        ("", "a://"),
        ("http://", "a:"),
        ("", "drumlin_a_"),
        ("authorization", " "),
        ("authorization:", " "),
        ("", "authorization "),
        ("", "cookie "),
        ("", "bearer "),
        ("?", "a-"),
        ("", "&a-"),
    ],
)
def test_the_time_that_a_stranger_can_cost_is_proportional_to_his_text(beginning: str, repeated: str) -> None:
    """If it grew with the square of the text, a million characters would take an hour. A search cannot be interrupted,
    so it is made in a process that can be killed."""
    text = f"{beginning!r} + {repeated!r} * {1_000_000 // len(repeated)}"
    code = f"from drumlin.logs import without_secrets; text = {text}; assert without_secrets(text) == text"
    subprocess.run([sys.executable, "-c", code], timeout=HANGS_S, check=True)


def test_of_a_very_long_text_the_beginning_is_logged_without_half_of_a_secret() -> None:
    long = "x " * (TEXT_CHARS_MAX // 2 - 15) + f"drumlin_join_k3x_0_{MAC} and more"
    said = parsed(record("%s", long, extra=event(Event.FAILED, node="n" * 10_000)))
    assert said["message"] == "x " * (TEXT_CHARS_MAX // 2 - 15) + "[and 61 more characters]"
    assert said["node"] == "[and 10000 more characters]"


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_a_text(number: float) -> None:
    line = JSONFormatter().format(record("told", extra=event(Event.AUDIT, number=number)))
    assert json.loads(line, parse_constant=pytest.fail)["number"] == str(number)


# Where entries go


@pytest.mark.parametrize(
    ("wanted", "stream", "is_json"),
    [("auto", Terminal, False), ("auto", io.StringIO, True), ("human", io.StringIO, False), ("json", Terminal, True)],
)
def test_a_terminal_is_written_for_people_and_everything_else_in_json(
    monkeypatch: pytest.MonkeyPatch, wanted: LogFormat, stream: type[io.StringIO], is_json: bool
) -> None:
    monkeypatch.setattr(sys, "stderr", stream())
    log_to_stderr(LogSettings(wanted))
    SAID.info("joined", extra=event(Event.JOINED))
    assert isinstance(sys.stderr, io.StringIO)
    assert sys.stderr.getvalue().startswith("{") is is_json


@pytest.mark.parametrize(("level", "lines"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)])
def test_less_important_entries_are_left_out(tmp_path: Path, level: LogLevel, lines: int) -> None:
    path = tmp_path / "log"
    with logging_to(path, LogSettings(level=level)):
        SAID.debug("one")
        SAID.info("two")
        SAID.warning("three")
        logging.getLogger("asyncio").info("of a library only what is wrong is kept")
    SAID.warning("too late")
    assert (path.read_text().count("\n") if path.exists() else 0) == lines


def test_a_log_that_was_renamed_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with logging_to(path, LogSettings()):
        SAID.warning("one")
        path.rename(tmp_path / "log.1")
        SAID.warning("two")
    assert [message_of(one.read_text()) for one in (tmp_path / "log.1", path)] == ["one", "two"]


def test_a_log_that_cannot_be_written_does_not_stop_its_process(tmp_path: Path) -> None:
    with logging_to(tmp_path / "no such folder" / "log", LogSettings()):
        SAID.warning("nobody hears this")


def test_a_verb_that_a_person_runs_says_warnings_as_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    log_for_people()
    SAID.warning("redis://:hunter2@r/ cannot be reached")
    SAID.info("not of interest")
    assert capsys.readouterr().err == "drumlin: redis://***@r/ cannot be reached\n"


def test_the_last_words_of_a_process_are_in_its_log_if_that_is_in_json(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not log_last_words("nobody set up a log")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    log_to_stderr(LogSettings("json"))
    assert log_last_words("No space is left.")
    assert isinstance(sys.stderr, io.StringIO)
    said = json.loads(sys.stderr.getvalue())
    assert (said["event"], said["level"], said["message"]) == ("failed", "error", "No space is left.")
    assert message_of(sys.stderr.getvalue()) == "No space is left."
    assert message_of(" a plain line\n") == "a plain line"


def test_the_how_to_names_every_event() -> None:
    page = HOW_TO.read_text()
    assert [str(one) for one in Event if f"`{one}`" not in page] == []
