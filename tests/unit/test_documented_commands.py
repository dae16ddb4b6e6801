"""Every command in README.md and docs/ is run by a test, or is named with the reason why not, and can be parsed."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from drumlin.cli.main import drumlin
from tests.harness.documented import PAGES, ROOT, SHELL, blocks, commands, name_of, shell_blocks
from tests.harness.scenes import OWN_TESTS, SCENES

PROGRAMS = "drumlin|curl|make|pip|python|jq|redis-cli|redis-server|promtool|export|docker|apt|apt-get|git"
COMMAND = re.compile(rf"^(?:\$ )?(?:{PROGRAMS}) ", re.MULTILINE)
# `drumlin why URL` in a sentence, but not `drumlin/clock.py`.
INLINE = re.compile(r"`(drumlin [a-z][^`]*)`")
GENERATED = {"docs/reference/cli.md", "docs/reference/configuration.md"}
FENCED = re.compile(r"^ *```.*?^ *```$", re.DOTALL | re.MULTILINE)
TARGET = re.compile(r"`make ([a-z-]+)|^make ([a-z-]+)", re.MULTILINE)
# What ends a command in shell.
ENDS = re.compile(r"\s(?:\|\|?|&&|;|>|<|&)\s|\)\"|\s#\s")
# Words that are not meant as a verb: `drumlin VERB --help`, `drumlin demo` and the like are.
PLACEHOLDERS = {"VERB", "…", "..."}


def lines_with_drumlin(page: Path) -> Iterator[str]:
    for block in shell_blocks(page):
        for line in commands(block):
            yield from re.findall(r"(?:^|(?<=\s)|(?<=\())drumlin [a-z].*", line)
    if name_of(page) not in GENERATED:
        yield from (" ".join(line.split()) for line in INLINE.findall(FENCED.sub("", page.read_text())))


def wrong_in(line: str) -> str:
    """Why `drumlin` would not understand this line, as far as verbs and flags go; empty if it would."""
    words = shlex.split(ENDS.split(line, maxsplit=1)[0].replace("'", "").replace('"', ""))[1:]
    command: click.Command = drumlin
    context = click.Context(drumlin, info_name="drumlin")
    while isinstance(command, click.Group):
        name = next((word for word in words if not word.startswith("-")), None)
        inner = command.get_command(context, name) if name else None
        if inner is None:
            # A list of hosts may be asked for without its verb.
            inner = command.get_command(context, "list")
            return "" if name is None or (inner is None and name in PLACEHOLDERS) else _unknown(inner, words, name)
        words.remove(name or "")
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    return _unknown(command, words, "")


def _unknown(command: click.Command | None, words: list[str], name: str) -> str:
    if command is None:
        return f"there is no verb {name}"
    known = {flag for one in command.params for flag in (*one.opts, *one.secondary_opts)} | {
        "-h",
        "--help",
        "--version",
    }
    flags = {word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)}
    return ", ".join(sorted(flags - known))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_says_what_it_is_and_commands_are_marked_as_such(page: Path) -> None:
    assert [block.line for block in blocks(page) if not block.language] == []
    hidden = [block.line for block in blocks(page) if block.language != SHELL and COMMAND.search(block.text)]
    assert hidden == [], f"mark commands with {SHELL}, so that they are run"


def test_every_page_with_commands_is_run() -> None:
    pages = {name_of(page) for page in PAGES if shell_blocks(page)}
    assert pages == SCENES.keys() | OWN_TESTS.keys()
    for page, test in OWN_TESTS.items():
        assert Path(page).name in (ROOT / test).read_text()


def test_what_is_not_run_is_there_and_has_a_reason() -> None:
    for name, scene in SCENES.items():
        text = "".join(block.text for block in shell_blocks(ROOT / name))
        for command, reason in scene.left_out.items():
            assert command in text
            assert len(reason.split()) > 5
        for start in (*scene.filled, *scene.beside, *scene.last):
            assert start in text, f"{name} does not say {start!r} any more"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_verb_and_flag_that_is_named_exists(page: Path) -> None:
    assert {line: wrong for line in lines_with_drumlin(page) if (wrong := wrong_in(line))} == {}


def test_the_checker_sees_a_verb_and_a_flag_that_do_not_exist() -> None:
    assert wrong_in("drumlin crawl https://example.org/ --fast") == "--fast"
    assert wrong_in("drumlin crawle") == "there is no verb crawle"
    assert wrong_in("drumlin hosts --state ready | head") == ""
    assert wrong_in("drumlin hosts set example.org --block # or --unblocked") == ""
    assert wrong_in("drumlin dead-letters retry --sort x") == "--sort"


def test_every_target_of_make_that_is_named_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in [*PAGES, ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", ROOT / "bench" / "README.md"]:
        named = {first or second for first, second in TARGET.findall(page.read_text())}
        assert named <= targets, name_of(page)
