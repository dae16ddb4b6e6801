"""Removal on request from a crawl that nobody works on: its engine, its store, and the directory of a crawl on one
machine.

First the tombstones are written, so nothing of the removed comes back. Then store and frontier are gone through,
and checkpoints too; then report and audit log are written. If it is killed, the same command made again ends it.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import zstandard

from drumlin.access.audit import AUDIT_TABLE, AuditEntry, AuditLog
from drumlin.access.tokens import Identity, Role
from drumlin.api.calls.marks import TABLE as MARKS_TABLE
from drumlin.api.explaining.same_name import at_other_ports
from drumlin.api.intake import kept
from drumlin.coordinator.dispatch import CRAWL_ID_KEY
from drumlin.coordinator.giving.visiting import STRANGERS_TABLE
from drumlin.coordinator.orders import BUDGETS_TABLE, HOSTS_TABLE
from drumlin.coordinator.taking.findings import SCOPE_SEEDS_TABLE
from drumlin.coordinator.taking.owed import NOTE_BYTES_MAX
from drumlin.coordinator.taking.owed import TABLE as OWED_TABLE
from drumlin.disk import discard_temporary, temporary_folder
from drumlin.engines import open_engine
from drumlin.engines.base import Engine
from drumlin.engines.kept import CLOSED_KEY, Closed
from drumlin.engines.rocksdb.engine import CHECKPOINTS
from drumlin.errors import BusyError, ConfigError, EngineError, StorageError
from drumlin.events.options import EventsOptions
from drumlin.events.schema import RESULTS, VERSION, Message, Removal, encode, row_id
from drumlin.lifecycle.book import (
    DONE,
    Signature,
    begin_removal,
    check_no_run,
    end_removal,
    holds_of,
    open_book,
    signature,
)
from drumlin.lifecycle.holds import Holds
from drumlin.lifecycle.removal.bucket import BucketRemoval
from drumlin.lifecycle.removal.counts import Counts
from drumlin.lifecycle.removal.directory import Directory, Filter
from drumlin.lifecycle.removal.frontier import Scrub, goes, remove_from
from drumlin.lifecycle.removal.plan import check_none_pending, finish
from drumlin.lifecycle.removal.targets import Targets, What
from drumlin.lifecycle.removal.texts import REMOVED
from drumlin.lifecycle.removal.tombstones import (
    IN_STORE,
    KEY_BYTES,
    LAST_KEY,
    Tombstones,
    copy_to,
    packed,
    put,
    with_key,
)
from drumlin.local.directory import FRONTIER
from drumlin.local.moving import CURRENT, ROCKSDB, frontier_at, frontier_folder
from drumlin.local.one_removal import only_one
from drumlin.moving.sources import at_rest
from drumlin.node.keeping import journal
from drumlin.node.keeping.archive import BLACK_BOX
from drumlin.node.keeping.bundles import BUNDLE_SUFFIXES, REFUSED_FOLDER
from drumlin.serving.service import SEEDS_KEY
from drumlin.store.bundles import TABLES
from drumlin.store.files import DirectoryFiles, StoreFiles
from drumlin.store.finish import alone
from drumlin.store.frames import decompressed
from drumlin.store.ledger import Ledger
from drumlin.store.objects.address import is_objects
from drumlin.store.opening import in_bucket, open_store
from drumlin.store.spools import EVENTS_SUFFIX, JOURNAL_SUFFIX, KEPT_SUFFIX, SPOOLS, SpoolLock
from drumlin.urls import host_of

REPORTS: Final = "removals"
ACTION: Final = "removal"
FOLDERS: Final = ("warc", "logs", *(f"tables/{table}" for table in TABLES))
"""The folders whose files retention may move."""
BEGUN: Final = Closed(
    "A removal from this crawl was broken off, or is under way.",
    "Run the same `drumlin remove` command again: it ends what was begun.",
)
"""What an engine says of itself until a removal is done (`CLOSED_KEY`); its name is that of the tombstones."""
UNTOLD: Final = "Start the crawl or its coordinators again with --events until all is sent, end them, and repeat."
NAMES_SHOWN_MAX: Final = 5
TELL_S: Final = 30.0
TELL_POLL_S: Final = 0.05
JOURNALS: Final[Mapping[str, Filter]] = {JOURNAL_SUFFIX: journal.without, KEPT_SUFFIX: kept.without}

_Done = TypeVar("_Done")


class Place(msgspec.Struct, frozen=True):
    """Where a crawl is: its engine, its store, the directory of a crawl on one machine, if it is one, and further
    directories of this machine that have something of it. `forget` clears the past of the engine, if it is ours."""

    engine: str
    store: str
    out: Path | None = None
    beside: tuple[Path, ...] = ()
    forget: Callable[[], None] = lambda: None

    @property
    def folders(self) -> list[Path]:
        """The directories of this machine that have something of the crawl."""
        found = [] if is_objects(self.store) else [Path(self.store)]
        found += [self.out] if self.out is not None else []
        return list(dict.fromkeys(path.absolute() for path in [*found, *self.beside]))


class Report(msgspec.Struct):
    """What was removed, by the keyed hashes of its names, when, and how much. If an earlier removal was broken off and
    this one `resumed` it, what the earlier one had removed is not counted."""

    removed: list[str]
    at: str
    dry_run: bool
    resumed: bool
    counts: Counts


async def remove(
    place: Place, targets: Targets, *, dry_run: bool, by: str = "", events: EventsOptions | None = None
) -> Report:
    """Remove everything of these targets, or only count."""
    today = time.time()
    async with frontier_at(place.engine, closed=True) as engine, at_rest(engine, today):
        _check_store(place, (await engine.get_meta(CRAWL_ID_KEY) or b"").decode())
        with _alone(place):
            async with only_one(engine):
                resumed = await _check_open(engine, targets, dry_run=dry_run)
                report = await _remove(place, engine, targets, today, resumed=resumed, dry_run=dry_run, by=by)
            crawl = (await engine.get_meta(CRAWL_ID_KEY) or b"").decode()
    if not dry_run and place.engine.startswith(ROCKSDB):
        await _begin_anew(f"{ROCKSDB}{frontier_folder(Path(place.engine.removeprefix(ROCKSDB)))}")
    if not dry_run:
        # Before Kafka is told: that may fail, and everything is removed by now.
        place.forget()
    if not dry_run and events is not None:
        tell(events, targets, crawl, today)
    return report


async def same_names(place: Place, targets: Targets) -> list[str]:
    """Hosts of the crawl that have the names of these targets, at other ports."""
    hosts = dict.fromkeys([*targets.hosts, *map(host_of, targets.urls)])
    async with frontier_at(place.engine, closed=True) as engine:
        return [other for host in hosts for other in await at_other_ports(engine, host)]


def _check_store(place: Place, crawl: str) -> None:
    """Refuse a store that is not there, or is that of another crawl: it may be mistyped, and then all would stay."""
    hint = "Name the --store that coordinators have."
    if is_objects(place.store):
        from drumlin.store.objects.files import ObjectFiles
        from drumlin.store.objects.founding import founder_of

        files = open_store(place.store, ACTION)
        other = founder_of(files) if isinstance(files, ObjectFiles) else crawl
        if other not in ("", crawl):
            raise ConfigError(f"{files} is the store of another crawl ({other}).", hint)
        is_there = bool(other)
    else:
        is_there = any((Path(place.store) / part).is_dir() for part in ("warc", "tables", SPOOLS))
    if not is_there and place.out is None:
        raise ConfigError(f"There is no store in {place.store}.", hint)


async def _check_open(engine: Engine, targets: Targets, *, dry_run: bool) -> bool:
    """Whether a removal was broken off that goes on now. Refuse a frontier that was moved elsewhere or is half
    imported. One from which somebody began to remove is meant to be opened here, but only to end that: after another
    removal nobody would know that the first is not done."""
    closed = Closed.read(await engine.get_meta(CLOSED_KEY))
    if closed is None:
        return False
    if closed.sentence != BEGUN.sentence:
        raise EngineError(closed.sentence, closed.hint)
    stones = await Tombstones.read(engine)
    others = sorted(set(closed.name.split()) - {stones.name_of(one) for one in targets.each})
    if others and not dry_run:
        hint = "End that first, by the command that was given then. `drumlin why` tells whether a name was one of them."
        raise BusyError(f"A removal of something else was broken off ({', '.join(others[:NAMES_SHOWN_MAX])}).", hint)
    return True


async def _remove(
    place: Place, engine: Engine, targets: Targets, today: float, *, resumed: bool, dry_run: bool, by: str
) -> Report:
    now, files = await engine.keep_time(0.0), open_store(place.store, ACTION)
    await _in_thread(partial(check_may_go, place, files, targets))
    book, who, names = open_book(files), signature(by, today), list[str]()
    bucket = in_bucket(files)
    if not dry_run:
        # Killed questions and the like may have left copies of pages.
        discard_temporary()
        candidate = secrets.token_bytes(KEY_BYTES)
        stones = await with_key(engine, candidate)
        names = list(map(stones.name_of, targets.each))
        check = partial(_check_free, files, targets)
        await _in_thread(partial(begin_removal, book, who, " ".join(names), check))
        # Until it is done, nobody crawls on, and whoever finds a tombstone knows that not all may be gone.
        await engine.put_meta(CLOSED_KEY, msgspec.structs.replace(BEGUN, name=" ".join(names)).written())
        await put(engine, targets.each, candidate, today)
        await engine.put_meta(LAST_KEY, secrets.token_hex(8).encode())
        if bucket is not None:
            await _in_thread(bucket.begin_removal)
            await _in_thread(partial(_replace, files, IN_STORE, await packed(engine, secrets.token_hex(8))))
    counts = Counts()
    for folder in place.folders:
        counts.add(await _in_thread(partial(_from_directory, folder, targets, dry_run=dry_run)))
    if is_objects(place.store):
        counts.add(await _in_thread(partial(_from_bucket, files, targets, today, dry_run=dry_run)))
    counts.add(await remove_from(engine, targets, SCRUBS, now, dry_run=dry_run))
    counts.checkpoints = await _from_others(place, targets, await packed(engine), dry_run=dry_run)
    report = Report(names, f"{datetime.fromtimestamp(today, UTC):%Y-%m-%dT%H:%M:%SZ}", dry_run, resumed, counts)
    if not dry_run:
        await engine.expunge()
        await _note(engine, files, report, who)
        if bucket is not None:
            await _in_thread(bucket.end_removal)
        await _in_thread(partial(end_removal, book, who, " ".join(names)))
        await engine.put_meta(CLOSED_KEY, b"")
    return report


async def _in_thread(work: Callable[[], _Done]) -> _Done:
    """Do it in a thread, so others hear meanwhile that a removal is at work. If this is interrupted, the locks must not
    be free before the thread has ended."""
    working = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.gather(working, return_exceptions=True)
        raise


def check_may_go(place: Place, files: StoreFiles, targets: Targets) -> None:
    """Refuse what must not be removed, or cannot be now."""
    orders = open_book(files).orders()
    check_no_run(orders)
    _check_free(files, targets, holds_of(orders))
    _check_told(files)
    for folder in place.folders:
        owed = [*folder.glob(f"{SPOOLS}/*/*{EVENTS_SUFFIX}"), *folder.glob(f"events/*/*{EVENTS_SUFFIX}")]
        if owed:
            raise BusyError(f"Kafka has not been told of everything in {folder} yet.", UNTOLD)
        suffixes = [*BUNDLE_SUFFIXES, *((JOURNAL_SUFFIX,) if is_objects(place.store) else ())]
        if any(any(folder.glob(f"{SPOOLS}/*/*{suffix}")) for suffix in suffixes):
            hint = "Start the crawl again, let it send them, stop it, and repeat."
            raise BusyError(f"Nodes have left bundles in {folder} that are not in the store yet.", hint)
        asides = [f"{SPOOLS}/*/{REFUSED_FOLDER}/*{suffix}" for suffix in BUNDLE_SUFFIXES]
        for refused in [one for aside in asides for one in folder.glob(aside)]:
            hint = "Nothing needs them: look why they were refused, move or delete them, and repeat."
            raise BusyError(f"Bundles that no coordinator would store lie in {refused.parent}, with all pages.", hint)


def _check_free(files: StoreFiles, targets: Targets, holds: Holds) -> None:
    """Refuse what people or retention have put out of reach. It is asked again when nothing can change any more: a run
    of retention may have ended since, and have moved something."""
    _check_holds(holds, targets)
    _check_here(files)


def _check_holds(holds: Holds, targets: Targets) -> None:
    """Refuse what is under legal hold, also in part: a domain of which one host is held."""
    for hold in holds.all:
        names = [host_of(one.name) if one.what is What.URL else one.name for one in targets.each]
        if any(hold.covers(name) for name in names) or targets.covers_host(hold.host or hold.domain):
            hint = f"Have it lifted first: drumlin hold lift {hold.name}."
            raise ConfigError(f"There is a legal hold on {hold.what} ({hold.name}), so it is not removed.", hint)


def _check_told(files: StoreFiles) -> None:
    """Refuse a store in a bucket with segments that Kafka was not told of: a removal would take the rows away first."""
    from drumlin.store.objects.files import ObjectFiles
    from drumlin.store.objects.mark import untold_segments

    if isinstance(files, ObjectFiles) and untold_segments(files):
        raise BusyError(f"Kafka has not been told of everything in {files} yet.", UNTOLD)


def _check_here(files: StoreFiles) -> None:
    """Refuse a store whose files retention has moved elsewhere: what is there would stay."""
    if isinstance(files, DirectoryFiles):
        ledger = Ledger(files.root)
        elsewhere = [one.place for folder in FOLDERS for one in ledger.moved_in(folder)]
    else:
        from drumlin.store.objects.files import ObjectFiles

        items = files.manifest.contents().items() if isinstance(files, ObjectFiles) else []
        elsewhere = [item.place for item in items if item.place]
    if elsewhere:
        hint = "Removing from other places is not built yet: look there yourself, or bring the files back first."
        raise ConfigError(f"Files of {files} were moved to {elsewhere[0]}, where a removal does not reach them.", hint)


@contextlib.contextmanager
def _alone(place: Place) -> Iterator[None]:
    """Hold the lock of every writer of the store, so none of them is at work."""
    with contextlib.ExitStack() as held:
        for folder in place.folders:
            held.enter_context(alone(folder))
            for spool in sorted(path for path in (folder / SPOOLS).glob("*") if path.is_dir()):
                lock = SpoolLock.take(spool)
                if lock is None:
                    raise BusyError(f"The node {spool.name} is at work in {folder}.", "Stop it, and repeat.")
                held.callback(lock.free)
        yield


# Where it is removed from


def _from_directory(folder: Path, targets: Targets, *, dry_run: bool) -> Counts:
    check_none_pending(folder) if dry_run else finish(folder)
    return Directory(folder, targets, JOURNALS, BLACK_BOX).remove(dry_run=dry_run)


def _from_bucket(files: StoreFiles, targets: Targets, today: float, *, dry_run: bool) -> Counts:
    from drumlin.store.objects.files import ObjectFiles

    if not isinstance(files, ObjectFiles):
        raise ConfigError("This store is not in a bucket.")
    with temporary_folder("remove") as folder:
        return BucketRemoval(files, targets, folder, today).remove(dry_run=dry_run)


async def _from_others(place: Place, targets: Targets, stones: bytes, *, dry_run: bool) -> int:
    """Remove it from every checkpoint too, and from the frontier that a crawl had before it was moved to another
    engine; returns how many had something of it."""
    changed = 0
    for folder in _other_frontiers(place):
        async with _opened(f"{ROCKSDB}{folder}") as engine:
            now = await engine.keep_time(0.0)
            found = await remove_from(engine, targets, SCRUBS, now, dry_run=dry_run)
            changed += found.removed > 0
            if not dry_run:
                # Whoever goes back to it must not lose the tombstones.
                await copy_to(engine, stones)
                if found.removed:
                    await engine.expunge()
        if not dry_run and found.removed:
            await _begin_anew(f"{ROCKSDB}{folder}")
    return changed


def _other_frontiers(place: Place) -> list[Path]:
    """The frontiers in these directories that are not the engine's."""
    own, beside = None, [folder / CHECKPOINTS for folder in place.folders]
    if place.engine.startswith(ROCKSDB):
        own = frontier_folder(Path(place.engine.removeprefix(ROCKSDB)).absolute())
        beside += [own / CHECKPOINTS, own.parent / CHECKPOINTS]
    found = [path.parent for folder in dict.fromkeys(beside) for path in sorted(folder.glob(f"*/{CURRENT}"))]
    left = [folder / FRONTIER for folder in place.folders if (folder / FRONTIER / CURRENT).exists()]
    return [*found, *(folder for folder in left if folder != own)]


async def _begin_anew(spec: str) -> None:
    """A database lists the first and last keys of its files. It begins a new list when it is opened."""
    async with _opened(spec):
        pass


@contextlib.asynccontextmanager
async def _opened(spec: str) -> AsyncIterator[Engine]:
    engine = await open_engine(spec, closed=True)
    try:
        yield engine
    finally:
        await engine.close()


# Values in the engine that name hosts and URLs


def _seeds_without(value: bytes, targets: Targets) -> bytes | None:
    seeds = msgspec.msgpack.decode(value, type=list[str])
    left = [seed for seed in seeds if not targets.covers(seed) and not targets.names(seed)]
    return value if left == seeds else msgspec.msgpack.encode(left)


def _owed_without(value: bytes, targets: Targets) -> bytes | None:
    urls = msgspec.msgpack.decode(decompressed(value, NOTE_BYTES_MAX), type=list[tuple[str, int]])
    left = [one for one in urls if not targets.covers(one[0])]
    return value if left == urls else zstandard.compress(msgspec.msgpack.encode(left))


def _audit_without(value: bytes, targets: Targets) -> bytes | None:
    entry = msgspec.msgpack.decode(value, type=AuditEntry)
    if not targets.names(entry.target):
        return value
    return msgspec.msgpack.encode(msgspec.structs.replace(entry, target=REMOVED))


SCRUBS: Final[Mapping[str, Scrub]] = {
    SEEDS_KEY: _seeds_without,
    f"{OWED_TABLE}.": _owed_without,
    AUDIT_TABLE: _audit_without,
    **dict.fromkeys((SCOPE_SEEDS_TABLE, HOSTS_TABLE, BUDGETS_TABLE, STRANGERS_TABLE, MARKS_TABLE), goes),
}
"""What becomes of values that name the removed. Settings are their operators' words, and stay."""


# Who is told


def tell(events: EventsOptions, targets: Targets, crawl: str, today: float) -> None:
    """Tell Kafka, so whoever keeps copies removes them too, and wait until the broker has it."""
    producer = events.producer()
    micros = int(today * 1_000_000)
    for one in targets.each:
        said = row_id(None, one.name, micros, ACTION)
        event = Removal(id=said, crawl=crawl, v=VERSION, what=one.what, name=one.name, time_us=micros)
        host = host_of(one.name) if one.what is What.URL else one.name
        producer.send([Message(RESULTS, host, encode(event))])
    deadline = time.monotonic() + TELL_S
    while producer.unconfirmed and not producer.failed and time.monotonic() < deadline:
        producer.poll()
        time.sleep(TELL_POLL_S)
    if producer.unconfirmed or producer.failed:
        hint = "Everything is removed; run the same command again to tell it."
        raise StorageError(f"Kafka was not told of the removal: {producer.error or 'it does not answer'}.", hint)


def _replace(files: StoreFiles, path: str, content: bytes) -> None:
    with temporary_folder("remove") as folder:
        file = folder / "file"
        file.write_bytes(content)
        files.replace(path, file)


async def _note(engine: Engine, files: StoreFiles, report: Report, who: Signature) -> None:
    """Write the report and the audit log. Neither has a name in it."""
    content = msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"
    first = report.removed[0].partition(":")[2][:8]
    path = f"{REPORTS}/{report.at.replace(':', '')}-{first}.json"
    await _in_thread(partial(_replace, files, path, content))
    numbers = {name: count for name, count in msgspec.to_builtins(report.counts).items() if count}
    said = " ".join(f"{name}={count}" for name, count in numbers.items())
    log = AuditLog(engine)
    for name in report.removed:
        by = Identity(Role.OPERATOR, who.by)
        await log.record(by, ACTION, f"{name} {said}".rstrip(), DONE, "", who.at, name=who.by)
