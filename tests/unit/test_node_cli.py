"""`drumlin node` with wrong options: one sentence says what to do, and nothing is begun."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from drumlin.cli.main import run
from drumlin.errors import EXIT_BUSY, EXIT_ENGINE, EXIT_OK, EXIT_USAGE
from drumlin.node import main
from drumlin.node.membership import Membership, NodeOptions

HERE = "http://127.0.0.1:9"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((), "A node needs a coordinator, which gives it work. Give --coordinator"),
        (("--coordinator", HERE), "nowhere to keep what it fetches. Give the crawl's --store"),
        (("--coordinator", HERE, "--store", "a", "--spool", "b"), "exclude each other"),
        (("--coordinator", " , ", "--store", "a"), "names no coordinator"),
        (("--coordinator", "example.com", "--store", "a"), "is not the address of a coordinator"),
        (("--coordinator", "http://example.com:1", "--store", "a"), "would show the token and pages"),
        (("--coordinator", HERE, "--store", "a", "--spool-max", "much"), "--spool-max must be a size"),
        (("--coordinator", HERE, "--store", "a", "--memory-max", "1MB"), "at least 256 MB"),
        (("--coordinator", HERE, "--store", "a", "--name", "a/b"), "cannot be a node's name"),
        (("--coordinator", HERE, "--store", "a", "--ca", "missing.pem"), "missing.pem"),
        (("--coordinator", HERE, "--store", "a", "--token-file", "missing"), "Cannot read missing"),
        (("--coordinator", HERE, "--store", "a", "--concurrency", "0"), "--concurrency"),
    ],
)
def test_bad_options_are_refused_with_a_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("drumlin.node.main.allow_open_files", lambda concurrency: None)
    assert run(["node", *arguments]) == EXIT_USAGE
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_coordinator_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "START_WAIT_S", 0.2)
    monkeypatch.setattr(main, "LEAVE_WAIT_S", 0.2)
    monkeypatch.setattr(main, "limit_memory", lambda most: None)
    monkeypatch.setattr(main, "_heed_signals", lambda parent, node: None)
    assert run(["node", "--coordinator", HERE, "--store", str(tmp_path / "store")]) == EXIT_ENGINE
    said = capsys.readouterr().err
    assert HERE in said
    assert "Check --coordinator" in said


def told(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> NodeOptions:
    """What `drumlin node` would be, were it not ended here."""
    seen: list[NodeOptions] = []
    monkeypatch.setattr(main, "run_node", seen.append)
    assert run(["node", *arguments]) == EXIT_OK
    return seen[0]


def test_a_node_follows_the_file_then_the_variables_then_its_flags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("drumlin.toml").write_text(
        f"[client]\ncoordinator = '{HERE}'\n[process]\nconcurrency = 3\nsync = true\n"
        "[node]\nspool = 'spool'\nspool_max = '1GB'\nmemory_max = 0\nname = 'a'\n"
    )
    by_file = told([], monkeypatch)
    assert (by_file.endpoints, by_file.concurrency, by_file.sync, by_file.node) == ([HERE], 3, True, "a")
    assert (by_file.out, by_file.bundled, by_file.spool_bytes_max) == (tmp_path / "spool", True, 10**9)
    monkeypatch.setenv("DRUMLIN_CONCURRENCY", "4")
    monkeypatch.setenv("DRUMLIN_NODE_NAME", "b")
    by_variable = told([], monkeypatch)
    assert (by_variable.concurrency, by_variable.node, by_variable.bundled) == (4, "b", True)
    by_flag = told(["--concurrency", "5", "--name", "c", "--no-sync", "--out", "store"], monkeypatch)
    assert (by_flag.concurrency, by_flag.node, by_flag.sync) == (5, "c", False)
    assert (by_flag.out, by_flag.bundled) == (tmp_path / "store", False)


def test_a_token_comes_from_the_stronger_place_and_leaves_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("in-file").write_text("drumlin_join_file_0_x\n")
    Path("drumlin.toml").write_text(f"[client]\ncoordinator = '{HERE}'\ntoken_file = 'in-file'\n[node]\nstore = 's'\n")
    assert told([], monkeypatch).token == "drumlin_join_file_0_x"
    monkeypatch.setenv("DRUMLIN_TOKEN", "drumlin_join_variable_0_x")
    assert told([], monkeypatch).token == "drumlin_join_variable_0_x"
    assert "DRUMLIN_TOKEN" not in os.environ
    monkeypatch.setenv("DRUMLIN_TOKEN", "drumlin_join_variable_0_x")
    assert told(["--token-file", "in-file"], monkeypatch).token == "drumlin_join_file_0_x"


def options(store: Path, name: str = "") -> NodeOptions:
    return NodeOptions(name, HERE, store, 8, False)


def test_a_node_without_a_name_takes_the_first_that_is_free_and_its_own_again(tmp_path: Path) -> None:
    with Membership.enter(options(tmp_path)) as first, Membership.enter(options(tmp_path)) as second:
        names = (first.name, second.name)
        assert len(set(names)) == 2
    with Membership.enter(options(tmp_path)) as again:
        assert again.name == names[0]


def test_what_proves_a_successor_is_for_its_owners_eyes_only(tmp_path: Path) -> None:
    with Membership.enter(options(tmp_path, "n0")) as node:
        assert stat.S_IMODE((node.paths.spool("n0") / "instance").stat().st_mode) == 0o600


def test_who_takes_over_a_name_proves_it_by_what_its_folder_holds(tmp_path: Path) -> None:
    with Membership.enter(options(tmp_path, "n0")) as first:
        instance = first.registration(recovering=True).instance
    with Membership.enter(options(tmp_path, "n0")) as successor, Membership.enter(options(tmp_path, "n1")) as other:
        assert successor.registration(recovering=False).instance == instance
        assert other.registration(recovering=False).instance != instance
    assert len(instance) == 32


def test_a_name_that_is_at_work_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("drumlin.node.membership.SPOOL_WAIT_S", 0.0)
    monkeypatch.setattr(main, "limit_memory", lambda most: None)
    with Membership.enter(options(tmp_path, "n0")):
        assert run(["node", "--coordinator", HERE, "--store", str(tmp_path), "--name", "n0"]) == EXIT_BUSY
    told = capsys.readouterr().err
    assert "waiting to join" in told, "it says so before it waits"
    assert "Another process is node n0" in told


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_that_cannot_be_written_is_refused_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(main, "limit_memory", lambda most: None)
    tmp_path.chmod(0o500)
    run(["node", "--coordinator", HERE, "--store", str(tmp_path / "store")])
    assert "permission was denied" in capsys.readouterr().err
