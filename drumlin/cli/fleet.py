"""`drumlin fleet`: a whole fleet on this machine, for trying it out and for tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import line, messages, results, say, write_json
from drumlin.cli.help import VerbFamily
from drumlin.cli.remote import FLEET_FOLDER
from drumlin.config import Loaded, config_options, names_of
from drumlin.config.processes import KAFKA_SETTINGS, LOG_SETTINGS
from drumlin.errors import EXIT_INTERRUPTED, EXIT_OK
from drumlin.lines import counted
from drumlin.protocol.paths import CRAWL, STATS

if TYPE_CHECKING:
    from rich.table import Table

    from drumlin.fleet.layout import FleetPaths, FleetRecord


@click.group("fleet", cls=VerbFamily)
def command() -> None:
    """Run a fleet of real processes with a real Redis Cluster on this machine."""


@command.command("up")
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option("-i", "--input", "input_file", metavar="FILE", help="read seed URLs from FILE, one a line; - for stdin")
@click.option("--foreground", is_flag=True, help="stay, show progress, and take the fleet down when it is finished")
@config_options(
    *names_of("fleet"),
    "store",
    "concurrency",
    "trace_every",
    "json",
    "quiet",
    "color",
    *LOG_SETTINGS,
    *KAFKA_SETTINGS,
    *names_of("crawl"),
)
def up(loaded: Loaded, urls: tuple[str, ...], input_file: str | None, foreground: bool) -> int:
    """Start a fleet, or start one again that was taken down: it goes on where it stopped.

    Everything is in the fleet's directory: fleet.json, logs, the store, Redis's data, certificates and secrets. A fleet
    that is started again is as large as before, unless options say otherwise.
    """
    from drumlin.cli.crawl import ask_for_contact, read_seeds
    from drumlin.fleet.founding import found_fleet
    from drumlin.fleet.layout import FleetPaths
    from drumlin.fleet.up import start
    from drumlin.tracing import check_installed

    check_installed(loaded.process.trace_every)
    seeds = read_seeds(urls, input_file) if urls or input_file else []
    out = Path(loaded.fleet.out)
    founded = FleetPaths(out).exists()
    paths = found_fleet(out.absolute(), loaded, seeds)
    ask_for_contact(loaded, founded=founded)
    say(loaded.process, f"Starting a fleet in {out} ...")
    record = start(paths, on_wait=lambda record: None)
    if loaded.process.json:
        write_json(record)
    elif not loaded.process.quiet:
        _print_summary(loaded, record, out)
        _tell_if_stopped(loaded, paths, out)
    return _watch(loaded, paths) if foreground else EXIT_OK


def _print_summary(loaded: Loaded, record: FleetRecord, out: Path) -> None:
    from drumlin.fleet.layout import FleetPaths

    plan = record.plan
    console = results(loaded.process)
    copies = f" with {counted(plan.replicas, 'replica')} each" if plan.replicas else ""
    crew = f"{counted(len(plan.coordinator_ports), 'coordinator')}, {counted(plan.nodes, 'node')}"
    line(console, f"The fleet is up: {crew}, {counted(plan.masters, 'Redis master')}{copies}.")
    line(console, f"coordinators  {' '.join(record.coordinators)} (TLS)")
    line(console, f"dashboard     {record.coordinators[0]}/, with the token in {FleetPaths(out).operator_token}")
    line(console, f"store         {plan.store or out / 'store'}")
    line(console, f"logs          {out / 'logs'}")
    option = _option(out)
    line(console, f"Next: drumlin status --watch{option} · drumlin nodes{option} · drumlin pause{option}")
    line(console, f"End it with: drumlin fleet down{option}")


def _option(out: Path) -> str:
    """The option by which other verbs find this fleet."""
    return "" if out == Path(FLEET_FOLDER) else f" --out {out}"


def _tell_if_stopped(loaded: Loaded, paths: FleetPaths, out: Path) -> None:
    """Say so if the crawl is stopped, paused or finished: then the fleet is up but nothing is fetched."""
    from drumlin.config import SETTINGS
    from drumlin.fleet.up import remote_of

    crawl, option = remote_of(paths).get(CRAWL), _option(out)
    state, reason = crawl["state"], crawl["stop_reason"]
    raised = f"raise it with `drumlin set {reason} ...{option}`, then " if reason in SETTINGS else ""
    because = f" by {SETTINGS[reason].flag}" if reason in SETTINGS else ""
    sentences = {
        "finished": "Its crawl is finished.",
        "paused": f"Its crawl is paused: `drumlin resume{option}` goes on.",
        "draining": f"Its crawl was stopped{because}: {raised}`drumlin resume{option}` goes on.",
    }
    if state in sentences:
        say(loaded.process, sentences[state])


def _watch(loaded: Loaded, paths: FleetPaths) -> int:
    """Show the crawl until it is finished or the user interrupts, then take the fleet down."""
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
@config_options("fleet_out", "json", "color")
def status(loaded: Loaded) -> None:
    """Show the processes of a fleet, and how its crawl stands."""
    from drumlin.cli.status import status_line
    from drumlin.errors import DrumlinError
    from drumlin.fleet.layout import FleetPaths
    from drumlin.fleet.up import remote_of

    paths = FleetPaths(Path(loaded.fleet.out).absolute())
    record = paths.read()
    state = record.state if record.running else "down"
    if loaded.process.json:
        alive = {process.name: process.alive for process in record.processes}
        write_json({"state": state, "alive": alive, "fleet": record})
        return
    console = results(loaded.process)
    console.print(_processes_table(record))
    failure = f" {record.failure}" if record.failure else ""
    line(console, f"The fleet is {state}.{failure}{_alone(record)}{_frozen(record)}")
    if record.running:
        try:
            line(console, f"The crawl is {status_line(remote_of(paths).get(STATS))}")
        except DrumlinError as unknown:
            line(console, f"The state of the crawl is not known: {unknown}")


def _alone(record: FleetRecord) -> str:
    """Whether processes run that nobody starts again."""
    if not record.running or (record.supervisor is not None and record.supervisor.alive):
        return ""
    return " Its supervisor is gone, so what ends is not started again. `drumlin fleet down`, then `up`, mends that."


def _frozen(record: FleetRecord) -> str:
    """Which processes are alive and do nothing; what needs them waits."""
    frozen = [process for process in record.processes if process.frozen]
    pids = " ".join(str(process.mark.pid) for process in frozen if process.mark is not None)
    if not frozen:
        return ""
    names = ", ".join(process.name for process in frozen)
    return f" Frozen: {names}; what needs them waits. `kill -CONT {pids}` lets them go on."


def _processes_table(record: FleetRecord) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("process", "state", "pid", "starts", "address"):
        table.add_column(column, justify="right" if column in ("pid", "starts") else "left", no_wrap=True)
    for process in record.processes:
        state, style = ("frozen", "red") if process.frozen else _standing(process.alive, process.exit_code)
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
@config_options("fleet_out", "json", "quiet", "color")
def down_command(loaded: Loaded, kill: bool) -> None:
    """End a fleet: nodes finish what is in flight, then everything stops. Also cleans up after one that died."""
    from drumlin.fleet.layout import FleetPaths
    from drumlin.fleet.up import down

    paths = FleetPaths(Path(loaded.fleet.out).absolute())
    stopped = _is_stopped(paths)
    killed = down(paths, at_once=kill)
    if loaded.process.json:
        write_json({"state": "down", "killed": killed, "crawl_stopped": stopped})
        return
    if killed and not kill:
        say(loaded.process, f"These had to be killed: {', '.join(killed)}.")
    then = "; its crawl was stopped, and goes on after `drumlin resume`." if stopped else " and goes on with its crawl."
    say(loaded.process, f"The fleet in {loaded.fleet.out} is down; `drumlin fleet up` starts it again{then}")


def _is_stopped(paths: FleetPaths) -> bool:
    """Whether the crawl of a fleet was stopped; False if its coordinators cannot be asked."""
    from drumlin.client.remote import CoordinatorError
    from drumlin.fleet.up import remote_of

    try:
        return bool(paths.read().running and remote_of(paths).get(CRAWL)["state"] == "draining")
    except CoordinatorError:
        return False
