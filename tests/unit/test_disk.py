"""Temporary folders: what a killed process has left goes, and what somebody works in stays."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from drumlin.disk import discard_temporary, temporary_folder

WORKING = """
import sys, time
from drumlin.disk import temporary_folder
with temporary_folder("remove") as folder:
    (folder / "old").write_bytes(b"a page")
    print(folder, flush=True)
    time.sleep(600)
"""


def test_what_a_killed_process_has_left_goes_with_the_next_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    command = [sys.executable, "-c", WORKING]
    environment = {"TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        left = Path(process.stdout.readline().strip())
        # As long as it lives, nobody takes its folder away.
        discard_temporary()
        assert (left / "old").exists()
        process.send_signal(signal.SIGKILL)
        process.wait()
    (tmp_path / "drumlin-remove-of-others").symlink_to(tmp_path)
    with temporary_folder("sql") as mine:
        assert not left.exists()
        (mine / "pages").write_bytes(b"")
    assert [path.name for path in tmp_path.iterdir()] == ["drumlin-remove-of-others"]
