"""`drumlin store`: what a person may have to do to the store of a fleet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import say, write_json
from drumlin.cli.help import VerbFamily
from drumlin.config import Loaded, config_options
from drumlin.errors import ConfigError

if TYPE_CHECKING:
    from drumlin.api.explaining.report import Report


@click.group("store", cls=VerbFamily)
def command() -> None:
    """Complete the store of a fleet."""


@command.command("finish")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@config_options("engine", "json", "quiet", "color")
def finish_command(loaded: Loaded, folder: Path) -> None:
    """Merge the index of a store and, with --engine, write its report.

    A coordinator that has the store does both when a crawl has ended and its nodes have left. This command is for a
    store whose coordinators are gone by then. It can be repeated without harm.
    """
    from drumlin.api.explaining.report import REPORT_NAME
    from drumlin.cli.summary import ending
    from drumlin.store.finish import finish

    index, path, report = finish(folder), folder / REPORT_NAME, None
    say(loaded.process, f"Merged the indexes into {index}.")
    if engine := loaded.process.engine:
        report = _report(engine)
        report.write(path)
        say(loaded.process, f"Wrote {path}: {report.pages:,} pages. {ending(report)}")
    elif not path.exists():
        raise ConfigError(f"There is no {path}.", "Give the crawl's --engine, which knows its figures.")
    if loaded.process.json:
        write_json({"index": str(index), "report_file": str(path), "report": report})


def _report(spec: str) -> Report:
    from drumlin.api.explaining.report import make_report
    from drumlin.cli.tokens import open_crawl
    from drumlin.coordinator.dispatch import STATE_KEY, STOP_REASON_KEY
    from drumlin.serving.running_time import RunningTime

    with open_crawl(spec) as opened:
        state = (opened.get_meta(STATE_KEY) or b"running").decode()
        reason = (opened.get_meta(STOP_REASON_KEY) or b"").decode()
        elapsed_s = opened.run(RunningTime(opened.engine).read())
        now = opened.run(opened.engine.keep_time(0.0))
        return opened.run(make_report(opened.engine, state, reason, elapsed_s, now))
