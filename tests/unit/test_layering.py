"""Imports point one way: from what a user touches down to the nouns. See ARCHITECTURE.md."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "drumlin"

# A unit may import the units of earlier rows, and itself.
LAYERS: list[set[str]] = [
    {"model", "errors", "protocol", "signing", "clock", "garbage", "lines", "http"},
    {"urls"},
    {"frontier", "robots", "dedupe"},
    {"engines", "fetch", "parse", "store"},
    {"config", "telemetry", "tls"},
    {"pipeline"},
    {"coordinator", "node"},
    {"processes"},
    {"local", "fleet"},
    {"standing"},
    {"testing"},
    {"cli", "dashboard", "sim"},
]
# Exceptions to the rows. Settings and telemetry stand beside the packages that do the work: they know only nouns (and
# the product token of robots), so that anything from the pipeline up can use them without pulling in a parser.
ALLOWED = {
    "model": set[str](),
    "errors": set[str](),
    "protocol": {"model", "errors"},
    "signing": {"errors"},
    "clock": set[str](),
    "garbage": set[str](),
    "lines": set[str](),
    "http": set[str](),
    "config": {"model", "errors", "urls", "robots"},
    "telemetry": {"model", "errors"},
    "tls": {"errors"},
}
# Core code takes the time and chance as arguments, so that the simulator can run it in virtual time.
PURE = {"urls", "frontier", "engines", "dedupe", "robots"}
# What stands between them and an event loop: a network client, and the adapter for code that has no loop.
IMPURE_FILES = {"engines/blocking.py", "engines/redis.py", "engines/redis_check.py", "engines/redis_client.py"}
IMPURE_MODULES = {"time", "random", "asyncio", "secrets", "uuid"}

# Hypothesis drives the engines' conformance suite, which only authors of engines import.
OPTIONAL_LIBRARIES = {"hypothesis", "pytest"}

FILES = sorted(PACKAGE.rglob("*.py"))


def unit_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def impure(path: Path) -> bool:
    return path.relative_to(PACKAGE).as_posix() in IMPURE_FILES


def allowed_for(unit: str) -> set[str]:
    if unit in ALLOWED:
        return ALLOWED[unit]
    depth = next(depth for depth, layer in enumerate(LAYERS) if unit in layer)
    return set[str]().union(*LAYERS[:depth])


def imported_modules(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            # `from drumlin import robots` imports a unit, `from drumlin import __version__` none.
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_units(source: str) -> set[str]:
    parts = [module.split(".") for module in imported_modules(source)]
    return {part[1] for part in parts if part[0] == "drumlin" and len(part) > 1 and part[1] != "__version__"}


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE.parent))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_one_way(path: Path) -> None:
    unit = unit_of(path)
    if unit in {"__init__", "__main__"}:
        return
    assert any(unit in layer for layer in LAYERS), f"give {unit!r} a place in LAYERS, and in ARCHITECTURE.md"
    wrong = imported_units(path.read_text()) - allowed_for(unit) - {unit}
    assert not wrong, f"{name_of(path)} may not import {sorted(wrong)}"


@pytest.mark.parametrize("path", [path for path in FILES if unit_of(path) in PURE and not impure(path)], ids=name_of)
def test_core_code_takes_time_and_chance_as_arguments(path: Path) -> None:
    roots = {module.split(".")[0] for module in imported_modules(path.read_text())}
    assert not roots & IMPURE_MODULES


def test_every_library_imported_is_a_declared_dependency() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    declared = {_normal(re.split(r"[<>=!~;\[ ]", dependency)[0]) for dependency in project["dependencies"]}
    imported = {module.split(".")[0] for path in FILES for module in imported_modules(path.read_text())}
    libraries = imported - sys.stdlib_module_names - {"drumlin"} - OPTIONAL_LIBRARIES
    owners = importlib.metadata.packages_distributions()
    missing = [name for name in libraries if not declared & {_normal(owner) for owner in owners.get(name, [])}]
    assert sorted(missing) == [], "add to pyproject.toml and run `make lock`"


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_the_checker_sees_every_form_of_import() -> None:
    source = "import drumlin.fetch.http\nfrom drumlin import store\ndef f():\n    from drumlin.parse import page\n"
    assert imported_units(source) == {"fetch", "store", "parse"}


def test_a_lower_layer_may_not_import_a_higher_one() -> None:
    assert "pipeline" not in allowed_for("store")
    assert "frontier" in allowed_for("engines")
    assert "engines" not in allowed_for("config")
