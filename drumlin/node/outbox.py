"""What is archived and not yet answered: parcels of results and reports, sent one at a time, in order.

Through an outage parcels pile up. Beyond a bound their pages are let go from memory, since the journal and the archive
hold them: when their turn comes they are read back. Beyond `spool_bytes_max` on disk the node is `full`, and contacts
nobody until a coordinator is back.
"""

from __future__ import annotations

import sys
from collections import deque

import msgspec

from drumlin.model import Capture, FailureKind, Outcome
from drumlin.node.archive import Archive, Arrival, StoredBatch
from drumlin.node.client import CoordinatorClient
from drumlin.node.outcomes import ERROR_CHARS_MAX
from drumlin.node.recovery import rebuild
from drumlin.pipeline import Pipeline
from drumlin.protocol import LINKS_MAX, Accepted, HostReport, Result, Results

HELD_PAGES_MAX = 1_000
HELD_BYTES_MAX = 48 * 1024 * 1024
SPOOL_BYTES_MAX = 4 * 1024**3
STALE = "stale"


class _Parcel(msgspec.Struct):
    """What is told at once. `spilled` means that its pages are only on disk."""

    stored: StoredBatch | None
    reports: list[HostReport]
    pages: int = 0
    bytes: int = 0
    spilled: bool = False


class Outbox:
    """Archives results, has the coordinator settle them, and publishes those that counted."""

    def __init__(
        self,
        node: str,
        client: CoordinatorClient,
        pipeline: Pipeline,
        archive: Archive,
        *,
        spool_bytes_max: int = SPOOL_BYTES_MAX,
    ) -> None:
        self._path = f"/api/v1/nodes/{node}/results"
        self._client = client
        self._pipeline = pipeline
        self._archive = archive
        self._spool_bytes_max = spool_bytes_max
        self._parcels: deque[_Parcel] = deque()
        self._spool_bytes = 0
        self.held_pages = 0
        self.held_bytes = 0

    @property
    def busy(self) -> bool:
        """Something was sent and is not answered."""
        return bool(self._parcels)

    @property
    def settled(self) -> bool:
        """No result is unanswered."""
        return all(parcel.stored is None for parcel in self._parcels)

    @property
    def full(self) -> bool:
        return self._spool_bytes >= self._spool_bytes_max

    def put(self, arrivals: list[Arrival], reports: list[HostReport], now: float) -> None:
        """Archive results and send them, with reports, when what came before has been answered."""
        stored = self._archive.store(arrivals, now) if arrivals else None
        size = sum(held_bytes(arrival.capture) for arrival in arrivals)
        self._parcels.append(_Parcel(stored, reports, len(arrivals), size))
        self.held_pages += len(arrivals)
        self.held_bytes += size
        self._spool_bytes += stored.size if stored else 0
        if len(self._parcels) == 1:
            self._send()
        else:
            self._spill()

    def _spill(self) -> None:
        """Let go of pages, the newest first, until what is held is bounded; the oldest parcel is on its way."""
        for parcel in reversed(self._parcels):
            if self.held_pages <= HELD_PAGES_MAX and self.held_bytes <= HELD_BYTES_MAX:
                return
            if parcel is not self._parcels[0] and parcel.stored is not None and not parcel.spilled:
                parcel.stored.arrivals = []
                parcel.spilled = True
                self._let_go(parcel)

    def _let_go(self, parcel: _Parcel) -> None:
        self.held_pages -= parcel.pages
        self.held_bytes -= parcel.bytes

    def _send(self) -> None:
        parcel = self._parcels[0]
        results: list[Result] = []
        if parcel.stored is not None and parcel.spilled:
            results = [entry.result for entry in self._archive.recall(parcel.stored)]
        elif parcel.stored is not None:
            results = [arrival.result for arrival in parcel.stored.arrivals]
        message = results_message(results, parcel.reports)
        self._client.post(self._path, message, Accepted, lambda answer: self._answered(parcel, answer), signed=True)

    def _answered(self, parcel: _Parcel, accepted: Accepted) -> None:
        self._parcels.popleft()
        stored = parcel.stored
        if stored is not None:
            self._spool_bytes -= stored.size
            if parcel.spilled:
                stored.arrivals = rebuild(self._archive.paths, self._archive.recall(stored), self._pipeline)
            else:
                self._let_go(parcel)
            self._archive.publish(stored, accepted)
        _tell_refused(accepted)
        if self._parcels:
            self._send()


def results_message(results: list[Result], reports: list[HostReport]) -> Results:
    """The message for a batch. A result may name only so many links: the rest of a large sitemap's goes with copies of
    its result, which change nothing else."""
    more = [
        msgspec.structs.replace(result, links=result.links[start:end], link_hints=result.link_hints[start:end])
        for result in results
        if len(result.links) > LINKS_MAX
        for start, end in _further_stretches(len(result.links))
    ]
    first = [_first_stretch(result) if len(result.links) > LINKS_MAX else result for result in results]
    return Results(first + more, reports, canonical_links=True)


def _first_stretch(result: Result) -> Result:
    return msgspec.structs.replace(result, links=result.links[:LINKS_MAX], link_hints=result.link_hints[:LINKS_MAX])


def _further_stretches(count: int) -> list[tuple[int, int]]:
    return [(start, start + LINKS_MAX) for start in range(LINKS_MAX, count, LINKS_MAX)]


def tellable(result: Result) -> Result:
    """The result, or, if the protocol cannot say it, that it cannot be said: else one odd page would stop a node for
    good, since what a journal holds is sent until it is answered."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(result), type=Result)
    except msgspec.ValidationError as flaw:
        error = f"its result could not be told: {flaw}"[:ERROR_CHARS_MAX]
        return Result(
            result.assignment_id,
            result.url,
            0,
            "",
            [],
            result.crawl_time,
            outcome=Outcome.FAILED,
            kind=FailureKind.TRAP,
            error=error,
            capture_id=result.capture_id,
        )
    return result


def held_bytes(capture: Capture | None) -> int:
    return len(capture.body_raw) + len(capture.body) if capture is not None else 0


def _tell_refused(accepted: Accepted) -> None:
    """Late results are nothing special; any other refusal is a bug somewhere, and somebody should know."""
    odd = [rejected for rejected in accepted.rejected if rejected.reason != STALE]
    if odd:
        sys.stderr.write(
            f"drumlin node: {len(odd)} results refused, the first {odd[0].assignment_id}: {odd[0].reason}\n"
        )
