"""The frontier of a crawl that no process works on: opened to be moved, and put back from a checkpoint.

As in `standing`, the lock of the crawl directory is held meanwhile: so no process of the crawl is alive, nodes that did
not leave have died, and their leases are over.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec

from drumlin.config import CrawlConfig
from drumlin.config.record import RECORD_NAME, CrawlRecord
from drumlin.coordinator.nodes import NodeRegistry
from drumlin.coordinator.steering import CONFIG_KEY
from drumlin.disk import write_whole
from drumlin.engines import open_engine
from drumlin.engines.base import Engine
from drumlin.engines.kept import CLOSED_KEY, Closed, KeptHost, Section
from drumlin.engines.redis.address import shown
from drumlin.engines.rocksdb.engine import CHECKPOINTS
from drumlin.errors import ConfigError, EngineError, StorageError
from drumlin.local.crawl import SHARD_COUNT
from drumlin.local.directory import FRONTIER, CrawlDirectory
from drumlin.local.moved import Moved, note_move
from drumlin.model import Settlement, Visit
from drumlin.serving.service import SEEDS_KEY, shards_to_found
from drumlin.store.opening import store_address

ROCKSDB = "rocksdb:"
CURRENT = "CURRENT"
"""The file by which a folder is known to be a database of RocksDB."""
MARKS = ("lock", RECORD_NAME)
"""Files by which a folder is known to be a crawl directory."""
SHARED_SUFFIXES = (".sst", ".blob")
"""Files that RocksDB never changes, so a copy can share them."""
RESTORING = "frontier.restoring"
BEFORE = "before-restore"
RESTORER = "restore"
VISIT_S = 1.0


@contextlib.asynccontextmanager
async def frontier_at(spec: str, *, founds: bool = False, closed: bool = False) -> AsyncIterator[Engine]:
    """The frontier that `spec` names, which nobody else uses; of a crawl directory, what a kill has left undone is
    done. Without `founds`, a `ConfigError` says that there is none. `closed`: see `open_engine`."""
    if spec == "memory":
        raise ConfigError("The memory engine is gone when this command ends.", "Use rocksdb:DIR or redis://….")
    if not spec.startswith(ROCKSDB):
        engine = await open_engine(spec, closed=closed, founds=founds)
        async with _closing(engine):
            if not founds and not await engine.keep_time(0.0):
                raise ConfigError(f"No crawl has begun at {shown(spec)}.", "Only tokens or settings are there.")
            yield engine
        return
    folder = Path(spec.removeprefix(ROCKSDB))
    place = frontier_folder(folder)
    is_there = (place / CURRENT).exists()
    if not is_there and not founds:
        raise ConfigError(f"There is no queue of a crawl in {folder}.", "Name the directory of a crawl.")
    place.parent.mkdir(parents=True, exist_ok=True)
    out = place.parent if place.name == FRONTIER and any((place.parent / one).exists() for one in MARKS) else None
    with _locked(out):
        shards = SHARD_COUNT if place.name == FRONTIER else shards_to_found(spec)
        engine = await open_engine(f"{ROCKSDB}{place}", shard_count=shards, closed=closed)
        async with _closing(engine):
            if out is not None and is_there:
                await _settle_down(engine, out)
            yield engine


def frontier_folder(folder: Path) -> Path:
    """The folder of the frontier: people name it, or the crawl directory that it is in or shall be in."""
    return folder if (folder / CURRENT).exists() else folder / FRONTIER


def crawl_folder(folder: Path) -> Path | None:
    """The directory of the crawl whose frontier, or directory, people name; None of a frontier without one."""
    place = frontier_folder(folder).absolute()
    return place.parent if place.name == FRONTIER else None


async def note_record(engine: Engine, out: Path) -> list[str]:
    """Write the record of a crawl whose frontier was put into an empty directory. Returns its seeds."""
    saved, seeds = await engine.get_meta(CONFIG_KEY), await engine.get_meta(SEEDS_KEY)
    config = msgspec.json.decode(saved, type=CrawlConfig) if saved else CrawlConfig()
    record = CrawlRecord.read(out) or CrawlRecord.of(msgspec.msgpack.decode(seeds or b"\x90", type=list[str]), config)
    write_whole(out / RECORD_NAME, record.file())
    return record.seeds


async def close_moved(engine: Engine, folder: Path, target: str) -> Closed:
    """Let nobody go on here with a crawl that was moved to `target`, and tell where it is to those who look."""
    out = crawl_folder(folder)
    moved = Closed(f"This crawl was moved to {target}.", _how_to_go_on(target, out), target)
    await engine.put_meta(CLOSED_KEY, moved.written())
    if out is not None:
        note_move(out, Moved(moved.sentence, moved.hint))
    return moved


def _how_to_go_on(target: str, out: Path | None) -> str:
    there = f"Go on with it there: coordinators with --engine {target}"
    if out is None:
        return f"{there} and the store that the crawl has, and nodes."
    if address := store_address(out):
        # Nodes find there what is not uploaded yet.
        return f"{there} --store {address} --spool DIR, nodes with --store {address} --spool {out}."
    return f"{there} --store {out}, nodes with --store {out}."


@contextlib.asynccontextmanager
async def _closing(engine: Engine) -> AsyncIterator[None]:
    try:
        yield
    finally:
        await engine.close()


@contextlib.contextmanager
def _locked(out: Path | None) -> Iterator[None]:
    if out is None:
        yield
        return
    directory = CrawlDirectory(out)
    directory.open()
    try:
        yield
    finally:
        directory.close()


async def _settle_down(engine: Engine, out: Path) -> None:
    """Let the leases of dead nodes end, and note the seeds, which versions before this one kept in `crawl.json` only:
    coordinators of a fleet look for them in the engine."""
    lost = await NodeRegistry().lose_all(engine)
    await engine.release_nodes(lost, await engine.keep_time(0.0))
    record = CrawlRecord.read(out)
    if record is not None and record.seeds:
        await engine.put_meta_if_absent(SEEDS_KEY, msgspec.msgpack.encode(record.seeds))


# Checkpoints


async def restore(out: Path, name: str) -> Path:
    """Put the frontier of a crawl directory back to a checkpoint. Returns where the one that was there is now."""
    source, frontier, fresh = out / CHECKPOINTS / name, out / FRONTIER, out / RESTORING
    if not (source / CURRENT).exists():
        known = sorted(one.parent.name for one in (out / CHECKPOINTS).glob(f"*/{CURRENT}"))
        hint = f"There are {', '.join(known)}." if known else "`drumlin frontier checkpoint` makes one."
        raise ConfigError(f"There is no checkpoint {name} in {out}.", hint)
    with _locked(out):
        await _check_not_moved(frontier)
        try:
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.copytree(source, fresh, copy_function=_share)
            engine = await open_engine(f"{ROCKSDB}{fresh}", closed=True)
            async with _closing(engine):
                await _settle_down(engine, out)
                await _put_off(engine)
            before = _free_name(out / CHECKPOINTS)
            if frontier.exists():
                frontier.rename(before)
            fresh.rename(frontier)
        except OSError as cause:
            raise StorageError(f"Cannot restore {source}: {cause.strerror}.") from cause
    return before


async def _check_not_moved(frontier: Path) -> None:
    """Refuse to go back before a move: the crawl goes on elsewhere, and would run twice."""
    if (frontier / CURRENT).exists():
        engine = await open_engine(f"{ROCKSDB}{frontier}", closed=True)
        async with _closing(engine):
            closed = Closed.read(await engine.get_meta(CLOSED_KEY))
        if closed is not None:
            raise EngineError(closed.sentence, closed.hint)


def _share(source: str, target: str) -> None:
    if source.endswith(SHARED_SUFFIXES):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _free_name(folder: Path) -> Path:
    number = 1
    while (folder / f"{BEFORE}-{number}").exists():
        number += 1
    return folder / f"{BEFORE}-{number}"


async def _put_off(engine: Engine) -> None:
    """Let every host be contacted a delay from now at the earliest: since the checkpoint it may have been contacted,
    and the frontier as it was then does not know."""
    now, delay_s = await engine.keep_time(0.0), await _delay_s(engine)
    async for page in engine.read_kept(Section.HOSTS):
        for host in page:
            if not isinstance(host, KeptHost):
                continue
            soonest = now + max(delay_s, host.delay_s or 0.0, host.slow_s)
            if host.next_contact < soonest:
                lease_id = f"{RESTORER}:{host.host}"
                visit = Visit(host.host, RESTORER, lease_id, now + VISIT_S, max(now, host.next_contact))
                shard = engine.shard_of(host.host)
                await engine.visit(shard, visit, now)
                await engine.settle_all(
                    {shard: [Settlement(host.host, lease_id, [], release=True, next_contact=soonest)]}, now
                )


async def _delay_s(engine: Engine) -> float:
    saved = await engine.get_meta(CONFIG_KEY)
    return (msgspec.json.decode(saved, type=CrawlConfig) if saved else CrawlConfig()).delay_s
