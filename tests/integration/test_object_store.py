"""A store of objects on a real S3 server: what was published is there once, whoever writes at the same time."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.errors import StorageError
from drumlin.store.files import OtherContent
from drumlin.store.objects.manifest import CHECKPOINT_ENTRIES_MIN
from tests.harness.s3 import S3Server, s3_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3") / "data") as running:
        yield running


def members(folder: Path, segment: str, content: bytes) -> dict[str, Path]:
    path = folder / segment
    path.write_bytes(content)
    return {f"tables/pages/{segment}.parquet": path}


def test_a_segment_is_published_once_and_read_in_place(server: S3Server, tmp_path: Path) -> None:
    store, segment, content = server.store("once"), "n-1f-00001", os.urandom(300_000)
    assert store.publish(segment, members(tmp_path, segment, content))
    assert not store.publish(segment, members(tmp_path, segment, content))
    reader = server.store("once")
    assert [one.name for one in reader.files("tables/pages", ".parquet")] == [f"{segment}.parquet"]
    with reader.open(f"tables/pages/{segment}.parquet") as file:
        file.seek(200_000)
        assert file.read(1_000) == content[200_000:201_000]
    assert reader.has_segment(segment)
    assert not reader.has_segment("n-1f-00002")


def test_another_content_under_the_same_name_is_refused(server: S3Server, tmp_path: Path) -> None:
    store = server.store("other")
    store.publish("n-1f-00001", members(tmp_path, "n-1f-00001", b"one"))
    with pytest.raises(OtherContent):
        store.publish("n-1f-00001", members(tmp_path, "n-1f-00001", b"two"))
    with store.open("tables/pages/n-1f-00001.parquet") as file:
        assert file.read() == b"one"


def test_a_new_segment_takes_the_place_of_no_file_of_another_one(server: S3Server, tmp_path: Path) -> None:
    store = server.store("foreign")
    store.publish("n-1f-00001", members(tmp_path, "n-1f-00001", b"one"))
    with pytest.raises(OtherContent):
        store.publish("n-1f-00002", members(tmp_path, "n-1f-00001", b"two"))
    with store.open("tables/pages/n-1f-00001.parquet") as file:
        assert file.read() == b"one"


def test_writers_at_the_same_time_lose_nothing(server: S3Server, tmp_path: Path) -> None:
    each, writers = 30, 4

    def write(number: int) -> None:
        store = server.store("rivals", f"writer-{number}")
        for serial in range(each):
            segment = f"n{number}-1f-{serial:05}"
            store.publish(segment, members(tmp_path, segment, segment.encode()))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    store = server.store("rivals")
    assert len(store.files("tables/pages", ".parquet")) == each * writers
    # There is a checkpoint by now, and who begins with it sees the same.
    assert store.manifest.contents().number == each * writers > CHECKPOINT_ENTRIES_MIN
    assert list(store.bucket.listed("manifest/checkpoints"))


def test_a_large_file_goes_in_parts_and_comes_back_whole(server: S3Server, tmp_path: Path) -> None:
    store, content = server.store("large"), os.urandom(20 << 20)
    store.publish("n-1f-00001", members(tmp_path, "n-1f-00001", content))
    with store.open("tables/pages/n-1f-00001.parquet") as file:
        assert file.read() == content


def test_what_is_not_there_or_cannot_be_reached_is_said(server: S3Server) -> None:
    with pytest.raises(FileNotFoundError):
        server.store("empty").open("warc/none")
    store = server.store("away")
    server.kill()
    try:
        with pytest.raises(StorageError, match="Cannot list in s3://crawls/away"):
            store.files("warc", "")
    finally:
        server.start()
    assert store.files("warc", "") == []
