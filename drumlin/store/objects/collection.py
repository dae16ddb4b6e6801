"""Removes what no reader can need any more: objects that the manifest does not name, and uploads that were never ended.

Nothing is removed before it is `older_s` old, or out of the manifest for so long: an upload may be under way, whose
entry is still to come, and a reader may have begun before its files were replaced. Age is judged by the service's own
time (`Bucket.time`), since the clock of whoever collects may be wrong. The objects are listed before the manifest is
read, so one that enters it meanwhile is seen to be in it; and it is read again right before anything is removed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final, NamedTuple

from drumlin.store.objects.address import parse_address
from drumlin.store.objects.bucket import PROBES, Bucket, Listed
from drumlin.store.objects.contents import Contents
from drumlin.store.objects.files import DATA, DERIVED, ObjectFiles
from drumlin.store.objects.inbox import INCOMING
from drumlin.store.objects.manifest import CHECKPOINTS
from drumlin.store.objects.uploads import UnfinishedUpload, end_upload, unfinished_uploads

CHECKPOINTS_KEPT: Final = 3
DELETED_AT_ONCE: Final = 500


class Garbage(NamedTuple):
    """What can be removed."""

    objects: list[Listed]
    uploads: list[UnfinishedUpload]

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.objects)


def find_garbage(files: ObjectFiles, now: float, older_s: float) -> Garbage:
    """What is not needed, and old enough. `now` is the service's time."""
    bucket = files.bucket
    listed = {folder: list(bucket.listed(folder)) for folder in (DATA, DERIVED, INCOMING, PROBES)}
    checkpoints = list(bucket.listed(CHECKPOINTS))[:-CHECKPOINTS_KEPT]
    contents = files.manifest.contents()
    garbage = [*_unnamed(listed[DATA], contents, now - older_s), *_underived(listed[DERIVED], contents), *checkpoints]
    garbage += [*listed[INCOMING], *listed[PROBES]]
    old = [one for one in garbage if one.written <= now - older_s]
    uploads = [one for one in unfinished_uploads(bucket, time.time()) if one.begun <= now - older_s]
    return Garbage(old, uploads)


def remove_garbage(files: ObjectFiles, garbage: Garbage) -> None:
    names = [one.name for one in garbage.objects]
    for start in range(0, len(names), DELETED_AT_ONCE):
        live = {item.name for item in files.manifest.contents().items() if not item.place}
        files.bucket.delete([name for name in names[start : start + DELETED_AT_ONCE] if name not in live])
    for upload in garbage.uploads:
        # Requests are signed by the time that it is: services refuse those of another hour.
        end_upload(files.bucket, upload, time.time())


def missing_objects(files: ObjectFiles) -> list[str]:
    """The paths of files that the manifest names and whose objects are gone, or have another size: damage that drumlin
    does not cause itself."""
    contents = files.manifest.contents()
    named = contents.items()
    there = {("", one.name): one.bytes for one in files.bucket.listed(DATA)}
    for place in {item.place for item in named if item.place}:
        there |= {(place, one.name): one.bytes for one in Bucket.open(parse_address(place)).listed(DATA)}
    return [item.path for item in named if there.get((item.place, item.name)) != item.bytes]


def _unnamed(objects: list[Listed], contents: Contents, before: float) -> Iterator[Listed]:
    live = {item.name for item in contents.items() if not item.place}
    for one in objects:
        gone = contents.gone.get(one.name)
        if one.name not in live and (gone is None or gone[1] <= before):
            yield one


def _underived(objects: list[Listed], contents: Contents) -> Iterator[Listed]:
    """Indexes of segments that are not in the store any more."""
    segments = {name.rpartition(".")[0] for name in contents.folder("tables/pages")}
    return (one for one in objects if one.name.rpartition("/")[2].rpartition(".")[0] not in segments)
