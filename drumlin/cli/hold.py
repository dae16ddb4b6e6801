"""`drumlin hold`: legal holds on stored data."""

from __future__ import annotations

import click

from drumlin.cli.console import line, results, say, write_json
from drumlin.cli.help import VerbFamily
from drumlin.cli.retention import BY, named_store
from drumlin.config import Loaded, config_options


@click.group("hold", cls=VerbFamily)
def command() -> None:
    """Keep stored data, whatever its rules say, until the hold is lifted."""


@command.command("add")
@click.argument("name")
@click.option("--reason", required=True, metavar="TEXT", help="why, for those who read the audit log")
@click.option("--host", default="", metavar="HOST", help="hold only what has something of this host")
@click.option("--domain", default="", metavar="DOMAIN", help="hold only what has something of this domain's hosts")
@BY
@config_options("out", "store", "json", "quiet", "color")
def add_command(loaded: Loaded, name: str, reason: str, host: str, domain: str, by: str) -> None:
    """Hold a whole crawl, a host or a domain, under a NAME.

    Files with something of a host that is held are neither deleted nor moved nor rewritten, and not joined with others.
    """
    import time

    from drumlin.lifecycle.book import add_hold, open_book, signature
    from drumlin.lifecycle.holds import make_hold
    from drumlin.lifecycle.retention.found import has_any

    who, files = signature(by, time.time()), named_store(loaded).files
    hold = make_hold(name, reason, who.by, who.at, host=host, domain=domain)
    add_hold(open_book(files), who, hold)
    say(loaded.process, f"Held: {hold.what} ({hold.name}).")
    if loaded.process.json:
        write_json(hold)
    # At last: it may take long, and what was held is held.
    if (host or domain) and not loaded.process.quiet and not has_any(files, hold):
        say(loaded.process, "Nothing in this store is under that hold yet: look whether the name is right.")


@command.command("list")
@config_options("out", "store", "json", "color")
def list_command(loaded: Loaded) -> None:
    """List the holds on a store."""
    from datetime import UTC, datetime

    from drumlin.lifecycle.book import holds_in

    holds = holds_in(named_store(loaded).files).all
    if loaded.process.json:
        write_json(holds)
        return
    console = results(loaded.process)
    for hold in holds:
        when = datetime.fromtimestamp(hold.at, UTC).strftime("%Y-%m-%d")
        line(console, f"{hold.name}  {hold.what}, since {when} by {hold.by}: {hold.reason}", marked=hold.name)
    if not holds:
        line(console, "Nothing is held.")


@command.command("lift")
@click.argument("name")
@BY
@config_options("out", "store", "json", "quiet", "color")
def lift_command(loaded: Loaded, name: str, by: str) -> None:
    """Lift the hold of this NAME."""
    import time

    from drumlin.lifecycle.book import lift_hold, open_book, signature

    lift_hold(open_book(named_store(loaded).files), signature(by, time.time()), name)
    say(loaded.process, f"Lifted: {name}.")
    if loaded.process.json:
        write_json({"lifted": name})
