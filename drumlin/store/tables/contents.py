"""What the stored pages are: their types, sizes and languages, and how many repeat others.

Segments that are complete never change, so a few narrow columns of each are read once, and its sums are kept. A look
at a large store reads as many segments as it has time for; the next look goes on from there.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.errors import StorageError
from drumlin.logs import Event, event
from drumlin.store.files import StoredFile, StoreFiles
from drumlin.store.tables.reading import InTime, batches, compute
from drumlin.store.tables.rows import BODY_BYTES_MAX, moment_of
from drumlin.store.tables.schema import PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX

SIZE_BOUNDS: Final = (0, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
"""Where the classes of sizes begin, in bytes."""
TYPES_MAX: Final = 200
"""How many types are told apart: sites may call theirs anything."""
OTHER_TYPES: Final = "other"
NAME_CHARS_MAX: Final = 100
"""Of a longer name of a type or a language the beginning counts."""
FLAGS: Final = ("noindex", "nofollow", "soft_404")
EXACT, NEAR = "exact", "near"
_FOLDER: Final = f"tables/{PAGES}"
_COLUMNS: Final = [
    "content_mime_detected",
    "content_languages",
    "content_truncated",
    "duplicate_kind",
    "body_bytes",
    "fetch_time",
    *FLAGS,
]

log = logging.getLogger("drumlin.store")


class Contents(msgspec.Struct):
    """Sums over pages. The keys of `languages` are ISO 639-3, and empty where the language is uncertain. `sizes`
    belongs to `SIZE_BOUNDS`. `newest` is when the last of these pages had arrived, 0 if there is none."""

    pages: int = 0
    bytes: int = 0
    types: Counter[str] = msgspec.field(default_factory=Counter)
    type_bytes: Counter[str] = msgspec.field(default_factory=Counter)
    languages: Counter[str] = msgspec.field(default_factory=Counter)
    sizes: list[int] = msgspec.field(default_factory=lambda: [0] * len(SIZE_BOUNDS))
    size_bytes: list[int] = msgspec.field(default_factory=lambda: [0] * len(SIZE_BOUNDS))
    duplicates: Counter[str] = msgspec.field(default_factory=Counter)
    duplicate_bytes: Counter[str] = msgspec.field(default_factory=Counter)
    flags: Counter[str] = msgspec.field(default_factory=Counter)
    newest: float = 0.0

    def add(self, other: Contents) -> None:
        self.pages += other.pages
        self.bytes += other.bytes
        for name in ("types", "type_bytes", "languages", "duplicates", "duplicate_bytes", "flags"):
            getattr(self, name).update(getattr(other, name))
        self.sizes = [mine + more for mine, more in zip(self.sizes, other.sizes, strict=True)]
        self.size_bytes = [mine + more for mine, more in zip(self.size_bytes, other.size_bytes, strict=True)]
        self.newest = max(self.newest, other.newest)


class Summed(msgspec.Struct):
    """The sums of all segments that were read, of how many there are."""

    contents: Contents
    read: int
    segments: int


class ContentsReader:
    """Sums up the pages in a store. Calls block, and belong beside an event loop, one at a time."""

    def __init__(self, files: StoreFiles) -> None:
        self._files = files
        self._kept: dict[str, tuple[str, Contents]] = {}
        """The sums of each segment, with the version of its file."""
        self._total = Contents()

    def sum_up(self, in_time: InTime) -> Summed:
        """The sums of what readers of the tables can see, as far as there is time to read it."""
        try:
            files = self._files.files(_FOLDER, PARQUET_SUFFIX)
        except StorageError:
            # The store cannot be reached: there may be any number of segments that are not read.
            return Summed(self._total, len(self._kept), len(self._kept) + 1)
        known = {file.name: kept for file in files if (kept := self._kept.get(file.name)) and kept[0] == file.version}
        # What is new comes first: those who look at a running crawl want to see it grow.
        for file in sorted(files, key=lambda file: -file.written):
            if file.name not in known and in_time():
                # One that cannot be reached now is read at a later call, as if there had been no time for it.
                with suppress(OSError, StorageError):
                    known[file.name] = (file.version, self._of_segment(file))
        if known != self._kept:
            self._kept, self._total = known, _sum(contents for _, contents in known.values())
        return Summed(self._total, len(known), len(files))

    def _of_segment(self, file: StoredFile) -> Contents:
        """The sums of one file. OSError or StorageError if it cannot be read now; one that is damaged counts as empty,
        since those who need all rows report it."""
        found = Contents()
        try:
            with (
                suppress(pa.ArrowException),
                self._files.open(f"{_FOLDER}/{file.name}") as opened,
                pq.ParquetFile(opened) as pages,
            ):
                for group in range(pages.num_row_groups):
                    for batch in batches(pages, group, _COLUMNS, lambda: True):
                        found.add(contents_of(pa.Table.from_batches([batch])))
                        found = _few_names(found)
        except StorageError:
            raise
        except OSError as cause:
            # Arrow's own errors about damaged files have no number.
            if cause.errno is not None:
                raise
        except Exception:
            # Whatever a stranger's rows may cause, the other segments are summed up.
            log.exception("cannot sum up %s, for a reason nobody foresaw", file.name, extra=event(Event.BUG))
        return found


def _sum(parts: Iterable[Contents]) -> Contents:
    total = Contents()
    for part in parts:
        total.add(part)
    return _few_names(total)


def contents_of(rows: Any) -> Contents:
    """The sums of these rows of `pages`."""
    if not len(rows):
        return Contents()
    pc = compute()
    rows = _with_possible_sizes(pc, rows)
    types, type_bytes = _by(rows, "content_mime_detected")
    twins, twin_bytes = _by(rows, "duplicate_kind")
    twins.pop("", None)
    twin_bytes.pop("", None)
    sizes, size_bytes = _by_size(pc, rows["body_bytes"])
    flags = Counter({name: pc.sum(rows[name]).as_py() or 0 for name in FLAGS})
    flags["truncated"] = len(rows) - rows["content_truncated"].null_count
    return Contents(
        pages=len(rows),
        bytes=pc.sum(rows["body_bytes"]).as_py() or 0,
        types=types,
        type_bytes=type_bytes,
        languages=_by(rows, "content_languages")[0],
        sizes=sizes,
        size_bytes=size_bytes,
        duplicates=twins,
        duplicate_bytes=twin_bytes,
        flags=flags,
        newest=moment_of(pc.max(rows["fetch_time"].cast(pa.int64())).as_py()),
    )


def _with_possible_sizes(pc: Any, rows: Any) -> Any:
    """The same rows without sizes that no body has, which a stranger may have written: Arrow's sums would overflow."""
    place, sizes = rows.schema.get_field_index("body_bytes"), pc.fill_null(rows["body_bytes"], 0)
    possible = pc.max_element_wise(pc.min_element_wise(sizes, pa.scalar(BODY_BYTES_MAX)), pa.scalar(0))
    return rows.set_column(place, "body_bytes", possible)


def _by(rows: Any, column: str) -> tuple[Counter[str], Counter[str]]:
    """How many rows there are of each value, and how many bytes their bodies have; NULL is the empty text."""
    grouped = rows.select([column, "body_bytes"]).group_by(column).aggregate([([], "count_all"), ("body_bytes", "sum")])
    counts, sizes = Counter[str](), Counter[str]()
    for row in grouped.to_pylist():
        name = (row[column] or "")[:NAME_CHARS_MAX]
        counts[name] += row["count_all"]
        sizes[name] += row["body_bytes_sum"] or 0
    return counts, sizes


def _by_size(pc: Any, sizes: Any) -> tuple[list[int], list[int]]:
    """How many sizes are in each class, and what they sum up to."""
    masks = [pc.greater_equal(sizes, bound) for bound in SIZE_BOUNDS]
    counts = [pc.sum(mask).as_py() or 0 for mask in masks]
    totals = [pc.sum(pc.if_else(mask, sizes, 0)).as_py() or 0 for mask in masks]
    return _steps(counts), _steps(totals)


def _steps(at_least: list[int]) -> list[int]:
    """The sums of single classes, from those of each class and all above it."""
    return [low - high for low, high in zip(at_least, [*at_least[1:], 0], strict=True)]


def _few_names(contents: Contents) -> Contents:
    """The same with at most `TYPES_MAX` types, and as many languages; the rarest are taken together."""
    of_types, of_languages = (contents.types, contents.type_bytes), (contents.languages, Counter[str]())
    of_twins = (contents.duplicates, contents.duplicate_bytes)
    for counts, sizes in (of_types, of_languages, of_twins):
        for name in [name for name, _ in counts.most_common() if name != OTHER_TYPES][TYPES_MAX:]:
            counts[OTHER_TYPES] += counts.pop(name)
            sizes[OTHER_TYPES] += sizes.pop(name, 0)
    return contents
