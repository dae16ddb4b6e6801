"""Bundles as a node makes them, of results that a running coordinator settled, and ways to change them."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from drumlin.access.tokens import Role
from drumlin.model import Outcome
from drumlin.node.keeping.archive import Archive, Arrival, Contact, CrawlPaths
from drumlin.protocol import Accepted, Result, Results
from drumlin.store import ROBOTS_OUTCOME, FetchRecord, record_id_of
from tests.harness.coordinators import Answer, RemoteNode
from tests.unit.store_captures import FETCHED, HTML, make_capture

Members = dict[str, bytes]


class BundlingNode:
    """A node that keeps what it fetched in a folder of its own, as drumlin's do, and settles it at the coordinator."""

    def __init__(self, remote: RemoteNode, folder: Path) -> None:
        self.remote = remote
        self.paths = CrawlPaths(folder, bundled=True)
        self.paths.spool(remote.name).mkdir(parents=True)
        self.paths.tables.mkdir(parents=True)
        self._started = FETCHED
        self.robots_path = "/robots.txt"
        """Where the robots.txt of every host is."""

    def bundle(self, *urls: str, settled: bool = True, asked: Mapping[str, str] = {}) -> tuple[str, Members]:
        """Fetch, settle and bundle these URLs. `asked` are hosts whose robots.txt is in the bundle too, with the lease
        that it names ("": the true one). Returns the name of the segment and the members of the bundle."""
        self.remote.coordinator.enqueue(*urls)
        self._started += 1.0
        name = self.remote.name
        archive = Archive(self.paths, name, software="drumlin/test", info={}, now=self._started, sync=False)
        taken = self.remote.take()
        assignments = {one["url"]: one["assignment_id"] for one in taken}
        leases = {one["host"]: one["lease_id"] for one in taken}
        contacts = [self._contact(host, lease_id or leases[host]) for host, lease_id in asked.items()]
        stored = archive.store([self._arrival(url, assignments[url]) for url in urls], self._started, contacts)
        results = Results([one.result for one in stored.arrivals], stored=True, segment=stored.bundle)
        accepted = self.settle(results) if settled else Accepted(len(urls), 0, [], receipts=["00" * 8] * len(urls))
        archive.publish(stored, accepted)
        archive.close()
        [path] = self.paths.spool(name).glob("*.tar")
        members = unpacked(path.read_bytes())
        path.unlink()
        return stored.bundle, members

    def settle(self, results: Results) -> Accepted:
        answer = self.remote.send(msgspec.json.encode(results))
        assert answer.status == 200, answer.body
        return msgspec.json.decode(answer.body, type=Accepted)

    def _contact(self, host: str, lease_id: str) -> Contact:
        capture = make_capture(f"http://{host}{self.robots_path}", b"User-agent: *", fetched=self._started)
        capture.record_id = record_id_of(capture)
        fetch = FetchRecord(capture.url, host, capture.fetched, ROBOTS_OUTCOME, 200, node=self.remote.name)
        fetch.record_id = capture.record_id
        return Contact(fetch, lease_id, capture)

    def _arrival(self, url: str, assignment_id: str) -> Arrival:
        capture = make_capture(url, HTML + url.encode(), fetched=self._started)
        capture.record_id = record_id_of(capture)
        digest = capture.digest.hex()
        result = Result(assignment_id, url, 200, digest, [], capture.fetched, outcome=Outcome.FETCHED, size=1_000)
        result.record_id, result.capture_id = capture.record_id, f"{self.remote.name}:{url}"
        fetch = FetchRecord(url, capture.host, capture.fetched, Outcome.FETCHED, 200, node=self.remote.name)
        fetch.record_id = capture.record_id
        return Arrival(result, fetch, capture)

    def forgiven(self) -> BundlingNode:
        """An operator lets the node in again, however many bad bundles it sent."""
        coordinator = self.remote.coordinator
        path = f"/api/v1/nodes/{self.remote.name}/release"
        assert coordinator.post(path, None, token=coordinator.tokens[Role.OPERATOR]).status == 200
        return self

    def put(self, segment: str, bundle: Members | bytes, *, digest: str | None = None) -> Answer:
        """Send a bundle."""
        body = bundle if isinstance(bundle, bytes) else packed(bundle)
        headers = {"X-Drumlin-Sha256": hashlib.sha256(body).hexdigest() if digest is None else digest}
        path = self.remote.path(f"bundles/{segment}")
        return self.remote.coordinator.ask("PUT", path, body=body, headers=headers, token=self.remote.token)


def packed(files: Mapping[str, bytes], kind: bytes = tarfile.REGTYPE) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as bundle:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.type = len(content), kind
            member.linkname = "elsewhere" if kind != tarfile.REGTYPE else ""
            bundle.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def unpacked(body: bytes) -> Members:
    with tarfile.open(fileobj=io.BytesIO(body)) as bundle:
        files = {member.name: bundle.extractfile(member) for member in bundle}
        return {name: file.read() for name, file in files.items() if file is not None}


def renamed(members: Members, old: str, new: str) -> Members:
    """The same files under the names of another node, or another segment."""
    return {name.replace(old, new): content for name, content in members.items()}


def stored(store: Path) -> Members:
    """Every file of a store."""
    return {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}


def table(members: Members, name: str) -> tuple[str, pa.Table]:
    """The path and the rows of one of a bundle's tables."""
    [path] = [member for member in members if member.startswith(f"tables/{name}/")]
    return path, pq.read_table(io.BytesIO(members[path]))


def written(rows: pa.Table) -> bytes:
    """Rows as a Parquet file."""
    file = io.BytesIO()
    pq.write_table(rows, file, store_schema=False)
    return file.getvalue()


def replaced(rows: pa.Table, column: str, value: object) -> pa.Table:
    """The same rows with another value in all of a column."""
    place = rows.schema.get_field_index(column)
    return rows.set_column(
        place, rows.schema.field(column), pa.array([value] * len(rows), rows.schema.field(column).type)
    )
