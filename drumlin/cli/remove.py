"""`drumlin remove`: take URLs, hosts or domains out of a crawl, on request."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import line, results, say, write_json
from drumlin.cli.help import Verb
from drumlin.cli.remote import engine_meant
from drumlin.config import Loaded, ProcessConfig, config_options
from drumlin.errors import EXIT_INTERRUPTED, EXIT_OK, ConfigError

if TYPE_CHECKING:
    from drumlin.lifecycle.removal.targets import Targets
    from drumlin.local.removing import Place, Report


@click.command("remove", cls=Verb)
@click.option("--url", "urls", multiple=True, metavar="URL", help="remove a URL; may be repeated")
@click.option("--host", "hosts", multiple=True, metavar="HOST", help="remove a host; may be repeated")
@click.option("--domain", "domains", multiple=True, metavar="DOMAIN", help="remove all hosts of a registrable domain")
@click.option("--dry-run", is_flag=True, help="say what would be removed, and change nothing")
@click.option("--yes", is_flag=True, help="do not ask")
@click.option("--by", default="", metavar="WHO", help="who wants it, for the audit log [default: this user]")
@config_options("out", "engine", "store", "events", "events_config", "json", "quiet", "color")
def command(
    loaded: Loaded,
    urls: tuple[str, ...],
    hosts: tuple[str, ...],
    domains: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    by: str,
) -> int:
    """Remove URLs, hosts or domains from a crawl that does not run: from its queue, its pages and all its indexes.

    They are not fetched again: the crawl remembers a keyed hash of each name. What pages of others say of them stays,
    and is counted. If it is broken off, the same command ends it.
    """
    import asyncio

    from drumlin.events.options import EventsOptions
    from drumlin.local.removing import remove, same_names

    targets, events = _targets(urls, hosts, domains), EventsOptions.of(loaded.process)
    if not dry_run and not yes and not _is_sure(targets):
        return EXIT_INTERRUPTED
    with _place(loaded) as place:
        report = asyncio.run(remove(place, targets, dry_run=dry_run, by=by, events=events))
        others = [] if report.counts.removed else asyncio.run(same_names(place, targets))
    _tell(loaded, report, others)
    return EXIT_OK


def _targets(urls: tuple[str, ...], hosts: tuple[str, ...], domains: tuple[str, ...]) -> Targets:
    from drumlin.lifecycle.removal.targets import Targets, What, parse_target

    named = [(What.URL, one) for one in urls] + [(What.HOST, one) for one in hosts]
    named += [(What.DOMAIN, one) for one in domains]
    if not named:
        raise ConfigError("It is not said what to remove.", "Give --url URL, --host HOST or --domain DOMAIN.")
    return Targets([parse_target(*one) for one in named])


@contextmanager
def _place(loaded: Loaded) -> Iterator[Place]:
    """Where the crawl is. Of a fleet on this machine that is down, the engine runs meanwhile."""
    from drumlin.fleet.at_rest import engine_of_fleet, is_fleet, rewrite_logs
    from drumlin.fleet.layout import FleetPaths
    from drumlin.local.removing import Place

    engine, folder = engine_meant(loaded), Path(loaded.process.out).absolute()
    if engine is not None or not is_fleet(folder):
        yield _place_of(loaded.process, engine)
        return
    paths = FleetPaths(folder)
    store = paths.read().plan.store or str(paths.store)
    _check_store(loaded, store)
    with engine_of_fleet(paths) as address:
        # The store's folder comes first, so what a killed removal was about to put in place there is put there: a
        # removal deletes such files everywhere below a folder, and the store lies below the fleet's.
        yield Place(address, store, beside=(paths.store, folder), forget=partial(rewrite_logs, paths))


def _check_store(loaded: Loaded, store: str) -> None:
    """Refuse another store than that of the fleet, if one is named at least as strongly as the fleet is."""
    from drumlin.store.objects.address import is_objects, parse_address

    named = loaded.process.store
    if named is None or loaded.stronger("out", "store") == "out":
        return
    if (str(parse_address(named)) if is_objects(named) else str(Path(named).absolute())) != store:
        raise ConfigError(f"The fleet in {loaded.process.out} stores in {store}, not in {named}.", "Leave --store out.")


def _place_of(process: ProcessConfig, engine: str | None) -> Place:
    from drumlin.local.removing import Place
    from drumlin.store.opening import store_address

    if engine is not None:
        if process.store is None:
            hint = "Give --store DIR, or s3://BUCKET/PREFIX. For a crawl of one machine give --out DIR alone."
            raise ConfigError("It is not said where the crawl has stored its pages.", hint)
        return Place(engine, process.store)
    out = Path(process.out).absolute()
    return Place(f"rocksdb:{out / 'frontier'}", store_address(out) or str(out), out)


def _is_sure(targets: Targets) -> bool:
    names = ", ".join(f"{one.what} {one.name}" for one in targets.each)
    if not sys.stdin.isatty():
        raise ConfigError(f"This would remove {names} from the crawl for good.", "Add --yes, or --dry-run to look.")
    return click.confirm(f"Remove {names} from the crawl for good?", default=False, err=True)


def _tell(loaded: Loaded, report: Report, others: list[str]) -> None:
    import msgspec

    from drumlin.api.explaining.same_name import known_as

    if loaded.process.json:
        write_json(report)
        return
    counts, console = report.counts, results(loaded.process)
    said = "would be removed" if report.dry_run else "removed"
    say(loaded.process, f"{counts.removed:,} things {said}; {counts.mentions:,} of others name it and stay.")
    if not counts.removed and not report.resumed:
        hint = "A host is named as its URLs write it, with the port if they have one."
        say(loaded.process, f"The crawl has nothing of that name. {known_as(others) or hint}")
    if report.resumed:
        say(
            loaded.process, "A removal had been broken off before; what it had removed by then is not in these numbers."
        )
    for name, number in msgspec.to_builtins(counts).items():
        if number and not loaded.process.quiet:
            line(console, f"{name.replace('_', ' '):<26}{number:>12,}")
