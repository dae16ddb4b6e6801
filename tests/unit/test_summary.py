"""The first sentence of a report: how the crawl ended, or that it has not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from drumlin.api.calls.people import STOPPED_BY_PERSON
from drumlin.api.explaining.report import Report, make_report
from drumlin.cli.figures import pace
from drumlin.cli.summary import ending, print_report
from drumlin.config.record import CrawlRecord, Run
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine


@pytest.mark.parametrize(
    ("state", "reason", "pending", "said"),
    [
        ("finished", "", 0, "Finished: nothing is left to fetch."),
        ("finished", "", 2, "Finished, but 2 URLs are left: added since then, or beyond the budget of a host."),
        ("running", "", 2, "The crawl is running, not finished: 2 URLs are left. `drumlin resume` goes on"),
        ("paused", "", 2, "The crawl is paused, not finished: 2 URLs are left."),
        ("draining", "pages_max", 2, "Stopped by --pages-max: 2 URLs are left. Raise it"),
        ("draining", STOPPED_BY_PERSON, 2, "Stopped by an operator: 2 URLs are left. `drumlin resume` goes on"),
    ],
)
def test_only_a_crawl_that_has_ended_is_called_finished(state: str, reason: str, pending: int, said: str) -> None:
    report = drive(make_report(MemoryEngine(1), state, reason, 1.0))
    report.pages, report.urls_pending = 1, pending
    shown = io.StringIO()
    print_report(Console(file=shown, width=200), report, Path("store"))
    assert shown.getvalue().startswith(said)


def printed(report: Report, width: int = 80) -> str:
    shown = io.StringIO()
    print_report(Console(file=shown, width=width), report, Path("docs"))
    return shown.getvalue()


def test_a_report_ends_with_the_commands_that_make_sense_next() -> None:
    report = drive(make_report(MemoryEngine(1), "finished", "", 2.0))
    report.pages, report.urls, report.bytes, report.pages_per_s = 5_296, 5_608, 4_600_000, 11.8
    report.crawl = CrawlRecord(runs=[Run("2026-01-01T00:00:00Z", "0.1.0")])
    said = printed(report)
    assert "5,296 of 5,608 URLs known · 4.6 MB" in said
    assert "drumlin open docs" in said
    assert "drumlin query --out docs" in said
    assert "dead-letters" not in said, "nothing was given up"
    assert "duplicates" not in said, "what did not happen is left out"
    report.dead_letters = {"http_5xx": 126}
    said = printed(report)
    assert "126 the site reported an error of its own" in said
    assert "drumlin dead-letters --out docs  why 126 URLs were given up" in said
    assert max(map(len, said.splitlines())) <= 80


def test_a_fleets_report_names_no_command_that_does_not_know_its_store() -> None:
    report = drive(make_report(MemoryEngine(1), "finished", "", 2.0))
    report.pages = 1
    said = printed(report)
    assert "drumlin query --out docs" in said
    assert "drumlin open" not in said


def test_a_crawl_on_one_machine_is_gone_on_with_by_its_own_command() -> None:
    report = drive(make_report(MemoryEngine(1), "draining", STOPPED_BY_PERSON, 1.0))
    report.crawl = CrawlRecord(runs=[Run("2026-01-01T00:00:00Z", "0.1.0")])
    assert ending(report).endswith("The same `drumlin crawl` command goes on.")
    report.crawl = CrawlRecord()
    assert ending(report).endswith("`drumlin resume` goes on.")


def test_a_slow_crawl_has_a_speed() -> None:
    assert [pace(per_s) for per_s in (0.0, 0.02, 0.46, 9.96, 12.4, 1234.5)] == [
        "0",
        "0.02",
        "0.5",
        "10.0",
        "12",
        "1,234",
    ]
