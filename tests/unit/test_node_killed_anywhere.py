"""A node killed in the middle of every single write: what its successor makes of it is always right."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drumlin.node import archive as archive_module
from drumlin.node.archive import Archive, CrawlPaths, SegmentLimits
from drumlin.node.recovery import recover
from drumlin.node.spool import FoundJournal
from drumlin.protocol import Accepted, Rejected, Result
from drumlin.store.disk import AppendFile
from drumlin.store.finish import finish
from tests.harness.bundles import unpacked
from tests.harness.outputs import check_index_matches_tables, stored_urls
from tests.unit.test_node_recovery import NODE, arrival, pipeline

PAGES = 10
STALE = frozenset({1, 4, 5, 8})
"""The pages that another node has settled."""
MOMENTS_MAX = 500
LEFTOVERS = (".journal", ".open", ".partial", ".tmp")

repairing = importlib.import_module("drumlin.store.repair")


class Killed(BaseException):
    """Stands in for SIGKILL: nothing that runs afterwards changes anything."""


class Moments:
    """Counts whatever changes the disk, and kills at the moment that it is told."""

    def __init__(self, fatal: int) -> None:
        self._left = fatal
        self.dead = False

    def passes(self) -> bool:
        """Whether the process lives on; the fatal call, and every later one, finds out that it does not."""
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
        patched.setattr(os, "unlink", moments.guarded(os.unlink))
        patched.setattr(FoundJournal, "answered", moments.guarded(FoundJournal.answered))
        patched.setattr(repairing, "_cut_and_mark", moments.guarded(repairing._cut_and_mark))
        yield moments


def answer(results: list[Result], bundle: str) -> Accepted:
    """What the coordinator says of results, whenever it is asked."""
    numbers = [int(result.url.rpartition("/")[2]) for result in results]
    places = [place for place, number in enumerate(numbers) if number in STALE]
    receipts = ["" if number in STALE else f"{bundle}/{number}" for number in numbers] if bundle else []
    return Accepted(0, len(places), [Rejected("", "stale") for _ in places], rejected_at=places, receipts=receipts)


def work(paths: CrawlPaths) -> None:
    """Some batches, answered in another order than they were sent, over several segments and WARC files."""
    archive = Archive(paths, NODE, software="drumlin/test", info={}, now=1_760_000_000.0, sync=False)
    archive._warc._rotate_bytes = 2_500
    batches = [archive.store([arrival(number), arrival(number + 1)], 0.0) for number in range(0, PAGES, 2)]
    for batch in (batches[2], batches[0], batches[1], batches[4], batches[3]):
        archive.publish(batch, answer([one.result for one in batch.arrivals], batch.bundle))
    archive.close()


def told(paths: CrawlPaths) -> set[int]:
    """The pages that got as far as a journal or beyond: all others are fetched again, by whoever leases them."""
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
    monkeypatch.setattr(archive_module, "BUNDLE_LIMITS", SegmentLimits(4))
    monkeypatch.setattr(archive_module, "SegmentLimits", lambda: SegmentLimits(4))


def new_paths(root: Path, *, bundled: bool) -> CrawlPaths:
    paths = CrawlPaths(root, bundled)
    paths.spool(NODE).mkdir(parents=True)
    paths.tables.mkdir()
    return paths


def unbundled(paths: CrawlPaths, target: Path) -> CrawlPaths:
    """What bundles hold, in one place, as a coordinator would put it."""
    for bundle in sorted(paths.spool(NODE).glob("*.tar")):
        for name, content in unpacked(bundle.read_bytes()).items():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(content)
        receipts = (target / "receipts").read_text().split()
        assert receipts
        assert all(receipt.startswith(f"{bundle.stem}/") for receipt in receipts)
    return CrawlPaths(target)


def check(paths: CrawlPaths, target: Path) -> set[int]:
    """Nothing is left to do, and what is stored is right; the pages that are stored."""
    assert [path.name for path in paths.root.rglob("*") if path.suffix in LEFTOVERS] == []
    if paths.bundled:
        assert [path.name for folder in (paths.warc, paths.tables) for path in folder.rglob("*.*")] == []
    shown = unbundled(paths, target) if paths.bundled else paths
    if not any((shown.tables / "pages").glob("*.parquet")):
        return set()
    check_index_matches_tables(shown.root)
    assert not told(shown) & STALE
    return told(shown)


@pytest.mark.parametrize("bundled", [False, True])
def test_killed_at_any_moment_of_its_work(tmp_path: Path, bundled: bool) -> None:
    counted = 0
    for fatal in range(MOMENTS_MAX):
        paths = new_paths(tmp_path / str(fatal), bundled=bundled)
        lived = lives_through(lambda paths=paths: work(paths), fatal)  # type: ignore[misc]
        assert recover(paths, NODE, pipeline(), answer)
        stored = check(paths, tmp_path / f"shown {fatal}")
        assert len(stored) >= counted, "what was stored before an earlier moment is stored before a later one"
        counted = len(stored)
        if lived:
            assert stored == set(range(PAGES)) - STALE
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("bundled", [False, True])
def test_killed_at_any_moment_of_a_recovery(tmp_path: Path, bundled: bool) -> None:
    """The node died when it had all pages in its journals and no answer was written down."""
    for fatal in range(MOMENTS_MAX):
        paths = new_paths(tmp_path / str(fatal), bundled=bundled)
        archive = Archive(paths, NODE, software="drumlin/test", info={}, now=1_760_000_000.0, sync=False)
        for number in range(0, PAGES, 2):
            archive.store([arrival(number), arrival(number + 1)], 0.0)
        lived = lives_through(lambda paths=paths: recover(paths, NODE, pipeline(), answer), fatal)  # type: ignore[misc]
        assert recover(paths, NODE, pipeline(), answer)
        assert check(paths, tmp_path / f"shown {fatal}") == set(range(PAGES)) - STALE
        if lived:
            return
    pytest.fail("it never came to its end")


def test_killed_at_any_moment_of_finishing_the_store(tmp_path: Path) -> None:
    for fatal in range(MOMENTS_MAX):
        paths = new_paths(tmp_path / str(fatal), bundled=False)
        work(paths)
        lived = lives_through(lambda paths=paths: finish(paths.root), fatal)  # type: ignore[misc]
        finish(paths.root)
        assert check(paths, paths.root) == set(range(PAGES)) - STALE
        if lived:
            return
    pytest.fail("it never came to its end")
