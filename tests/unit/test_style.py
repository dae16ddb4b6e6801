"""The parts of the style that a program can check, as ratchets: lower the numbers, never raise them."""

from __future__ import annotations

import ast
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from drumlin.config import CrawlConfig, ProcessConfig
from drumlin.engines.base import Engine
from tests.harness.dead_code import dead

ROOT = Path(__file__).parents[2]
FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
LUA_FUNCTION_LINES_MAX = 32
LUA_FILE_LINES_MAX = 230
# A function of a Lua file stands at the margin, and so does its end.
LUA_FUNCTION = re.compile(r"^(?:local )?function (\w+)\(.*?^end$", re.MULTILINE | re.DOTALL)
LUA_COMMENT = re.compile(r"--\[\[.*?\]\]|--[^\n]*", re.DOTALL)
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "misc", "common", "manager"}
# A committed file must make sense on any machine: no home directories, no registries.
# A path of the API with the same word in it is not a folder.
MACHINE_PATHS = re.compile(r"(?<![\w}])/(?:root|home/\w+|work)/\w+")

# What nothing in drumlin/ calls and yet is not dead, by who calls it. Whole packages are given by their names.
CALLED_BY_OTHERS = {
    "programs of users": {"drumlin.testing", "drumlin.engines.conformance"},
    "uvicorn": {
        *(f"drumlin.api.wire.LimitedProtocol.{name}" for name in ("connection_made", "connection_lost")),
        *(f"drumlin.api.wire.LimitedProtocol.{name}" for name in ("data_received", "on_message_begin")),
        *(f"drumlin.api.wire.LimitedProtocol.{name}" for name in ("on_headers_complete", "send_400_response")),
        *(f"drumlin.api.wire.LimitedProtocol.{name}" for name in ("pause_writing", "resume_writing", "eof_received")),
        "drumlin.serving.service._Server.capture_signals",
    },
    "asyncio": {
        f"drumlin.engines.redis.client.Connection.{name}"
        for name in ("connection_made", "connection_lost", "data_received")
    }
    | {f"drumlin.sim.machines.loop.VirtualLoop.{name}" for name in ("get_debug", "_timer_handle_cancelled")},
    "click": {
        *(f"drumlin.cli.help.Verb.{name}" for name in ("format_options", "format_epilog")),
        *(f"drumlin.cli.help.VerbFamily.{name}" for name in ("command_class", "format_commands")),
        *(f"drumlin.cli.main.VerbGroup.{name}" for name in ("resolve_command", "format_commands")),
        "drumlin.cli.remote.ListsByDefault.parse_args",
    },
    "socketserver": {
        *(f"drumlin.metrics.server._Server.{name}" for name in ("allow_reuse_address", "daemon_threads")),
        *(f"drumlin.metrics.server._Server.{name}" for name in ("verify_request", "close_request", "handle_error")),
        "drumlin.metrics.server._Server6.address_family",
    },
    "urllib": {"drumlin.store.objects.uploads._StayHere.redirect_request"},
    "io": {
        *(f"drumlin.store.objects.bucket._Ranges.{name}" for name in ("readable", "seekable", "readinto")),
        "drumlin.cli.main._ClosedOutput.writable",
    },
    "logging": {
        *(f"drumlin.logs.destinations.{name}.handleError" for name in ("_Stderr", "_File")),
        *(f"drumlin.logs.destinations.{name}.emit" for name in ("_Telling", "_File")),
    },
    "OpenTelemetry": {
        *(f"drumlin.tracing.spans._Told.{name}" for name in ("export", "force_flush")),
        "drumlin.tracing.spans._Ids.generate_trace_id",
    },
    "bench.engines, which waits until RocksDB has come to rest": {"drumlin.engines.rocksdb.engine.RocksEngine.at_rest"},
}

FILES = sorted((ROOT / "drumlin").rglob("*.py"))
LUA_FILES = sorted((ROOT / "drumlin").rglob("*.lua"))


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


def lua_functions(source: str) -> dict[str, int]:
    """The functions of a Lua file and how many lines each has."""
    return {found[1]: len(found[0].splitlines()) for found in LUA_FUNCTION.finditer(source)}


@pytest.mark.parametrize("path", LUA_FILES, ids=name_of)
def test_a_lua_file_is_short_and_so_are_its_functions(path: Path) -> None:
    source = path.read_text()
    assert len(source.splitlines()) <= LUA_FILE_LINES_MAX
    assert {name: lines for name, lines in lua_functions(source).items() if lines > LUA_FUNCTION_LINES_MAX} == {}


@pytest.mark.parametrize("path", LUA_FILES, ids=name_of)
def test_every_lua_file_says_what_it_is_for(path: Path) -> None:
    lines = path.read_text().removeprefix("#!lua name=drumlin_@VERSION@\n").splitlines()
    assert lines[0].startswith("--"), "open with a comment"


def test_no_lua_function_is_dead() -> None:
    sources = {path: path.read_text() for path in LUA_FILES}
    words = Counter(word for source in sources.values() for word in re.findall(r"\w+", LUA_COMMENT.sub("", source)))
    assert [name for source in sources.values() for name in lua_functions(source) if words[name] < 2] == []


def test_the_checker_measures_lua_functions() -> None:
    source = "local function one(a)\n  if a then\n    return\n  end\nend\n\nlocal function two()\nend\n"
    assert lua_functions(source) == {"one": 5, "two": 2}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "open with a docstring"


def test_every_package_has_an_init_file() -> None:
    folders = {path.parent for path in FILES}
    assert [name_of(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


def test_no_module_has_a_vague_name() -> None:
    assert [name_of(path) for path in FILES if path.stem in VAGUE_NAMES or path.parent.name in VAGUE_NAMES] == []


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_child_process_imports_nothing_from_the_working_directory(path: Path) -> None:
    """`python -m` alone would run a `drumlin.py` that somebody put there; with -P it does not."""
    assert re.findall(r'(?<!"-P", )"-m"', path.read_text()) == []


def test_no_committed_file_names_this_machine() -> None:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if listing.returncode != 0:
        pytest.skip("not a git working tree")
    names = [
        name for name in listing.stdout.decode().split("\0") if name.endswith((".py", ".md", ".toml", ".txt", ".sh"))
    ]
    present = [ROOT / name for name in names if (ROOT / name).exists()]
    assert [name_of(path) for path in present if MACHINE_PATHS.search(path.read_text(errors="replace"))] == []


def sources_of_the_product() -> dict[str, str]:
    modules = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in FILES}
    return {module.removesuffix(".__init__"): path.read_text() for path, module in modules.items()}


def test_nothing_is_dead() -> None:
    assert dead(sources_of_the_product(), set[str]().union(*CALLED_BY_OTHERS.values())) == []


def test_every_exception_for_dead_code_is_still_needed() -> None:
    without = [f"{name}." for name in dead(sources_of_the_product())]
    names = sorted(set[str]().union(*CALLED_BY_OTHERS.values()))
    assert [name for name in names if not any(found.startswith(f"{name}.") for found in without)] == []


def test_every_setting_is_read() -> None:
    """The finder of dead code passes over the fields of classes. A setting that nothing reads is a broken promise."""
    read = set(re.findall(r"\.(\w+)", "\n".join(sources_of_the_product().values())))
    fields = (*CrawlConfig.__struct_fields__, *ProcessConfig.__struct_fields__)
    assert [name for name in fields if name not in read] == []


def test_every_call_of_the_contract_of_engines_is_made() -> None:
    """The finder takes a method for used when anything calls one of its name. What engines must do is dear enough to
    look closer: something outside must call it on an engine."""
    sources = sources_of_the_product()
    outside = "\n".join(text for module, text in sources.items() if not module.startswith("drumlin.engines"))
    called = set(re.findall(r"engine\.(\w+)", outside))
    spared = {name.rpartition(".")[2] for name in set[str]().union(*CALLED_BY_OTHERS.values())}
    wanted = {name for name in vars(Engine) if not name.startswith("_")}
    assert wanted - called - spared == set()


PLANTED = {
    "shop.prices": """
LIMIT = 3
UNREAD = 4

class Price:
    currency: str

    def total(self): return min(LIMIT, 1)
    def rounded(self): return self.rounded()

def price_of(): return Price().total()
def forgotten(): return _only_by_the_forgotten()
def _only_by_the_forgotten(): return 1
""",
    "shop.stock": "def price_of(): return 2\n@app.command()\ndef show(): return price_of()\n",
    "shop": "from shop.prices import price_of, forgotten\n__all__ = ['price_of', 'forgotten']\n",
    "shop.till": "from shop import price_of as asked\nimport shop.stock\nasked()\nforgotten = 5\nprint(forgotten)\n",
}


def test_the_checker_finds_what_was_planted_dead_and_nothing_else() -> None:
    assert dead(PLANTED) == [
        "shop.prices.Price.rounded",
        "shop.prices.UNREAD",
        "shop.prices._only_by_the_forgotten",
        "shop.prices.forgotten",
    ]


def test_what_is_spared_keeps_alive_what_it_calls() -> None:
    assert dead(PLANTED, {"shop.prices.forgotten"}) == ["shop.prices.Price.rounded", "shop.prices.UNREAD"]


REPEATED_GROUP = re.compile(r"(?<!\()\)(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\+(?!,)")
SIMPLE_GROUPS = {r"(?:[\x21-\x7e]{2})++"}
"""Groups that Python before 3.11.5 repeats as it should: nothing in them can match in part."""


@pytest.mark.parametrize("path", sorted((ROOT / "drumlin").rglob("*.py")), ids=lambda path: path.stem)
def test_no_pattern_repeats_a_group_possessively(path: Path) -> None:
    """Python before 3.11.5, which Debian 12 has, forgets to go back after `(...)*+` has matched a part of what it
    repeats (python/cpython#106052). `(?>(?:...)*)` means the same."""
    texts = [node.value for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.Constant)]
    patterns = [text.decode("latin-1") if isinstance(text, bytes) else text for text in texts if text]
    found = [one for one in patterns if isinstance(one, str) and REPEATED_GROUP.search(one)]
    assert [one for one in found if one not in SIMPLE_GROUPS] == []
