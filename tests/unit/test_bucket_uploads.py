"""Uploading bundles beside the node's loop: what is stored, what is put aside, and what is left of a killed process."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from drumlin.disk import discard_scratch
from drumlin.node.keeping.bucket_uploads import BucketUploads
from drumlin.store.files import DirectoryFiles
from tests.unit.test_node_bundles import WRITTEN, folder_bundle
from tests.unit.test_node_killed_anywhere import lives_through


def uploads(spool: Path) -> BucketUploads:
    """Into a directory: how a bucket takes it is tested with a real one."""
    return BucketUploads(DirectoryFiles(spool.parent / "store"), spool)


def stored(root: Path) -> dict[str, bytes]:
    files = (path for path in (root / "store").rglob("*") if path.is_file())
    return {str(path.relative_to(root / "store")): path.read_bytes() for path in files}


def test_a_folder_is_stored_and_then_removed(tmp_path: Path) -> None:
    spool = folder_bundle(tmp_path).parent
    sending = uploads(spool)
    sending._upload_all(sending.waiting())
    assert (stored(tmp_path), list(spool.iterdir())) == (WRITTEN, [])


@pytest.mark.parametrize("odd", ["warc/index.cdxj", "removals/under-way", "tables/pages/n2-1-00001.parquet"])
def test_a_folder_with_something_else_in_it_is_put_aside(tmp_path: Path, odd: str) -> None:
    folder = folder_bundle(tmp_path)
    (folder / odd).parent.mkdir(exist_ok=True)
    (folder / odd).touch()
    uploads(folder.parent)._upload_all([folder])
    assert stored(tmp_path) == {}
    assert (folder.parent / "refused" / folder.name / odd).exists()


def test_a_tar_that_cannot_be_read_is_put_aside_and_the_next_is_stored(tmp_path: Path) -> None:
    spool = folder_bundle(tmp_path).parent
    torn = spool / "n1-1-00000.tar"
    torn.write_bytes(b"torn" * 1_000)
    sending = uploads(spool)
    sending._upload_all(sending.waiting())
    assert stored(tmp_path) == WRITTEN
    assert (spool / "refused" / torn.name).exists()
    assert "invalid header" in (spool / "refused" / f"{torn.name}.txt").read_text()


def test_killed_at_any_moment_of_an_upload(tmp_path: Path) -> None:
    for fatal in range(100):
        root = tmp_path / str(fatal)
        folder = folder_bundle(root)
        lived = lives_through(lambda folder=folder: uploads(folder.parent)._upload(folder), fatal)  # type: ignore[misc]
        discard_scratch(folder.parent)
        sending = uploads(folder.parent)
        sending._upload_all(sending.waiting())
        assert (stored(root), list(folder.parent.iterdir())) == (WRITTEN, []), f"killed at {fatal}"
        if lived:
            assert fatal > len(WRITTEN)
            return
    raise AssertionError("it never came to its end")


def test_the_loop_knows_how_much_waits_while_bundles_go(tmp_path: Path) -> None:
    """Folders vanish while it looks into them."""
    spool = folder_bundle(tmp_path).parent
    sending = uploads(spool)
    now = 0.0
    while sending.waiting() or sending.busy:
        now += 1.0
        sending.step(now)
    sending.step(now + 1.0)
    assert (sending.waiting_bytes, stored(tmp_path)) == (0, WRITTEN)


@pytest.mark.parametrize(("free", "left"), [(0, 0), (10**12, 1)])
def test_a_disk_that_is_full_of_bundles_is_emptied_before_a_node_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free: int, left: int
) -> None:
    spool = folder_bundle(tmp_path).parent
    (spool / ".scratch-x").mkdir()
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=free))
    uploads(spool).make_room()
    assert len(list(spool.iterdir())) == left
