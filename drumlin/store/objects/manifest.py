"""The manifest of a store of objects: a log of numbered entries that are never changed, and checkpoints.

To add an entry, a writer reads all there are and creates the object of the next number, which the service permits only
if there is none. If another writer was faster, its entry is read first, and the writer decides anew whether its own
still fits. So each writer has seen everything that was there before its entry.

A checkpoint holds what all entries up to its number amount to. It is written by whoever adds an entry after many
others, and only saves time: without it, readers would begin with the first entry. The larger a store, the rarer
checkpoints are, so writing them costs a constant part.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import msgspec

from drumlin.clock import monotonic
from drumlin.errors import BusyError, StorageError
from drumlin.store.objects.bucket import Bucket
from drumlin.store.objects.contents import Contents, Entry, Item

ENTRIES: Final = "manifest/entries"
CHECKPOINTS: Final = "manifest/checkpoints"
CHECKPOINT_ENTRIES_MIN: Final = 100
CHECKPOINT_FILES_SHARE: Final = 20
"""A checkpoint is written after at least so many entries, or one for every so many files."""
TRIES_MAX: Final = 200
RIVAL_WAIT_S: Final = 0.02
READ_AT_ONCE: Final = 8
ID_BYTES: Final = 8

Change = Callable[[Contents], Entry | None]
"""Decides, by what is in the store, which entry to add; None for no entry."""


def entry_of(
    by: str,
    at: float,
    add: Sequence[Item] = (),
    remove: Sequence[str] = (),
    segments: Sequence[str] = (),
    retired: Sequence[str] = (),
) -> Entry:
    return Entry(secrets.token_hex(ID_BYTES), at, by, list(add), list(remove), list(segments), list(retired))


class Manifest:
    """Reads and extends the manifest. Several threads may use it, one at a time."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._contents: Contents | None = None
        self._checkpoint = 0
        self._read_at = 0.0
        self._lock = threading.RLock()

    def contents(self, age_s_max: float = 0.0) -> Contents:
        """What is in the store, not older than this. Whoever changes nothing may use it while others read on: entries
        are applied one after the other."""
        with self._lock:
            known = self._contents
            return known if known is not None and monotonic() - self._read_at <= age_s_max else self._follow()

    def entries(self, after: int, count_max: int) -> list[tuple[int, Entry]]:
        """The entries that follow entry `after`, with their numbers; at most so many."""
        listed = itertools.islice(self._bucket.listed(ENTRIES, after=_name(after)), count_max)
        names = [one.name for one in listed]
        # As in `_follow`: a listing may lack one and have the next.
        names = [name for place, name in enumerate(names) if _number(name) == after + 1 + place]
        found = [msgspec.json.decode(content, type=Entry) for content in self._read_all(names)]
        return list(enumerate(found, after + 1))

    def change(self, change: Change) -> bool:
        """Add the entry that `change` wants; returns whether there was one."""
        for _ in range(TRIES_MAX):
            with self._lock:
                contents = self.contents()
                entry = change(contents)
                if entry is None:
                    return False
                number = contents.number + 1
                if self._bucket.create(_name(number), msgspec.json.encode(entry)):
                    contents.apply(number, entry)
                    self._keep_checkpoint(contents)
                    return True
            # Chance spreads writers that came at the same moment.
            time.sleep(RIVAL_WAIT_S * random.random())  # noqa: S311  # nothing secret
        raise BusyError(f"Too many others write to {self._bucket.address}.", "It is tried again later.")

    def _follow(self) -> Contents:
        """Read the entries that came since."""
        began = monotonic()
        if self._contents is None:
            self._contents = self._last_checkpoint()
            self._checkpoint = self._contents.number
        contents = self._contents
        listed = self._bucket.listed(ENTRIES, after=_name(contents.number))
        names = [one.name for one in listed]
        for name, content in zip(names, self._read_all(names), strict=True):
            if _number(name) != contents.number + 1:
                # A listing that is made while entries come may lack one and have the next: the rest is read next time.
                break
            contents.apply(contents.number + 1, msgspec.json.decode(content, type=Entry))
        self._read_at = began
        return contents

    def _read_all(self, names: Sequence[str]) -> list[bytes]:
        if len(names) < 2:
            return [self._bucket.get(name) for name in names]
        with ThreadPoolExecutor(READ_AT_ONCE) as pool:
            return list(pool.map(self._bucket.get, names))

    def _last_checkpoint(self) -> Contents:
        names = [one.name for one in self._bucket.listed(CHECKPOINTS)]
        return Contents.unpacked(self._bucket.get(names[-1])) if names else Contents()

    def _keep_checkpoint(self, contents: Contents) -> None:
        wait = max(CHECKPOINT_ENTRIES_MIN, len(contents) // CHECKPOINT_FILES_SHARE)
        if contents.number - self._checkpoint < wait:
            return
        # The entry itself is written; a checkpoint that is missing only costs readers time.
        with contextlib.suppress(StorageError):
            self._bucket.put(f"{CHECKPOINTS}/{contents.number:020}.msgpack.zst", contents.packed())
            self._checkpoint = contents.number


def _name(number: int) -> str:
    return f"{ENTRIES}/{number:020}.json"


def _number(name: str) -> int:
    return int(name.removeprefix(ENTRIES + "/").removesuffix(".json"))
