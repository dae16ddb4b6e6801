"""The commands of the tutorials for one machine, run as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorial"
TIMEOUT_S = 180


@pytest.mark.parametrize("name", ["first-crawl.md", "sql.md"])
def test_every_command_of_the_tutorial_works(tmp_path: Path, name: str) -> None:
    blocks = re.findall(r"^```sh\n(.*?)^```", (TUTORIALS / name).read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 4
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
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
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        assert done.stdout.strip()
