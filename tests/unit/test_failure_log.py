"""Failures of nodes are logged, but no node can fill the log with them."""

from __future__ import annotations

import logging

import pytest

from drumlin.protocol import Failure
from drumlin.serving.failure_log import NODES_TOLD_MAX, TOLD_EVERY_S, FailureLog


def failure(node_id: str) -> Failure:
    return Failure("No space is left.", "Free some.", 3, node_id)


def test_a_node_that_reports_without_end_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for second in range(int(TOLD_EVERY_S) + 1):
        failures.note(failure("n1"), 1_000.0 + second)
    failures.note(failure("n2"), 1_000.0 + TOLD_EVERY_S)
    assert [entry.getMessage() for entry in caplog.records] == [
        "node n1 failed: No space is left. Free some.",
        "node n1 failed: No space is left. Free some. (59 more failures of nodes were not logged)",
        "node n2 failed: No space is left. Free some.",
    ]
    assert {entry.levelno for entry in caplog.records} == {logging.ERROR}


def test_nodes_that_somebody_made_up_share_one_limit(caplog: pytest.LogCaptureFixture) -> None:
    failures = FailureLog()
    for number in range(10 * NODES_TOLD_MAX):
        failures.note(failure(f"n{number}"), 1_000.0)
    assert len(caplog.records) == NODES_TOLD_MAX
    assert len(failures._told) == NODES_TOLD_MAX
    failures.note(failure("later"), 1_000.0 + TOLD_EVERY_S)
    assert "node later failed" in caplog.records[-1].getMessage()
