"""`make check-deploy`: every validator passes what is shipped, and refuses what is broken."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harness.shipped import DEPLOY

PYTHON = DEPLOY.parent / ".venv-deploy" / "bin" / "python"
CHECK_S_MAX = 600
BROKEN = {
    "container/Dockerfile": ("FROM ${PYTHON}\n", "FROM python:latest\n"),
    "compose/compose.yaml": ("  restart: unless-stopped\n", "  restarts: unless-stopped\n"),
    "systemd/drumlin-node@.service": ("ProtectSystem=strict", "ProtectSystems=strict"),
    "helm/drumlin/templates/disruption.yaml": ("maxUnavailable:", "maxUnavailables:"),
    "prometheus/alerts.yml": ("expr: ", "expr: ((("),
}

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="needs the validators: make deploy-tools")


def checked(folder: Path) -> tuple[int, str]:
    command = [str(PYTHON), str(folder / "check.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S_MAX, check=False)
    return done.returncode, done.stdout + done.stderr


def test_what_is_shipped_passes() -> None:
    code, said = checked(DEPLOY)
    assert code == 0, said
    assert said.count(": good\n") + said.count(": not checked, because") == len(BROKEN)


def test_every_kind_of_file_is_looked_at(tmp_path: Path) -> None:
    folder = tmp_path / "deploy"
    shutil.copytree(DEPLOY, folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, (before, after) in BROKEN.items():
        text = (folder / name).read_text()
        assert before in text
        (folder / name).write_text(text.replace(before, after, 1))
    code, said = checked(folder)
    assert code == 1
    assert said.count(": WRONG\n") + said.count(": not checked, because") == len(BROKEN), said
