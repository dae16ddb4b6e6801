"""Retention is killed before each change of a file that it makes; whatever was done by then, the next run completes."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.lifecycle.retention.policy import Kind, Rule
from drumlin.lifecycle.retention.running import apply
from drumlin.store.files import DirectoryFiles
from tests.harness.aged import DAY_S
from tests.integration.test_retention import KILLED, WHO, Scene, check_ended_well, killed_run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CHANGES_MAX = 100


def test_a_run_may_be_killed_before_any_change(tmp_path: Path) -> None:
    """Also when the run that completes it is killed in its turn."""
    killed = 0
    for at in range(1, CHANGES_MAX):
        scene, cold = Scene(tmp_path / str(at) / "store"), tmp_path / str(at) / "cold"
        cold.mkdir()
        scene.rule(Kind.WARC)
        scene.rule(Kind.TEXT)
        scene.rule(Kind.TABLES, Rule(0.0, 40 * DAY_S, str(cold)))
        ended = killed_run(scene.root, at)
        if ended == 0:
            break
        assert ended == KILLED
        killed_run(scene.root, 2)
        apply(DirectoryFiles(scene.root), scene.root, WHO)
        check_ended_well(scene, cold)
        killed += 1
    assert CHANGES_MAX - 1 > killed > 10
