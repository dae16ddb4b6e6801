"""Temporary folders: what a killed process has left goes, and what somebody works in stays. Files whose names users
give: only plain files are replaced."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from drumlin.disk import AppendFile, discard_temporary, plain_target, temporary_folder, write_whole
from drumlin.errors import ConfigError, StorageError

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


def test_a_file_that_a_user_names_is_written_through_its_symlink(tmp_path: Path) -> None:
    real, link = tmp_path / "real.svg", tmp_path / "link.svg"
    link.symlink_to("real.svg")
    write_whole(plain_target(link), b"first")
    write_whole(plain_target(link), b"second")
    assert link.is_symlink()
    assert real.read_bytes() == b"second"


def test_a_pipe_or_a_folder_is_never_replaced(tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    for path in (pipe, link, tmp_path):
        with pytest.raises(ConfigError, match="is not a plain file"):
            plain_target(path)
    assert pipe.is_fifo()


def test_a_folder_that_is_missing_is_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"There is no folder .*gone\. Make it"):
        plain_target(tmp_path / "gone" / "fleet.svg")
    (tmp_path / "ring").symlink_to("ring")
    with pytest.raises(ConfigError, match="Too many levels of symbolic links"):
        plain_target(tmp_path / "ring")


def test_a_failed_write_names_the_file_that_was_wanted_and_leaves_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: AppendFile, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(AppendFile, "_write", fail)
    with pytest.raises(StorageError, match=r"Cannot write \S*/fleet\.svg: the disk is full\."):
        write_whole(tmp_path / "fleet.svg", b"picture")
    assert list(tmp_path.iterdir()) == []
