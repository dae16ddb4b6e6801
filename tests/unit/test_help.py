"""Every verb's help fits 80 columns, groups its options and ends with examples that its own parser understands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from drumlin.cli.help import EXAMPLES as VERB_EXAMPLES
from drumlin.cli.help import GROUPS
from drumlin.cli.main import EXAMPLES, drumlin
from drumlin.cli.reference import reference_page
from drumlin.config import names_of
from drumlin.config.processes import LOG_SETTINGS

ROOT = Path(__file__).parents[2]
WIDTH = 80
SERVERS = {("coordinator",), ("node",)}
"""What they say is a log, and `--log-format` says in which form."""
# Words of developers. Flags and names in JSON may have them, sentences for people must not.
JARGON = ("leased", " leases", "settle", "frontier", "shard", "back-off", "shingle", "fsync", "heartbeat", "dequeue")


def paths(command: click.Command = drumlin, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        context = click.Context(command, info_name="drumlin")
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from paths(inner, (*path, name))


def shown(path: tuple[str, ...]) -> str:
    done = CliRunner().invoke(drumlin, [*path, "--help"], env={"COLUMNS": str(WIDTH)}, prog_name="drumlin")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("path", list(paths()), ids=" ".join)
def test_help_fits_a_terminal_and_needs_no_glossary(path: tuple[str, ...]) -> None:
    said = shown(path)
    assert [line for line in said.splitlines() if len(line) > WIDTH] == []
    words = said.lower().replace("drumlin frontier", "").replace("\n  frontier ", "")  # the verb itself
    assert [word for word in JARGON if word in words] == []
    family = "Commands:" in said
    assert family or "Examples:" in said


@pytest.mark.parametrize("path", [path for path in paths() if path not in SERVERS], ids=" ".join)
def test_every_verb_that_prints_something_prints_json_too(path: tuple[str, ...]) -> None:
    said = shown(path)
    assert "Commands:" in said or not path or "--json" in said


@pytest.mark.parametrize("path", list(paths()), ids=" ".join)
def test_help_calls_a_number_n_and_not_by_the_name_of_its_type(path: tuple[str, ...]) -> None:
    assert [line for line in shown(path).splitlines() if "RANGE" in line] == []


def test_settings_are_in_groups() -> None:
    said = shown(("crawl",))
    for title in GROUPS:
        assert f"\n{title}:\n" in said
    grouped = {name for names in GROUPS.values() for name in names} | {"json", "quiet", "color", *LOG_SETTINGS}
    assert {*names_of("crawl"), *names_of("process")} == grouped


@pytest.mark.parametrize(
    "line", [line for _, line in EXAMPLES] + [line for lines in VERB_EXAMPLES.values() for _, line in lines]
)
def test_examples_are_command_lines_that_are_understood(line: str) -> None:
    program, *arguments = shlex.split(line)
    assert program == "drumlin"
    context = drumlin.make_context("drumlin", arguments)
    while isinstance(context.command, click.Group):
        _, command, rest = context.command.resolve_command(context, [*context._protected_args, *context.args])
        assert command is not None
        context = command.make_context(command.name, rest, parent=context)


def test_the_reference_page_has_every_verb_and_flag_and_is_current() -> None:
    page = reference_page()
    for path in paths():
        if path:
            assert f"# drumlin {' '.join(path)}\n" in page
    assert (ROOT / "docs/reference/cli.md").read_text() == page, "run `make docs`"
