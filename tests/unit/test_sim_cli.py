"""`drumlin sim`: what it refuses before it simulates, and what it prints whatever fails or is interrupted."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumlin.cli import main, sim
from drumlin.cli.main import EXIT_PIPE_CLOSED
from drumlin.cli.simulating import files, telling
from drumlin.cli.simulating.status import StatusLine, status
from drumlin.errors import EXIT_INTERNAL, EXIT_OK, EXIT_STORAGE, EXIT_USAGE, StorageError
from drumlin.sim import running, shrinking
from drumlin.sim.faults import Fault
from drumlin.sim.running import Broken, Outcome
from drumlin.sim.scenario import Scenario, of_fleet, of_seed

TINY = Scenario(nodes=2, hosts=6, duration_s=20.0, heartbeat_s=10.0)
Capture = pytest.CaptureFixture[str]


def simulate(*arguments: object) -> int:
    return main.run(["sim", *map(str, arguments)])


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A scenario in a file."""
    file = tmp_path / "tiny.json"
    file.write_bytes(msgspec.json.encode(TINY))
    return file


@pytest.fixture
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*scenario: Any) -> Outcome:
        raise AssertionError("it was simulated")

    monkeypatch.setattr(running, "run", refuse)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every scenario breaks a promise after two seconds."""

    def run(scenario: Scenario, *hears: Any, **more: Any) -> Outcome:
        violation = Broken("least_gap", 2.0, "h1.example is asked")
        return Outcome(scenario, {"pages": 3}, [], ["     1.000 it begins"], violation)

    for place in (running, shrinking):
        monkeypatch.setattr(place, "run", run)
    monkeypatch.setattr(running, "recalled", lambda outcome, progress: outcome)


# What is refused


@pytest.mark.parametrize("flag", ["--hours", "--churn", "--pages-per-minute"])
@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e99", "many"])
def test_what_is_no_number_of_a_fleet_is_refused(flag: str, value: str, nothing_runs: None, capsys: Capture) -> None:
    assert simulate("--nodes", 5, flag, value) == EXIT_USAGE
    assert f"Invalid value for '{flag}'" in capsys.readouterr().err


def test_a_share_can_be_written_in_percent(capsys: Capture) -> None:
    stories = []
    for churn in ("30%", "0.3"):
        assert simulate("--nodes", 2, "--hours", 0.01, "--churn", churn, "--json") == EXIT_OK
        stories.append(json.loads(capsys.readouterr().out)["story"])
    assert stories[0] == stories[1]
    assert simulate("--nodes", 2, "--churn", "95%") == EXIT_USAGE
    assert "95% is too much: 0.9 is the most" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--short", "--nodes", "3"), "--short does nothing with --nodes"),
        (("--seed", "3", "--scenario", "FILE"), "--seed does nothing with --scenario"),
        (("--short", "--scenario", "FILE"), "--short does nothing with --scenario"),
        (("--nodes", "9", "--scenario", "FILE"), "--nodes does nothing with --scenario"),
    ],
)
def test_flags_that_would_do_nothing_are_refused(
    given: tuple[str, ...], said: str, tiny: Path, nothing_runs: None, capsys: Capture
) -> None:
    assert simulate(*(tiny if one == "FILE" else one for one in given)) == EXIT_USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("", "'' does not end in .svg"),
        ("fleet.png", "does not end in .svg"),
        ("gone/fleet.svg", "There is no folder"),
        ("pipe.svg", "is not a plain file"),
        ("folder.svg", "is not a plain file"),
    ],
)
def test_a_picture_that_cannot_be_written_is_refused_before_anything_is_simulated(
    name: str, said: str, tmp_path: Path, nothing_runs: None, capsys: Capture
) -> None:
    os.mkfifo(tmp_path / "pipe.svg")
    (tmp_path / "folder.svg").mkdir()
    assert simulate("--short", "--plot", f"{tmp_path}/{name}" if name else "") == EXIT_USAGE
    assert said in capsys.readouterr().err
    assert (tmp_path / "pipe.svg").is_fifo()


def of_fault(**fields: Any) -> dict[str, Any]:
    return {"faults": [{"kind": "nodes_killed", "at": 1, "lasts_s": 1} | fields]}


@pytest.mark.parametrize(
    ("scenario", "said"),
    [
        ({"nodes": 0}, "nodes: expected int >= 1."),
        ({"coordinators": 101}, "coordinators: expected int <= 100."),
        ({"duration_s": 1e300}, "duration_s: expected float <= 10000000.0."),
        ({"page_s": -1}, "page_s: expected float >= 0.0."),
        ({"look_every_s": 0}, "look_every_s: expected float >= 0.1."),
        ({"churn": 1.0}, "churn: expected float <= 0.9."),
        ({"suspends": -0.1}, "suspends: expected float >= 0.0."),
        ({"shards": 0}, "shards: expected int >= 1."),
        ({"nods": 3}, "contains unknown field nods."),
        (of_fault(at=-1), "faults[0].at: expected float >= 0.0."),
        (of_fault(share=1.5), "faults[0].share: expected float <= 1.0."),
        (of_fault(kind="nodes_kiled"), "there is no fault 'nodes_kiled'. Did you mean 'nodes_killed'?"),
        (of_fault(lasts=3), "contains unknown field lasts"),
    ],
)
def test_a_scenario_that_cannot_be_simulated_is_refused_with_the_place_that_is_wrong(
    scenario: dict[str, Any], said: str, tmp_path: Path, nothing_runs: None, capsys: Capture
) -> None:
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps(scenario))
    assert simulate("--scenario", file) == EXIT_USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"nodes": NaN}', b'"text"', b'{"kind": "\xff"}'])
def test_a_file_that_is_no_scenario_is_refused(
    content: bytes, tmp_path: Path, nothing_runs: None, capsys: Capture
) -> None:
    file = tmp_path / "wrong.json"
    file.write_bytes(content)
    assert simulate("--scenario", file) == EXIT_USAGE
    assert "is not a scenario" in capsys.readouterr().err


def test_only_plain_files_of_some_size_are_read(
    tmp_path: Path, nothing_runs: None, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(files, "SCENARIO_BYTES_MAX", 100)
    (tmp_path / "large").write_bytes(b" " * 101)
    os.mkfifo(tmp_path / "pipe")
    for name, said in (("large", "too large"), ("pipe", "not a plain file"), ("gone", "No such file"), ("", "plain")):
        assert simulate("--scenario", tmp_path / name) == EXIT_USAGE
        assert said in capsys.readouterr().err
    assert simulate("--scenario", "") == EXIT_USAGE
    assert "--scenario needs the name of a file" in capsys.readouterr().err


@pytest.mark.parametrize("seed", range(50))
def test_what_drumlin_draws_itself_is_within_the_bounds_of_scenarios(seed: int) -> None:
    drawn = [of_seed(seed), of_seed(seed, short=True), of_fleet(seed, 2, 0.01, 0.0, 0.1)]
    for scenario in [*drawn, of_fleet(2**63 - 1, 100_000, 1_000.0, 0.9, 6_000.0)]:
        assert msgspec.json.decode(msgspec.json.encode(scenario), type=Scenario) == scenario


# What is printed


def test_with_json_the_log_is_on_stderr(tiny: Path, capsys: Capture) -> None:
    faulty = msgspec.structs.replace(TINY, faults=(Fault("hosts_down", 5.0, 1.0),))
    tiny.write_bytes(msgspec.json.encode(faulty))
    assert simulate("--scenario", tiny, "--json", "--log") == EXIT_OK
    told = capsys.readouterr()
    assert json.loads(told.out)["nodes"] == 2
    assert "5.000 hosts_down for 1 s\n" in told.err
    assert simulate("--scenario", tiny, "--log") == EXIT_OK
    assert "5.000 hosts_down for 1 s\n" in capsys.readouterr().out


def test_a_symlink_stays_one_when_a_picture_is_drawn(tiny: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.svg"
    link.symlink_to("real.svg")
    assert simulate("--scenario", tiny, "--plot", link) == EXIT_OK
    assert link.is_symlink()
    assert (tmp_path / "real.svg").read_text().startswith("<svg")


def test_a_reader_of_the_log_that_goes_away_is_no_broken_promise(tiny: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    faulty = msgspec.structs.replace(TINY, faults=(Fault("hosts_down", 5.0, 1.0),))
    tiny.write_bytes(msgspec.json.encode(faulty))
    command = [sys.executable, "-m", "drumlin", "sim", "--scenario", str(tiny), "--log"]
    try:
        done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (EXIT_PIPE_CLOSED, "")


def fail_to_write(target: Path, content: bytes) -> None:
    raise StorageError(f"Cannot write {target.name}: the disk is full.")


def test_figures_are_printed_although_the_picture_cannot_be_written(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sim, "write_whole", fail_to_write)
    assert simulate("--scenario", tiny, "--plot", tmp_path / "fleet.svg") == EXIT_STORAGE
    told = capsys.readouterr()
    assert "goodput share" in told.out
    assert told.err == "drumlin: Cannot write fleet.svg: the disk is full.\n"


def test_a_violation_is_told_although_the_picture_cannot_be_written(
    broken: None, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(sim, "write_whole", fail_to_write)
    assert simulate("--scenario", tiny, "--plot", tmp_path / "fleet.svg") == EXIT_INTERNAL
    told = capsys.readouterr()
    assert "VIOLATION of least_gap" in told.err
    assert "the disk is full" in told.err
    assert "pages" in told.out


def test_a_violation_in_json_has_the_scenario_and_the_smallest_one(broken: None, tiny: Path, capsys: Capture) -> None:
    assert simulate("--scenario", tiny, "--json") == EXIT_INTERNAL
    told = json.loads(capsys.readouterr().out)
    assert told["broken"]["checker"] == "least_gap"
    assert msgspec.convert(told["scenario"], Scenario) == TINY
    assert msgspec.convert(told["smallest"], Scenario).duration_s == 3.0


def test_a_search_that_is_interrupted_prints_what_it_has_found(
    broken: None, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    tries = list[Scenario]()

    def interrupted(scenario: Scenario, **more: Any) -> Outcome:
        tries.append(scenario)
        if len(tries) == 2:
            raise KeyboardInterrupt
        return running.run(scenario)

    monkeypatch.setattr(shrinking, "run", interrupted)
    assert simulate("--scenario", tiny) == EXIT_INTERNAL
    before, _, after = capsys.readouterr().err.partition("Looking for a smaller scenario")
    assert msgspec.json.encode(TINY).decode() in before
    assert "Interrupted" in after
    assert '"hosts":3' in after.splitlines()[-1]


def test_a_search_ends_after_some_time(
    broken: None, tiny: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.setattr(telling, "SEARCH_S_MAX", -1.0)
    assert simulate("--scenario", tiny) == EXIT_INTERNAL
    told = capsys.readouterr().err
    assert "The time for looking is over." in told
    assert "Try 1" not in told
    assert told.splitlines()[-1] == msgspec.json.encode(TINY).decode()


# The line that says how far it is


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_status_is_drawn_in_one_place_and_erased(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with StatusLine() as line:
        line.show(TINY, 5.0)
        # It is not drawn again at once.
        line.show(TINY, 6.0)
    shown = "Simulated 5 s of 20 s, 25%"
    assert terminal.getvalue().split("\r") == ["", shown, " " * (len(shown) + 2), ""]


def test_there_is_no_status_without_a_terminal_or_beside_a_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream, wanted in ((io.StringIO(), True), (Terminal(), False)):
        monkeypatch.setattr(sys, "stderr", stream)
        with StatusLine(wanted=wanted) as line:
            line.show(TINY, 5.0)
        assert stream.getvalue() == ""


def test_the_time_left_is_told_once_it_can_be_known() -> None:
    assert status(1_200.0, 300.0, 0.5) == "Simulated 5 min of 20 min, 25%"
    assert status(1_200.0, 300.0, 20.0) == "Simulated 5 min of 20 min, 25%, about 1 min left"
    assert status(1_200.0, 0.0, 20.0) == "Simulated 0 s of 20 min, 0%"
