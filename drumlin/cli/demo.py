"""`drumlin demo`: crawl a bundled fake web on loopback with the real product, and check the result."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import say
from drumlin.cli.help import Verb
from drumlin.cli.remote import holds_crawl
from drumlin.config import Loaded, load
from drumlin.errors import ConfigError, DrumlinError

if TYPE_CHECKING:
    from drumlin.testing import FakeWeb


@click.command("demo", cls=Verb)
@click.option("--out", metavar="DIR", help="the crawl directory; default: a new one in the temporary folder")
@click.option(
    "--delay",
    metavar="DURATION",
    help="least time between two contacts of a host: with 3s there are two minutes to watch and steer it",
)
@click.option("--json", "as_json", is_flag=True, help="print the report as JSON on stdout")
@click.option("--quiet", is_flag=True, help="print neither progress nor report")
def command(out: str | None, delay: str | None, as_json: bool, quiet: bool) -> int:
    """Crawl a small fake web of about thirty hosts, which has everything that real sites do to crawlers.

    It runs on loopback only, takes some seconds, and leaves the crawl directory for you to look at.
    """
    from drumlin.cli.crawl import crawl
    from drumlin.testing import DEMO_OPTIONS, FakeWeb

    if out and holds_crawl(Path(out)):
        hint = "Name another folder: the web of a demo is gone with it, so none can go on."
        raise ConfigError(f"There is a crawl in {out} already.", hint)
    folder = out or tempfile.mkdtemp(prefix="drumlin-demo-")
    flags: dict[str, object] = {name.replace("-", "_"): value for name, value in DEMO_OPTIONS.items()}
    flags |= {"out": folder, "allow_private": True, "quiet": quiet, "json": as_json}
    flags |= {"delay": delay} if delay else {}
    environ = {name: value for name, value in os.environ.items() if name == "NO_COLOR"}
    loaded = load(flags, environ, None, Path(folder))
    with FakeWeb() as web:
        say(loaded.process, f"A web of {len(web.hosts)} hosts listens on loopback; crawling it into {folder}")
        code = crawl(loaded, list(web.seeds), demo=True)
        _check(loaded, web, whole=_is_finished(Path(folder)))
    say(
        loaded.process,
        f"`drumlin open {folder}` shows it in a browser, `drumlin query --out {folder}` answers questions.",
    )
    return code


def _is_finished(folder: Path) -> bool:
    """Whether the crawl came to its end; somebody may have stopped it."""
    from drumlin.api.explaining.report import REPORT_NAME

    try:
        return bool(json.loads((folder / REPORT_NAME).read_bytes())["state"] == "finished")
    except (OSError, ValueError, KeyError):
        return False


def _check(loaded: Loaded, web: FakeWeb, *, whole: bool) -> None:
    """Check that the crawler requested all URLs that it should, if it came to its end, and none that it should not, and
    say so."""
    missed = web.expected.fetched - web.requested if whole else set()
    forbidden = web.expected.never & web.requested
    if missed or forbidden:
        examples = ", ".join(sorted(missed | forbidden)[:5])
        raise DrumlinError(
            f"The demo went wrong: {len(missed)} pages missed, {len(forbidden)} forbidden ones requested ({examples}).",
            "This is a bug; please report it.",
        )
    if not whole:
        say(loaded.process, "It was stopped before its end. This web is gone with it: another demo is a new one.")
        return
    say(
        loaded.process,
        f"The crawler requested all {len(web.expected.fetched):,} URLs that it should (pages, redirects, plain "
        '"not found"s), and none that it should not.',
    )
