"""What is archived and not yet answered: parcels of results and reports, several of them under way at once.

A parcel's pages stay in memory until it is answered, since their rows are written then; whoever fills the outbox
watches `held_pages` and `held_bytes` and stops before there are too many. Through an outage parcels wait here. They are
in the journal too, so nothing is lost if the process ends.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from drumlin.contact.hosts import HostWork
from drumlin.logs import Event, event
from drumlin.model import Capture, FailureKind, Outcome
from drumlin.node.calling.wires import CoordinatorWire
from drumlin.node.keeping.archive import Archive, Arrival, Contact, StoredBatch
from drumlin.node.keeping.journal import NOTHING_SENT
from drumlin.node.outcomes import ERROR_CHARS_MAX
from drumlin.node.traces import NodeTraces, Sent, parents_of
from drumlin.protocol import LINKS_MAX, Accepted, HostReport, Rejection, Result, Results, paths, shown_lease

PARCELS_UNDER_WAY_MAX = 4
"""Enough that the coordinator always has one to work on while answers travel and the node reads pages."""
FOREVER = float("inf")

log = logging.getLogger("drumlin.node")

HostResults = Sequence[tuple[HostWork, int]]
"""Hosts, and how many results of each a parcel holds."""


class _Parcel(msgspec.Struct):
    """What is told at once. `oldest` is when the first of its results arrived."""

    stored: StoredBatch | None
    reports: list[HostReport]
    hosts: HostResults
    pages: int
    bytes: int
    oldest: float
    traced: Sent = []
    sent: bool = False


class Outbox:
    """Archives results, has the coordinator settle them, and publishes those that counted. `on_answered` hears which
    hosts had results that were answered, `on_untold` of links that were told with results that did not count."""

    def __init__(
        self,
        node: str,
        client: CoordinatorWire,
        archive: Archive,
        on_answered: Callable[[HostResults], None],
        on_untold: Callable[[Sequence[str]], None],
    ) -> None:
        self.traces: NodeTraces | None = None
        """Hears of results that are archived and answered."""
        self._path = paths.RESULTS.format(node_id=node)
        self._client = client
        self._archive = archive
        self._on_answered = on_answered
        self._on_untold = on_untold
        self._parcels: deque[_Parcel] = deque()
        self.held_pages = 0
        self.held_bytes = 0
        self.uncounted: set[str] = set()
        """Pages whose results did not count, or are not answered yet. Links that were told with them may be unknown to
        the frontier: should such a page be fetched again, all its links must be told again."""

    @property
    def busy(self) -> bool:
        """Something was sent and is not answered."""
        return bool(self._parcels)

    @property
    def has_room(self) -> bool:
        """One more parcel would be sent at once."""
        return len(self._parcels) < PARCELS_UNDER_WAY_MAX

    @property
    def settled(self) -> bool:
        """No result is unanswered."""
        return all(parcel.stored is None for parcel in self._parcels)

    @property
    def oldest(self) -> float:
        """When the first of the unanswered results arrived; infinity when there is none."""
        return min([parcel.oldest for parcel in self._parcels]) if self._parcels else FOREVER

    def put(
        self,
        arrivals: list[Arrival],
        hosts: HostResults,
        reports: list[HostReport],
        now: float,
        contacts: Sequence[Contact] = (),
    ) -> None:
        """Archive results and contacts, and send the results, with reports, as soon as there is room. About contacts
        alone nobody need be asked."""
        stored = self._archive.store(arrivals, now, contacts) if arrivals or contacts else None
        if stored is not None and not (arrivals or reports):
            self._archive.publish(stored, NOTHING_SENT)
            return
        traced = self.traces.stored(arrivals, now) if self.traces is not None else []
        size = sum(held_bytes(arrival.capture) for arrival in arrivals)
        oldest = min((arrival.arrived for arrival in arrivals), default=FOREVER)
        self._parcels.append(_Parcel(stored, reports, hosts, len(arrivals), size, oldest, traced))
        self.held_pages += len(arrivals)
        self.held_bytes += size
        self._send_next()

    def _send_next(self) -> None:
        """Parcels are sent in the order in which they were put; they may be answered in any other."""
        under_way = sum(parcel.sent for parcel in self._parcels)
        for parcel in self._parcels:
            if under_way >= PARCELS_UNDER_WAY_MAX:
                return
            if not parcel.sent:
                under_way += 1
                self._send(parcel)

    def _send(self, parcel: _Parcel) -> None:
        parcel.sent = True
        stored = parcel.stored
        results = [arrival.result for arrival in stored.arrivals] if stored is not None else []
        message = results_message(results, parcel.reports, stored.bundle if stored is not None else "")
        message.traces = parents_of(parcel.traced)
        self._client.post(self._path, message, Accepted, lambda answer: self._answered(parcel, answer), signed=True)

    def _answered(self, parcel: _Parcel, accepted: Accepted) -> None:
        self._parcels.remove(parcel)
        self._send_next()
        self.held_pages -= parcel.pages
        self.held_bytes -= parcel.bytes
        if parcel.stored is not None:
            self._note_counted(parcel.stored, accepted)
            self._archive.publish(parcel.stored, accepted)
        if self.traces is not None:
            self.traces.answered(parcel.traced)
        _tell_refused(accepted)
        self._on_answered(parcel.hosts)

    def _note_counted(self, stored: StoredBatch, accepted: Accepted) -> None:
        results = [arrival.result for arrival in stored.arrivals]
        if accepted.rejected_at:
            rejected = set(accepted.rejected_at)
            for place in rejected.intersection(range(len(results))):
                self._on_untold(results[place].links)
            results = [result for place, result in enumerate(results) if place not in rejected]
        self.uncounted.difference_update([result.page for result in results])


def results_message(results: list[Result], reports: list[HostReport], bundle: str = "") -> Results:
    """The message for a batch, whose captures will go into the bundle of that name, if any. A result may name only so
    many links: the rest of a large sitemap's goes with copies of its result, which change nothing else."""
    more = [
        msgspec.structs.replace(result, links=result.links[start:end], link_hints=result.link_hints[start:end])
        for result in results
        if len(result.links) > LINKS_MAX
        for start, end in _further_stretches(len(result.links))
    ]
    first = [_first_stretch(result) if len(result.links) > LINKS_MAX else result for result in results]
    return Results(first + more, reports, canonical_links=True, stored=True, segment=bundle)


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
    return len(capture.body_raw) + len(capture.body) + capture.links_bytes if capture is not None else 0


def _tell_refused(accepted: Accepted) -> None:
    """Late results are nothing special; any other refusal is a bug somewhere, and somebody should know."""
    odd = [rejected for rejected in accepted.rejected if rejected.reason != Rejection.STALE]
    if odd:
        said = event(Event.REFUSED, lease=shown_lease(odd[0].assignment_id), code=odd[0].reason)
        log.warning("%d results refused, the first because it is %s", len(odd), odd[0].reason, extra=said)
