"""Runs schemathesis against a running coordinator, as anybody would use the tool, with its own checks.

This module is also its hooks (`SCHEMATHESIS_HOOKS`): it adds MessagePack, so both formats are tried.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from base64 import b64decode
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import schemathesis

from tests.harness.coordinators import RunningCoordinator

SHOWN_CHARS = 4_000
MSGPACK = "application/msgpack"
SEED = "20260301"
# A request that the schema forbids may be refused with any 4xx or 5xx, such as 414 for its length. And a request that
# it allows may still be refused, because a schema cannot say that a hash fits a body, that headers fit a status, or
# that an assignment has ended; nor what is SQL.
SETTINGS = """
[checks]
negative_data_rejection.expected-statuses = ["4xx", "5xx"]

[[operations]]
include-path = ["/v1/fetch/result", "/api/v1/nodes/{node_id}/results", "/api/v1/sql"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "410", "422", "429", "5xx"]
"""


@schemathesis.serializer(MSGPACK)
def pack(context: Any, value: Any) -> bytes:
    return msgspec.msgpack.encode(_sayable(_with_bytes(value)))


def _sayable(value: Any) -> Any:
    """The value without integers of more than 64 bits, which MessagePack does not have. A float of that size takes
    their place; wherever such an integer is wrong, the float is wrong too."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return float(value) if abs(value) < 2**1000 else 0.5
    if isinstance(value, dict):
        return {key: _sayable(one) for key, one in value.items()}
    return [_sayable(one) for one in value] if isinstance(value, list) else value


def _with_bytes(value: Any) -> Any:
    """The value with bytes in place of base64: MessagePack has bytes, for the notes of hosts and the bodies of
    results."""
    for many, name in (("hosts", "note"), ("results", "body")):
        listed = value.get(many) if isinstance(value, dict) else None
        for one in listed if isinstance(listed, list) else []:
            if isinstance(one, dict) and isinstance(one.get(name), str):
                with suppress(ValueError):
                    one[name] = b64decode(one[name], validate=True)
    return value


@schemathesis.deserializer(MSGPACK)
def unpack(context: Any, response: Any) -> Any:
    return msgspec.msgpack.decode(response.content)


def check_contract(
    coordinator: RunningCoordinator, folder: Path, *options: str, seconds_max: float, msgpack: bool = True
) -> int:
    """Run the checks. Fails with what they found, if anything; returns how many requests were made."""
    command = [str(Path(sys.executable).with_name("schemathesis")), "run", f"{coordinator.url}/api/v1/openapi.json"]
    token = coordinator.tokens.get("operator")
    headers = ["--header", f"Authorization: Bearer {token}"] if token else []
    fixed = ["--no-color", "--warnings", "off", "--generation-database", "none", "--seed", SEED]
    root = Path(__file__).parents[2]
    (folder / "schemathesis.toml").write_text(SETTINGS)
    done = subprocess.run(
        [*command, *headers, *fixed, *options],
        cwd=folder,
        env=os.environ | ({"SCHEMATHESIS_HOOKS": __name__, "PYTHONPATH": str(root)} if msgpack else {}),
        capture_output=True,
        text=True,
        timeout=seconds_max,
        check=False,
    )
    # A line may contain a whole body.
    lines = [line[:500] for line in done.stdout.splitlines()]
    found = "\n".join(lines)
    assert done.returncode == 0, found[-SHOWN_CHARS:] + done.stderr[-SHOWN_CHARS:]
    made = re.search(r"([0-9]+) generated", found)
    assert made is not None, found[-SHOWN_CHARS:]
    return int(made[1])
