"""Bundles: one segment of a node as a plain tar, and the check of a bundle that a node sent.

A bundle holds `warc/NAME.warc.gz` with `warc/NAME.cdxj`, `tables/{pages,links,fetches}/SEGMENT.parquet`, and
`receipts`: for each result a code by which a coordinator confirmed that it counts, and for each robots.txt the lease
under which it was requested.

`check` unpacks a bundle into a folder and trusts nothing in it. Every name must belong to the node and the segment,
every record and every row must be readable, the index must match the WARC files, the three tables must agree with it
and with each other as in any store (docs/reference/store.md), and every row must name the node. Whether the results
were really settled only the coordinator can tell, from the receipts; so `check` returns what the rows claim.

Parquet stores a value that repeats only once, so a few kilobytes can unpack to gigabytes. Therefore no row group may be
much larger than those of nodes, and what is no text for people may be no longer than a URL. Times and sizes must be
such that readers can make dates and sums of them.

The bytes come from a stranger, so the check runs in a process of its own, with bounds on its memory and time
(`check_alone`).
"""

from __future__ import annotations

import os
import resource
import shutil
import tarfile
from collections.abc import Collection, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.store.names import node_of_segment, node_of_warc
from drumlin.store.tables.reading import values_of
from drumlin.store.tables.rows import BODY_BYTES_MAX, ROBOTS_OUTCOME, TIME_MAX, split_port
from drumlin.store.tables.schema import FETCHES, LINKS, PAGES, SCHEMAS, TEXT_DELETED
from drumlin.store.warc.cdxj import CDXJ_SUFFIX, is_dated
from drumlin.store.warc.file import WARC_SUFFIX
from drumlin.store.warc.repair import scan
from drumlin.urls import are_well_spelled, host_or_nothing, origin_of

BODY: Final = "body.tar"
RECEIPTS: Final = "receipts"
VERDICT: Final = "verdict"
MEMBERS_MAX: Final = 1_000
BUNDLE_BYTES_MAX: Final = 2 * 1024**3
ROWS_MAX: Final = 200_000
RECEIPTS_BYTES_MAX: Final = 32 * ROWS_MAX
COPY_BYTES: Final = 1024 * 1024
BATCH_ROWS: Final = 1_000
ROW_GROUPS_MAX: Final = 60_000
ROW_GROUP_ROWS_MAX: Final = 300_000
ROW_GROUP_BYTES_MAX: Final = 256 * 1024**2
"""Unpacked. Nodes end one after 100,000 links or 32 MB of them, and gather small ones (`tables/segments.py`)."""
VALUE_BYTES_MAX: Final = 8_200
"""For URLs, names and words; a URL has at most 8,000 characters."""
TEXT_BYTES_MAX: Final = 8 * 1024**2
TEXTS: Final = frozenset({"text", "title", "description", "fetch_redirect", "rel", "error", "text_data_url"})
"""The columns whose values may be longer than a URL: the words of a page or of an error, and what a site may write."""
TIME: Final = "fetch_time"
NUMBERS: Final = {TIME: TIME_MAX, "body_bytes": BODY_BYTES_MAX, "wire_bytes": BODY_BYTES_MAX}
"""The columns that readers make dates or sums of, and the largest value of each; none is below 0."""
MEMORY_BYTES_MAX: Final = 1024**3
"""For the checking process's own data. WARC files are mapped from the disk and do not count."""
CPU_S_MAX: Final = 120
FETCHED: Final = "fetched"
RECORD_KINDS: Final = frozenset({"warcinfo", "request", "response", "revisit", "metadata"})
TABLES: Final = (PAGES, LINKS, FETCHES)


class NotABundle(Exception):
    """The sent bytes are not a valid bundle. Sending them again would not help."""


class Claim(msgspec.Struct, array_like=True, frozen=True):
    """What one row of `fetches` says was settled. Only pages have a `digest`. Only stored answers have a `status` here:
    the row of an answer that broke off has a status, but the result that was settled had none."""

    url: str
    record_id: str
    outcome: str
    status: int
    micros: int
    digest: str

    def text(self, segment: str, node: str) -> str:
        """The text that a receipt signs. It names the segment, so a row cannot be stored again in another one."""
        return msgspec.json.encode((segment, node, *msgspec.structs.astuple(self))).decode()


class Verdict(msgspec.Struct):
    """The result of `check`: the members that go into the store and what their rows claim, or else what is wrong."""

    wrong: str = ""
    members: list[str] = []
    claims: list[Claim] = []
    bytes: int = 0


def lease_receipt(lease_id: str, host: str) -> str:
    """The receipt for a robots.txt: the id of the lease, which is sealed and so proves that the node had the host."""
    return f"{lease_id}@{host}"


def is_robots_txt(url: str) -> bool:
    """Whether a bundle may hold the answer that came from this URL when robots.txt was asked for. A redirect can lead
    to a file of any other name, but nobody can tell whether it did, and who has a lease of a host was not given all of
    its pages. So the answers to such requests have a row in the bundle and no capture."""
    return url.partition("://")[2].partition("/")[2] == "robots.txt"


def belongs(member: str, segment: str) -> bool:
    """Whether a member of this name may be in the bundle of a segment, and go into the store."""
    node = node_of_segment(segment)
    if member.startswith("warc/") and member.endswith((WARC_SUFFIX, CDXJ_SUFFIX)):
        stem = member.removeprefix("warc/").removesuffix(WARC_SUFFIX).removesuffix(CDXJ_SUFFIX)
        return bool(node) and node_of_warc(stem) == node
    return bool(node) and member in {f"tables/{table}/{segment}.parquet" for table in TABLES}


def unpacked(folder: Path, member: str) -> Path:
    """Where `check` puts a member."""
    return folder / member.replace("/", "-")


def limit_process() -> None:
    """Bound what this whole process may use for a stranger's bundle, so it must do nothing else."""
    for limit, value in (
        (resource.RLIMIT_DATA, MEMORY_BYTES_MAX),
        (resource.RLIMIT_CPU, CPU_S_MAX),
        (resource.RLIMIT_FSIZE, BUNDLE_BYTES_MAX),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))


def check_alone(folder: Path, segment: str) -> None:
    """Check a bundle in a process of its own and write the verdict beside it."""
    limit_process()
    try:
        verdict = check(folder, segment)
    except NotABundle as wrong:
        verdict = Verdict(str(wrong))
    except OSError:
        # The disk is at fault, not the sender: no verdict.
        raise
    except Exception as odd:
        # Libraries may raise anything when they read a stranger's bytes.
        verdict = Verdict(f"it cannot be read ({type(odd).__name__})")
    (folder / VERDICT).write_bytes(msgspec.msgpack.encode(verdict))


def check(folder: Path, segment: str) -> Verdict:
    """Unpack the bundle in `folder` and check everything but its receipts. Raises `NotABundle`."""
    members = _unpack(folder, segment)
    captures = _check_warcs(folder, [name for name in members if name.endswith(WARC_SUFFIX)])
    claims = _check_tables(folder, segment, captures)
    size = sum(unpacked(folder, name).stat().st_size for name in members)
    return Verdict("", members, claims, size)


# The tar


def _unpack(folder: Path, segment: str) -> list[str]:
    try:
        with tarfile.open(folder / BODY, "r:") as bundle:
            members = [_write(bundle, member, folder) for member in _members(bundle, segment)]
    except tarfile.TarError as wrong:
        raise NotABundle(f"it is no tar ({wrong})") from wrong
    members.remove(RECEIPTS)
    return members


def _members(bundle: tarfile.TarFile, segment: str) -> list[tarfile.TarInfo]:
    """The members of the tar, after checking that each is allowed, none is there twice and none is missing."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in bundle:
        name = member.name
        if not member.isreg() or member.issparse() or not (name == RECEIPTS or belongs(name, segment)):
            raise NotABundle(f"{name[:200]!r} does not belong into a bundle of {segment}")
        if name in members or len(members) >= MEMBERS_MAX:
            raise NotABundle("it has a member twice, or too many")
        if name == RECEIPTS and member.size > RECEIPTS_BYTES_MAX:
            raise NotABundle("it has more receipts than it may have rows")
        members[name] = member
    check_names(members, segment)
    return list(members.values())


def check_names(names: Collection[str], segment: str) -> None:
    """Check that the files of a bundle are those of its segment: none is missing, and there is no other."""
    stems = {name.removesuffix(WARC_SUFFIX) for name in names if name.endswith(WARC_SUFFIX) and belongs(name, segment)}
    wanted = {RECEIPTS, *(f"tables/{table}/{segment}.parquet" for table in TABLES)}
    wanted |= {stem + suffix for stem in stems for suffix in (WARC_SUFFIX, CDXJ_SUFFIX)}
    if wanted ^ set(names):
        raise NotABundle(f"{min(wanted ^ set(names))[:200]!r} is missing, or does not belong to it")


def _write(bundle: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> str:
    """Write a member to a file of its own and force it to the disk."""
    source = bundle.extractfile(member)
    with unpacked(folder, member.name).open("xb") as file:
        if source is not None:
            shutil.copyfileobj(source, file, COPY_BYTES)
        file.flush()
        os.fsync(file.fileno())
        if file.tell() != member.size:
            raise NotABundle("it is cut short")
    return member.name


# WARC files

Place = tuple[str, int, int]
"""File, offset and length of a record."""


def _check_warcs(folder: Path, names: list[str]) -> dict[Place, tuple[str, str]]:
    """Check WARC files and indexes. Returns the captures that are not surplus: URL and record id by place."""
    captures: dict[Place, tuple[str, str]] = {}
    for name in names:
        path, filename = unpacked(folder, name), name.removeprefix("warc/")
        found = scan(path, filename, 0)
        if found.end != path.stat().st_size or not found.kinds <= RECORD_KINDS:
            raise NotABundle(f"{filename} holds something else than whole records of captures")
        lines = found.unmarked()
        index = unpacked(folder, name.removesuffix(WARC_SUFFIX) + CDXJ_SUFFIX)
        if index.stat().st_size != sum(map(len, lines)) or index.read_bytes() != b"".join(sorted(lines)):
            raise NotABundle(f"the index of {filename} is not that of its captures")
        if not all(map(is_dated, lines)):
            # Retention goes by these dates, and whatever a stranger writes as one gets into the index as it is.
            raise NotABundle(f"a capture in {filename} has no date")
        addresses = found.addresses | {capture.url for capture in found.captures}
        _check_record_addresses([*addresses, *(capture.refers_to for capture in found.captures)])
        for capture in found.captures:
            if capture.record_id not in found.marked:
                captures[filename, capture.offset, capture.length] = (capture.url, capture.record_id)
    return captures


def _check_record_addresses(urls: list[str]) -> None:
    """Records of all kinds, surplus ones too, since a removal reads them all. And whoever looks at a page that repeats
    another one looks for that as well."""
    if any(len(url) > VALUE_BYTES_MAX for url in urls):
        raise NotABundle("a record names a URL that is too long")
    _check_addresses([url for url in urls if url])


# Tables


def _check_tables(folder: Path, segment: str, captures: dict[Place, tuple[str, str]]) -> list[Claim]:
    """Check that the rows agree with the captures and with each other. Returns what they claim."""
    node = node_of_segment(segment)
    digests: dict[str, tuple[str, str]] = {}
    for row in _rows(folder, PAGES, segment):
        place = (row["warc_filename"], row["warc_record_offset"], row["warc_record_length"])
        url, record_id = row["url"], row["record_id"]
        if captures.get(place) != (url, record_id) or row["node"] != node or record_id in digests:
            raise NotABundle("a row of pages is not of a capture in it, or not of this node")
        if (row["url_host_name"], row["url_port"]) != split_port(host_or_nothing(url)):
            raise NotABundle("a row of pages names another host than its URL")
        digests[record_id] = (url, (row["content_digest"] or "").removeprefix("sha256:"))
    claims = [_claim(row, node, digests) for row in _rows(folder, FETCHES, segment)]
    stored = [claim.record_id for claim in claims if claim.record_id]
    pages = [claim.record_id for claim in claims if claim.record_id and claim.outcome == FETCHED]
    if sorted(stored) != sorted(record_id for _, record_id in captures.values()) or sorted(pages) != sorted(digests):
        raise NotABundle("its tables do not tell of the captures in it, each once")
    if not claims or len(set(claims)) != len(claims):
        raise NotABundle("it tells of no fetch, or of one twice")
    pages_urls = {url for url, _ in digests.values()}
    if not all(row["url"] in pages_urls for row in _rows(folder, LINKS, segment)):
        raise NotABundle("it has links of a page that is not in it")
    return claims


def _claim(row: dict[str, Any], node: str, digests: dict[str, tuple[str, str]]) -> Claim:
    url, record_id = row["url"], row["record_id"] or ""
    page_url, digest = digests.get(record_id, (url, ""))
    if row["node"] != node or page_url != url:
        raise NotABundle("a row of fetches is not of this node, or not of its page")
    if row["host"] != host_or_nothing(url) and row["outcome"] != ROBOTS_OUTCOME:
        # A robots.txt may be that of another host, to which its own has redirected.
        raise NotABundle("a row of fetches names another host than its URL")
    status = row["fetch_status"] or 0 if record_id else 0
    return Claim(url, record_id, row["outcome"], status, row["fetch_time"], digest)


WANTED: Final = {
    PAGES: (
        *("url", "url_host_name", "url_port", "node", "record_id", "content_digest"),
        *("warc_filename", "warc_record_offset", "warc_record_length"),
    ),
    LINKS: ("url", "target"),
    FETCHES: ("url", "host", "node", "record_id", "outcome", "fetch_status", "fetch_time", "redirect_to"),
}
ADDRESSES: Final = {PAGES: "url", LINKS: "target", FETCHES: "redirect_to"}
"""The column of each table whose URLs must be web addresses, because people look them up. Nobody but the node has seen
where links and redirects lead."""


def _rows(folder: Path, table: str, segment: str) -> Iterator[dict[str, Any]]:
    """The columns of every row that matter here. All columns are read, so damage in any of them is noticed."""
    with pq.ParquetFile(unpacked(folder, f"tables/{table}/{segment}.parquet")) as file:
        if not file.schema_arrow.equals(_schema(table)):
            raise NotABundle(f"{table} has not the columns that it should have")
        if TEXT_DELETED in (file.metadata.metadata or {}):
            # Retention would pass over its texts.
            raise NotABundle(f"{table} says that retention has been there")
        if table != LINKS and file.metadata.num_rows > ROWS_MAX:
            raise NotABundle(f"{table} has too many rows")
        for batch in _batches(file, table):
            columns = [values_of(batch.column(name)) for name in WANTED[table]]
            _check_addresses(columns[WANTED[table].index(ADDRESSES[table])])
            for row in zip(*columns, strict=True):
                yield dict(zip(WANTED[table], row, strict=True))


def _batches(file: Any, table: str) -> Iterator[Any]:
    """A table's rows, some at a time, after a check that none of them and no row group is too large."""
    metadata = file.metadata
    if metadata.num_row_groups > ROW_GROUPS_MAX:
        raise NotABundle(f"{table} has too many row groups")
    for group in range(metadata.num_row_groups):
        if metadata.row_group(group).num_rows > ROW_GROUP_ROWS_MAX:
            raise NotABundle(f"a row group of {table} has too many rows")
        bytes_left = ROW_GROUP_BYTES_MAX
        for batch in file.iter_batches(batch_size=BATCH_ROWS, row_groups=[group], use_threads=False):
            batch.validate(full=True)
            bytes_left -= batch.nbytes
            if bytes_left < 0:
                raise NotABundle(f"a row group of {table} is too large")
            _check_lengths(batch, table)
            _check_numbers(batch, table)
            yield batch


def _check_lengths(batch: Any, table: str) -> None:
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = column.flatten() if pa.types.is_list(column.type) else column
        if _longest(values) > (TEXT_BYTES_MAX if name in TEXTS else VALUE_BYTES_MAX):
            raise NotABundle(f"a value of {name} in {table} is too long")


def _longest(values: Any) -> int:
    """How many bytes the longest of some texts has; 0 if they are no texts."""
    if not len(values) or not (pa.types.is_string(values.type) or pa.types.is_binary(values.type)):
        return 0
    offsets = values.buffers()[1]
    if offsets is None:
        return 0
    return int(np.diff(np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]).max())


def _check_numbers(batch: Any, table: str) -> None:
    """Times are not compared with today: the clock of a node may be wrong, and so may ours."""
    for name, largest in NUMBERS.items():
        if name not in batch.schema.names:
            continue
        numbers = values_of(batch.column(name))
        known = [number for number in numbers if number is not None]
        if len(known) < len(numbers) and name == TIME:
            raise NotABundle(f"a row of {table} has no {name}")
        if known and not (min(known) >= 0 and max(known) <= largest):
            raise NotABundle(f"a value of {name} in {table} cannot be")


def _check_addresses(values: Sequence[str | None]) -> None:
    urls = [url for url in values if url is not None]
    if not are_well_spelled(urls, set(map(origin_of, urls))):
        raise NotABundle("it leads to something that is no web address")


def _schema(table: str) -> Any:
    """A table's schema as it reads back from Parquet, which does not keep all of Arrow's types."""
    file = BytesIO()
    pq.write_table(SCHEMAS[table].empty_table(), file, store_schema=False)
    return pq.read_schema(file)
