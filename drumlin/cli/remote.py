"""How a verb finds the coordinator to talk to: by its address, or by the directory of a local fleet."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.tokens import token_options
from drumlin.errors import ConfigError

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote

FLEET_FOLDER = "fleet"

Command = Callable[..., Any]


def remote_options(command: Command) -> Command:
    """Give a command `--coordinator`, `--fleet`, `--ca` and the token's options; it is called with `remote: Remote`."""

    @functools.wraps(command)
    def with_remote(
        *args: object,
        coordinator: str | None,
        fleet: Path | None,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        insecure: bool,
        token: str,
        **parameters: object,
    ) -> object:
        remote = find_remote(coordinator, fleet, ca=ca, cert=cert, key=key, token=token, insecure=insecure)
        return command(*args, remote=remote, **parameters)

    path = click.Path(path_type=Path)
    options = [
        click.option("--coordinator", metavar="URL[,URL...]", help="https://HOST:PORT or unix:PATH of coordinators"),
        click.option("--fleet", type=path, metavar="DIR", help="a local fleet's directory [default: fleet]"),
        click.option("--ca", type=path, metavar="FILE", help="the authority that signed the coordinator's certificate"),
        click.option("--cert", type=path, metavar="FILE", help="our certificate, where the coordinator asks for one"),
        click.option("--key", type=path, metavar="FILE", help="the certificate's key; may be the same file"),
        click.option("--insecure", is_flag=True, help="send the token over plain HTTP to another machine"),
    ]
    decorated: Command = with_remote
    for option in reversed(options):
        decorated = option(decorated)
    return token_options(decorated)


def find_remote(
    coordinator: str | None,
    fleet: Path | None,
    *,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
    token: str = "",
    insecure: bool = False,
) -> Remote:
    """The coordinators that were named, or those of the fleet in `fleet` (default: ./fleet)."""
    from drumlin.fleet.layout import FleetPaths
    from drumlin.fleet.remote import Remote
    from drumlin.fleet.up import remote_of
    from drumlin.tls import check_pair

    if coordinator is not None:
        if fleet is not None:
            raise ConfigError("--coordinator and --fleet name two different things.", "Give one of them.")
        endpoints = [part.strip().rstrip("/") for part in coordinator.split(",") if part.strip()]
        check_pair(cert, key)
        return Remote(endpoints, token=token, ca=ca, cert=cert, key=key, insecure=insecure)
    paths = FleetPaths(fleet or Path(FLEET_FOLDER))
    if fleet is None and not paths.exists():
        hint = "Name one with --coordinator URL, or a local fleet's directory with --fleet DIR."
        raise ConfigError("No coordinator was named, and there is no fleet here.", hint)
    return remote_of(paths)
