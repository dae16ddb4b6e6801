"""Sending bundles one after the other, and what happens to those that no coordinator accepts."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from drumlin.disk import discard_scratch
from drumlin.node.calling.answers import Refusal
from drumlin.node.calling.client import CoordinatorClient
from drumlin.node.keeping.bundles import (
    BundleUploads,
    adopt_bundle,
    as_tar,
    bundles_in,
    bytes_of,
    make_bundle,
    put_aside,
)
from drumlin.protocol import BundleOffer, BundlePlace, BundleStored
from tests.harness.bundles import unpacked
from tests.unit.test_node_killed_anywhere import lives_through


class Coordinator:
    """Answers uploads as it is told to; the client that brings them."""

    def __init__(self, refused: dict[str, str]) -> None:
        self.refused = refused
        self.sent: list[str] = []

    def post(
        self,
        path: str,
        message: BundleOffer,
        reply: type,
        on_reply: Callable[[Any], None],
        *,
        on_refused: Callable[[Refusal], bool],
    ) -> None:
        assert path.endswith("/place")
        on_reply(BundlePlace())

    def upload(
        self,
        path: str,
        file: BinaryIO,
        headers: list[str],
        reply: type,
        on_reply: Callable[[Any], None],
        *,
        on_refused: Callable[[Refusal], bool],
    ) -> None:
        name = path.rpartition("/")[2]
        self.sent.append(name)
        if name not in self.refused:
            on_reply(BundleStored("stored"))
        elif not on_refused(Refusal(self.refused[name], "It is refused.")):
            raise LookupError(name)


def uploads(folder: Path, coordinator: Coordinator) -> BundleUploads:
    for name in ("n1-1-00001", "n1-1-00002", "n1-1-00003"):
        (folder / f"{name}.tar").write_bytes(name.encode())
    return BundleUploads("n1", cast(CoordinatorClient, coordinator), folder)


@pytest.mark.parametrize("code", ["not_a_bundle", "not_settled", "exists", "too_large"])
def test_a_bundle_refused_for_good_is_kept_aside_and_told_of_and_the_next_is_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], code: str
) -> None:
    coordinator = Coordinator({"n1-1-00002": code})
    sending = uploads(tmp_path, coordinator)
    for now in range(4):
        sending.step(float(now))
    assert coordinator.sent == ["n1-1-00001", "n1-1-00002", "n1-1-00003"]
    assert sending.waiting() == []
    assert (tmp_path / "refused" / "n1-1-00002.tar").read_bytes() == b"n1-1-00002"
    assert (tmp_path / "refused" / "n1-1-00002.tar.txt").read_text() == f"{code}: It is refused.\n"
    assert "a bundle was refused and is kept in" in capsys.readouterr().err


def test_what_is_no_fault_of_the_bundle_leaves_it_where_it_is(tmp_path: Path) -> None:
    sending = uploads(tmp_path, Coordinator({"n1-1-00001": "no_store"}))
    with pytest.raises(LookupError):
        sending.step(0.0)
    assert len(sending.waiting()) == 3
    assert sending._file is not None
    sending._file.close()


SEGMENT, WARC = "n1-1-00001", "drumlin-20261119000000000-00001-n1"
WRITTEN = {f"warc/{WARC}.warc.gz": b"a record", f"warc/{WARC}.cdxj": b"a line"}
WRITTEN |= {f"tables/{table}/{SEGMENT}.parquet": table.encode() for table in ("pages", "links", "fetches")}


def folder_bundle(root: Path) -> Path:
    """A folder with what a segment has written, in a spool."""
    spool = root / "spool"
    spool.mkdir(parents=True)
    for name, content in WRITTEN.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    make_bundle(root, spool, SEGMENT, [f"{WARC}.warc.gz"], ["first", "second"], packed=False)
    return spool / f"{SEGMENT}.bundle"


def test_a_folder_becomes_a_tar_when_its_node_has_no_credentials_any_more(tmp_path: Path) -> None:
    folder = folder_bundle(tmp_path)
    assert bytes_of(folder) > sum(map(len, WRITTEN.values()))
    assert not [path for name in ("warc", "tables") for path in (tmp_path / name).rglob("*.*")]
    coordinator = Coordinator({SEGMENT: "not_settled"})
    sending = BundleUploads("n1", cast(CoordinatorClient, coordinator), folder.parent)
    for now in range(2):
        sending.step(float(now))
    assert (coordinator.sent, sending.waiting()) == ([SEGMENT], [])
    [tar] = (folder.parent / "refused").glob("*.tar")
    assert unpacked(tar.read_bytes()) == WRITTEN | {"receipts": b"first\nsecond"}
    assert [path.name for path in folder.parent.iterdir()] == ["refused"]


@pytest.mark.parametrize("odd", ["missing", "strange", "link", "cut"])
def test_a_folder_that_is_not_whole_is_put_aside(tmp_path: Path, odd: str) -> None:
    """Somebody has copied a part of it, or has put something into it."""
    folder = folder_bundle(tmp_path)
    table = folder / "tables" / "pages" / f"{SEGMENT}.parquet"
    if odd == "strange":
        (folder / "removals").mkdir()
        (folder / "removals" / "under-way").touch()
    elif odd == "cut":
        table.write_bytes(b"p")
    else:
        table.unlink()
    if odd == "link":
        table.symlink_to("/etc/hostname")
    coordinator = Coordinator({})
    sending = BundleUploads("n1", cast(CoordinatorClient, coordinator), tmp_path / "spool")
    for now in range(2):
        sending.step(float(now))
    assert (coordinator.sent, sending.waiting()) == ([], [])
    assert "missing" in (folder.parent / "refused" / f"{folder.name}.txt").read_text()


def test_a_bundle_of_a_dead_node_that_is_here_already_is_put_aside(tmp_path: Path) -> None:
    """Somebody has copied a node's folder."""
    own, others = folder_bundle(tmp_path / "n1"), folder_bundle(tmp_path / "n2")
    adopt_bundle(others, own.parent)
    assert bundles_in(own.parent) == [own]
    assert bundles_in(others.parent / "refused") == [others.parent / "refused" / others.name]
    adopt_bundle(own, others.parent)
    assert bundles_in(others.parent) == [others]


def test_links_and_odd_names_in_a_spool_are_left_alone(tmp_path: Path) -> None:
    elsewhere = folder_bundle(tmp_path / "elsewhere")
    (tmp_path / elsewhere.name).symlink_to(elsewhere)
    (tmp_path / "backup.tar").touch()
    (tmp_path / "backup.bundle").mkdir()
    assert bundles_in(tmp_path) == []


def test_killed_at_any_moment_while_a_folder_becomes_a_tar(tmp_path: Path) -> None:
    for fatal in range(100):
        folder = folder_bundle(tmp_path / str(fatal))
        lived = lives_through(lambda folder=folder: as_tar(folder), fatal)  # type: ignore[misc]
        discard_scratch(folder.parent)
        for bundle in bundles_in(folder.parent):
            assert unpacked(as_tar(bundle).read_bytes()) == WRITTEN | {"receipts": b"first\nsecond"}
        assert [path.name for path in folder.parent.iterdir()] == [f"{SEGMENT}.tar"]
        if lived:
            return
    pytest.fail("it never came to its end")


def test_a_folder_that_a_thread_removes_meanwhile_has_no_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(folder: Path, onerror: Callable[[OSError], None]) -> Iterator[tuple[str, list[str], list[str]]]:
        onerror(FileNotFoundError(folder))
        return iter(())

    folder = folder_bundle(tmp_path)
    monkeypatch.setattr(os, "walk", gone)
    assert bytes_of(folder) == 0


def test_a_bundle_that_somebody_had_tried_again_is_put_aside_again(tmp_path: Path) -> None:
    for number in range(2):
        folder = folder_bundle(tmp_path / str(number))
        put_aside(folder.replace(tmp_path / folder.name), Refusal("exists", "It is refused."))
    assert (tmp_path / "refused" / folder.name / "receipts").exists()


def test_a_disk_without_links_keeps_bundles_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    for name in ("tables/pages", "tables/links", "tables/fetches", "spool"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "n1-1-00001.parquet").write_bytes(name.encode())
    make_bundle(tmp_path, tmp_path / "spool", "n1-1-00001", [], ["first"], packed=False)
    [bundle] = bundles_in(tmp_path / "spool")
    assert (bundle / "tables/pages/n1-1-00001.parquet").read_bytes() == b"tables/pages"
