"""`drumlin crawl`: crawl from seed URLs into a directory; the same command again resumes."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from drumlin.cli.console import messages, results, say, tell, write_json
from drumlin.cli.help import Verb
from drumlin.cli.remote import holds_crawl
from drumlin.config import Loaded, ProcessConfig, crawl_options
from drumlin.config.record import CrawlRecord
from drumlin.errors import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_OK, EXIT_OUT_OF_REACH, ConfigError

_OTHER_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:(?![0-9])", re.IGNORECASE | re.ASCII)
HREF_SHOWN_CHARS = 200
SEEDS_NAMED = 3
NO_CONTACT = (
    "Owners of the sites cannot see whom to write to. Give --contact you@example.org, or a web page, once it is more "
    "than a trial: it is sent in the user agent."
)


@click.command("crawl", cls=Verb)
@click.argument("urls", nargs=-1, metavar="URL...")
@click.option("-i", "--input", "input_file", metavar="FILE", help="read seed URLs from FILE, one a line; - for stdin")
@click.option("--fresh", is_flag=True, help="remove the crawl that is in --out, and begin anew")
@crawl_options
def command(loaded: Loaded, urls: tuple[str, ...], input_file: str | None, fresh: bool) -> int:
    """Crawl from the given URLs into a crawl directory (--out).

    Running the same command again resumes where it stopped, whatever stopped it.
    """
    out = Path(loaded.process.out)
    from_topic = loaded.process.seeds_from is not None and not urls and input_file is None
    if not urls and input_file is None and not fresh and not from_topic and holds_crawl(out):
        raise ConfigError("No URL is given.", f"The crawl in {out} goes on with {_last_seeds(out)}.")
    seeds = [] if from_topic else read_seeds(urls, input_file)
    ask_for_contact(loaded, founded=holds_crawl(out) and not fresh)
    return crawl(loaded, seeds, fresh=fresh)


def crawl(loaded: Loaded, seeds: list[str], *, fresh: bool = False, demo: bool = False) -> int:
    """Run the crawl and print its report; the exit code says how it ended. The web of a `demo` is gone with it, so
    nothing of it can be tried again."""
    # There is a process for each core, so numpy needs no threads; starting them would take each a tenth of a second.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from drumlin.cli.progress import Progress
    from drumlin.cli.summary import print_report, tell_fruitless_seeds
    from drumlin.coordinator.patience import PATIENCE, TOPIC_LOST
    from drumlin.local.crawl import LocalCrawl
    from drumlin.tracing import check_installed

    process = loaded.process
    check_installed(process.trace_every)
    with Progress(messages(process), quiet=process.quiet) as progress:
        report = LocalCrawl(
            process,
            loaded.crawl,
            seeds,
            fresh=fresh,
            on_progress=progress.show,
            on_page=_announced(process),
            tell=lambda line: say(process, line),
        ).run()
    if report.already_finished and report.pages:
        say(process, f"The crawl in {process.out} is finished: nothing is left to fetch.")
    if process.json:
        write_json(report)
    elif not process.quiet:
        print_report(results(process), report, Path(process.out))
    if not demo:
        tell_fruitless_seeds(messages(process), report, Path(process.out))
    if report.interrupted:
        return EXIT_INTERRUPTED
    if report.stop_reason == PATIENCE or report.stop_reason.startswith(TOPIC_LOST):
        return EXIT_OUT_OF_REACH
    return EXIT_OK if report.pages or report.stop_reason else EXIT_NOTHING


def _announced(process: ProcessConfig) -> Callable[[str], None] | None:
    """Tells the address of the crawl's page; None if there is to be no page. Unless the user says, there is one where
    somebody looks at a terminal: nobody else would see its address."""
    wanted = process.ui if process.ui is not None else messages(process).is_terminal and not process.quiet
    return (lambda address: tell(process, f"Watch and steer it at {address}")) if wanted else None


def ask_for_contact(loaded: Loaded, *, founded: bool) -> None:
    """When a crawl of public sites begins, ask once for a contact, if the user agent does not name one."""
    if not (founded or loaded.crawl.names_contact or loaded.crawl.allow_private):
        say(loaded.process, NO_CONTACT)


def read_seeds(urls: tuple[str, ...], input_file: str | None) -> list[str]:
    """The canonical seed URLs, each once. ConfigError names the first bad line, before anything is changed."""
    from drumlin.urls import canonical

    seeds: dict[str, None] = {}
    for where, href in _hrefs(urls, input_file):
        url = canonical(with_scheme(href))
        if url is None:
            shown = href[:HREF_SHOWN_CHARS]
            raise ConfigError(f"{where}: {shown!r} is not a web address.", "Give http:// or https:// URLs.")
        seeds[url] = None
    if not seeds and input_file is not None and not urls:
        raise ConfigError(f"{_named(input_file)} names no URL.", "Write one a line; lines after # do not count.")
    if not seeds:
        raise ConfigError("There is nothing to crawl.", "Give one or more URLs, or a file of them with --input.")
    return list(seeds)


def _last_seeds(out: Path) -> str:
    """What to type to resume the crawl in this directory, in words."""
    record = CrawlRecord.read(out)
    return (
        f"{seeds_named(record.seeds)}, and the flags of its last start" if record and record.seeds else "its own URLs"
    )


def seeds_named(seeds: list[str], *flags: str) -> str:
    """The command that crawls from these seeds, in words."""
    others = " and its other URLs" if len(seeds) > SEEDS_NAMED else ""
    return f"`{' '.join(('drumlin crawl', *seeds[:SEEDS_NAMED], *flags))}`{others}"


def _hrefs(urls: tuple[str, ...], input_file: str | None) -> Iterator[tuple[str, str]]:
    for href in urls:
        yield "URL", href
    if input_file is None:
        return
    try:
        text = sys.stdin.buffer.read() if input_file == "-" else Path(input_file).read_bytes()
    except OSError as cause:
        raise ConfigError(f"Cannot read {input_file}: {cause.strerror}.", "Check the path given to --input.") from cause
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        href = line.strip()
        if href and not href.startswith("#"):
            yield f"{input_file}, line {number}", href


def _named(input_file: str) -> str:
    return "The standard input" if input_file == "-" else input_file


def with_scheme(href: str) -> str:
    """A bare name such as example.com/docs or example.com:8080 means its web site; mailto:someone does not, and a path
    such as /docs names no site."""
    bare = href and not href.startswith("/") and "://" not in href and not _OTHER_SCHEME.match(href)
    return f"http://{href}" if bare else href


def web_address(href: str) -> str:
    """The canonical URL that a person means."""
    from drumlin.urls import canonical

    url = canonical(with_scheme(href))
    if url is None:
        shown = href[:HREF_SHOWN_CHARS]
        raise ConfigError(f"{shown!r} is not a web address.", "Write the whole of it: https://example.org/page.")
    return url
