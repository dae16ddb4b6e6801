"""systemd's units as the service manager would start them, where none runs: settings, environment and command."""

from __future__ import annotations

import re
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from tests.harness.shipped import DEPLOY

FOLDER = DEPLOY / "systemd"
ETC, STATE, PROGRAM = "/etc/drumlin", "/var/lib/drumlin", "/usr/local/bin/drumlin"


class Machine(msgspec.Struct):
    """Where the folders of a machine are that a unit names, and the program that is installed there."""

    etc: Path
    state: Path
    program: Path

    def there(self, text: str) -> str:
        for name, place in ((ETC, self.etc), (STATE, self.state), (PROGRAM, self.program)):
            text = text.replace(name, str(place))
        return text


class Unit:
    """One service. Of a template, the instance with this name."""

    def __init__(self, name: str, machine: Machine, instance: str = "") -> None:
        self._machine = machine
        self._instance = instance
        lines = (FOLDER / name).read_text().splitlines()
        pairs = [line.partition("=")[::2] for line in lines if re.match(r"\w+=", line)]
        self._settings = [(key, machine.there(value)) for key, value in pairs]
        self.credentials = machine.state / f"credentials-{name}-{instance}"

    def all(self, key: str) -> list[str]:
        return [value for name, value in self._settings if name == key]

    def one(self, key: str) -> str:
        [value] = self.all(key)
        return value

    def environment(self) -> dict[str, str]:
        """The variables in its files."""
        lines = [line for file in self.all("EnvironmentFile") for line in Path(file).read_text().splitlines()]
        return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))

    def command(self) -> list[str]:
        """`ExecStart` with specifiers and variables filled in; credentials are laid where it finds them."""
        self.credentials.mkdir(parents=True, exist_ok=True)
        for credential in self.all("LoadCredential"):
            name, _, source = credential.partition(":")
            (self.credentials / name).write_bytes(Path(source).read_bytes())
        specifiers = {"d": str(self.credentials), "i": self._instance, "H": socket.gethostname(), "%": "%"}
        return [_expanded(word, specifiers, self.environment()) for word in shlex.split(self.one("ExecStart"))]


def _expanded(word: str, specifiers: Mapping[str, str], variables: Mapping[str, str]) -> str:
    word = re.sub(r"%(.)", lambda found: specifiers[found[1]], word)
    return re.sub(r"\$\{(\w+)\}", lambda found: variables[found[1]], word)
