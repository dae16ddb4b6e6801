"""`drumlin fleet`: a whole fleet on this machine, for trying it out and for tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import messages, results, say, write_json
from drumlin.cli.coordinator import CRAWL_SETTINGS
from drumlin.cli.remote import FLEET_FOLDER
from drumlin.config import Loaded, config_options
from drumlin.errors import EXIT_INTERRUPTED, EXIT_OK
from drumlin.lines import counted

if TYPE_CHECKING:
    from rich.table import Table

    from drumlin.fleet.layout import FleetPaths, FleetRecord

NODES_MAX = 256
COORDINATORS_MAX = 32
MASTERS_MAX = 32
REPLICAS_MAX = 5

_OUT = click.option(
    "--out", type=click.Path(path_type=Path), default=FLEET_FOLDER, show_default=True, help="the fleet's directory"
)


@click.group("fleet")
def command() -> None:
    """Run a fleet of real processes with a real Redis Cluster on this machine."""


@command.command("up")
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option("-i", "--input", "input_file", metavar="FILE", help="read seed URLs from FILE, one a line; - for stdin")
@click.option("--nodes", type=click.IntRange(1, NODES_MAX), help="nodes  [default: 2]")
@click.option("--coordinators", type=click.IntRange(1, COORDINATORS_MAX), help="coordinators  [default: 2]")
@click.option("--masters", type=click.IntRange(1, MASTERS_MAX), help="Redis masters  [default: 3]")
@click.option("--replicas", type=click.IntRange(0, REPLICAS_MAX), help="per master  [default: 0]")
@click.option("--restart/--no-restart", default=None, help="start again what dies  [default: restart]")
@click.option(
    "--finish/--no-finish", default=None, help="end when nothing is left, or wait for more URLs  [default: finish]"
)
@click.option("--foreground", is_flag=True, help="stay, show progress, and take the fleet down when it is finished")
@_OUT
@config_options("concurrency", "json", "quiet", "color", *CRAWL_SETTINGS)
def up(loaded: Loaded, urls: tuple[str, ...], input_file: str | None, out: Path, foreground: bool, **shape: Any) -> int:
    """Start a fleet, or start again one that was taken down: it goes on where it was.

    Everything is in the fleet's directory: fleet.json, logs, the store, Redis's data, certificates and secrets. A fleet
    that is started again has what it had, where no option says otherwise.
    """
    from drumlin.cli.crawl import read_seeds
    from drumlin.fleet.founding import found
    from drumlin.fleet.up import start

    seeds = read_seeds(urls, input_file) if urls or input_file else []
    said = loaded.origins["concurrency"].source != "default"
    shape["concurrency"] = loaded.process.concurrency if said else None
    paths = found(out.absolute(), loaded, seeds, **shape)
    say(loaded.process, f"Starting a fleet in {out} ...")
    record = start(paths, on_wait=lambda record: None)
    if loaded.process.json:
        write_json(record)
    elif not loaded.process.quiet:
        _print_summary(loaded, record, out)
    return _watch(loaded, paths) if foreground else EXIT_OK


def _print_summary(loaded: Loaded, record: FleetRecord, out: Path) -> None:
    plan = record.plan
    console = results(loaded.process)
    copies = f" with {counted(plan.replicas, 'replica')} each" if plan.replicas else ""
    crew = f"{counted(len(plan.coordinator_ports), 'coordinator')}, {counted(plan.nodes, 'node')}"
    console.print(f"The fleet is up: {crew}, {counted(plan.masters, 'Redis master')}{copies}.", soft_wrap=True)
    console.print(f"coordinators  {' '.join(record.coordinators)} (TLS)", soft_wrap=True)
    console.print(f"store         {out / 'store'}", soft_wrap=True)
    console.print(f"logs          {out / 'logs'}", soft_wrap=True)
    option = "" if out == Path(FLEET_FOLDER) else f" --fleet {out}"
    console.print(
        f"Next: drumlin status --watch{option} · drumlin nodes{option} · drumlin pause{option}", soft_wrap=True
    )
    ending = "" if out == Path(FLEET_FOLDER) else f" --out {out}"
    console.print(f"End it with: drumlin fleet down{ending}", soft_wrap=True)


def _watch(loaded: Loaded, paths: FleetPaths) -> int:
    """Show the crawl until it is finished or the user has enough, and take the fleet down."""
    from drumlin.cli.status import watch_until_ended
    from drumlin.fleet.up import down, remote_of, wait_until_finished

    code = EXIT_OK
    try:
        watch_until_ended(messages(loaded.process), remote_of(paths), quiet=loaded.process.quiet)
        wait_until_finished(paths)
    except KeyboardInterrupt:
        say(loaded.process, "Taking the fleet down; the same command goes on from here.")
        code = EXIT_INTERRUPTED
    finally:
        down(paths)
    return code


@command.command("status")
@_OUT
@config_options("json", "color")
def status(loaded: Loaded, out: Path) -> None:
    """Show the processes of a fleet, and how its crawl stands."""
    from drumlin.cli.status import status_line
    from drumlin.errors import DrumlinError
    from drumlin.fleet.layout import FleetPaths
    from drumlin.fleet.up import remote_of

    paths = FleetPaths(out.absolute())
    record = paths.read()
    state = record.state if record.running else "down"
    if loaded.process.json:
        alive = {process.name: process.alive for process in record.processes}
        write_json({"state": state, "alive": alive, "fleet": record})
        return
    console = results(loaded.process)
    console.print(_processes_table(record))
    console.print(f"The fleet is {state}.{' ' + record.failure if record.failure else ''}", soft_wrap=True)
    if record.running:
        try:
            console.print(f"The crawl is {status_line(remote_of(paths).get('/api/v1/stats'))}", soft_wrap=True)
        except DrumlinError as unknown:
            console.print(f"How the crawl stands is not known: {unknown}", soft_wrap=True)


def _processes_table(record: FleetRecord) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("process", "state", "pid", "starts", "address"):
        table.add_column(column, justify="right" if column in ("pid", "starts") else "left", no_wrap=True)
    for process in record.processes:
        state, style = _standing(process.alive, process.exit_code)
        pid = str(process.mark.pid) if process.mark is not None and process.alive else ""
        table.add_row(process.name, Text(state, style=style), pid, str(process.starts), process.address)
    return table


def _standing(alive: bool, exit_code: int | None) -> tuple[str, str]:
    if alive:
        return "running", "green"
    if exit_code == 0:
        return "left", "dim"
    return ("gone" if exit_code is None else f"died ({exit_code})"), "red"


@command.command("down")
@click.option("--kill", is_flag=True, help="at once, without finishing what is in flight; nothing stored is lost")
@_OUT
@config_options("quiet", "color")
def down_command(loaded: Loaded, out: Path, kill: bool) -> None:
    """End a fleet: nodes finish what is in flight, then everything stops. Also cleans up after one that died."""
    from drumlin.fleet.layout import FleetPaths
    from drumlin.fleet.up import down

    killed = down(FleetPaths(out.absolute()), at_once=kill)
    if killed and not kill:
        say(loaded.process, f"These had to be killed: {', '.join(killed)}.")
    say(loaded.process, f"The fleet in {out} is down; `drumlin fleet up` goes on with its crawl.")
