"""`drumlin enqueue`: give a running crawl further URLs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import results, say, write_json
from drumlin.cli.crawl import read_seeds
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded, config_options

if TYPE_CHECKING:
    from drumlin.fleet.remote import Remote

BATCH_URLS = 1_000


@click.command("enqueue")
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option("-i", "--input", "input_file", metavar="FILE", help="read URLs from FILE, one a line; - for stdin")
@click.option("--priority", type=click.IntRange(0, 9), help="from 0 to 9, the most urgent")
@remote_options
@config_options("json", "color")
def command(
    loaded: Loaded, remote: Remote, urls: tuple[str, ...], input_file: str | None, priority: int | None
) -> None:
    """Put URLs into the frontier of a running crawl. Those that it knows already are not fetched again."""
    wanted = read_seeds(urls, input_file)
    counts: Counter[str] = Counter(added=0, seen=0, capped=0)
    for start in range(0, len(wanted), BATCH_URLS):
        batch: dict[str, object] = {"urls": wanted[start : start + BATCH_URLS]}
        if priority is not None:
            batch["priority"] = priority
        answer = remote.post("/api/v1/urls", batch)
        counts.update({name: answer[name] for name in ("added", "seen", "capped")})
    if loaded.process.json:
        write_json(dict(counts))
        return
    _say_unless_running(loaded, remote)
    capped = f", {counts['capped']:,} over the limit of their host" if counts["capped"] else ""
    results(loaded.process).print(f"{counts['added']:,} URLs added, {counts['seen']:,} known before{capped}.")


def _say_unless_running(loaded: Loaded, remote: Remote) -> None:
    state = remote.get("/api/v1/crawl")["state"]
    if state != "running":
        say(loaded.process, f"The crawl is {state}: `drumlin resume` lets it go on with them.")
