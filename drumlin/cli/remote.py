"""How a verb finds the crawl it is about: by the address of a coordinator, or by the directory of a crawl or a fleet
on this machine, whether it runs or not."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.tokens import token_options
from drumlin.errors import ConfigError

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote

FLEET_FOLDER = "fleet"
CRAWL_FOLDER = "crawl"
COORDINATOR_VARIABLE = "DRUMLIN_COORDINATOR"

Command = Callable[..., Any]


class ListsByDefault(click.Group):
    """A group of commands that lists when none is named: `drumlin hosts --state ready` is `drumlin hosts list …`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        named = args[:1] and (args[0] in self.commands or args[0] in context.help_option_names)
        return super().parse_args(context, args if named else ["list", *args])


def remote_options(command: Command) -> Command:
    """Give a command `--out`, `--coordinator`, `--ca` and the token's options; it is called with `remote: Remote`."""

    @functools.wraps(command)
    def with_remote(
        *args: object,
        coordinator: str | None,
        out: Path | None,
        fleet: Path | None,
        ca: Path | None,
        cert: Path | None,
        key: Path | None,
        insecure: bool,
        token: str,
        **parameters: object,
    ) -> object:
        folder = out or fleet
        remote = find_remote(coordinator, folder, ca=ca, cert=cert, key=key, token=token, insecure=insecure)
        try:
            return command(*args, remote=remote, **parameters)
        finally:
            remote.close()

    path = click.Path(path_type=Path)
    options = [
        click.option("--out", type=path, metavar="DIR", help="the directory of a crawl or a fleet on this machine"),
        click.option(
            "--coordinator",
            metavar="URL[,URL...]",
            envvar=COORDINATOR_VARIABLE,
            show_envvar=True,
            help="https://HOST:PORT or unix:PATH of coordinators",
        ),
        click.option("--fleet", type=path, metavar="DIR", hidden=True),
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
    folder: Path | None,
    *,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
    token: str = "",
    insecure: bool = False,
) -> Remote:
    """The coordinators that were named, or those of the crawl or fleet in `folder` (default: ./fleet or ./crawl)."""
    from drumlin.fleet.remote import Remote
    from drumlin.tls import check_pair

    if coordinator is None or (folder is not None and _from_environment(coordinator)):
        return _in_folder(folder or _default_folder())
    if folder is not None:
        raise ConfigError("--coordinator and --out name two different things.", "Give one of them.")
    endpoints = [part.strip().rstrip("/") for part in coordinator.split(",") if part.strip()]
    check_pair(cert, key)
    return Remote(endpoints, token=token, ca=ca, cert=cert, key=key, insecure=insecure)


def _from_environment(coordinator: str) -> bool:
    """What is named on the command line is meant, whatever the variable says."""
    return os.environ.get(COORDINATOR_VARIABLE) == coordinator


def _default_folder() -> Path:
    for name in (FLEET_FOLDER, CRAWL_FOLDER):
        if _holds_fleet(Path(name)) or _holds_crawl(Path(name)):
            return Path(name)
    hint = "Name one with --out DIR, or a coordinator with --coordinator URL."
    raise ConfigError("There is no crawl and no fleet here.", hint)


def _holds_fleet(folder: Path) -> bool:
    from drumlin.fleet.layout import FleetPaths

    return FleetPaths(folder).exists()


def _holds_crawl(folder: Path) -> bool:
    return (folder / "frontier").is_dir()


def _in_folder(folder: Path) -> Remote:
    """A fleet's coordinators, a running crawl's own, or what stands in for those of a crawl that does not run."""
    from drumlin.fleet.layout import FleetPaths
    from drumlin.fleet.remote import Remote
    from drumlin.fleet.up import remote_of
    from drumlin.local import socket_of

    if _holds_fleet(folder):
        return remote_of(FleetPaths(folder))
    if (socket_path := socket_of(folder)) is not None:
        return Remote([f"unix:{socket_path}"])
    if not _holds_crawl(folder):
        raise ConfigError(f"There is no crawl in {folder}.", "Name one with --out DIR, or --coordinator URL.")
    from drumlin.standing import StandingCrawl

    return StandingCrawl(folder)
