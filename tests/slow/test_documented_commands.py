"""The pages of the docs whose commands take minutes, run as written. The others are in tests/acceptance."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.documented import ROOT, script
from tests.harness.scenes import SCENES
from tests.harness.sealed import needs_sealing, sealed

PAGE_S_MAX = 1800.0


@needs_sealing
@pytest.mark.timeout(2000)
@pytest.mark.parametrize("name", [name for name, scene in SCENES.items() if scene.slow])
def test_every_command_of_the_page_works(tmp_path: Path, name: str) -> None:
    done = sealed(script(ROOT / name, SCENES[name]), tmp_path, PAGE_S_MAX)
    assert done.returncode == 0, done.stdout[-5000:]
    assert "@@ the end" in done.stdout
    assert "Traceback" not in done.stdout
