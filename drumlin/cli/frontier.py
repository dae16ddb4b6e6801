"""`drumlin frontier`: move the frontier of a crawl to another engine, keep it in a file, or put it back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import print_result, say
from drumlin.cli.help import VerbFamily
from drumlin.cli.remote import engine_meant, remote_options
from drumlin.config import Loaded, config_options
from drumlin.config.quantities import show_size
from drumlin.errors import ConfigError, EngineError
from drumlin.lines import counted
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote
    from drumlin.engines.base import Engine
    from drumlin.engines.kept import Section
    from drumlin.moving.digests import Digest
    from drumlin.moving.sources import Source

SAID_EVERY_S = 2.0
ROCKSDB = "rocksdb:"
CHANGED = "The crawl has gone on since it was exported, or it is another one."
RAN_MEANWHILE = "Did something run meanwhile? Repeat it with an empty place."
TWICE = "If the crawl that was exported goes on too, both fetch the same pages."
_CHECKPOINT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}", re.ASCII)
_NAMED = ("out", "engine", "json", "quiet", "color")


@click.group("frontier", cls=VerbFamily)
def command() -> None:
    """Move the queue of a crawl, and all it knows, to another engine, keep it in a file, or put it back."""


@command.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@config_options(*_NAMED)
def export_command(loaded: Loaded, file: Path) -> None:
    """Write all that a crawl knows into FILE: what is queued, waits, was given up or is done, hosts, and settings.

    Nothing of the crawl may run. The file has the secret of the crawl in it.
    """
    from drumlin.moving.sources import at_rest, export

    if file.exists():
        raise ConfigError(f"There is a file {file} already.", "Give another name.")

    async def run(spec: str) -> tuple[Digest, int]:
        from drumlin.local.moving import frontier_at

        async with frontier_at(spec) as engine, at_rest(engine, time.time()) as source:
            return await export(source, file, _Progress(loaded, "Exporting"))

    with _at_rest(_spec(loaded)) as spec:
        digest, size = _run(run(spec))
    _tell(loaded, digest, f"Exported to {file} ({show_size(size)})", file=str(file), bytes=size)


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@config_options(*_NAMED)
def import_command(loaded: Loaded, file: Path) -> None:
    """Fill an empty directory (--out) or an empty namespace of Redis (--engine) from FILE, and compare both.

    If it is broken off, the same command goes on with it.
    """
    spec = _spec(loaded)
    place = _shown(spec)
    _check_no_fleet(spec)

    async def run() -> tuple[Digest, str]:
        from drumlin.local.moving import crawl_folder, frontier_at, note_record
        from drumlin.moving.filling import finish
        from drumlin.moving.sources import FileSource

        source = FileSource(file)
        async with frontier_at(spec, founds=True, closed=True) as engine:
            digest = await _fill(loaded, engine, source, place)
            await finish(engine, source)
            folder = crawl_folder(Path(place)) if spec.startswith(ROCKSDB) else None
            seeds = await note_record(engine, folder) if folder is not None else []
        return digest, _how_to_go_on(place, seeds, is_folder=folder is not None)

    digest, advice = _run(run())
    _tell(loaded, digest, f"Imported from {file} into {place}", file=str(file))
    _advise(loaded, f"{advice} {TWICE}")


@command.command("verify")
@click.argument("file", type=click.Path(path_type=Path))
@config_options(*_NAMED)
def verify_command(loaded: Loaded, file: Path) -> None:
    """Compare FILE with a crawl: every URL, host and setting, and the order of every queue.

    The exit code is 4 if they differ.
    """
    named = _spec(loaded)

    async def run(spec: str) -> Digest:
        from drumlin.local.moving import frontier_at
        from drumlin.moving.filling import compare
        from drumlin.moving.sources import FileSource, at_rest

        source = FileSource(file)
        async with frontier_at(spec) as engine, at_rest(engine, 0.0):
            digest, different = await compare(source, engine, _Progress(loaded, "Comparing"))
        _check(different, f"{file} and {_shown(named)} differ", CHANGED)
        return digest

    with _at_rest(named) as spec:
        digest = _run(run(spec))
    _tell(loaded, digest, f"{file} and {_shown(named)} are the same", file=str(file))


@command.command("migrate")
@click.option("--from", "source", required=True, metavar="rocksdb:DIR", help="the directory of the crawl to move")
@click.option("--to", "target", metavar="redis://HOST:PORT/NAMESPACE", help="an empty namespace of Redis")
@config_options("engine", "json", "quiet", "color")
def migrate_command(loaded: Loaded, source: str, target: str | None) -> None:
    """Move a crawl that does not run from a directory to Redis, and compare both.

    Afterwards the old queue is closed, so nobody fetches the same again. If it is broken off, the same command goes on
    with it.
    """
    to = target or loaded.process.engine
    if to is None or not source.startswith(ROCKSDB) or to.startswith(ROCKSDB):
        hint = "Give --from rocksdb:DIR and --to redis://HOST:PORT/NAMESPACE. Otherwise use `export` and `import`."
        raise ConfigError("This moves a crawl from a directory to Redis.", hint)
    folder, place = Path(source.removeprefix(ROCKSDB)), _shown(to)

    async def run() -> tuple[Digest, str]:
        from drumlin.local.moving import close_moved, frontier_at
        from drumlin.moving.filling import finish
        from drumlin.moving.sources import at_rest

        async with frontier_at(source, closed=True) as old, frontier_at(to, founds=True, closed=True) as new:
            await _check_not_moved(old, new, place)
            async with at_rest(old, time.time(), str(folder)) as told:
                digest = await _fill(loaded, new, told, place)
            closed = await close_moved(old, folder, place)
            await finish(new, told)
            return digest, f"{closed.hint} {await _stopped(new)}".strip()

    digest, advice = _run(run())
    _tell(loaded, digest, f"Moved from {folder} to {place}", source=source, target=place)
    _advise(loaded, advice)


@command.command("checkpoint")
@click.argument("name", metavar="[NAME]", default="")
@remote_options("json", "quiet", "color")
def checkpoint_command(loaded: Loaded, remote: Remote, name: str) -> None:
    """Keep the queue of a crawl on this machine as it is now, also while it runs.

    It costs little, because files are shared.
    """
    wanted = name or datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    _check_name(wanted)
    answer = remote.post(paths.CHECKPOINT, {"name": wanted})
    print_result(loaded.process, f"Checkpoint {wanted} is in {answer['path']}.", answer)


@command.command("restore")
@click.argument("name")
@config_options("out", "json", "quiet", "color")
def restore_command(loaded: Loaded, name: str) -> None:
    """Put the queue of a crawl that does not run back to a checkpoint.

    What was fetched since is fetched again.
    """
    from drumlin.local.moving import restore

    _check_name(name)
    before = _run(restore(Path(loaded.process.out).absolute(), name))
    said = f"The queue is as it was at checkpoint {name}; the one before is in {before}."
    print_result(loaded.process, said, {"name": name, "before": str(before)})


# What they share


def _run(work: Any) -> Any:
    import asyncio

    return asyncio.run(work)


def _spec(loaded: Loaded) -> str:
    """The engine that was named, or that of the crawl directory. A directory has one name here, which is --out."""
    engine = engine_meant(loaded)
    if engine is None:
        return f"{ROCKSDB}{loaded.process.out}"
    if engine.startswith(ROCKSDB):
        raise ConfigError("Here a directory is named with --out.", f"Give --out {engine.removeprefix(ROCKSDB)}.")
    return engine


@contextmanager
def _at_rest(spec: str) -> Iterator[str]:
    """The same engine; of a fleet on this machine that is down, its Redis, which runs meanwhile."""
    from drumlin.fleet.at_rest import engine_of_fleet, is_fleet
    from drumlin.fleet.layout import FleetPaths

    folder = Path(spec.removeprefix(ROCKSDB)).absolute()
    if not spec.startswith(ROCKSDB) or not is_fleet(folder):
        yield spec
        return
    with engine_of_fleet(FleetPaths(folder)) as engine:
        yield engine


def _check_no_fleet(spec: str) -> None:
    """Refuse to put a frontier beside that of a fleet, where nobody would find it."""
    from drumlin.fleet.at_rest import is_fleet

    if spec.startswith(ROCKSDB) and is_fleet(Path(spec.removeprefix(ROCKSDB))):
        hint = "Name an empty directory, or an empty namespace of Redis with --engine."
        raise ConfigError(f"There is a fleet in {_shown(spec)}, with a crawl of its own.", hint)


def _shown(spec: str) -> str:
    """What people call it: a directory, or an address without its password."""
    if not spec.startswith(("redis:", "rediss:")):
        return spec.removeprefix(ROCKSDB)
    from drumlin.engines.redis.address import shown

    return shown(spec)


def _check_name(name: str) -> None:
    if not _CHECKPOINT.fullmatch(name):
        hint = "Use 1 to 64 letters, digits, `_`, `.` and `-`, and neither `.` nor `-` first."
        raise ConfigError(f"{name!r} cannot be the name of a checkpoint.", hint)


async def _fill(loaded: Loaded, engine: Engine, source: Source, place: str) -> Digest:
    from drumlin.moving.filling import compare, fill

    await fill(engine, source, _Progress(loaded, "Copying"), place)
    digest, different = await compare(source, engine, _Progress(loaded, "Comparing"))
    _check(different, f"{place} differs from {source.origin}", RAN_MEANWHILE)
    return digest


async def _check_not_moved(old: Engine, new: Engine, target: str) -> None:
    """Refuse a crawl that was moved, unless the last step of this very move is missing."""
    from drumlin.engines.kept import CLOSED_KEY, Closed

    closed = Closed.read(await old.get_meta(CLOSED_KEY))
    if closed is not None and (closed.name != target or not await new.get_meta(CLOSED_KEY)):
        raise EngineError(closed.sentence, closed.hint)


async def _stopped(engine: Engine) -> str:
    """What to do about a crawl that does not go on by itself; empty if it does."""
    from drumlin.coordinator.dispatch import STATE_KEY

    if await engine.get_meta(STATE_KEY) in (b"draining", b"paused"):
        return "It was stopped: say `drumlin resume --coordinator URL` before nodes join, or they leave again."
    return ""


def _how_to_go_on(place: str, seeds: list[str], *, is_folder: bool) -> str:
    if not is_folder:
        return f"Go on with it: coordinators with --engine {place} and the store of the crawl, and nodes."
    from drumlin.cli.crawl import seeds_named

    return f"Go on with it: {seeds_named(seeds, '--out', place)}, and the flags of its last start."


def _check(different: list[str], what: str, hint: str) -> None:
    if different:
        raise EngineError(f"{what}: {'; '.join(different)}.", hint)


class _Progress:
    """Says now and then how far the work is."""

    def __init__(self, loaded: Loaded, doing: str) -> None:
        self._say: Callable[[str], None] = lambda sentence: say(loaded.process, sentence)
        self._doing = doing
        self._records = 0
        self._said = time.monotonic()

    def __call__(self, section: Section, records: int) -> None:
        self._records += records
        if time.monotonic() > self._said + SAID_EVERY_S:
            self._said = time.monotonic()
            self._say(f"{self._doing}: {self._records:,} records so far, now {_called(section)}.")


def _called(section: Section) -> str:
    from drumlin.moving.digests import CALLED

    return CALLED[section]


def _tell(loaded: Loaded, digest: Digest, done: str, **more: object) -> None:
    counts = {str(section): count for section, count in digest.counts.items()}
    urls = counted(sum(counts[name] for name in ("queued", "scheduled", "dead", "done")), "URL")
    said = f"{urls} ({counts['done']:,} done, {counts['dead']:,} given up) of {counted(counts['hosts'], 'host')}"
    print_result(loaded.process, f"{done}: {said}.", {**more, "records": counts})


def _advise(loaded: Loaded, sentence: str) -> None:
    """What to do next, on stderr, for people."""
    if not loaded.process.json:
        say(loaded.process, sentence)
