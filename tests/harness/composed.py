"""deploy/compose/compose.yaml as Compose understands it: variables filled in, profiles chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

from tests.harness.shipped import DEPLOY

FOLDER = DEPLOY / "compose"
FILE = FOLDER / "compose.yaml"
_VARIABLE = re.compile(r"\$(?:(?P<dollar>\$)|\{(?P<name>\w+)(?:(?P<kind>:[-?+])(?P<rest>[^}]*))?\})")


def filled_in(text: str, variables: Mapping[str, str]) -> str:
    """A compose file with its variables replaced as Compose does it; ValueError for a required one that is missing."""

    def value(found: re.Match[str]) -> str:
        if found["dollar"]:
            return "$"
        given = variables.get(found["name"], "")
        if not given and found["kind"] == ":?":
            raise ValueError(found["rest"])
        if found["kind"] == ":+":
            return found["rest"] if given else ""
        return given or (found["rest"] or "")

    return _VARIABLE.sub(value, text)


def composed(**variables: str) -> dict[str, Any]:
    """The file as a whole, with these variables in .env."""
    whole: dict[str, Any] = yaml.safe_load(filled_in(FILE.read_text(), variables))
    return whole


def services(*profiles: str, **variables: str) -> dict[str, dict[str, Any]]:
    """The services that `docker compose up` would start."""
    every: dict[str, dict[str, Any]] = composed(**variables)["services"]
    return {name: one for name, one in every.items() if set(one.get("profiles", profiles)) <= set(profiles)}
