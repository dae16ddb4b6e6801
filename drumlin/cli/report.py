"""`drumlin report`: the report of a crawl, from its directory."""

from __future__ import annotations

from pathlib import Path

import click

from drumlin.cli.console import results, write_json
from drumlin.config import Loaded, config_options
from drumlin.errors import ConfigError


@click.command("report")
@config_options("out", "json", "color")
def command(loaded: Loaded) -> None:
    """Show how the last run of a crawl ended and what the crawl has fetched."""
    import msgspec

    from drumlin.cli.summary import print_report
    from drumlin.coordinator.report import Report

    out = Path(loaded.process.out)
    try:
        report = msgspec.json.decode((out / "report.json").read_bytes(), type=Report)
    except OSError as cause:
        hint = "Name a crawl directory with --out; the report is written when a run ends."
        raise ConfigError(f"There is no report in {out}: {cause.strerror}.", hint) from cause
    except msgspec.DecodeError as cause:
        raise ConfigError(f"{out / 'report.json'} is not a report of this version: {cause}.") from cause
    if loaded.process.json:
        write_json(report)
    else:
        print_report(results(loaded.process), report, out)
