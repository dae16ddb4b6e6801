"""Asking a coordinator from a command line."""

from __future__ import annotations

import socket

import pytest

from drumlin.client import remote
from drumlin.client.remote import CoordinatorError, Remote


def test_who_waits_for_a_coordinator_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(remote, "SLOW_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(CoordinatorError, match="does not answer"):
            Remote([endpoint], timeout_s=1.0).get("/healthz")
    assert capsys.readouterr().err == f"Waiting for the coordinator at {endpoint}, up to 1 s.\n"


def test_a_coordinator_that_cannot_be_reached_at_all_is_not_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        endpoint = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(CoordinatorError, match="No coordinator listens"):
        Remote([endpoint]).get("/healthz")
    assert capsys.readouterr().err == ""
