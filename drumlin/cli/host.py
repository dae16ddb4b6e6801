"""`drumlin host`: everything about one host."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import line, results, write_json
from drumlin.cli.crawl import web_address
from drumlin.cli.help import Verb
from drumlin.cli.remote import now_of, remote_options
from drumlin.config import Loaded
from drumlin.config.quantities import show_gap, show_size
from drumlin.lines import one_line
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote

_STATE_WORDS = {"leased": "being fetched"}
_NO_FETCHES = {
    "none": "not known: this coordinator has no store",
    "partly": "none in the newest tables; the others were not searched",
    "whole": "none that is stored",
}


@click.command("host", cls=Verb)
@click.argument("host")
@remote_options("json", "color")
def command(loaded: Loaded, remote: Remote, host: str) -> None:
    """Show everything about one host: its state and why, its delay and who asked for it, what its robots.txt says, its
    budget, and what was tried on it last."""
    print_host(loaded, remote.get(host_path(host)), standing=remote.standing)


def host_path(host: str) -> str:
    from urllib.parse import quote

    from drumlin.urls import host_of

    if "/" in host:
        # People may give a URL of the host, which is easier to copy than its name.
        host = host_of(web_address(host))
    return paths.HOST.format(host=quote(host, safe=":"))


def print_host(loaded: Loaded, host: dict[str, Any], *, standing: bool) -> None:
    """Print a host of a crawl that runs, or of a `standing` one."""
    if loaded.process.json:
        write_json(host)
        return
    from rich.table import Table

    table = Table.grid(padding=(0, 3))
    for name, value in rows_of(host, standing=standing):
        table.add_row(name, one_line(value))
    console = results(loaded.process)
    console.print(table)
    for one in host["last_fetches"]:
        line(console, _fetch(one))


def rows_of(host: dict[str, Any], *, standing: bool) -> list[tuple[str, str]]:
    budget = "none"
    if host["budget"] is not None:
        budget = f"{host['budget']:,} pages, {host['pages_left']:,} of them left"
    now = now_of(host, standing=standing)
    # After a change nobody has looked for them.
    last = [("last fetches", "" if host["last_fetches"] else _NO_FETCHES[host["store"]])] if host["store"] else []
    return [
        ("host", f"{host['host']} (domain {host['domain']}, shard {host['shard']})"),
        ("state", f"{_STATE_WORDS.get(host['state'], host['state'])}: {host['why']}"),
        *_lease(host),
        *_next_contact(host, now, standing=standing),
        ("delay", f"{show_gap(host['delay_s'])}: {host['delay_why']}"),
        ("URLs", f"{host['urls']:,} known, {host['queued']:,} queued"),
        ("pages", f"{host['pages']:,} ({show_size(host['bytes'])})"),
        ("budget", budget),
        *((f"robots ({scheme})", _robots(rules)) for scheme, rules in host["robots"].items()),
        *((f"out of reach ({scheme})", _backoff(one, now)) for scheme, one in host["backoff"].items()),
        *last,
    ]


def _next_contact(host: dict[str, Any], now: float, *, standing: bool) -> list[tuple[str, str]]:
    """When it is contacted next, if it has URLs to fetch."""
    if host["state"] == "leased":
        return [("next contact", f"as its node decides, {show_gap(host['delay_s'])} after the last one or later")]
    if not host["queued"]:
        return []
    if standing:
        return [("next contact", "when the crawl goes on")]
    return [("next contact", _day(host["next_contact"]) if host["next_contact"] > now else "at once")]


def _lease(host: dict[str, Any]) -> list[tuple[str, str]]:
    if not host["lease_until"]:
        return []
    return [("lease", f"{host['lease_node']} holds it, until {_day(host['lease_until'])}")]


def _robots(rules: dict[str, Any]) -> str:
    said = "has rules, which are obeyed" if rules["reason"] == "rules" else rules["reason"]
    verdict = ": nothing is allowed" if rules["denyAll"] else ": everything is allowed" if rules["allowAll"] else ""
    return f"{said}{verdict}; read again after {_day(rules['expiresAt'])}"


def _backoff(one: dict[str, Any], now: float) -> str:
    asked = ", as it asked us to" if one["asked"] else ""
    why = ", ".join(part for part in (one["kind"], one["error"]) if part)
    tries = f"{one['tries']:,} tries in vain" if one["tries"] != 1 else "1 try in vain"
    # A host that has nothing left to fetch is not tried again, so the time of its next try has passed.
    again = f"; next try {_day(one['next_try'])}{asked}" if one["next_try"] > now else ""
    return f"{why}; {tries} since {_day(one['since'])}{again}"


def _fetch(one: dict[str, Any]) -> str:
    status = f" {one['status_code']}" if one["status_code"] else ""
    why = ", ".join(part for part in (one["kind"], one["error"]) if part)
    return f"  {_day(one['crawl_time'])}  {one['outcome']}{status}  {one['url']}{f'  ({why})' if why else ''}"


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
