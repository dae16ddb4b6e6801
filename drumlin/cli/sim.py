"""`drumlin sim`: simulate a fleet on virtual time, with faults, and check that every promise holds."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from drumlin.cli.console import write_json
from drumlin.cli.help import Verb
from drumlin.disk import write_whole
from drumlin.errors import EXIT_INTERNAL, EXIT_OK, ConfigError
from drumlin.lines import tell

if TYPE_CHECKING:
    from drumlin.sim.running import Outcome
    from drumlin.sim.scenario import Scenario


@click.command("sim", cls=Verb)
@click.option("--seed", metavar="N", type=click.IntRange(min=0), default=1, help="what all chance follows from")
@click.option("--short", is_flag=True, help="12 to 40 nodes for a few minutes, in place of hundreds for 20")
@click.option("--nodes", metavar="N", type=click.IntRange(2, 100_000), help="plan a fleet of so many nodes")
@click.option(
    "--hours", metavar="H", type=click.FloatRange(0.01, 1_000), default=0.5, help="virtual hours of that fleet"
)
@click.option(
    "--churn", metavar="C", type=click.FloatRange(0, 0.9), default=0.0, help="share of its nodes that is away"
)
@click.option(
    "--pages-per-minute", metavar="P", type=click.FloatRange(0.1, 6_000), default=10.0, help="what one node can fetch"
)
@click.option("--scenario", "file", metavar="FILE", help="a scenario in JSON, such as a violation prints")
@click.option("--json", "as_json", is_flag=True, help="print the figures as JSON")
@click.option("--plot", "picture", metavar="FILE", help="draw pages, live nodes and lag over time into an SVG file")
@click.option("--log", "with_log", is_flag=True, help="print what happened when")
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
    printed, and the exit code is not 0. The same seed always gives the same simulation.
    """
    from drumlin.sim.running import run
    from drumlin.sim.scenario import of_fleet, of_seed

    given = click.get_current_context().get_parameter_source
    of_a_fleet = [name for name in ("hours", "churn", "pages_per_minute") if given(name) is not ParameterSource.DEFAULT]
    if of_a_fleet and (nodes is None or file is not None):
        flag = f"--{of_a_fleet[0].replace('_', '-')}"
        raise ConfigError(f"{flag} is about a fleet of --nodes N.", f"Give --nodes, or leave {flag} out.")
    if file is not None:
        scenario = _read(file)
    elif nodes is not None:
        scenario = of_fleet(seed, nodes, hours, churn, pages_per_minute)
    else:
        scenario = of_seed(seed, short=short)
    outcome = run(scenario, _print_line) if with_log else run(scenario)
    if picture is not None:
        from drumlin.sim.plot import plot

        write_whole(Path(picture), plot(outcome).encode())
    _show(outcome, as_json=as_json)
    return _tell_broken(outcome) if outcome.broken is not None else EXIT_OK


def _print_line(line: str) -> None:
    """At once: a large simulation takes long, and people want to see how far it is."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _read(file: str) -> Scenario:
    import msgspec

    from drumlin.sim.scenario import Scenario

    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=Scenario)
    except OSError as cause:
        raise ConfigError(
            f"Cannot read {file}: {cause.strerror}.", "Put the line of JSON that `drumlin sim` printed into a file."
        ) from cause
    except msgspec.DecodeError as cause:
        raise ConfigError(
            f"{file} is not a scenario: {cause}.", "Put the line of JSON that `drumlin sim` printed into a file."
        ) from cause


def _show(outcome: Outcome, *, as_json: bool) -> None:
    if as_json:
        write_json({**outcome.figures, "broken": outcome.broken})
        return
    width = max(map(len, outcome.figures))
    for name, value in outcome.figures.items():
        shown = f"{value:,}" if isinstance(value, int) else f"{value:,.4g}" if isinstance(value, float) else str(value)
        sys.stdout.write(f"{name.replace('_', ' '):{width}}  {shown:>14}\n")


def _tell_broken(outcome: Outcome) -> int:
    """Print the violation, then make it small, and print that with the scenario that reproduces it."""
    import msgspec

    from drumlin.sim.running import minimal_log, violation
    from drumlin.sim.shrinking import shrunk

    tell(f"{violation(outcome)}. Looking for a smaller scenario, which may take long; Ctrl-C ends it.")
    smallest = shrunk(outcome, tell)
    sys.stderr.write("\n".join(minimal_log(smallest)) + "\n")
    sys.stderr.write(f"seed {outcome.scenario.seed}; smallest scenario found, for --scenario FILE:\n")
    sys.stderr.write(msgspec.json.encode(smallest.scenario).decode() + "\n")
    return EXIT_INTERNAL
