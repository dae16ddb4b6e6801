"""`drumlin retention`: how long stored data is kept, and having that carried out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from drumlin.cli.console import line, results, say, write_json
from drumlin.cli.help import VerbFamily
from drumlin.cli.report import store_of
from drumlin.config import Loaded, config_options
from drumlin.errors import ConfigError

if TYPE_CHECKING:
    from drumlin.lifecycle.retention.planning import Tally
    from drumlin.store.files import StoreFiles

KINDS = ("warc", "text", "tables", "logs")
BY = click.option("--by", default="", metavar="NAME", help="who orders it; the user of this machine is noted too")
DRY_RUN = click.option("--dry-run", is_flag=True, help="say what would be done, and change nothing")


class Named(NamedTuple):
    """The store that is meant, and the directory of its crawl, which has the logs; None if only the store is named."""

    files: StoreFiles
    folder: Path | None


def named_store(loaded: Loaded) -> Named:
    """The store that --store or --out names."""
    from drumlin.store.objects.address import is_objects
    from drumlin.store.opening import open_store, store_address

    store = loaded.process.store if loaded.is_given("store") else None
    if store is not None and is_objects(store):
        return Named(_there(open_store(store)), None)
    folder = Path(store) if store else store_of(loaded)
    address = store_address(folder)
    if not address and not (folder / "tables").is_dir() and not (folder / "warc").is_dir():
        raise ConfigError(f"There is no store in {folder}.", "Name one with --out DIR, or --store s3://BUCKET/PREFIX.")
    files = open_store(address or folder)
    return Named(_there(files) if address else files, None if store else folder)


def _there(files: StoreFiles) -> StoreFiles:
    """A store in a bucket, where some crawl has stored: a hold on a mistyped one would keep nothing."""
    from drumlin.store.opening import in_bucket

    if (bucket := in_bucket(files)) is not None:
        bucket.check_there()
    return files


@click.group("retention", cls=VerbFamily)
def command() -> None:
    """Say how long stored data is kept, and delete or move what is older."""


@command.command("show")
@config_options("out", "store", "json", "color")
def show_command(loaded: Loaded) -> None:
    """Show the rules of a store, its holds, and who ordered what."""
    from datetime import UTC, datetime

    from drumlin.lifecycle.book import holds_of, open_book, policy_of
    from drumlin.lifecycle.retention.policy import Kind

    orders = open_book(named_store(loaded).files).orders()
    policy, holds = policy_of(orders), holds_of(orders).all
    if loaded.process.json:
        write_json({"rules": policy.rules, "holds": holds, "orders": orders})
        return
    console = results(loaded.process)
    for kind in Kind:
        line(console, f"{kind:<8}{policy.rule(kind).shown}", marked=kind)
    for hold in holds:
        line(console, f"held    {hold.what}: {hold.name}, by {hold.by}, because {hold.reason}", marked="held")
    for order in orders:
        when = datetime.fromtimestamp(order.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        line(console, f"{when}  {order.by}  {order.action}  {order.outcome}  {order.target}", marked=when)


@command.command("set")
@click.argument("kind", type=click.Choice(KINDS))
@click.option("--keep", default="", metavar="DURATION", help="delete what is older, such as 90d; or forever")
@click.option("--move-after", default="", metavar="DURATION", help="move what is older than this to --move-to")
@click.option("--move-to", default="", metavar="PLACE", help="a directory, or s3://BUCKET/PREFIX")
@BY
@config_options("out", "store", "json", "quiet", "color")
def set_command(loaded: Loaded, kind: str, keep: str, move_after: str, move_to: str, by: str) -> None:
    """Set the rule of one kind of data, in place of the one that it had.

    Nothing is deleted by this: `drumlin retention apply` does that. KIND is `warc` (WARC files and their lines in the
    index), `text` (the texts in the table of pages), `tables` (all rows of a segment) or `logs`.
    """
    import time

    from drumlin.lifecycle.book import open_book, set_rule, signature
    from drumlin.lifecycle.retention.policy import Kind, make_rule
    from drumlin.store.files import DirectoryFiles
    from drumlin.store.objects.address import is_objects
    from drumlin.store.places import check_apart, check_place

    if not (keep or move_after or move_to):
        hint = "Give --keep, or --move-after and --move-to. `--keep forever` ends a rule."
        raise ConfigError(f"It is not said how long {kind} is kept.", hint)
    files = named_store(loaded).files
    rule = make_rule(keep, move_after, check_place(move_to) if move_to else "")
    if rule.move_to and not isinstance(files, DirectoryFiles) and kind != Kind.LOGS and not is_objects(rule.move_to):
        hint = "Name another prefix or bucket: --move-to s3://BUCKET/PREFIX."
        raise ConfigError("What is in a bucket cannot be moved to a directory of one machine.", hint)
    if rule.move_to:
        check_apart(str(files), rule.move_to)
        _check_no_store(rule.move_to)
    policy = set_rule(open_book(files), signature(by, time.time()), Kind(kind), rule)
    say(loaded.process, f"{kind}: {rule.shown}.")
    if loaded.process.json:
        write_json({"rules": policy.rules})


def _check_no_store(place: str) -> None:
    """ConfigError if another crawl stores there."""
    from drumlin.store.objects.address import is_objects, parse_address

    if is_objects(place):
        from drumlin.store.objects.founding import check_not_founded

        check_not_founded(parse_address(place))
    elif any((Path(place) / name).exists() for name in ("crawl.json", "nodes")):
        raise ConfigError(f"{place} is the store of a crawl.", "Name another directory.")


@command.command("apply")
@DRY_RUN
@BY
@config_options("out", "store", "json", "quiet", "color")
def apply_command(loaded: Loaded, dry_run: bool, by: str) -> None:
    """Delete and move what is older than the rules of a store say.

    A crawl may be running: only complete files are touched. What a hold covers is left alone, and the output says how
    much that is. It can be repeated, also after it was killed.
    """
    import time

    from drumlin.lifecycle.book import signature
    from drumlin.lifecycle.retention.running import apply, planned

    named, who = named_store(loaded), signature(by, time.time())
    if dry_run:
        tally = planned(named.files, named.folder, who.at)
    else:
        tally = apply(named.files, named.folder, who)
    if loaded.process.json:
        write_json({"dry_run": dry_run, **_listed(tally)})
    else:
        _tell(loaded, tally, dry_run=dry_run)


def _listed(tally: Tally) -> dict[str, object]:
    return {"done": list(tally.numbers.values()), "left": tally.left, "held_by": tally.held_by}


def _tell(loaded: Loaded, tally: Tally, *, dry_run: bool) -> None:
    from drumlin.config.quantities import show_size
    from drumlin.lifecycle.retention.planning import LEFT_MEANINGS, Left
    from drumlin.lifecycle.retention.policy import Action

    console = results(loaded.process)
    words = {Action.DELETE: "deleted", Action.MOVE: "moved"}
    for one in tally.numbers.values():
        said = f"would be {words[one.action]}" if dry_run else words[one.action]
        line(
            console,
            f"{one.kind}: {one.files:,} files with {one.rows:,} rows, {show_size(one.bytes)}, {said}.",
            marked=one.kind,
        )
    for name, count in sorted(tally.left.items()):
        kind, why = name.split(" ")
        line(console, f"{kind}: {count:,} left alone: {LEFT_MEANINGS[Left(why)]}.", marked=kind)
    for name, count in sorted(tally.held_by.items()):
        line(console, f"The hold {name} covers {count:,} that would be due.")
    if not tally.numbers and not tally.left:
        line(console, "Nothing is due.")
