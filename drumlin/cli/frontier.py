"""`drumlin frontier`: move the frontier of a crawl to another engine, keep it in a file, or put it back."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import results, say, write_json
from drumlin.cli.help import VerbFamily
from drumlin.cli.remote import remote_options
from drumlin.config import Loaded, config_options
from drumlin.config.processes import without_password
from drumlin.errors import ConfigError, EngineError
from drumlin.protocol import paths

if TYPE_CHECKING:
    from drumlin.client.remote import Remote
    from drumlin.engines.base import Engine
    from drumlin.engines.kept import Section
    from drumlin.moving.digests import Digest
    from drumlin.moving.sources import Source

SAID_EVERY_S = 2.0
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

    async def run() -> tuple[Digest, int]:
        from drumlin.local.moving import frontier_at

        async with frontier_at(_spec(loaded)) as engine, at_rest(engine, time.time()) as source:
            return await export(source, file, _Progress(loaded, "Exporting"))

    digest, size = _run(run())
    _tell(loaded, digest, f"Exported to {file} ({size:,} bytes)", file=str(file), bytes=size)


@command.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@config_options(*_NAMED)
def import_command(loaded: Loaded, file: Path) -> None:
    """Fill an empty engine from FILE, and compare both.

    If it is broken off, the same command goes on with it.
    """

    async def run() -> Digest:
        from drumlin.local.moving import frontier_at
        from drumlin.moving.sources import FileSource

        source = FileSource(file)
        async with frontier_at(_spec(loaded), founds=True, closed=True) as engine:
            digest = await _fill(loaded, engine, source)
            await _finish(engine, source)
            return digest

    _tell(loaded, _run(run()), f"Imported from {file} into {_shown(loaded)}", file=str(file))


@command.command("verify")
@click.argument("file", type=click.Path(path_type=Path))
@config_options(*_NAMED)
def verify_command(loaded: Loaded, file: Path) -> None:
    """Compare FILE with a crawl: every record, and the order of every queue.

    The exit code is 4 if they differ.
    """

    async def run() -> Digest:
        from drumlin.local.moving import frontier_at
        from drumlin.moving.filling import compare
        from drumlin.moving.sources import FileSource, at_rest

        source = FileSource(file)
        async with frontier_at(_spec(loaded)) as engine, at_rest(engine, 0.0):
            digest, different = await compare(source, engine, _Progress(loaded, "Comparing"))
        _check(different, f"{file} and {_shown(loaded)} differ")
        return digest

    _tell(loaded, _run(run()), f"{file} and {_shown(loaded)} are the same", file=str(file))


@command.command("migrate")
@click.option(
    "--from", "source", required=True, metavar="rocksdb:DIR", help="the directory of the crawl to move, or its queue"
)
@click.option("--to", "target", metavar="ENGINE", help="an empty engine, such as redis://HOST:PORT/NAMESPACE")
@config_options("engine", "json", "quiet", "color")
def migrate_command(loaded: Loaded, source: str, target: str | None) -> None:
    """Move a crawl that does not run to another engine, and compare both.

    Afterwards the old queue is closed, so nobody fetches the same again. If it is broken off, the same command goes on
    with it.
    """
    to = target or loaded.process.engine
    if to is None or not source.startswith("rocksdb:"):
        hint = "Give --from rocksdb:DIR and --to redis://HOST:PORT/NAMESPACE. From Redis, use `export` and `import`."
        raise ConfigError("This moves a crawl from RocksDB to another engine.", hint)

    async def run() -> Digest:
        from drumlin.local.moving import frontier_at
        from drumlin.moving.sources import at_rest

        async with frontier_at(source, closed=True) as old, frontier_at(to, founds=True, closed=True) as new:
            await _check_not_moved(old, without_password(to))
            async with at_rest(old, time.time()) as told:
                digest = await _fill(loaded, new, told)
            await _close(old, without_password(to))
            await _finish(new, told)
            return digest

    place = without_password(to)
    _tell(loaded, _run(run()), f"Moved from {source} to {place}", source=source, target=place)


@command.command("checkpoint")
@click.argument("name", metavar="[NAME]", default="")
@remote_options("json", "quiet", "color")
def checkpoint_command(loaded: Loaded, remote: Remote, name: str) -> None:
    """Keep the queue of a crawl on this machine as it is now, also while it runs.

    It costs little, because files are shared.
    """
    wanted = name or datetime.now(UTC).strftime("%Y-%m-%dT%H%M%SZ")
    answer = remote.post(paths.CHECKPOINT, {"name": wanted})
    if loaded.process.json:
        write_json(answer)
    else:
        say(loaded.process, f"Checkpoint {wanted} is in {answer['path']}.")


@command.command("restore")
@click.argument("name")
@config_options("out", "json", "quiet", "color")
def restore_command(loaded: Loaded, name: str) -> None:
    """Put the queue of a crawl that does not run back to a checkpoint.

    What was fetched since is fetched again.
    """
    from drumlin.local.moving import restore

    before = _run(restore(Path(loaded.process.out).absolute(), name))
    if loaded.process.json:
        write_json({"name": name, "before": str(before)})
    else:
        say(loaded.process, f"The queue is as it was at checkpoint {name}; the one before is in {before}.")


# What they share


def _run(work: Any) -> Any:
    import asyncio

    return asyncio.run(work)


def _spec(loaded: Loaded) -> str:
    """The engine that was named, or that of the crawl directory."""
    return loaded.process.engine or f"rocksdb:{Path(loaded.process.out).absolute() / 'frontier'}"


def _shown(loaded: Loaded) -> str:
    return without_password(_spec(loaded))


async def _fill(loaded: Loaded, engine: Engine, source: Source) -> Digest:
    from drumlin.moving.filling import compare, fill

    await fill(engine, source, _Progress(loaded, "Importing"))
    digest, different = await compare(source, engine, _Progress(loaded, "Comparing"))
    _check(different, "What was imported differs")
    return digest


async def _finish(engine: Engine, source: Source) -> None:
    from drumlin.moving.filling import finish

    await finish(engine, source)


async def _check_not_moved(engine: Engine, target: str) -> None:
    from drumlin.engines.kept import CLOSED_KEY

    reason = (await engine.get_meta(CLOSED_KEY) or b"").decode().split("\n")
    if reason != [""] and reason[2:] != [target]:
        raise EngineError(*reason[:2])


async def _close(engine: Engine, target: str) -> None:
    from drumlin.engines.kept import CLOSED_KEY

    hint = f"Go on with it there: --engine {target}, and the same directory as its store."
    await engine.put_meta(CLOSED_KEY, "\n".join((f"This crawl was moved to {target}.", hint, target)).encode())


def _check(different: list[str], what: str) -> None:
    if different:
        raise EngineError(
            f"{what}: {'; '.join(different)}.", "Did something run meanwhile? Repeat it with an empty engine."
        )


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
            self._say(f"{self._doing}: {self._records:,} records, now {section}.")


def _tell(loaded: Loaded, digest: Digest, done: str, **more: object) -> None:
    counts = {str(section): count for section, count in digest.counts.items()}
    if loaded.process.json:
        write_json({**more, "records": counts})
        return
    urls = sum(counts[name] for name in ("queued", "scheduled", "dead", "done"))
    said = f"{urls:,} URLs ({counts['done']:,} done, {counts['dead']:,} given up) of {counts['hosts']:,} hosts"
    results(loaded.process).print(f"{done}: {said}.")
