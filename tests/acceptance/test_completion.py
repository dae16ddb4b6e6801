"""A shell that was told as the README says completes verbs, flags and values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.commands import TIMEOUT_S, environment

# What bash does when a user presses the tab key, as far as it can be done without a keyboard.
ASK_BASH = """
eval "$(_DRUMLIN_COMPLETE=bash_source drumlin)" || exit 1
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMP_LINE="$*"
compopt() { echo "compopt $*"; }
_drumlin_completion drumlin
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("cr",), "crawl"),
        (("dead-letters", ""), "retry"),
        (("crawl", "--bytes-"), "--bytes-max"),
        (("crawl", "--scope", "d"), "domain"),
        (("crawl", "--out", "x"), "dirnames"),
        (("hosts", "list", "--state", "out"), "out-of-reach"),
        (("set", "pages"), "pages_max"),
    ],
)
def test_bash_completes(tmp_path: Path, typed: tuple[str, ...], offered: str) -> None:
    path = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", "-c", ASK_BASH, "bash", "drumlin", *typed],
        env=environment(tmp_path, path),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert offered in done.stdout.splitlines(), done.stdout + done.stderr
