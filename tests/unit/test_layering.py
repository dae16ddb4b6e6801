"""Imports point one way: from what a user touches down to the nouns. See ARCHITECTURE.md."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Container, Iterator, Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "drumlin"

# A unit may import the units of earlier rows, and itself.
LAYERS: list[set[str]] = [
    {"model", "errors", "protocol", "clock", "disk", "garbage_collection", "lines", "logs", "memory"}
    | {"http", "metrics", "tracing", "ui"},
    {"urls"},
    {"frontier", "robots", "dedupe"},
    {"engines", "fetch", "parse", "store"},
    {"config", "tls"},
    {"client", "contact", "events", "moving", "reading", "plan", "sql"},
    {"lifecycle"},
    {"pipeline"},
    {"access"},
    {"coordinator", "node"},
    {"api"},
    {"serving"},
    {"fleet"},
    {"local"},
    {"testing"},
    {"sim"},
    {"cli"},
]
# Exceptions to the rows. Settings stand beside the packages that do the work: they know only nouns (and the product
# token of robots, and types), so anything from the pipeline up can use them without pulling in a parser.
ALLOWED = {
    "model": set[str](),
    "errors": {"model"},
    "protocol": {"model", "errors"},
    "clock": set[str](),
    "disk": {"errors"},
    "garbage_collection": set[str](),
    "memory": set[str](),
    "lines": set[str](),
    "logs": {"lines"},
    "tracing": {"errors", "logs"},
    "http": set[str](),
    "metrics": {"errors", "clock", "http", "logs"},
    # The dashboard's files, which browsers load.
    "ui": set[str](),
    "config": {"model", "errors", "lines", "urls", "robots", "http", "logs"},
    "tls": {"errors", "disk"},
    # The law of contact knows no clock and no fetcher: those who perform what it decides do.
    "contact": {"model", "errors", "protocol", "http", "urls", "frontier", "robots", "config"},
    "sql": {"errors", "disk", "store"},
    # Planning multiplies. It knows what an engine can be told to remember, and nothing else of what it plans.
    "plan": {"errors", "lines", "config", "engines"},
}
# Core code takes time and chance as arguments, so tests and a simulator can run it in virtual time.
PURE = {"http", "urls", "frontier", "engines", "dedupe", "robots", "contact", "plan"}
# What stands between them and an event loop: a network client, and the adapter for code that has no loop.
IMPURE_FILES = {"engines/blocking.py", "engines/redis/engine.py", "engines/redis/check.py", "engines/redis/client.py"}
IMPURE_MODULES = {"time", "random", "asyncio", "secrets", "uuid", "socket", "selectors", "ssl", "threading", "pycurl"}
IMPURE_UNITS = {"clock"}

# A package whose files do not fit on one screen hides more than one thing. The command line has a file for each verb.
PACKAGE_FILES_MAX = 15
WIDE_PACKAGES = {"cli"}

# Hypothesis drives the engines' conformance suite, which only authors of engines import.
# OpenTelemetry comes with the extra `otel`, and one file imports it.
# confluent-kafka comes with the extra `kafka`, and one file imports it; obstore with the extra `s3`.
OPTIONAL_LIBRARIES = {"hypothesis", "pytest", "opentelemetry", "confluent_kafka", "obstore"}

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
    source = path.read_text()
    roots = {module.split(".")[0] for module in imported_modules(source)}
    assert not roots & IMPURE_MODULES
    assert not imported_units(source) & IMPURE_UNITS


def test_every_library_imported_is_a_declared_dependency() -> None:
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text())["project"]
    declared = {_normal(re.split(r"[<>=!~;\[ ]", dependency)[0]) for dependency in project["dependencies"]}
    imported = {module.split(".")[0] for path in FILES for module in imported_modules(path.read_text())}
    libraries = imported - sys.stdlib_module_names - {"drumlin"} - OPTIONAL_LIBRARIES
    owners = importlib.metadata.packages_distributions()
    missing = [name for name in libraries if not declared & {_normal(owner) for owner in owners.get(name, [])}]
    assert sorted(missing) == [], "add to pyproject.toml and run `make lock`"


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """The modules among `sources` that each of them imports, wherever in its file: under `TYPE_CHECKING` too."""
    return {module: _imported_among(sources, module, source) for module, source in sources.items()}


def _imported_among(modules: Container[str], importer: str, source: str) -> set[str]:
    # `from drumlin.fetch import http` may name a module, or something inside the package: the longest module counts.
    found = (_longest_module(modules, name) for name in imported_modules(source))
    return {module for module in found if module and module != importer}


def _longest_module(modules: Container[str], name: str) -> str:
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name


def knots_of(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """The groups of modules that import each other, directly or not."""
    reached = {module: _reached_from(graph, module) for module in graph}
    groups = {
        frozenset({module, *(other for other in reached[module] if module in reached[other])}) for module in graph
    }
    return [set(group) for group in groups if len(group) > 1]


def _reached_from(graph: Mapping[str, set[str]], start: str) -> set[str]:
    reached, ahead = set[str](), [start]
    while ahead:
        new = graph[ahead.pop()] - reached
        reached |= new
        ahead += new
    return reached


def test_no_modules_import_each_other() -> None:
    knots = knots_of(import_graph({module_of(path): path.read_text() for path in FILES}))
    assert [sorted(knot) for knot in knots] == []


def test_a_package_has_few_enough_files_to_be_read_as_one_thing() -> None:
    folders = sorted({path.parent for path in FILES})
    names = {folder.relative_to(PACKAGE).as_posix(): len(list(folder.glob("*.py"))) for folder in folders}
    crowded = {name for name, files in names.items() if files > PACKAGE_FILES_MAX} - WIDE_PACKAGES
    assert crowded == set(), "split it by meaning"


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def test_the_checker_sees_every_form_of_import() -> None:
    source = "import drumlin.fetch.http\nfrom drumlin import store\ndef f():\n    from drumlin.parse import page\n"
    assert imported_units(source) == {"fetch", "store", "parse"}


def test_the_checker_sees_a_ring_of_imports_that_only_types_need() -> None:
    sources = {
        "drumlin.web": "from drumlin import sites",
        "drumlin.sites": "from drumlin.site import Site",
        "drumlin.site": "if TYPE_CHECKING:\n    from drumlin.web import Web",
        "drumlin.alone": "from drumlin.web import Web",
    }
    assert knots_of(import_graph(sources)) == [{"drumlin.web", "drumlin.sites", "drumlin.site"}]


def test_a_lower_layer_may_not_import_a_higher_one() -> None:
    assert "pipeline" not in allowed_for("store")
    assert "frontier" in allowed_for("engines")
    assert "engines" not in allowed_for("config")
