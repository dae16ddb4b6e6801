"""From arrival to settlement: read in batches, ask what is known, archive, tell the coordinator, publish.

What is on its way here is bounded: while `full`, no further contact is made.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from drumlin.model import Capture
from drumlin.node.archive import Archive, Arrival, StoredBatch
from drumlin.node.blackbox import BlackBox
from drumlin.node.client import CoordinatorClient
from drumlin.node.hosts import HostWork
from drumlin.pipeline import Pipeline
from drumlin.protocol import Accepted, HostReport, Known, KnownRequest, Results

READ_BATCH_MIN = 24
READ_BATCH_MAX = 64
READ_WAIT_S = 0.005
SETTLE_BATCH_MAX = 200
SETTLE_WAIT_S = 0.02
UNSETTLED_PAGES_MAX = 2_000
UNSETTLED_BYTES_MAX = 96 * 1024 * 1024
MIME_CHARS_MAX = 200

Held = tuple[HostWork, Arrival]


class Settling:
    """The second half of a node's loop. `on_stored` hears of each host whose results are about to be sent."""

    def __init__(
        self,
        node: str,
        client: CoordinatorClient,
        pipeline: Pipeline,
        archive: Archive,
        blackbox: BlackBox,
        on_stored: Callable[[HostWork], None],
    ) -> None:
        self._api = f"/api/v1/nodes/{node}"
        self._client = client
        self._pipeline = pipeline
        self._archive = archive
        self._blackbox = blackbox
        self._on_stored = on_stored
        self._arrived: list[Held] = []
        self._arrived_at = 0.0
        self._outbox: list[Held] = []
        self._reports: list[HostReport] = []
        self._outbox_at = 0.0
        self._sending = False
        self._pages = 0
        self._bytes = 0

    @property
    def full(self) -> bool:
        return self._pages >= UNSETTLED_PAGES_MAX or self._bytes >= UNSETTLED_BYTES_MAX

    @property
    def behind(self) -> bool:
        """More has arrived than one batch takes: asking for more work would only pile it up."""
        return len(self._arrived) > READ_BATCH_MAX

    @property
    def empty(self) -> bool:
        return not (self._pages or self._reports or self._sending)

    def arrive(self, host: HostWork, arrival: Arrival) -> None:
        if not self._arrived:
            self._arrived_at = time.monotonic()
        host.unsettled += 1
        self._pages += 1
        self._bytes += _held_bytes(arrival.capture)
        self._arrived.append((host, arrival))

    def report(self, report: HostReport) -> None:
        """Say something of a host with the next batch."""
        self._note_waiting()
        self._reports.append(report)

    def due(self) -> float:
        """When `step` next has something to do, infinity when only the network can say."""
        read_at = self._arrived_at + READ_WAIT_S if self._arrived else float("inf")
        waiting = (self._outbox or self._reports) and not self._sending
        return min(read_at, self._outbox_at + SETTLE_WAIT_S) if waiting else read_at

    def step(self) -> None:
        """Read one batch if one is ready, and send what has been read."""
        arrived = len(self._arrived)
        if arrived >= READ_BATCH_MIN or (arrived and time.monotonic() >= self._arrived_at + READ_WAIT_S):
            self._read()
        self._send(time.monotonic())

    def _read(self) -> None:
        """Parse and fingerprint a batch, then ask which of its contents are known already."""
        batch, self._arrived = self._arrived[:READ_BATCH_MAX], self._arrived[READ_BATCH_MAX:]
        captures = [arrival.capture for _, arrival in batch if arrival.capture is not None]
        self._pipeline.read(captures)
        for _, arrival in batch:
            self._complete(arrival)
        self._blackbox.clear()
        asked = [capture for capture in captures if capture.status < 300 and capture.body]
        if not asked:
            self._enqueue(batch)
            return
        request = KnownRequest([(capture.domain, capture.digest.hex()) for capture in asked])
        self._client.post(f"{self._api}/known", request, Known, lambda known: self._mark_known(batch, asked, known))

    def _complete(self, arrival: Arrival) -> None:
        """Put into the result what reading the page has shown."""
        capture, result = arrival.capture, arrival.result
        if capture is None:
            return
        result.content_hash, result.simhash = capture.digest.hex(), capture.simhash
        result.mime = capture.mime[:MIME_CHARS_MAX]
        result.record_id = arrival.fetch.record_id = capture.record_id
        found = self._pipeline.discover(capture)
        result.links, result.link_hints, result.traps = found.urls, found.hints, found.refused

    def _mark_known(self, batch: list[Held], asked: list[Capture], known: Known) -> None:
        for capture, duplicate in zip(asked, known.duplicates, strict=True):
            if duplicate is not None and duplicate.url != capture.url:
                capture.duplicate = duplicate
        self._enqueue(batch)

    def _enqueue(self, batch: list[Held]) -> None:
        self._note_waiting()
        self._outbox += batch

    def _note_waiting(self) -> None:
        if not self._outbox and not self._reports:
            self._outbox_at = time.monotonic()

    def _send(self, now: float) -> None:
        """Archive what has been read, then tell the coordinator: one batch at a time, the next when it has answered."""
        if self._sending or not (self._outbox or self._reports):
            return
        if len(self._outbox) < SETTLE_BATCH_MAX and now < self._outbox_at + SETTLE_WAIT_S:
            return
        sent, self._outbox = self._outbox[:SETTLE_BATCH_MAX], self._outbox[SETTLE_BATCH_MAX:]
        self._outbox_at = now
        arrivals = [arrival for _, arrival in sent]
        stored = self._archive.store(arrivals) if arrivals else None
        for host, _ in sent:
            host.unsettled -= 1
        for host in {id(host): host for host, _ in sent}.values():
            self._on_stored(host)
        reports, self._reports = self._reports, []
        self._sending = True
        message = Results([arrival.result for arrival in arrivals], reports)
        self._client.post(f"{self._api}/results", message, Accepted, lambda answer: self._accepted(stored, answer))

    def _accepted(self, stored: StoredBatch | None, accepted: Accepted) -> None:
        self._sending = False
        if stored is not None:
            self._pages -= len(stored.arrivals)
            self._bytes -= sum(_held_bytes(arrival.capture) for arrival in stored.arrivals)
            self._archive.publish(stored, accepted)


def _held_bytes(capture: Capture | None) -> int:
    return len(capture.body_raw) + len(capture.body) if capture is not None else 0
