"""The last step of a crawl: one index over all WARC files, when nobody has anything to add to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.errors import BusyError, StorageError
from drumlin.store import WarcWriter
from drumlin.store.finish import finish
from drumlin.store.spools import SpoolLock
from tests.unit.store_captures import FETCHED, make_capture


def writer(root: Path, node: str) -> WarcWriter:
    (root / "nodes" / node).mkdir(parents=True)
    return WarcWriter(root / "warc", node, software="drumlin/1", info={}, now=FETCHED)


def test_the_indexes_of_all_nodes_become_one_each_time(tmp_path: Path) -> None:
    for node in ("a", "b"):
        made = writer(tmp_path, node)
        made.settle(made.store([make_capture(f"https://example.com/{node}")]))
        made.close()
    assert finish(tmp_path).read_bytes().count(b"\n") == 2
    assert finish(tmp_path).read_bytes().count(b"\n") == 2


def test_a_node_at_work_or_a_journal_left_is_one_sentence_and_changes_nothing(tmp_path: Path) -> None:
    one = writer(tmp_path, "a")
    one.settle(one.store([make_capture()]))
    lock = SpoolLock.take(tmp_path / "nodes" / "a")
    assert lock is not None
    with pytest.raises(BusyError, match=r"^Nodes are at work in .*: a\. Wait until they have left\.$"):
        finish(tmp_path)
    lock.free()
    journal = tmp_path / "nodes" / "a" / "a-1-00001.journal"
    journal.write_bytes(b"")
    with pytest.raises(BusyError, match=r"in no table yet: a\. Start a node with this --store"):
        finish(tmp_path)
    assert len(list((tmp_path / "warc").glob("*.open"))) == 2
    assert not (tmp_path / "warc" / "index.cdxj").exists()


def test_a_warc_left_open_by_a_node_whose_journals_are_done_is_finished(tmp_path: Path) -> None:
    one = writer(tmp_path, "a")
    one.settle(one.store([make_capture()]))
    assert finish(tmp_path).read_bytes().count(b"\n") == 1
    assert list((tmp_path / "warc").glob("*.open")) == []


def test_a_folder_that_is_no_store_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="There is no store in"):
        finish(tmp_path / "elsewhere")
    assert list(tmp_path.iterdir()) == []
