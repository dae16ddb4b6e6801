"""The first sentence of a report: how the crawl ended, or that it has not."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from drumlin.cli.summary import print_report
from drumlin.coordinator.api_people import STOPPED_BY_PERSON
from drumlin.coordinator.report import make_report
from drumlin.engines.blocking import drive
from drumlin.engines.memory import MemoryEngine


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
