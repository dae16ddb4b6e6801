"""Builds the image of deploy/container/Dockerfile where no container engine runs: the same instructions, on a copy of
this machine's root (an overlay in memory) in place of the base image. Needs root, and Debian 12 as the base image has.

Everything is in mount namespaces of its own and gone with them. `tests.harness.containers` runs what was built.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

PYTHON = "/usr/bin/python3.11"
BASE_PYTHON = "/usr/local/python"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
BUILD_S_MAX = 1200
MEMORY = "8g"


class Instruction(NamedTuple):
    word: str
    rest: str


class Image(msgspec.Struct):
    """Layers, lowest first, and how to start what is in them."""

    layers: list[Path]
    variables: dict[str, str] = {}
    user: str = "0:0"
    folder: str = "/"
    volumes: list[str] = []
    entrypoint: list[str] = []
    command: list[str] = []
    health: list[str] = []
    labels: dict[str, str] = {}


def do(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, timeout=60)


def instructions(text: str) -> Iterator[Instruction]:
    lines = "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        word, _, rest = line.strip().partition(" ")
        yield Instruction(word.upper(), rest.strip())


def overlay(layers: list[Path], upper: Path, at: Path) -> Path:
    """Mount layers at a place, with what is changed there in `upper`."""
    work = upper.with_name(f"{upper.name}.work")
    for folder in (upper, work, at):
        folder.mkdir(parents=True, exist_ok=True)
    lower = ":".join(str(layer) for layer in reversed(layers))
    do("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", at)
    return at


def base_image(world: Path) -> Image:
    """This machine's root, with a Python of its own in the path as the base image has one."""
    do("mount", "-t", "tmpfs", "-o", f"size={MEMORY},mode=755", "tmpfs", world)
    root = overlay([Path("/")], world / "base", world / "base-root")
    image = Image([Path("/"), world / "base"], {"PATH": f"{BASE_PYTHON}/bin:{SYSTEM_PATH}"})
    _run(root, image, f"{PYTHON} -m venv {BASE_PYTHON}")
    do("umount", "--lazy", root)
    return image


class Builder:
    """One stage after the other."""

    def __init__(self, context: Path, world: Path, base: Image) -> None:
        self._context = context
        self._world = world
        self._base = base
        self._stages: dict[str, Path] = {}
        self._arguments: dict[str, str] = {}
        self._root = Path()
        self._image = base

    def build(self, text: str) -> Image:
        for instruction in instructions(text):
            getattr(self, f"_{instruction.word.lower()}")(instruction.rest)
        return self._image

    def _from(self, rest: str) -> None:
        name = rest.split()[-1] if " AS " in rest else "final"
        self._image = msgspec.structs.replace(self._base, layers=[*self._base.layers, self._world / name])
        self._root = overlay(self._base.layers, self._world / name, self._world / f"{name}-root")
        self._stages[name] = self._root

    def _arg(self, rest: str) -> None:
        name, _, value = rest.partition("=")
        self._arguments[name] = value

    def _env(self, rest: str) -> None:
        pairs = dict(word.split("=", 1) for word in shlex.split(self._filled(rest)))
        self._image = msgspec.structs.replace(self._image, variables=self._image.variables | pairs)

    def _label(self, rest: str) -> None:
        labels = dict(word.split("=", 1) for word in shlex.split(self._filled(rest)))
        self._image = msgspec.structs.replace(self._image, labels=labels)

    def _workdir(self, rest: str) -> None:
        self._inside(rest).mkdir(parents=True, exist_ok=True)
        self._image = msgspec.structs.replace(self._image, folder=rest)

    def _copy(self, rest: str) -> None:
        words = rest.split()
        source = self._context
        if words[0].startswith("--from="):
            source = self._stages[words.pop(0).removeprefix("--from=")]
        *names, target = words
        for name in names:
            into = self._inside(target)
            _copy(source / name.lstrip("/"), into / Path(name).name if len(names) > 1 or target.endswith("/") else into)

    def _run(self, rest: str) -> None:
        _run(self._root, self._image, rest)

    def _user(self, rest: str) -> None:
        self._image = msgspec.structs.replace(self._image, user=rest)

    def _volume(self, rest: str) -> None:
        self._image = msgspec.structs.replace(self._image, volumes=[*self._image.volumes, *json.loads(rest)])

    def _expose(self, rest: str) -> None:
        """Says something to people only."""

    def _healthcheck(self, rest: str) -> None:
        self._image = msgspec.structs.replace(self._image, health=json.loads(rest.partition(" CMD ")[2]))

    def _entrypoint(self, rest: str) -> None:
        self._image = msgspec.structs.replace(self._image, entrypoint=json.loads(rest))

    def _cmd(self, rest: str) -> None:
        self._image = msgspec.structs.replace(self._image, command=json.loads(rest))

    def _inside(self, path: str) -> Path:
        return self._root / str(Path(self._image.folder, path)).lstrip("/") / ""

    def _filled(self, text: str) -> str:
        known: Mapping[str, str] = self._arguments | self._image.variables
        return re.sub(r"\$\{?(\w+)\}?", lambda found: known[found[1]], text)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy2(source, target)


def _run(root: Path, image: Image, script: str) -> None:
    """A command as root in a stage. It has this machine's network, and variables that say where packages are."""
    told = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HTTP", "NO_PROXY"))}
    command = ["chroot", str(root), "sh", "-c", f"cd {image.folder} && {script}"]
    subprocess.run(command, env=told | image.variables, check=True, timeout=BUILD_S_MAX, stdin=subprocess.DEVNULL)


def built(world: Path, context: Path) -> tuple[Image, Image]:
    """The base image and the one that is made of it."""
    base = base_image(world)
    dockerfile = context / "deploy" / "container" / "Dockerfile"
    return base, Builder(context, world, base).build(dockerfile.read_text())
