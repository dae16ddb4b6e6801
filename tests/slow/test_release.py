"""What a release consists of: two builds of one tree are the same, and the wheel is installed as a user does it, with
its extras and the constraints file, and crawls."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deploy import release
from drumlin import __version__
from drumlin.testing import FakeWeb
from tests.harness.shipped import DEPLOY

ROOT = DEPLOY.parent
UV = Path(sys.executable).with_name("uv")
TOOLS = ROOT / ".venv-deploy" / "bin" / "python"
BUILD_S_MAX = 300
INSTALL_S_MAX = 900
EPOCH = "1700000000"
PARTS = ("drumlin", "tests", "docs", "deploy", "requirements", "pyproject.toml", "README.md", "CHANGELOG.md", "LICENSE")


def build(tree: Path, out: Path) -> dict[str, bytes]:
    command = [str(UV), "build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", str(out)]
    environment = os.environ | {"SOURCE_DATE_EPOCH": EPOCH}
    subprocess.run(command, cwd=tree, env=environment, check=True, timeout=BUILD_S_MAX)
    return {path.name: path.read_bytes() for path in out.iterdir() if path.suffix in (".whl", ".gz")}


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same files twice, in folders of different names, with other times and other modes."""
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("another")
    for tree in (first, second):
        for name in PARTS:
            source = ROOT / name
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, tree / name, ignore=ignored) if source.is_dir() else shutil.copy(
                source, tree / name
            )
    for path in second.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(path.stat().st_mode & 0o700 | (0o040 if path.is_dir() else 0))
    return first, second


def test_two_builds_of_one_tree_are_the_same(trees: tuple[Path, Path], tmp_path: Path) -> None:
    first, second = (build(tree, tmp_path / tree.name) for tree in trees)
    assert sorted(first) == [f"drumlin-{__version__}-py3-none-any.whl", f"drumlin-{__version__}.tar.gz"]
    assert first == second


def test_a_user_installs_the_wheel_with_every_extra_and_crawls(trees: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "dist"
    [wheel] = [name for name in build(trees[0], out) if name.endswith(".whl")]
    extras = ",".join(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
    what = f"drumlin[{extras}] @ {(out / wheel).as_uri()}"
    constraints = ROOT / "requirements" / "constraints.txt"
    command = [str(UV), "tool", "install", "--quiet", "--python", sys.executable, "-c", str(constraints), what]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DRUMLIN_", "PYTHON"))}
    subprocess.run(command, env=clean | places, check=True, timeout=INSTALL_S_MAX, cwd=tmp_path)
    drumlin = str(tmp_path / "bin" / "drumlin")
    said = subprocess.run([drumlin, "--version"], env=clean, capture_output=True, text=True, check=True, cwd=tmp_path)
    assert __version__ in said.stdout
    assert_pinned(Path(tmp_path, "tools", "drumlin", "bin", "python"), constraints)
    with FakeWeb(hosts=0) as web:
        home = web.page("installed", "/", "home")
        crawl = [drumlin, "crawl", home, "--allow-private", "--delay", "0", "--nodes", "1", "--quiet"]
        subprocess.run(crawl, env=clean, check=True, timeout=INSTALL_S_MAX, cwd=tmp_path)
    assert json.loads((tmp_path / "crawl" / "report.json").read_text())["pages"] == 1


def assert_pinned(python: Path, constraints: Path) -> None:
    """Nothing is installed that the constraints do not name, in that version."""
    listed = subprocess.run(
        [str(UV), "pip", "list", "--quiet", "--format", "json", "--python", str(python)],
        capture_output=True,
        check=True,
    )
    installed = {f"{one['name'].lower()}=={one['version']}" for one in json.loads(listed.stdout)}
    pins = {line.split(";")[0].strip() for line in constraints.read_text().splitlines() if "==" in line}
    assert installed - pins == {f"drumlin=={__version__}"}


@pytest.mark.skipif(not TOOLS.exists(), reason="needs what describes a release: make deploy-tools")
def test_the_bill_of_materials_names_every_library_of_the_lock_file(tmp_path: Path) -> None:
    bills = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "drumlin.whl").write_bytes(b"wheel")
        command = [str(TOOLS), str(DEPLOY / "release.py"), str(tmp_path / name)]
        subprocess.run(command, check=True, timeout=BUILD_S_MAX)
        bills.append((tmp_path / name / f"drumlin-{__version__}.cdx.json").read_text())
        subprocess.run(["sha256sum", "--check", "--quiet", release.SUMS], cwd=tmp_path / name, check=True, timeout=60)
    assert bills[0] == bills[1]
    bill = json.loads(bills[0])
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", __version__)
    named = {f"{one['name']}=={one['version']}" for one in bill["components"]}
    pins = {line.split(";")[0].split("\\")[0].strip() for line in release.LOCK.read_text().splitlines() if "==" in line}
    assert named == {pin for pin in pins if not pin.startswith("#")}
