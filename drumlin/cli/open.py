"""`drumlin open`: the page of a crawl on this machine, whether it runs or not."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import line, results, say, write_json
from drumlin.cli.help import Verb
from drumlin.cli.remote import find_remote
from drumlin.config import Loaded, config_options
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.fleet.layout import FleetPaths


@click.command("open", cls=Verb)
@click.argument("folder", required=False, metavar="[DIR]", type=click.Path(path_type=Path))
@config_options("out", "json", "quiet", "color")
def command(loaded: Loaded, folder: Path | None) -> None:
    """Give the address of a crawl's page, to open in a browser on this machine.

    If the crawl runs, this is another address of its page. If it does not, the page is shown until Ctrl-C: everything
    can be looked at, and nothing changed. Each address works once, and then in the browser that used it. Of a fleet it
    gives the address of a coordinator, and the file of the token to log in with.
    """
    from drumlin.fleet.layout import FleetPaths
    from drumlin.local.standing import StandingCrawl

    process = loaded.process
    named = folder or (Path(process.out) if loaded.is_given("out") else None)
    remote = find_remote(loaded, named)
    try:
        if remote.folder is not None and (fleet := FleetPaths(remote.folder)).exists():
            _print_fleet(loaded, fleet)
        elif isinstance(remote, StandingCrawl):
            remote.show(lambda address: _tell(loaded, address))
        else:
            _print(loaded, remote.post(paths.PAGE_CODE)["address"])
    finally:
        remote.close()


def _print(loaded: Loaded, address: str) -> None:
    if loaded.process.json:
        write_json({"address": address})
    else:
        line(results(loaded.process), address)


def _print_fleet(loaded: Loaded, fleet: FleetPaths) -> None:
    """Coordinators have their page at a fixed address, for whoever has a token."""
    from drumlin.tls import CertificateFiles

    address, token = f"{fleet.read().coordinators[0]}/", fleet.operator_token
    if loaded.process.json:
        write_json({"address": address, "token_file": str(token)})
        return
    line(results(loaded.process), address)
    authority = CertificateFiles.in_folder(fleet.certs).authority
    say(loaded.process, f"Log in with the token in {token}. Its certificate is signed by {authority}.")


def _tell(loaded: Loaded, address: str) -> None:
    _print(loaded, address)
    # A program that reads it waits for the whole document while this command goes on.
    sys.stdout.flush()
    say(loaded.process, "Open it in a browser on this machine. Ctrl-C ends it.")
