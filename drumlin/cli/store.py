"""`drumlin store`: what a person may have to do to the store of a crawl."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import print_result, say, write_json
from drumlin.cli.help import VerbFamily
from drumlin.config import Loaded, config_options
from drumlin.errors import BusyError, ConfigError
from drumlin.lines import counted

if TYPE_CHECKING:
    from drumlin.api.explaining.report import Report
    from drumlin.protocol import NodeRecord
    from drumlin.store.files import StoreFiles
    from drumlin.store.objects.files import ObjectFiles

NAMES_SHOWN_MAX = 10
DRY_RUN = click.option("--dry-run", is_flag=True, help="say what would be done, and change nothing")


@click.group("store", cls=VerbFamily)
def command() -> None:
    """Complete, check and tidy the store of a crawl."""


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
        say(loaded.process, f"Wrote {path}: {counted(report.pages, 'page')}. {ending(report)}")
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


# Stores in a bucket


@command.command("compact")
@DRY_RUN
@click.option("--all", "everything", is_flag=True, help="join small segments also if they make no full file")
@config_options("store", "json", "quiet", "color")
def compact_command(loaded: Loaded, dry_run: bool, everything: bool) -> None:
    """Join small segments of a store in a bucket into large files.

    Coordinators with the store do this beside a crawl. It can be repeated, and readers may be at work: they see the old
    files or the new ones. The old ones are removed by `drumlin store collect` a day later.
    """
    from drumlin.disk import temporary_folder
    from drumlin.lifecycle.held import begin_joining, held_segments, next_to_join
    from drumlin.store.objects.compaction import compact
    from drumlin.store.objects.mark import untold_segments

    files, joined, overtaken = _bucket(loaded), 0, False
    removals, untold = begin_joining(files), untold_segments(files)
    if untold:
        say(loaded.process, f"Left alone until Kafka is told of it (--events): {counted(len(untold), 'segment')}.")
    with temporary_folder("compact") as folder:
        held = held_segments(files)
        kept = held | untold
        while segments := next_to_join(files, kept, everything=everything):
            overtaken = not dry_run and not compact(files, segments, folder, removals)
            joined += 0 if overtaken else len(segments)
            if dry_run or overtaken:
                break
    if held:
        say(loaded.process, f"Left alone, because a hold covers it: {counted(len(held), 'segment')}.")
    ahead = kept - held - untold
    if ahead:
        why = "it is dated more than a day ahead, or its dates cannot be read"
        hint = "If objects are missing, `drumlin store check` names them."
        say(loaded.process, f"Left alone, because {why}: {counted(len(ahead), 'segment')}. {hint}")
    if overtaken:
        say(loaded.process, "Somebody else has changed some of these segments meanwhile. Run it again.")
    said = "would be joined" if dry_run else "joined"
    nothing = "There is nothing to join." if not overtaken else "Nothing was joined."
    found = f"{counted(joined, 'small segment')} of {files} {said}." if joined else nothing
    print_result(
        loaded.process, found, {"segments": joined, "held": len(held), "ahead": len(ahead), "dry_run": dry_run}
    )


@command.command("collect")
@DRY_RUN
@click.option("--older", default="24h", metavar="DURATION", help="remove only what is not needed for so long; 24h")
@config_options("store", "json", "quiet", "color")
def collect_command(loaded: Loaded, dry_run: bool, older: str) -> None:
    """Remove what nothing needs any more from a store in a bucket.

    That is: objects that are in no manifest, such as those of an upload that was never completed, and files that were
    replaced. Coordinators with the store do this beside a crawl. With less than 24h, nobody may be writing or reading.
    """
    from drumlin.config.quantities import show_size
    from drumlin.store.objects.collection import find_garbage, remove_garbage

    older_s, files = _duration("--older", older), _bucket(loaded)
    garbage = find_garbage(files, files.bucket.time(), older_s)
    if not dry_run:
        remove_garbage(files, garbage)
    said = "would be removed" if dry_run else "removed"
    objects, uploads = len(garbage.objects), len(garbage.uploads)
    found = f"{counted(objects, 'object')} ({show_size(garbage.bytes)}) and {counted(uploads, 'unfinished upload')}"
    told = {"objects": objects, "bytes": garbage.bytes, "uploads": uploads, "dry_run": dry_run}
    print_result(loaded.process, f"{found} {said}.", told)


@command.command("check")
@click.option("--refetch", is_flag=True, help="have fetched again what never arrived")
@click.option("--after", default="1h", metavar="DURATION", help="what was fetched later may be on its way; 1h")
@click.option("--node", "nodes", multiple=True, metavar="NAME", help="a node that never comes back: do not wait for it")
@config_options("store", "engine", "json", "quiet", "color")
def check_command(loaded: Loaded, refetch: bool, after: str, nodes: tuple[str, ...]) -> int:
    """Check that a store has everything that it should have.

    Of a store in a bucket, every file that its manifest names must be there. With --engine, every page that counts as
    done must have arrived; those of a node whose disk was lost did not, and --refetch queues them again.
    """
    from drumlin.errors import EXIT_OK, EXIT_STORAGE
    from drumlin.store.objects.address import is_objects

    store, after_s = loaded.process.store, _duration("--after", after)
    if not is_objects(store) and not loaded.process.engine:
        hint = "Give --store s3://BUCKET/PREFIX, or with --store DIR the --engine of its crawl."
        raise ConfigError("There is nothing to check: that a directory has everything, only the queue knows.", hint)
    missing = _missing(loaded) if is_objects(store) else []
    lost, awaited = _lost(loaded, after_s, nodes, refetch=refetch) if loaded.process.engine else ({}, 0)
    for name in missing[:NAMES_SHOWN_MAX]:
        say(loaded.process, f"Missing: {name}")
    for name, urls in list(lost.items())[:NAMES_SHOWN_MAX]:
        said = "to be fetched again" if refetch else "that never arrived"
        say(loaded.process, f"{counted(urls, 'URL')} of {name} {said}.")
    found = f"Missing: {counted(len(missing), 'file')}. Never arrived: {counted(len(lost), 'bundle')}."
    if awaited:
        found += f" Not yet arrived, and not older than --after: {counted(awaited, 'bundle')}."
    told = {"missing": missing, "lost": lost, "awaited": awaited, "refetched": refetch}
    print_result(loaded.process, found, told)
    return EXIT_STORAGE if missing or (lost and not refetch) else EXIT_OK


def _duration(flag: str, text: str) -> float:
    from drumlin.config.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError:
        raise ConfigError(f"{flag} must be a duration, not {text!r}.", "24h, say.") from None


def _bucket(loaded: Loaded) -> ObjectFiles:
    from drumlin.store.objects.address import parse_address
    from drumlin.store.objects.files import ObjectFiles

    if loaded.process.store is None:
        raise ConfigError("It is not said which store is meant.", "Give --store s3://BUCKET/PREFIX.")
    files = ObjectFiles.open_at(parse_address(loaded.process.store))
    files.check_there()
    return files


def _missing(loaded: Loaded) -> list[str]:
    from drumlin.store.objects.collection import missing_objects

    return missing_objects(_bucket(loaded))


def _lost(loaded: Loaded, after_s: float, gone: tuple[str, ...], *, refetch: bool) -> tuple[dict[str, int], int]:
    """How many URLs of each bundle were settled and are not in the store, and how many bundles may still come."""
    from drumlin.cli.tokens import open_crawl
    from drumlin.coordinator.nodes import NodeRegistry
    from drumlin.coordinator.taking.owed import fetch_again, owed_segments, owed_urls

    files, lost, awaited = _files(loaded), dict[str, int](), 0
    with open_crawl(loaded.process.engine or "") as opened:
        _check_gone(opened.run(NodeRegistry().all(opened.engine)), gone)
        now = opened.run(opened.engine.keep_time(0.0))
        for owed in opened.run(owed_segments(opened.engine)):
            if files.has_segment(owed.name):
                continue
            if now - owed.since < after_s and owed.node not in gone:
                awaited += 1
                continue
            again = opened.run(fetch_again(opened.engine, owed.name, now)) if refetch else None
            lost[owed.name] = len(opened.run(owed_urls(opened.engine, owed.name))) if again is None else again
    return lost, awaited


def _files(loaded: Loaded) -> StoreFiles:
    """The store in which bundles are looked for. In one that is not there, all of them would be missing."""
    from drumlin.store.objects.address import is_objects
    from drumlin.store.opening import open_store

    store = loaded.process.store
    if store is None:
        raise ConfigError("It is not said which store is meant.", "Give --store DIR, or s3://BUCKET/PREFIX.")
    if not is_objects(store) and not Path(store).is_dir():
        raise ConfigError(f"There is no store in {store}.", "Name the folder that coordinators have as --store.")
    return open_store(store)


def _check_gone(records: list[NodeRecord], gone: tuple[str, ...]) -> None:
    """Refuse to give up nodes that are at work, or that nobody knows."""
    from drumlin.protocol import PRESENT

    known = {one.node_id: one.status in PRESENT for one in records}
    for name in gone:
        if name not in known:
            raise ConfigError(f"There is no node {name}.", "`drumlin nodes` lists those of a crawl.")
        if known[name]:
            raise BusyError(f"The node {name} is there.", "It sends what it has by itself. End it first if it cannot.")
