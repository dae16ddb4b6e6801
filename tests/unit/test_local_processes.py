"""The processes of a local crawl's nodes, and what their logs have when one dies."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from drumlin.errors import EXIT_INTERNAL
from drumlin.local import processes
from drumlin.local.processes import NodeProcess, fork_node, start_node
from drumlin.logs.formats import TRACEBACK_MARK
from drumlin.node.main import NodeOptions

FORGED = "2026-11-16 10:00:00,000 INFO drumlin.audit: forged"


def options(folder: Path) -> NodeOptions:
    return NodeOptions("n0", "unix:nowhere", folder, 1, False)


async def ended(node: NodeProcess) -> int:
    return await node.wait()


def test_the_traceback_of_a_dead_node_has_no_secret_and_no_line_like_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: NodeOptions) -> None:
        raise SystemExit(f"redis://:hunter2@redis-1/ failed\n{FORGED}\x1b[2J")

    monkeypatch.setattr(processes, "run_node", broken)
    log = tmp_path / "n0.log"
    with socket.socket() as listener:
        node = fork_node(options(tmp_path), log, listener)
    assert asyncio.run(ended(node)) == EXIT_INTERNAL
    lines = log.read_text().splitlines()
    assert f"{TRACEBACK_MARK}{FORGED}\\x1b[2J" in lines
    assert all(line.startswith(TRACEBACK_MARK) for line in lines)
    assert "hunter2" not in log.read_text()


def test_a_node_imports_nothing_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "drumlin.py").write_text("raise SystemExit('this file is not the drumlin that was started')\n")
    (tmp_path / "store").write_text("a file where the node needs a folder, so it ends soon")
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "n0.log"
    reader, writer = os.pipe()
    try:
        asyncio.run(ended(start_node(options(tmp_path / "store"), log, writer)))
    finally:
        os.close(reader)
        os.close(writer)
    assert '"event":"failed"' in log.read_text()
