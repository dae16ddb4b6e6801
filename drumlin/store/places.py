"""Places to which files of a store are moved: a directory, or a bucket. A file keeps there the path that it had.

A copy counts once it was read back and has the length and the SHA-256 of what was sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from drumlin.disk import PARTIAL_SUFFIX, below, remove, replace, sync_file, translated_disk_errors
from drumlin.errors import ConfigError, DrumlinError, StorageError
from drumlin.store.objects.address import is_objects, parse_address

if TYPE_CHECKING:
    from drumlin.store.objects.bucket import Bucket

COPY_BYTES: Final = 1024**2


class ColdPlace(Protocol):
    """Calls block. `OSError` or `StorageError` says that the place cannot be used."""

    def open(self, path: str, size: int) -> BinaryIO:
        """A file of this size to read from at any place."""

    def put(self, path: str, source: BinaryIO, size: int, digest: str) -> None:
        """Make sure that the file is there, and check what is there. One of an earlier try is used again."""

    def delete(self, path: str) -> None:
        """Remove a file, if it is there."""


def open_place(place: str) -> ColdPlace:
    """The place that a policy names: `s3://BUCKET/PREFIX`, or a directory by its whole path."""
    return _bucket_place(place) if is_objects(place) else DirectoryPlace(Path(place))


def check_place(place: str) -> str:
    """A place as it is noted in a policy; ConfigError if nothing can be moved there."""
    if is_objects(place):
        return str(parse_address(place))
    folder = Path(place)
    if not folder.is_dir():
        raise ConfigError(f"There is no directory {folder}.", "Make it, or name a bucket: s3://BUCKET/PREFIX.")
    return str(folder.absolute())


def check_apart(store: str, place: str) -> None:
    """ConfigError if a place lies in the store itself: the copy would be the file that is deleted afterwards."""
    if is_objects(store) != is_objects(place):
        return
    if is_objects(store):
        own, other = parse_address(store), parse_address(place)
        inside = own.bucket == other.bucket and f"{other.prefix}/".startswith(f"{own.prefix}/" if own.prefix else "")
    else:
        folder = Path(place).resolve()
        inside = any(_is_same(one, Path(store)) for one in (folder, *folder.parents))
    if inside:
        hint = "Name a place outside of the store: --move-to DIR, or s3://BUCKET/PREFIX."
        raise ConfigError(f"{place} is in the store from which files would be moved.", hint)


def _is_same(one: Path, other: Path) -> bool:
    """Whether both are the same folder, also by a link or a mount."""
    try:
        return one.samefile(other)
    except OSError:
        return False


def copied_to(place: str, path: str, source: Path) -> tuple[int, str]:
    """Copy a file to a place and check the copy; returns its length and SHA-256."""
    with source.open("rb") as file:
        size, digest = digest_of(file)
        file.seek(0)
        open_place(place).put(path, file, size, digest)
    return size, digest


class DirectoryPlace:
    """A directory, such as one on a larger and slower disk."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def open(self, path: str, size: int) -> BinaryIO:
        return (self._root / path).open("rb")

    def put(self, path: str, source: BinaryIO, size: int, digest: str) -> None:
        target = self._root / path
        with translated_disk_errors(self._root):
            if not self._root.is_dir():
                # A disk that is not mounted would otherwise fill the one that its directory is on.
                raise StorageError(f"There is no directory {self._root}.", "Is its disk mounted?")
            if target.exists() and _matches(target.open("rb"), size, digest):
                return
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = target.with_name(target.name + PARTIAL_SUFFIX)
            remove(partial)
            with partial.open("xb") as file:
                for chunk in chunks_of(source):
                    file.write(chunk)
            sync_file(partial)
            _check(partial.open("rb"), size, digest, f"{target}")
            replace(partial, target, sync=True)

    def delete(self, path: str) -> None:
        remove(below(self._root, path))


class BucketPlace:
    """A prefix in a bucket. Its objects have the paths of the store as names."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def open(self, path: str, size: int) -> BinaryIO:
        return self._bucket.reader(path, size)

    def put(self, path: str, source: BinaryIO, size: int, digest: str) -> None:
        there = self._bucket.head(path)
        if there is None or there.bytes != size or not self._has(path, size, digest):
            self._bucket.put_open(path, source, size)
            _check(self._bucket.reader(path, size), size, digest, f"{self._bucket.address}/{path}")

    def _has(self, path: str, size: int, digest: str) -> bool:
        return _matches(self._bucket.reader(path, size), size, digest)

    def delete(self, path: str) -> None:
        if self._bucket.head(path) is not None:
            self._bucket.delete([path])


@cache
def _bucket_place(place: str) -> BucketPlace:
    """It loads a library that only buckets need."""
    try:
        from drumlin.store.objects.bucket import Bucket

        return BucketPlace(Bucket.open(parse_address(place)))
    except DrumlinError as wrong:
        # Readers expect this of a file that cannot be opened, whatever is missing here: the library, or credentials.
        raise OSError(f"{place} cannot be used from here: {wrong.message}") from wrong


def chunks_of(source: BinaryIO) -> Iterator[bytes]:
    while chunk := source.read(COPY_BYTES):
        yield chunk


def digest_of(source: BinaryIO) -> tuple[int, str]:
    """The length and the SHA-256 of what is left to read."""
    digest, size = hashlib.sha256(), 0
    for chunk in chunks_of(source):
        digest.update(chunk)
        size += len(chunk)
    return size, digest.hexdigest()


def _matches(file: BinaryIO, size: int, digest: str) -> bool:
    with file:
        return digest_of(file) == (size, digest)


def _check(file: BinaryIO, size: int, digest: str, name: str) -> None:
    if not _matches(file, size, digest):
        raise StorageError(f"The copy in {name} differs from what was sent.", "Check that place; nothing was deleted.")
