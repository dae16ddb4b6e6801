"""Every verb follows drumlin.toml and the variables as `crawl` does: real coordinators, nodes and commands."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK, EXIT_USAGE
from drumlin.testing import FakeWeb
from tests.acceptance.commands import TIMEOUT_S, drumlin, environment
from tests.harness.crawls import Crawl, benchmark_web, kill_process, wait_until
from tests.harness.standing import free_port

SETTINGS = """
[crawl]
allow_private = true
delay = 0

[process]
engine = "rocksdb:frontier"
concurrency = 16

[coordinator]
listen = "127.0.0.1:{port}"
auth = false
store = "store"
finish = true

[client]
coordinator = "http://127.0.0.1:{port}"

[node]
store = "store"
name = "named-by-file"
"""
CRAWL_S_MAX = 120.0


@contextmanager
def coordinator(folder: Path, *arguments: str, more: Mapping[str, str] = {}) -> Iterator[str]:
    """`drumlin coordinator` at work; what it said when it was ready."""
    command = [sys.executable, "-m", "drumlin", "coordinator", "--log-format", "human", *arguments]
    with subprocess.Popen(
        command, cwd=folder, env=environment(folder, more), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        try:
            yield process.stderr.readline()
        finally:
            process.terminate()


def names_of_nodes(folder: Path) -> set[str]:
    return {path.name for path in (folder / "store" / "nodes").iterdir()}


def test_a_crawl_by_a_coordinator_and_a_node_that_are_told_everything_by_drumlin_toml(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text(SETTINGS.format(port=free_port()))
    with FakeWeb(hosts=0) as web:
        seed = web.page("shop", "/", "<!DOCTYPE html><title>Shop</title>")
        with coordinator(tmp_path, seed) as ready:
            assert "Ready at http://127.0.0.1:" in ready
            node = drumlin(tmp_path, "node")
            assert node.returncode == EXIT_OK, node.stderr
            status = drumlin(tmp_path, "status", "--json")
    assert names_of_nodes(tmp_path) == {"named-by-file"}
    assert json.loads(status.stdout)["pages"] == 1


def test_a_variable_is_stronger_than_drumlin_toml_and_a_flag_than_both(tmp_path: Path) -> None:
    # Nothing listens where the file says: what goes there would fail.
    (tmp_path / "drumlin.toml").write_text(SETTINGS.format(port=free_port()))
    by_variable, by_flag = free_port(), free_port()
    listens = {"DRUMLIN_COORDINATOR_LISTEN": f"127.0.0.1:{by_variable}"}
    with FakeWeb(hosts=0) as web:
        seed = web.page("shop", "/", "<!DOCTYPE html><title>Shop</title>")
        with coordinator(tmp_path, seed, more=listens) as ready:
            assert f"http://127.0.0.1:{by_variable} " in ready
        with coordinator(tmp_path, "--listen", f"127.0.0.1:{by_flag}", more=listens) as ready:
            assert f"http://127.0.0.1:{by_flag} " in ready
            told = {"DRUMLIN_COORDINATOR": f"http://127.0.0.1:{by_flag}", "DRUMLIN_NODE_NAME": "named-by-variable"}
            first = drumlin(tmp_path, "node", env=environment(tmp_path, told))
            second = drumlin(tmp_path, "node", "--name", "named-by-flag", env=environment(tmp_path, told))
    assert (first.returncode, second.returncode) == (EXIT_OK, EXIT_OK), first.stderr + second.stderr
    assert names_of_nodes(tmp_path) == {"named-by-variable", "named-by-flag"}


def test_a_store_on_the_command_line_is_meant_though_drumlin_toml_has_a_spool(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[client]\ncoordinator = 'unix:nowhere'\n[node]\nspool = 'spool'\n")
    done = drumlin(tmp_path, "node", "--store", "store", "--name", "a/b")
    assert "cannot be a node's name" in done.stderr
    assert (tmp_path / "store").exists()
    assert not (tmp_path / "spool").exists()


VERBS = [
    ("node",),
    ("coordinator",),
    ("status",),
    ("report",),
    ("tokens", "list"),
    ("fleet", "status"),
    ("store", "finish", "store"),
    ("certs", "show", "certs"),
    ("config", "show"),
]


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_says_what_is_mistyped_and_what_was_meant(tmp_path: Path, verb: tuple[str, ...]) -> None:
    variables = environment(tmp_path, {"DRUMLIN_COORDINATOR_LISTE": "127.0.0.1:1"})
    done = drumlin(tmp_path, *verb, env=variables)
    sentence = "The environment variable DRUMLIN_COORDINATOR_LISTE is not a setting."
    assert done.stderr == f"drumlin: {sentence} Did you mean 'DRUMLIN_COORDINATOR_LISTEN'?\n"
    assert done.returncode == EXIT_USAGE
    (tmp_path / "drumlin.toml").write_text("[node]\nspool_maxx = '1GB'\n")
    done = drumlin(tmp_path, *verb)
    sentence = "drumlin.toml has an unknown key 'spool_maxx' in [node]. Did you mean 'spool_max'?"
    assert (done.stderr, done.returncode) == (f"drumlin: {sentence}\n", EXIT_USAGE)


def test_config_show_knows_the_settings_of_all_verbs_and_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[node]\nmemory_max = '1GiB'\n[fleet]\nnodes = 3\n")
    variables = {
        "DRUMLIN_COORDINATOR": "https://c1:8700",
        "DRUMLIN_COORDINATOR_LISTEN": "0.0.0.0:8700",
        "DRUMLIN_TOKEN": "drumlin_operator_id_0_secret",
        "DRUMLIN_ENGINE": "redis://:password@r1/crawl",
    }
    told = environment(tmp_path, variables)
    as_json = drumlin(tmp_path, "config", "show", "--json", "--origin", env=told)
    document = json.loads(as_json.stdout)
    for section, name, value, place in (
        ("node", "memory_max", 2**30, "drumlin.toml [node] memory_max"),
        ("fleet", "nodes", 3, "drumlin.toml [fleet] nodes"),
        ("client", "coordinator", "https://c1:8700", "DRUMLIN_COORDINATOR"),
        ("coordinator", "listen", "0.0.0.0:8700", "DRUMLIN_COORDINATOR_LISTEN"),
        ("client", "token", "(not shown)", "DRUMLIN_TOKEN"),
        ("process", "engine", "redis://***@r1/crawl", "DRUMLIN_ENGINE"),
    ):
        assert (document[section][name]["value"], document[section][name]["origin"]["place"]) == (value, place)
    as_text = drumlin(tmp_path, "config", "show", env=told)
    assert tomllib.loads(as_text.stdout)["process"]["engine"] == "redis://***@r1/crawl"
    assert "\n# token (not shown)\n" in as_text.stdout
    assert not [word for word in ("secret", "password") if word in as_text.stdout + as_json.stdout]


def test_the_verbs_for_people_find_the_crawl_where_drumlin_toml_puts_it(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[process]\nout = 'docs'\n[crawl]\nallow_private = true\ndelay = 0\n")
    with FakeWeb(hosts=0) as web:
        seed = web.page("shop", "/", "<!DOCTYPE html><title>Shop</title>")
        assert drumlin(tmp_path, "crawl", seed).returncode == EXIT_OK
    status = drumlin(tmp_path, "status", "--json")
    assert json.loads(status.stdout)["pages"] == 1, status.stderr


def test_a_node_that_is_started_again_minds_no_settings_that_changed_since_its_crawl_began(tmp_path: Path) -> None:
    with benchmark_web(tmp_path, 4, 25, "--latency-ms", "50") as web:
        crawl = Crawl(tmp_path / "crawl", "-i", str(web.seeds), "--nodes", "1")
        try:
            crawl.start()
            wait_until(lambda: web.accounts()["pages_distinct"] >= 10, TIMEOUT_S, "the first pages")
            (tmp_path / "drumlin.toml").write_text("[node]\nnonsense = 1\n")
            (node,) = crawl.nodes()
            assert kill_process(node)
            assert crawl.wait(CRAWL_S_MAX) == EXIT_OK, crawl.errors
        finally:
            crawl.end()
    assert crawl.report()["pages"] == 100
