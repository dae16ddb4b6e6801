"""The commands of the curl tutorial, run as written, on ports of their own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.outputs import check_rows_lead_to_records, query

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "curl.md"
TIMEOUT_S = 120
PORTS = ("8700", "8701")


def free_ports() -> list[str]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in PORTS]
    ports = [str(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports


@pytest.mark.timeout(400)
def test_curl_alone_enqueues_takes_and_returns_a_page_that_is_then_a_row_with_its_text(tmp_path: Path) -> None:
    text = TUTORIAL.read_text()
    for named, free in zip(PORTS, free_ports(), strict=True):
        text = text.replace(named, free)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 8
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    try:
        for block in blocks:
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", block],
                cwd=tmp_path,
                env=os.environ | {"PATH": path},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}\n{_logs(tmp_path)}"
            assert done.stdout.strip(), block
        store = tmp_path / "store"
        row = ("me", 200, "One", "The first page of two. two")
        assert query(store, "SELECT node, fetch_status, title, text FROM {pages}") == [row]
        assert check_rows_lead_to_records(store) == 1
    finally:
        _end(tmp_path)


def _logs(folder: Path) -> str:
    return "\n".join(path.read_text() for path in folder.glob("*.log"))


def _end(folder: Path) -> None:
    """Whatever the tutorial started is gone afterwards, also when it failed half-way."""
    for path in folder.glob("*.pid"):
        try:
            os.kill(int(path.read_text()), signal.SIGKILL)
        except (ProcessLookupError, ValueError):
            continue
