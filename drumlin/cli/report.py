"""`drumlin report`: the report of a crawl, from its directory."""

from __future__ import annotations

from pathlib import Path

import click

from drumlin.cli.console import results, write_json
from drumlin.cli.help import Verb
from drumlin.config import Loaded, config_options
from drumlin.errors import ConfigError


@click.command("report", cls=Verb)
@config_options("out", "json", "color")
def command(loaded: Loaded) -> None:
    """Show how the last run of a crawl ended and what the crawl has fetched."""
    import msgspec

    from drumlin.api.explaining.report import Report
    from drumlin.cli.summary import print_report
    from drumlin.local.moved import tell_moved

    out = store_of(loaded)
    tell_moved(out, "This report is from before, unless the crawl still stores here.")
    try:
        report = msgspec.json.decode((out / "report.json").read_bytes(), type=Report)
    except OSError as cause:
        option = f" --out {loaded.process.out}" if loaded.is_given("out") else ""
        stored = f"`drumlin query outcomes{option}` asks what is stored so far"
        hint = f"It is written when a crawl has ended; {stored}. Name another crawl with --out."
        raise ConfigError(f"There is no report in {out}: {cause.strerror}.", hint) from cause
    except msgspec.DecodeError as cause:
        raise ConfigError(f"{out / 'report.json'} is not a report of this version: {cause}.") from cause
    if loaded.process.json:
        write_json(report)
    else:
        print_report(results(loaded.process), report, out)


def store_of(loaded: Loaded) -> Path:
    """The folder of the report: the directory of a crawl, or the store of a fleet. Without --out it is found in the
    same way as by other verbs."""
    from drumlin.fleet.layout import FleetPaths

    own, shared = Path(loaded.process.out), Path(loaded.fleet.out)
    folder = own if loaded.is_given("out") or not FleetPaths(shared).exists() else shared
    fleet = FleetPaths(folder)
    return fleet.store if fleet.exists() else folder
