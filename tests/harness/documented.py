"""The commands in README.md and docs/: found, cut into lines, and made into scripts that `sealed` runs as written.

A command stands in a block marked `sh`. A `Scene` is one page that is run from its first block to its last in one
shell, in a machine of its own (`sealed`), after what it takes for granted is done (`before`). What is left to the
reader (PASSWORD, NAME) is filled in, and a command that goes on until it is ended runs beside the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$", re.DOTALL | re.MULTILINE)
SHELL = "sh"
CONTINUED = re.compile(r"\\\n\s*")
WAIT_S = 0.2


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int


class Scene(NamedTuple):
    """How a page is run. `filled` replaces what the reader has to fill in. The keys of `beside` begin commands that go
    on; each value is a condition in shell for when the next command may follow. Blocks that contain one of `last` are
    about something that happens later, and are run at the end. `left_out` says of commands why they are not run."""

    before: str = ""
    filled: Mapping[str, str] = {}
    beside: Mapping[str, str] = {}
    last: tuple[str, ...] = ()
    left_out: Mapping[str, str] = {}
    slow: bool = False


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(found["language"], found["text"], text[: found.start()].count("\n") + 1) for found in FENCE.finditer(text)
    ]


def shell_blocks(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.language == SHELL]


def commands(block: Block) -> list[str]:
    """The commands of a block that are written in one logical line each, without comments."""
    lines = CONTINUED.sub(" ", block.text).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]


def script(page: Path, scene: Scene) -> str:
    """The whole page as one shell script, which says which block it is at."""
    parts = [scene.before]
    for block in sorted(shell_blocks(page), key=lambda block: any(part in block.text for part in scene.last)):
        parts.append(f"echo '@@ {name_of(page)}, line {block.line}'")
        parts.append("\n".join(_lines(block, scene)))
    parts.append("echo '@@ the end'")
    return "\n".join(parts)


def _lines(block: Block, scene: Scene) -> Iterator[str]:
    for line in CONTINUED.sub(" ", block.text).splitlines():
        if any(line.startswith(command) for command in scene.left_out):
            continue
        for left_open, value in scene.filled.items():
            line = line.replace(left_open, value)
        ready = next((ready for start, ready in scene.beside.items() if line.startswith(start)), None)
        if ready is None:
            yield line
        else:
            # In the background, and no input: otherwise it would read the script.
            yield f"{{ {_without_comment(line)}; }} < /dev/null >> beside.log 2>&1 &"
            yield f"until {ready}; do sleep {WAIT_S}; done"


def _without_comment(line: str) -> str:
    return re.sub(r"\s+# .*", "", line)
