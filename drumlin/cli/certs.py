"""`drumlin certs`: make certificates for trying out a fleet with TLS, and look at them."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from drumlin.cli.console import write_json
from drumlin.cli.help import VerbFamily
from drumlin.config import Loaded, config_options

_FOLDER = click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))


@click.group("certs", cls=VerbFamily)
def command() -> None:
    """Make and show certificates for trying out a fleet with TLS."""


@command.command("create")
@_FOLDER
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="name or address of the coordinators; may be repeated [default: localhost and loopback]",
)
@click.option("--days", default=397, show_default=True, help="how long the certificates are valid")
@click.option("--force", is_flag=True, help="replace the certificates that are there")
@config_options("json")
def create(loaded: Loaded, folder: Path, hosts: tuple[str, ...], days: int, force: bool) -> None:
    """Make an authority, a server certificate and a client certificate in DIR.

    Coordinators need server.pem and server-key.pem; nodes and people need ca.pem, which is not secret. client.pem is
    for coordinators that ask for a client's certificate. Keep ca-key.pem to yourself: whoever has it can pretend to be
    any of them.
    """
    import time

    from drumlin.tls import create_certificates

    files = create_certificates(folder, hosts, time.time(), days=days, force=force)
    if loaded.process.json:
        write_json({"files": [str(path) for path in files]})
        return
    for path in files:
        sys.stdout.write(f"{path}\n")
    sys.stderr.write(
        "Give ca.pem to nodes and people. Keep the keys (ca-key.pem, server-key.pem, client.pem) secret.\n"
    )


@command.command("show")
@_FOLDER
@config_options("json")
def show(loaded: Loaded, folder: Path) -> None:
    """Show the certificates in DIR: for which hosts, until when, and their SHA-256 fingerprints."""
    from drumlin.tls import read_certificates

    certificates = read_certificates(folder)
    if loaded.process.json:
        write_json(certificates)
        return
    for facts in certificates:
        hosts = f" for {', '.join(facts.hosts)}" if facts.hosts else ""
        sys.stdout.write(f"{facts.file}: {facts.subject}{hosts}\n")
        sys.stdout.write(
            f"    valid {facts.valid_from:%Y-%m-%d} to {facts.valid_until:%Y-%m-%d}, from {facts.issuer}\n"
        )
        sys.stdout.write(f"    sha256 {facts.fingerprint}\n")
