"""The `drumlin` command as a user runs it: settings, errors, exit codes, pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK, EXIT_USAGE

TIMEOUT_S = 60


def drumlin(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DRUMLIN_", "NO_COLOR"))}
    command = [sys.executable, "-m", "drumlin", *arguments]
    environment = clean | {"TMPDIR": str(folder)} | environ
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def test_config_show_says_where_each_value_comes_from(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[crawl]\ndepth = 4\n")
    done = drumlin(tmp_path, "config", "show", "--origin", "--delay", "2", DRUMLIN_PER_HOST="3")
    lines = {line.split(" = ")[0]: line for line in done.stdout.splitlines()}
    assert done.returncode == EXIT_OK
    assert lines["delay"].endswith("# flag --delay")
    assert lines["per_host"].endswith("# environment DRUMLIN_PER_HOST")
    assert lines["depth"].endswith("# file drumlin.toml [crawl] depth")
    assert lines["scope"].endswith("# default")


def test_config_show_prints_a_settings_file_that_gives_the_same_settings(tmp_path: Path) -> None:
    first = drumlin(
        tmp_path, "config", "show", "--bytes-max", "1.5GB", "--exclude", r'\.(pdf|"zip")$', "--time-max", "1h30m"
    )
    tomllib.loads(first.stdout)
    (tmp_path / "drumlin.toml").write_text(first.stdout)
    assert drumlin(tmp_path, "config", "show").stdout == first.stdout


def test_config_show_as_json_is_for_programs(tmp_path: Path) -> None:
    done = drumlin(tmp_path, "config", "show", "--json", "--origin", "--time-max", "2h")
    document = json.loads(done.stdout)
    assert document["crawl"]["time_max"] == {"value": 7200.0, "origin": {"source": "flag", "place": "--time-max"}}
    assert set(document) == {"crawl", "process", "client", "node", "coordinator", "fleet"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["config", "show", "--delay", "soon"], "--delay must be a duration"),
        (["config", "show", "--dellay", "1"], "--dellay"),
        (["config", "show", "--config", "nowhere.toml"], "nowhere.toml cannot be read"),
        (["crall"], "There is no command 'crall'. Did you mean 'crawl'?"),
        (["config", "shw"], "shw"),
        (["--verbos"], "--verbos"),
    ],
)
def test_a_wrong_command_line_is_one_sentence_and_exit_code_2(
    tmp_path: Path, arguments: list[str], expected: str
) -> None:
    done = drumlin(tmp_path, *arguments)
    assert done.returncode == EXIT_USAGE
    assert expected in done.stderr
    assert done.stderr.startswith("drumlin: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


def test_a_wrong_key_in_the_settings_file_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[crawl]\nscop = 'host'\n")
    done = drumlin(tmp_path, "config", "show")
    assert done.returncode == EXIT_USAGE
    assert done.stderr == "drumlin: drumlin.toml has an unknown key 'scop' in [crawl]. Did you mean 'scope'?\n"


def test_the_help_is_shown_without_loading_the_heavy_libraries(tmp_path: Path) -> None:
    code = (
        "import sys; from drumlin.cli.main import run; run(['--help']);"
        "sys.exit(', '.join({'numpy', 'pyarrow', 'pycurl', 'rocksdict', 'rich', 'msgspec'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "Usage: drumlin" in done.stdout
    assert done.stderr.strip() == ""


def test_the_version_is_printed(tmp_path: Path) -> None:
    assert drumlin(tmp_path, "--version").stdout.startswith("drumlin 0.")


PRINTING = (
    ("config", "show"),
    ("config", "show", "--json"),
    ("--help",),
    ("--version",),
    ("plan", "--help"),
    ("plan", "--pages-per-second", "97", "--urls", "1M"),
    ("plan", "--pages-per-second", "97", "--urls", "1M", "--json"),
    ("sim", "--seed", "7", "--short", "--log"),
)
"""Through click, through rich, more than a buffer and less, all at once and line by line."""


def in_bash(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in which `"$@"` is the command line."""
    command = ["bash", "-c", script, "bash", sys.executable, "-m", "drumlin", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_reader_that_goes_away_is_no_error_message(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "gone")
    # The command begins when the reader's end of the pipe is closed for certain.
    done = in_bash(
        tmp_path, '(read -r _ < gone; exec "$@") | (exec <&-; echo > gone); echo "${PIPESTATUS[0]}"', *arguments
    )
    assert (done.stdout, done.stderr) == ("141\n", "")


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
def test_a_closed_output_is_one_sentence_and_exit_code_3(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = in_bash(tmp_path, 'exec "$@" >&-', *arguments)
    assert done.returncode == 3
    assert done.stderr.startswith("drumlin: The output cannot be written: stdout is closed. Give it a file or a pipe")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence_and_exit_code_3(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "drumlin", "config", "show"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("drumlin: No space left on device")
    assert done.stderr.count("\n") == 1


def verb_that_raises(folder: Path, expression: str) -> subprocess.CompletedProcess[str]:
    """Run the real command with one more verb, whose body raises `expression`."""
    code = (
        "import click, drumlin.cli.main as m, drumlin.errors as errors\n"
        "@click.command('boom')\n"
        f"def boom(): raise {expression}\n"
        "m.VerbGroup.list_commands = lambda self, context: ['boom']\n"
        "m.VerbGroup.get_command = lambda self, context, name: boom\n"
        "m.main(['boom'])\n"
    )
    environment = os.environ | {"TMPDIR": str(folder)}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


def test_an_unexpected_error_leaves_its_traceback_in_a_file(tmp_path: Path) -> None:
    done = verb_that_raises(tmp_path, "ZeroDivisionError('by hand')")
    (kept,) = tmp_path.glob("drumlin-traceback-*.txt")
    assert done.returncode == 1
    assert done.stderr.startswith("drumlin: unexpected ZeroDivisionError: by hand.")
    assert str(kept) in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Traceback" in kept.read_text()


def test_no_traceback_has_a_secret_wherever_it_is_written(tmp_path: Path) -> None:
    error = "ValueError('redis://:hunter2@redis-1/ failed\\n2026-11-16 INFO drumlin.audit: forged')"
    verb_that_raises(tmp_path, error)
    (kept,) = tmp_path.glob("drumlin-traceback-*.txt")
    assert "redis://***@redis-1/ failed" in kept.read_text()
    nowhere = "__import__('tempfile').__dict__.update(tempdir='/no/such/folder')"
    done = verb_that_raises(tmp_path, f"{nowhere} or {error}")
    *traceback, sentence = done.stderr.splitlines()
    assert "    | 2026-11-16 INFO drumlin.audit: forged" in traceback
    assert all(line.startswith("    | ") for line in traceback)
    assert sentence.endswith("please report it with the traceback above.")
    assert "hunter2" not in kept.read_text() + done.stderr


@pytest.mark.parametrize(
    ("expression", "exit_code", "sentence"),
    [
        ("errors.StorageError('No room.', 'Make some.')", 3, "drumlin: No room. Make some.\n"),
        ("errors.EngineError('Two\\nlines')", 4, "drumlin: Two lines\n"),
        ("errors.BusyError('Port 80 is taken.')", 5, "drumlin: Port 80 is taken.\n"),
        ("KeyboardInterrupt", 130, ""),
        ("click.Abort", 130, ""),
        ("SystemExit(7)", 7, ""),
    ],
)
def test_whatever_ends_a_verb_is_one_sentence_and_a_documented_exit_code(
    tmp_path: Path, expression: str, exit_code: int, sentence: str
) -> None:
    done = verb_that_raises(tmp_path, expression)
    assert (done.returncode, done.stderr.strip("\n") + "\n" * bool(sentence)) == (exit_code, sentence)
    assert list(tmp_path.iterdir()) == []


def test_without_a_terminal_there_are_no_escape_codes(tmp_path: Path) -> None:
    assert "\x1b" not in drumlin(tmp_path, "config", "show", "--origin").stdout


def test_colour_that_was_asked_for_goes_into_a_pipe_and_no_color_takes_it_away(tmp_path: Path) -> None:
    code = (
        "from drumlin.cli.console import results, say; from drumlin.config import ProcessConfig\n"
        "for color in (True, False, None): results(ProcessConfig(color=color)).print('word', style='red')\n"
        "say(ProcessConfig(quiet=True), 'hidden'); say(ProcessConfig(), 'x' * 300)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "\x1b[31mword\x1b[0m\nword\nword\n"
    assert done.stderr == "x" * 300 + "\n"
