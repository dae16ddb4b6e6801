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
def test_curl_alone_enqueues_takes_returns_and_sees_it_done(tmp_path: Path) -> None:
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
