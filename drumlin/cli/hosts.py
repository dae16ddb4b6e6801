"""`drumlin hosts`: the states of hosts, and changes to one. (`drumlin host` shows everything about one.)"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import line, results, write_json
from drumlin.cli.host import host_path, print_host
from drumlin.cli.remote import ListsByDefault, now_of, remote_options
from drumlin.config import Loaded
from drumlin.config.quantities import parse_duration, show_gap
from drumlin.errors import ConfigError
from drumlin.lines import counted, one_line
from drumlin.protocol import paths

if TYPE_CHECKING:
    from rich.table import Table

    from drumlin.client.remote import Remote

STATES = {"fetching": "leased", "ready": "ready", "waiting": "waiting", "blocked": "blocked"}
"""The states of hosts: the words for people, and those of the HTTP API."""
OUT_OF_REACH = {"out-of-reach": "backoff"}
"""Hosts out of reach; they also count as waiting."""
SHOWN_MAX = 1_000
COLUMNS = ("host", "queued", "pages", "delay", "why")
NONE = "none"
WIDE = 100
"""On a terminal with fewer columns, reasons are told in a few words."""
NAME_COLUMNS_MAX = 40


@click.group("hosts", cls=ListsByDefault)
def command() -> None:
    """List hosts, or change the delay or budget of one, or block it."""


@command.command("list")
@click.option("--state", type=click.Choice([*STATES, *OUT_OF_REACH]), help="only hosts in this state [default: all]")
@click.option("--prefix", default="", metavar="TEXT", help="hosts in any state whose names begin so, by name")
@click.option("--after", default="", metavar="HOST", help="go on after this host in the list by name")
@click.option(
    "--limit", metavar="N", type=click.IntRange(1, SHOWN_MAX), default=50, show_default=True, help="of each state"
)
@remote_options("json", "color")
def list_hosts(loaded: Loaded, remote: Remote, state: str | None, prefix: str, after: str, limit: int) -> None:
    """List hosts that have URLs left: being fetched by a node, ready for one, waiting for their time, or blocked.

    Hosts that are out of reach also count as waiting. With --prefix or --after, hosts in any state are listed in the
    order of their names.
    """
    by_name = bool(prefix or after)
    if by_name and state:
        raise ConfigError("--prefix and --after list hosts in any state.", "Leave --state out.")
    wanted_states = ["all"] if by_name else [(STATES | OUT_OF_REACH)[state]] if state else STATES.values()
    pages = [remote.get(paths.HOSTS, state=one, limit=limit, prefix=prefix, after=after) for one in wanted_states]
    # A host may be in two lists: one that is blocked is in another too, and one may change its state meanwhile.
    hosts = list({host["host"]: host for page in pages for host in page["hosts"]}.values())
    if loaded.process.json:
        write_json(hosts)
        return
    console = results(loaded.process)
    if hosts:
        narrow = console.is_terminal and console.width < WIDE
        now = now_of(hosts[0], standing=remote.standing)
        console.print(_short_table(hosts, now) if narrow else _table(hosts))
        full = any(len(page["hosts"]) >= limit for page in pages)
        line(console, f"{counted(len(hosts), 'host')}.{_more(pages[-1]['next'], prefix, full)}")
    elif by_name:
        line(console, f"No host of this crawl has a name that begins with {prefix!r}{' and follows' if after else ''}.")
    else:
        line(console, "No host is in this state." if state else "No host has URLs left.")
        line(console, "`drumlin host HOST` shows a host in any state.")


def _more(after: str, prefix: str, full: bool) -> str:
    chosen = f" --prefix {prefix}" if prefix else ""
    if after:
        return f" There may be more: `drumlin hosts list{chosen} --after {after}`."
    return " There may be more: --limit shows them." if full else ""


def _table(hosts: list[dict[str, Any]]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in COLUMNS:
        table.add_column(column, justify="left" if column in ("host", "why") else "right", no_wrap=column != "why")
    for host in hosts:
        delay = show_gap(host["delay_s"])
        table.add_row(one_line(host["host"]), f"{host['queued']:,}", f"{host['pages']:,}", delay, one_line(host["why"]))
    return table


def _short_table(hosts: list[dict[str, Any]], now: float) -> Table:
    """For a terminal of 80 columns: a line for each host, with the reason in a few words."""
    from rich.table import Table

    from drumlin.cli.screen.lists import reason

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("host", no_wrap=True, overflow="ellipsis", max_width=NAME_COLUMNS_MAX)
    table.add_column("queued", justify="right", no_wrap=True)
    table.add_column("pages", justify="right", no_wrap=True)
    table.add_column("why")
    for host in hosts:
        why = one_line(reason(host, now))
        table.add_row(one_line(host["host"]), f"{host['queued']:,}", f"{host['pages']:,}", why)
    return table


@command.command("set")
@click.argument("host")
@click.option("--delay", metavar="DURATION", help="between two contacts, 5s say; `none` for the crawl's own")
@click.option("--budget", metavar="PAGES", help="take at most so many pages of it; `none` for no bound")
@click.option("--block/--unblock", "blocked", default=None, help="give its URLs to nobody, or to nodes again")
@remote_options("json", "color")
def change(
    loaded: Loaded, remote: Remote, host: str, delay: str | None, budget: str | None, blocked: bool | None
) -> None:
    """Change a host's delay or budget, block it or let it be crawled again."""
    wanted: dict[str, object] = {}
    if delay is not None:
        wanted["delay_s"] = None if delay == NONE else _duration(delay)
    if budget is not None:
        wanted["budget"] = None if budget == NONE else _count(budget)
    if blocked is not None:
        wanted["blocked"] = blocked
    if not wanted:
        raise ConfigError("Nothing was given to change.", "Give --delay, --budget, --block or --unblock.")
    print_host(loaded, remote.patch(host_path(host), wanted), standing=remote.standing)


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise ConfigError(f"--delay must be a duration or `none`, not {text!r}.", "5s, say.") from None


def _count(text: str) -> int:
    digits = text.replace("_", "").replace(",", "")
    if not (digits.isascii() and digits.isdigit()):
        raise ConfigError(f"--budget must be a number of pages or `none`, not {text!r}.", "1000, say.")
    return int(digits)
