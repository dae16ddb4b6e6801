"""A node killed in the middle of every single write: its successor always finishes the work correctly."""

from __future__ import annotations

import importlib
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drumlin.disk import AppendFile
from drumlin.model import Outcome
from drumlin.node.keeping import archive as archive_module
from drumlin.node.keeping.archive import Archive, Arrival, Contact, CrawlPaths, SegmentLimits, StoredBatch
from drumlin.node.keeping.bundles import bundles_in, whole_members
from drumlin.node.keeping.journal import FoundJournal
from drumlin.node.keeping.recovery import recover
from drumlin.protocol import Accepted, Rejected, Result
from drumlin.store import ROBOTS_OUTCOME, FetchRecord, record_id_of
from drumlin.store.finish import finish
from tests.harness.bundles import unpacked
from tests.harness.outputs import check_index_matches_tables, query, stored_urls
from tests.unit.store_captures import make_capture
from tests.unit.test_node_recovery import NODE, arrival, pipeline

PAGES = 10
REFUSED = frozenset({5, 7})
"""URLs that the site answered with an error: the answers are archived, but are not pages."""
STALE = frozenset({1, 4, 5, 8})
"""The pages that another node has settled."""
COUNTED = frozenset(range(PAGES)) - STALE - REFUSED
MOMENTS_MAX = 500
LEFTOVERS = (".journal", ".open", ".partial", ".tmp")

repairing = importlib.import_module("drumlin.store.warc.repair")


class Killed(BaseException):
    """Stands in for SIGKILL: nothing that runs afterwards changes anything."""


class Moments:
    """Counts all changes of the disk, and kills the process at the chosen one."""

    def __init__(self, fatal: int) -> None:
        self._left = fatal
        self.dead = False

    def passes(self) -> bool:
        """Count a change. Returns whether the process survives it; after the fatal one every call raises `Killed`."""
        if self.dead:
            raise Killed
        self._left -= 1
        self.dead = self._left < 0
        return not self.dead

    def guarded(self, change: Callable[..., Any]) -> Callable[..., Any]:
        def guard(*arguments: Any, **options: Any) -> Any:
            if not self.passes():
                raise Killed
            return change(*arguments, **options)

        return guard

    def torn(self, write: Callable[[AppendFile, bytes], None]) -> Callable[[AppendFile, bytes], None]:
        """The fatal write gets half of its bytes to the disk."""

        def guard(file: AppendFile, content: bytes) -> None:
            if not self.passes():
                write(file, content[: len(content) // 2])
                raise Killed
            write(file, content)

        return guard


@contextmanager
def killed_at(fatal: int) -> Iterator[Moments]:
    moments = Moments(fatal)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(AppendFile, "_write", moments.torn(AppendFile._write))
        patched.setattr(os, "replace", moments.guarded(os.replace))
        patched.setattr(os, "link", moments.guarded(os.link))
        patched.setattr(os, "unlink", moments.guarded(os.unlink))
        patched.setattr(FoundJournal, "answered", moments.guarded(FoundJournal.answered))
        patched.setattr(repairing, "_cut_and_mark", moments.guarded(repairing._cut_and_mark))
        yield moments


def answer(results: list[Result], bundle: str) -> Accepted:
    """The coordinator's answer to results; the same results always get the same answer."""
    numbers = [int(result.url.rpartition("/")[2]) for result in results]
    places = [place for place, number in enumerate(numbers) if number in STALE]
    receipts = ["" if number in STALE else f"{bundle}/{number}" for number in numbers] if bundle else []
    return Accepted(0, len(places), [Rejected("", "stale") for _ in places], rejected_at=places, receipts=receipts)


def attempt(number: int) -> Arrival:
    made = arrival(number)
    if number in REFUSED and made.capture is not None:
        made.capture.status = made.result.status_code = made.fetch.status = 503
        made.result.outcome = made.fetch.outcome = Outcome.FAILED
        made.result.content_hash, made.capture.digest = "", b""
    return made


def robots(number: int) -> Contact:
    """The answer to a request for robots.txt; of every third there is none."""
    url, host = f"https://{number}.example/robots.txt", f"{number}.example"
    record = FetchRecord(url, host, 1_760_000_000.0 + number, ROBOTS_OUTCOME, 404, node=NODE)
    if number % 3 == 0:
        return Contact(record, f"{NODE}:lease")
    capture = make_capture(url, b"not here", fetched=record.fetched)
    capture.digest, capture.record_id = b"", ""
    record.record_id = capture.record_id = record_id_of(capture)
    return Contact(record, f"{NODE}:lease", capture)


def store_all(archive: Archive) -> list[StoredBatch]:
    """Pages two at a time, with the robots.txt of some hosts beside them, and at last some of these alone."""
    batches = [
        archive.store([attempt(number), attempt(number + 1)], 0.0, [robots(number), robots(number + 1)])
        for number in range(0, PAGES, 2)
    ]
    return [*batches, archive.store([], 0.0, [robots(PAGES), robots(PAGES + 1)])]


def work(paths: CrawlPaths) -> None:
    """Some batches, answered in another order than they were sent, over several segments and WARC files."""
    archive = Archive(paths, NODE, software="drumlin/test", info={}, now=1_760_000_000.0, sync=False)
    archive._warc._rotate_bytes = 2_500
    batches = store_all(archive)
    for batch in (batches[2], batches[0], batches[1], batches[5], batches[4], batches[3]):
        archive.publish(batch, answer([one.result for one in batch.arrivals], batch.bundle))
    archive.close()


def told(paths: CrawlPaths) -> set[int]:
    """The pages that reached a journal. All others are fetched again later."""
    return {int(url.rpartition("/")[2]) for url in stored_urls(paths.root)}


def lives_through(step: Callable[[], object], fatal: int) -> bool:
    """Whether a step ends before the moment comes at which it would be killed."""
    with killed_at(fatal) as moments:
        try:
            step()
        except Killed:
            return False
    return not moments.dead


@pytest.fixture(autouse=True)
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    for limits in ("BUNDLE_LIMITS", "UPLOAD_LIMITS"):
        monkeypatch.setattr(archive_module, limits, SegmentLimits(4))
    monkeypatch.setattr(archive_module, "SegmentLimits", lambda: SegmentLimits(4))


def new_paths(root: Path, kind: str = "store") -> CrawlPaths:
    paths = CrawlPaths(root, bundled=kind != "store", packed=kind == "tars")
    paths.spool(NODE).mkdir(parents=True)
    paths.tables.mkdir()
    return paths


def unbundled(paths: CrawlPaths, target: Path) -> CrawlPaths:
    """The content of all bundles in one folder, as a coordinator would store it."""
    bundles = bundles_in(paths.spool(NODE))
    assert {bundle.is_file() for bundle in bundles} <= {paths.packed}
    for bundle in bundles:
        for name, content in content_of(bundle).items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(content)
        receipts = (target / "receipts").read_text().split()
        assert receipts
        assert all(receipt.startswith((f"{bundle.stem}/", f"{NODE}:lease@")) for receipt in receipts)
    return CrawlPaths(target)


def content_of(bundle: Path) -> dict[str, bytes]:
    if bundle.is_file():
        return unpacked(bundle.read_bytes())
    return {name: path.read_bytes() for name, path in whole_members(bundle).items()}


def check(paths: CrawlPaths, target: Path) -> set[int]:
    """Check that nothing is left to do and that the store is right. Returns the stored pages."""
    assert [path.name for path in paths.root.rglob("*") if path.suffix in LEFTOVERS or path.name[0] == "."] == []
    if paths.bundled:
        assert [path.name for folder in (paths.warc, paths.tables) for path in folder.rglob("*.*")] == []
    shown = unbundled(paths, target) if paths.bundled else paths
    if not any((shown.tables / "pages").glob("*.parquet")):
        return set()
    check_index_matches_tables(shown.root)
    assert not told(shown) & (STALE | REFUSED)
    outcomes = Counter(outcome for (outcome,) in query(shown.root, "SELECT outcome FROM {fetches}"))
    if told(shown) == COUNTED:
        assert (outcomes["fetched"], outcomes["failed"]) == (len(COUNTED), len(REFUSED - STALE))
        assert outcomes["robots"] in (PAGES, PAGES + 2), "it may have died before the last of them"
    return told(shown)


@pytest.mark.parametrize("kind", ["store", "tars", "folders"])
def test_killed_at_any_moment_of_its_work(tmp_path: Path, kind: str) -> None:
    counted = 0
    for fatal in range(MOMENTS_MAX):
        paths = new_paths(tmp_path / str(fatal), kind)
        lived = lives_through(lambda paths=paths: work(paths), fatal)  # type: ignore[misc]
        assert recover(paths, NODE, pipeline(), answer)
        stored = check(paths, tmp_path / f"shown {fatal}")
        assert len(stored) >= counted, "what was stored before an earlier moment is stored before a later one"
        counted = len(stored)
        if lived:
            assert stored == COUNTED
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("kind", ["store", "tars", "folders"])
def test_killed_at_any_moment_of_a_recovery(tmp_path: Path, kind: str) -> None:
    """The node died when it had all pages in its journals and no answer was written down."""
    for fatal in range(MOMENTS_MAX):
        paths = new_paths(tmp_path / str(fatal), kind)
        archive = Archive(paths, NODE, software="drumlin/test", info={}, now=1_760_000_000.0, sync=False)
        store_all(archive)
        lived = lives_through(lambda paths=paths: recover(paths, NODE, pipeline(), answer), fatal)  # type: ignore[misc]
        assert recover(paths, NODE, pipeline(), answer)
        assert check(paths, tmp_path / f"shown {fatal}") == COUNTED
        if lived:
            return
    pytest.fail("it never came to its end")


def test_killed_at_any_moment_of_finishing_the_store(tmp_path: Path) -> None:
    for fatal in range(MOMENTS_MAX):
        paths = new_paths(tmp_path / str(fatal))
        work(paths)
        lived = lives_through(lambda paths=paths: finish(paths.root), fatal)  # type: ignore[misc]
        finish(paths.root)
        assert check(paths, paths.root) == COUNTED
        if lived:
            return
    pytest.fail("it never came to its end")
