"""The files that users of `drumlin sim` name: scenarios to read, and pictures to write."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from drumlin.disk import plain_target
from drumlin.errors import ConfigError

if TYPE_CHECKING:
    from drumlin.sim.scenario import Scenario

SCENARIO_BYTES_MAX = 1_000_000
PICTURE_SUFFIX = ".svg"
_HINT = "Put the line of JSON that `drumlin sim` printed into a file."


def picture_target(name: str) -> Path:
    """Where to write a picture. ConfigError if it cannot be written there: this is asked before the simulation, which
    may take hours."""
    if not name.lower().endswith(PICTURE_SUFFIX):
        raise ConfigError(
            f"--plot draws an SVG file, and {name!r} does not end in {PICTURE_SUFFIX}.",
            f"Name a file such as fleet{PICTURE_SUFFIX}.",
        )
    return plain_target(Path(name))


def read_scenario(name: str) -> Scenario:
    """The scenario in a file; ConfigError if there is none, or none that can be simulated."""
    import msgspec

    from drumlin.sim.scenario import Scenario

    content = _content(name)
    try:
        return msgspec.json.decode(content, type=Scenario)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise ConfigError(f"{name} is not a scenario: {_plainly(str(cause))}", _HINT) from cause


def _content(name: str) -> bytes:
    if not name:
        raise ConfigError("--scenario needs the name of a file.", _HINT)
    path = Path(name)
    try:
        # Reading a pipe or a device may wait or go on for ever.
        if path.exists() and not path.is_file():
            raise ConfigError(f"{name} is not a plain file.", _HINT)
        with path.open("rb") as file:
            content = file.read(SCENARIO_BYTES_MAX + 1)
    except OSError as cause:
        raise ConfigError(f"Cannot read {name}: {cause.strerror}.", _HINT) from cause
    if len(content) > SCENARIO_BYTES_MAX:
        raise ConfigError(f"{name} is too large for a scenario: {SCENARIO_BYTES_MAX:,} bytes are the most.", _HINT)
    return content


def _plainly(cause: str) -> str:
    """What is wrong, with the place first: `faults[0].share: expected float <= 1.0.`"""
    what, _, place = cause.partition(" - at `$")
    place = place.rstrip("`").lstrip(".")
    told = what.replace("`", "")
    told = f"{place}: {told[:1].lower()}{told[1:]}" if place else told
    return told if told.endswith("?") else f"{told}."
