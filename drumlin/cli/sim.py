"""`drumlin sim`: simulate a fleet on virtual time, with faults, and check that every promise holds."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from drumlin.cli.help import Verb
from drumlin.cli.quantity import Quantity
from drumlin.cli.simulating.files import picture_target, read_scenario
from drumlin.cli.simulating.status import StatusLine
from drumlin.cli.simulating.telling import show_figures, tell_broken, tell_smallest, write_figures
from drumlin.config.quantities import parse_number, parse_share
from drumlin.disk import write_whole
from drumlin.errors import EXIT_INTERNAL, EXIT_OK, ConfigError, StorageError
from drumlin.lines import tell

if TYPE_CHECKING:
    from drumlin.sim.running import Outcome
    from drumlin.sim.scenario import Scenario

SEED_MAX = 1_000_000_000_000
HOURS = Quantity("number", parse_number, "0.5 or 24", least=0.01, most=1_000)
CHURN = Quantity("share", parse_share, "0.3 or 30%", most=0.9, or_zero=True)
PACE = Quantity("number", parse_number, "2.5 or 10", least=0.1, most=6_000)
OF_A_FLEET = ("hours", "churn", "pages_per_minute")
SAID_BY_A_FILE = ("seed", "short", "nodes")


@click.command("sim", cls=Verb)
@click.option("--seed", metavar="N", type=click.IntRange(0, SEED_MAX), default=1, help="what all chance follows from")
@click.option("--short", is_flag=True, help="12 to 40 nodes for a few minutes, in place of hundreds for 20")
@click.option("--nodes", metavar="N", type=click.IntRange(2, 100_000), help="plan a fleet of so many nodes")
@click.option("--hours", metavar="H", callback=HOURS, default="0.5", help="virtual hours of that fleet, 0.01 to 1,000")
@click.option(
    "--churn", metavar="C", callback=CHURN, default="0", help="share of its nodes that is away, 0 to 0.9, or 30%"
)
@click.option(
    "--pages-per-minute", metavar="P", callback=PACE, default="10", help="what one node can fetch, 0.1 to 6,000"
)
@click.option("--scenario", "file", metavar="FILE", help="a scenario in JSON, such as a violation prints")
@click.option("--json", "as_json", is_flag=True, help="print the figures as JSON")
@click.option("--plot", "picture", metavar="FILE", help="draw pages, live nodes and lag over time into an SVG file")
@click.option("--log", "with_log", is_flag=True, help="print what happened when; with --json, on stderr")
def command(
    seed: int,
    short: bool,
    nodes: int | None,
    hours: float,
    churn: float,
    pages_per_minute: float,
    file: str | None,
    as_json: bool,
    picture: str | None,
    with_log: bool,
) -> int:
    """Simulate a fleet: the real code of nodes and coordinators on virtual time, with made-up sites and networks.

    Every promise is checked all the time. If one is broken, the seed and the smallest scenario that was found are
    printed, and the exit code is 1. The same seed always gives the same simulation.
    """
    from drumlin.sim.scenario import of_fleet, of_seed

    _refuse_contradictions(file, nodes)
    target = picture_target(picture) if picture is not None else None
    if file is not None:
        scenario = read_scenario(file)
    elif nodes is not None:
        scenario = of_fleet(seed, nodes, hours, churn, pages_per_minute)
    else:
        scenario = of_seed(seed, short=short)
    _let_sigterm_interrupt()
    outcome = _simulated(scenario, with_log=with_log, as_json=as_json)
    return _tell(outcome, as_json=as_json, target=target)


def _refuse_contradictions(file: str | None, nodes: int | None) -> None:
    """ConfigError for flags that would do nothing beside others."""
    given = _given(*OF_A_FLEET)
    if given and (nodes is None or file is not None):
        raise ConfigError(f"{given[0]} is about a fleet of --nodes N.", f"Give --nodes, or leave {given[0]} out.")
    given = _given(*SAID_BY_A_FILE)
    if given and file is not None:
        raise ConfigError(f"{given[0]} does nothing with --scenario, whose file says it.", "Leave one of them out.")
    if nodes is not None and _given("short"):
        raise ConfigError("--short does nothing with --nodes.", "Leave one of them out; --hours makes a fleet's short.")


def _given(*names: str) -> list[str]:
    """Those of these flags that the user has given, as they are typed."""
    source = click.get_current_context().get_parameter_source
    return [f"--{name.replace('_', '-')}" for name in names if source(name) is not ParameterSource.DEFAULT]


def _let_sigterm_interrupt() -> None:
    """SIGTERM ends it as Ctrl-C does: a search for a smaller scenario then prints what it has found."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    click.get_current_context().call_on_close(lambda: signal.signal(signal.SIGTERM, before))


def _simulated(scenario: Scenario, *, with_log: bool, as_json: bool) -> Outcome:
    from drumlin.sim.running import run

    try:
        with StatusLine(wanted=not with_log) as status:
            status.show(scenario, 0.0)
            say = _printer(as_json=as_json) if with_log else _say_nothing
            return run(scenario, say, lambda now: status.show(scenario, now))
    except MemoryError as cause:
        raise ConfigError(
            f"There is not enough memory to simulate {scenario.nodes:,} nodes and {scenario.hosts:,} hosts.",
            "Simulate a smaller fleet.",
        ) from cause


def _printer(*, as_json: bool) -> Callable[[str], None]:
    """Prints lines of the log at once: a large simulation takes long, and people want to see how far it is. Where
    stdout has JSON, they are for stderr."""
    stream = sys.stderr if as_json else sys.stdout

    def print_line(line: str) -> None:
        stream.write(line + "\n")
        stream.flush()

    return print_line


def _say_nothing(line: str) -> None:
    """Without --log."""


def _tell(outcome: Outcome, *, as_json: bool, target: Path | None) -> int:
    """Print and draw what came of it, the most important first: what comes later may fail or be interrupted."""
    if not as_json:
        show_figures(outcome)
    if outcome.broken is not None:
        tell_broken(outcome)
    failed = _draw(outcome, target) if target is not None else None
    smallest = tell_smallest(outcome) if outcome.broken is not None else None
    if as_json:
        write_figures(outcome, smallest)
    if failed is not None:
        tell(f"drumlin: {failed}")
    if smallest is not None:
        return EXIT_INTERNAL
    return failed.exit_code if failed is not None else EXIT_OK


def _draw(outcome: Outcome, target: Path) -> StorageError | None:
    """Write the picture, or return why that failed: the simulation was not for nothing."""
    from drumlin.sim.plot import plot

    try:
        write_whole(target, plot(outcome).encode())
    except StorageError as failed:
        return failed
    return None
