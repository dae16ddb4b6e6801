"""The parts of the style that a program can check, as ratchets: lower the numbers, never raise them."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}
# A committed file must make sense on any machine: no home directories, no registries.
# A path of the API that goes on with /work/ is no place on a disk.
MACHINE_PATHS = re.compile(r"(?<![\w}])/(?:root|home/\w+|work)/\w+")

FILES = sorted((ROOT / "drumlin").rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= FILE_LINES_MAX


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_function_is_short(path: Path) -> None:
    functions = [
        n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = {f.name: f.end_lineno - f.lineno + 1 for f in functions if f.end_lineno is not None}
    assert {name: lines for name, lines in long.items() if lines > FUNCTION_LINES_MAX} == {}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "open with a docstring"


def test_every_package_has_an_init_file() -> None:
    folders = {path.parent for path in FILES}
    assert [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_module_has_a_vague_name() -> None:
    assert [name_of(path) for path in FILES if path.stem in VAGUE_NAMES or path.parent.name in VAGUE_NAMES] == []


def test_no_committed_file_names_this_machine() -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git working tree")
    names = [
        name for name in listing.stdout.decode().split("\0") if name.endswith((".py", ".md", ".toml", ".txt", ".sh"))
    ]
    present = [ROOT / name for name in names if (ROOT / name).exists()]
    assert [name_of(path) for path in present if MACHINE_PATHS.search(path.read_text(errors="replace"))] == []
