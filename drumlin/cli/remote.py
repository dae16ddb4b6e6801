"""How a verb finds the crawl that it is about: by the address of a coordinator, or by the directory of a crawl or a
fleet on this machine. A crawl need not be running; a fleet must be up."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.help import VerbFamily
from drumlin.cli.tokens import path_of, token_of
from drumlin.config import FleetConfig, Loaded, config_options, names_of
from drumlin.errors import ConfigError

if TYPE_CHECKING:
    from drumlin.client.remote import Remote

FLEET_FOLDER = FleetConfig().out
"""Where verbs look for a fleet when nobody names its directory."""

Command = Callable[..., Any]


class ListsByDefault(VerbFamily):
    """A group of commands where `list` is the default: `drumlin hosts --state ready` means `drumlin hosts list …`."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        named = args[:1] and (not args[0].startswith("-") or args[0] in context.help_option_names)
        # A shell that completes `drumlin hosts ` wants the names of the commands.
        named = named or (context.resilient_parsing and not args)
        return super().parse_args(context, args if named else ["list", *args])


def engine_meant(loaded: Loaded) -> str | None:
    """The engine of a crawl at rest that a verb is about; None if its directory is meant. An --out that is given to the
    verb is stronger than a variable for the engine."""
    origins = loaded.origins
    if origins["out"].source == origins["engine"].source == "flag":
        raise ConfigError("--out and --engine name two different things.", "Give one of them.")
    return None if loaded.stronger("out", "engine") == "out" else loaded.process.engine


def remote_options(*names: str) -> Callable[[Command], Command]:
    """A decorator that gives a command `--out`, the flags of `[client]`, and those of the settings with these full
    names; the command is called with `loaded: Loaded` and `remote: Remote`."""

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_remote(
            *args: object, loaded: Loaded, out: Path | None, fleet: Path | None, **parameters: object
        ) -> object:
            remote = find_remote(loaded, out or fleet)
            try:
                return command(*args, loaded=loaded, remote=remote, **parameters)
            finally:
                remote.close()

        path = click.Path(path_type=Path)
        with_settings = config_options(*names_of("client"), *names)(with_remote)
        with_fleet = click.option("--fleet", type=path, metavar="DIR", hidden=True)(with_settings)
        help_text = "the directory of a crawl or a fleet on this machine"
        return click.option("--out", type=path, metavar="DIR", help=help_text)(with_fleet)

    return decorate


def find_remote(loaded: Loaded, folder: Path | None) -> Remote:
    """The crawl or fleet in the `folder` that the command line names. Without one: the coordinators that the settings
    name, or else the fleet or the crawl in the directories that the settings name."""
    from drumlin.client.remote import Remote
    from drumlin.tls import check_pair

    client = loaded.client
    if folder is not None and loaded.origins["coordinator"].source == "flag":
        raise ConfigError("--coordinator and --out name two different things.", "Give one of them.")
    if folder is not None or client.coordinator is None:
        return _in_folder(folder or _default_folder(loaded))
    endpoints = [part.strip().rstrip("/") for part in client.coordinator.split(",") if part.strip()]
    authority, certificate, key = map(path_of, (client.ca, client.cert, client.key))
    check_pair(certificate, key)
    token = token_of(loaded)
    return Remote(endpoints, token=token, ca=authority, cert=certificate, key=key, insecure=client.insecure)


def now_of(answer: dict[str, Any], *, standing: bool) -> float:
    """What the times of an answer are to be compared with: the coordinator's own time, since clocks need not agree.
    That of a crawl that does not run (`standing`) stands still."""
    return time.time() if standing else float(answer["time"])


def _default_folder(loaded: Loaded) -> Path:
    for folder in (Path(loaded.fleet.out), Path(loaded.process.out)):
        if _holds_fleet(folder) or holds_crawl(folder):
            return folder
    hint = "Name one with --out DIR, or a coordinator with --coordinator URL."
    raise ConfigError("There is no crawl and no fleet here.", hint)


def _holds_fleet(folder: Path) -> bool:
    from drumlin.fleet.layout import FleetPaths

    return FleetPaths(folder).exists()


def holds_crawl(folder: Path) -> bool:
    return (folder / "frontier").is_dir()


def _in_folder(folder: Path) -> Remote:
    """The coordinators of a fleet, that of a running crawl, or an object that answers for a crawl that does not run."""
    from drumlin.client.remote import CoordinatorError, Remote
    from drumlin.fleet.layout import FleetPaths
    from drumlin.fleet.up import remote_of
    from drumlin.local.crawl import socket_of

    if _holds_fleet(folder):
        paths = FleetPaths(folder)
        if not paths.read().running:
            option = "" if folder == Path(FLEET_FOLDER) else f" --out {folder}"
            stored = f"`drumlin query outcomes{option}` asks what it has stored"
            hint = f"`drumlin fleet up{option}` starts it again; {stored}."
            raise CoordinatorError(f"The fleet in {folder} is down.", hint)
        return _at(folder, remote_of(paths))
    if (socket_path := socket_of(folder)) is not None:
        remote = Remote([f"unix:{socket_path}"])
        remote.of_one_machine = True
        return _at(folder, remote)
    if not holds_crawl(folder):
        raise ConfigError(f"There is no crawl in {folder}.", "Name one with --out DIR, or --coordinator URL.")
    from drumlin.local.standing import StandingCrawl

    return _at(folder, StandingCrawl(folder))


def _at(folder: Path, remote: Remote) -> Remote:
    remote.folder = folder
    return remote
