"""The fleet tutorial's commands, run as written, on a port that is free."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from drumlin.fleet.cluster import free_ports
from tests.harness.fleet import drumlin, needs_redis

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial" / "fleet.md"
PORT = "8765"
BLOCK_S_MAX = 240.0


@needs_redis
def test_every_command_of_the_fleet_tutorial_works(tmp_path: Path) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", TUTORIAL.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 6
    port = str(free_ports(1)[0])
    try:
        for block in blocks:
            done = run(tmp_path, block.replace(PORT, port))
            assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
            assert done.stdout.strip()
    finally:
        end_what_is_left(tmp_path)


def run(folder: Path, block: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=BLOCK_S_MAX,
        check=False,
    )


def end_what_is_left(folder: Path) -> None:
    """End the fleet and the site, which a failed block leaves running."""
    if (folder / "fleet").exists():
        drumlin(folder, "fleet", "down", "--kill")
    if (folder / "site.pid").exists():
        pid = int((folder / "site.pid").read_text())
        with suppress(OSError):
            # If the last block has ended the site, another process may have its number now.
            if b"http.server" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
