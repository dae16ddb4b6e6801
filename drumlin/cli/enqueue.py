"""`drumlin enqueue`: give a running crawl further URLs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import results, say, write_json
from drumlin.cli.crawl import read_seeds
from drumlin.cli.help import Verb
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded
from drumlin.errors import ConfigError
from drumlin.lines import counted
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote

BATCH_URLS = 1_000
REASON = "drumlin enqueue --known"


@click.command("enqueue", cls=Verb)
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option("-i", "--input", "input_file", metavar="FILE", help="read URLs from FILE, one a line; - for stdin")
@click.option("--priority", metavar="N", type=click.IntRange(0, 9), help="from 0 to 9, the most urgent")
@click.option("--known", is_flag=True, help="give URLs that are queued already the --priority, and add none")
@remote_options("json", "color")
def command(
    loaded: Loaded, remote: Remote, urls: tuple[str, ...], input_file: str | None, priority: int | None, known: bool
) -> None:
    """Add URLs to the queue of a crawl. Those that it knows already are not fetched again."""
    wanted = read_seeds(urls, input_file)
    if known:
        _reprioritise(loaded, remote, wanted, priority)
        return
    counts: Counter[str] = Counter(added=0, seen=0, capped=0, removed=0)
    for start in range(0, len(wanted), BATCH_URLS):
        batch: dict[str, object] = {"urls": wanted[start : start + BATCH_URLS]}
        if priority is not None:
            batch["priority"] = priority
        answer = remote.post(paths.URLS, batch)
        counts.update({name: answer[name] for name in ("added", "seen", "capped", "removed")})
    if loaded.process.json:
        write_json(dict(counts))
        return
    if counts["added"]:
        _say_unless_running(loaded, remote)
    capped = f", {counts['capped']:,} over the limit of their host" if counts["capped"] else ""
    removed = f", {counts['removed']:,} removed on request and not fetched again" if counts["removed"] else ""
    said = f"{counted(counts['added'], 'URL')} added, {counts['seen']:,} known before{capped}{removed}."
    results(loaded.process).print(said)


def _reprioritise(loaded: Loaded, remote: Remote, urls: list[str], priority: int | None) -> None:
    if priority is None:
        raise ConfigError("--known needs a --priority.", "From 0 to 9, the most urgent.")
    for url in urls:
        remote.post(paths.REPRIORITIZE, {"url": url, "newPriority": priority, "reason": REASON})
    if loaded.process.json:
        write_json({"moved": len(urls)})
    else:
        results(loaded.process).print(
            f"{counted(len(urls), 'URL')} {'has' if len(urls) == 1 else 'have'} priority {priority} now."
        )


def _say_unless_running(loaded: Loaded, remote: Remote) -> None:
    if remote.standing:
        say(loaded.process, "The crawl is not running: the same `drumlin crawl` command fetches them.")
        return
    state = remote.get(paths.CRAWL)["state"]
    if state != "running":
        say(loaded.process, f"The crawl is {state}: `drumlin resume` lets it go on with them.")
