"""From arrival to settlement: read in batches, ask what is known, archive, tell the coordinator, publish.

What is on its way here is bounded by number, by bytes and by time: while `full`, no further contact is made. The bound
in time keeps a crawl healthy. A page that waits longer for its answer than its lease lasts is given to somebody else
and fetched again; answers then take even longer, and such a crawl never recovers by itself. So a node that gets its
answers late fetches no more until it has caught up. The bound in time does not hold while no coordinator answers at
all: then the node goes on with the leases it has. Nothing is asked meanwhile, and what was read is archived all the
same (`outbox`).
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from drumlin.clock import CLOCKS, Clocks
from drumlin.contact.hosts import HostWork
from drumlin.errors import SiteError
from drumlin.frontier import LINKS_TOO_LONG
from drumlin.model import Capture, Duplicate, Outcome
from drumlin.node.calling.client import PROBE_TIMEOUT_S
from drumlin.node.calling.wires import CoordinatorWire
from drumlin.node.keeping.archive import Arrival, Contact
from drumlin.node.keeping.blackbox import BlackBox
from drumlin.node.keeping.outbox import HostResults, Outbox, held_bytes
from drumlin.node.keeping.own_records import OwnRecords
from drumlin.node.outcomes import fail
from drumlin.parse import is_gzip
from drumlin.pipeline import Pipeline
from drumlin.protocol import LINKS_BATCH_MAX, HostReport, Known, KnownRequest, Result, paths
from drumlin.store import record_id_of

READ_BATCH = 64
READ_BYTES_MAX = 32 * 1024 * 1024
"""A batch of so many decoded bytes is large enough: with the last page it may be as much more as one page may be."""
READ_WAIT_S = 0.005
SETTLE_BATCH_MAX = 500
SETTLE_WAIT_S = 0.02
FURTHER_WAIT_S = 0.25
"""How long a parcel is filled while another is under way: nodes that get their answers late send larger ones."""
STORE_WAIT_S = 0.5
"""How long it is filled while it could not be sent anyway."""
FILL_S = 0.5
FILL_LAG_SHARE = 1 / 3
"""How long a fast node of a fleet fills a parcel: so long, or for a share of the lag that is permitted if that is less.
The results of a parcel are spread over the engine's shards, so 500 results need hardly more calls than 100 do."""
FILL_RESULTS_MIN = 16
"""A node that has fewer when a parcel may go is too slow to gain anything by waiting."""
FILL_LEFT_TIMES = 2
"""Much more must be left to fetch than waits to be told, because the links that are told may be the next work."""
FILL_LOOK_S = 0.1
"""How often a node that fills a parcel looks whether it still should."""
FILL_BYTES_MAX = 48 * 1024 * 1024
"""No parcel is filled while as many bytes are on their way: that is half of what may be."""
LAG_S_MAX = 1.5
LAG_LEASE_SHARE = 0.25
"""How long the oldest page may wait for its answer before no further page is fetched: `LAG_S_MAX`, or this share of a
lease's time where that is less."""
UNSETTLED_PAGES_MAX = 2_000
UNSETTLED_BYTES_MAX = 96 * 1024 * 1024
URL_CHARS_BATCH_MAX = 8 * 1024 * 1024
LINK_CHARS_MAX = 40 * 1024 * 1024
LINKS_PLENTY = 1_000
LINKS_PARCEL = LINKS_BATCH_MAX // 2
"""A parcel with so many links is closed; a page has no more, which is more than a sitemap may have."""
REPORTS_BATCH_MAX = 2_000
NOTE_BYTES_BATCH_MAX = 8 * 1024 * 1024
MIME_CHARS_MAX = 200
UNCOUNTED_URLS_MAX = 100_000

Held = tuple[HostWork, Arrival]


class Settling:
    """The second half of a node's loop. `on_sending` hears which hosts have results that are about to be sent,
    `on_finished` of each result that will not change any more. `left_to_fetch` says how many URLs the node can fetch
    within some seconds."""

    def __init__(
        self,
        node: str,
        client: CoordinatorWire,
        pipeline: Pipeline,
        outbox: Outbox,
        blackbox: BlackBox,
        on_sending: Callable[[HostResults], None],
        on_finished: Callable[[Result], None],
        left_to_fetch: Callable[[float], int],
        *,
        lease_s: float,
        clocks: Clocks = CLOCKS,
    ) -> None:
        self._lag_s_max = min(LAG_S_MAX, LAG_LEASE_SHARE * lease_s)
        self._fill_s = min(FILL_S, FILL_LAG_SHARE * self._lag_s_max)
        self._left_to_fetch = left_to_fetch
        self._known_path = paths.KNOWN.format(node_id=node)
        self._client = client
        self._pipeline = pipeline
        self._outbox = outbox
        self._blackbox = blackbox
        self._on_sending = on_sending
        self._on_finished = on_finished
        self._clocks = clocks
        self._arrived: list[Held] = []
        self._arrived_at = 0.0
        self._ready: list[Held] = []
        self._reports: list[HostReport] = []
        self._contacts: list[Contact] = []
        self._ready_at = 0.0
        self._fill_until = 0.0
        """Until when the next parcel is filled although it could go."""
        self._asked: dict[int, float] = {}
        """Batches whose contents are asked for: when the first page of each arrived."""
        self._late = False
        self._pages = 0
        self._bytes = 0
        self._own_records = OwnRecords()
        self._read_bytes = 0
        """Of these, what has been decoded and is not archived yet."""

    @property
    def full(self) -> bool:
        outbox = self._outbox
        if self._late or self._pages + outbox.held_pages >= UNSETTLED_PAGES_MAX:
            return True
        return self._bytes + outbox.held_bytes >= UNSETTLED_BYTES_MAX

    @property
    def held_bytes(self) -> int:
        """What bodies take that have arrived and are not archived yet."""
        return self._bytes + self._outbox.held_bytes

    def lag_s(self, now: float) -> float:
        """How long the oldest page that was fetched and is not answered has waited."""
        oldest = self._outbox.oldest
        if self._asked:
            oldest = min(oldest, *self._asked.values())
        for waiting in (self._arrived, self._ready):
            if waiting and waiting[0][1].arrived < oldest:
                oldest = waiting[0][1].arrived
        return now - oldest if oldest < now else 0.0

    @property
    def unanswered(self) -> int:
        """How many URLs have come to an end and are not answered."""
        return self._pages + self._outbox.held_pages

    @property
    def may_be_late(self) -> bool:
        """Whether `judge_lag` could find anything, or could find that what it found is over."""
        return self._late or self._pages > 0 or self._outbox.held_pages > 0

    @property
    def behind(self) -> bool:
        """More has arrived than one batch takes: to fetch more would only pile it up, out of other nodes' reach."""
        return len(self._arrived) > READ_BATCH

    @property
    def empty(self) -> bool:
        return not (self._pages or self._reports or self._contacts or self._outbox.busy)

    @property
    def settled(self) -> bool:
        """Every result is answered; all that may be left to say is of hosts."""
        return not self._pages and self._outbox.settled

    def arrive(self, host: HostWork, arrival: Arrival) -> None:
        arrival.arrived = self._clocks.boot()
        if not self._arrived:
            self._arrived_at = arrival.arrived
        self._pages += 1
        self._bytes += held_bytes(arrival.capture)
        self._arrived.append((host, arrival))

    def report(self, report: HostReport) -> None:
        """Say something of a host with the next batch."""
        self._note_waiting()
        self._reports.append(report)

    def contacted(self, contact: Contact) -> None:
        """Archive what a contact brought that settles no URL, with the next batch."""
        self._note_waiting()
        self._bytes += held_bytes(contact.capture)
        self._contacts.append(contact)

    def due(self) -> float:
        """When `step` next has something to do, infinity when only the network can say."""
        read_at = self._arrived_at + READ_WAIT_S if self._arrived and self._may_read else float("inf")
        if self._ready or ((self._reports or self._contacts) and not self._outbox.busy):
            return min(read_at, self._parcel_due)
        return read_at

    @property
    def _parcel_due(self) -> float:
        """When a parcel is made of what is ready, or it is found that more should be waited for."""
        if len(self._ready) >= SETTLE_BATCH_MAX:
            return self._ready_at
        return max(self._ready_at + self._least_wait_s, self._fill_until)

    @property
    def _least_wait_s(self) -> float:
        """How long to wait for more in any case."""
        if not self._outbox.busy:
            return SETTLE_WAIT_S
        return FURTHER_WAIT_S if self._outbox.has_room else STORE_WAIT_S

    def step(self) -> None:
        """Read one batch if one is ready, and archive and send what has been read."""
        arrived = len(self._arrived)
        ripe = arrived >= READ_BATCH or (arrived and self._clocks.boot() >= self._arrived_at + READ_WAIT_S)
        if ripe and self._may_read:
            self._read()
        now = self._clocks.boot()
        self._hand_over(now)
        self.judge_lag(now)

    def judge_lag(self, now: float) -> None:
        """Find out whether answers come too late for further contacts."""
        self._late = self.lag_s(now) > self._lag_s_max and not self._client.cut_off

    @property
    def _may_read(self) -> bool:
        """Whether there is room for what another batch becomes when it is decoded."""
        return self._read_bytes + self._outbox.held_bytes < UNSETTLED_BYTES_MAX

    def _take_arrived(self) -> list[Held]:
        """The next batch, decoded: as many pages as are read at a time, and fewer if they are large."""
        count = size = weight = 0
        for _, arrival in self._arrived[:READ_BATCH]:
            before = held_bytes(arrival.capture)
            self._decode(arrival)
            after = held_bytes(arrival.capture)
            self._bytes += after - before
            size += after
            # Nobody knows yet what a gzipped sitemap unpacks to, so that one ends the batch.
            weight += READ_BYTES_MAX if arrival.capture is not None and is_gzip(arrival.capture.body) else after
            count += 1
            if weight >= READ_BYTES_MAX:
                break
        self._read_bytes += size
        batch, self._arrived = self._arrived[:count], self._arrived[count:]
        return batch

    def _decode(self, arrival: Arrival) -> None:
        if arrival.capture is None or arrival.result.outcome == Outcome.FAILED:
            return
        try:
            self._pipeline.decode_body(arrival.capture)
        except SiteError as broken:
            fail(arrival.result, arrival.fetch, broken)

    def _read(self) -> None:
        """Parse and fingerprint a batch, then ask which of its contents are known already."""
        batch = self._take_arrived()
        captures = [
            arrival.capture
            for _, arrival in batch
            if arrival.capture is not None and arrival.result.outcome != Outcome.FAILED
        ]
        self._blackbox.reading({arrival.result.url: arrival.result.assignment_id for _, arrival in batch})
        self._pipeline.read(captures)
        for _, arrival in batch:
            self._complete(arrival)
        self._blackbox.clear()
        found_bytes = sum(capture.links_bytes for capture in captures)
        self._bytes += found_bytes
        self._read_bytes += found_bytes
        asked = [capture for capture in captures if capture.status < 300 and capture.body]
        if not asked or self._client.cut_off:
            self._enqueue(batch)
            return
        self._asked[id(batch)] = batch[0][1].arrived
        request = KnownRequest([(capture.domain, capture.digest.hex()) for capture in asked])
        self._client.post(
            self._known_path,
            request,
            Known,
            lambda known: self._mark_known(batch, asked, known),
            # Not worth waiting for: what turns out to be known is merely stored in full.
            on_failure=lambda again_s: self._enqueue(batch),
            repeat_s=0.0,
            timeout_s=PROBE_TIMEOUT_S,
        )

    def _complete(self, arrival: Arrival) -> None:
        """Put into the result what reading the page has shown."""
        capture, result = arrival.capture, arrival.result
        if capture is None:
            return
        if result.outcome == Outcome.FAILED:
            result.record_id = arrival.fetch.record_id = capture.record_id = record_id_of(capture)
            return
        result.content_hash, result.sketch = capture.digest.hex(), capture.sketch
        result.mime = capture.mime[:MIME_CHARS_MAX]
        result.record_id = arrival.fetch.record_id = capture.record_id
        self._note_uncounted(capture)
        found = self._pipeline.discover(capture)
        result.links, result.link_hints, result.traps = found.urls, found.hints, found.refused
        if len(found.urls) > LINKS_PLENTY:
            _bound_links(result.links, result.traps)

    def _note_uncounted(self, capture: Capture) -> None:
        """Links are told once, with the first page that has them. A page that is fetched again, because its result came
        too late or is not answered yet, has all its links told again: they may be known to nobody."""
        uncounted = self._outbox.uncounted
        if capture.url in uncounted:
            self._pipeline.tell_links_again(capture)
        elif len(uncounted) >= UNCOUNTED_URLS_MAX:
            uncounted.clear()
            self._pipeline.tell_again()
        uncounted.add(capture.url)

    def _mark_known(self, batch: list[Held], asked: list[Capture], known: Known) -> None:
        for capture, duplicate in zip(asked, known.duplicates, strict=True):
            if duplicate is not None and duplicate.url != capture.url:
                capture.duplicate = self._believed(duplicate)
        self._enqueue(batch)

    def _believed(self, duplicate: Duplicate) -> Duplicate:
        """What may be archived as a repetition: with a record to refer to only if that one surely exists."""
        if not self._client.among_strangers or duplicate.record_id in self._own_records:
            return duplicate
        return replace(duplicate, record_id="")

    def _enqueue(self, batch: list[Held]) -> None:
        self._asked.pop(id(batch), None)
        self._note_waiting()
        self._ready += batch

    def _note_waiting(self) -> None:
        if not (self._ready or self._reports or self._contacts):
            self._ready_at = self._clocks.boot()

    def _hand_over(self, now: float) -> None:
        """Archive what has been read and have it sent, in large parcels while others are under way."""
        if self._outbox.busy and not self._ready:
            return
        if not (self._ready or self._reports or self._contacts):
            return
        if now < self._parcel_due:
            return
        if self._should_fill(now):
            self._fill_until = min(now + FILL_LOOK_S, self._ready_at + self._fill_s)
            return
        sent = self._take_ready()
        self._fill_until = 0.0
        if not self._ready or len(sent) == SETTLE_BATCH_MAX:
            # Otherwise URLs have filled the parcel, and the results that it had no room for have waited as long.
            self._ready_at = now
        counts: dict[HostWork, int] = {}
        size = 0
        for host, arrival in sent:
            counts[host] = counts.get(host, 0) + 1
            size += held_bytes(arrival.capture)
            self._on_finished(arrival.result)
        self._own_records.add([arrival.capture.record_id for _, arrival in sent if arrival.capture is not None])
        self._bytes -= size
        self._read_bytes -= size
        self._pages -= len(sent)
        results = list(counts.items())
        # A host whose results are all in this parcel, or answered, may be given back in it: by one of the reports.
        self._on_sending(results)
        reports, contacts = self._take_reports(), self._take_contacts()
        self._outbox.put([arrival for _, arrival in sent], results, reports, now, contacts)

    def _should_fill(self, now: float) -> bool:
        """Whether to wait for more although a parcel may go."""
        if now >= self._ready_at + self._fill_s:
            return False
        if not FILL_RESULTS_MIN <= len(self._ready) < SETTLE_BATCH_MAX:
            return False
        if self._bytes + self._outbox.held_bytes >= FILL_BYTES_MAX:
            return False
        if any(host.ending for host, _ in self._ready):
            # Somebody may wait for this host, which is given back with its last result.
            return False
        return self._left_to_fetch(FILL_S) > FILL_LEFT_TIMES * len(self._ready)

    def _take_ready(self) -> list[Held]:
        """As many results as one message may hold."""
        chars = links = count = 0
        for _, arrival in self._ready[:SETTLE_BATCH_MAX]:
            result = arrival.result
            links += len(result.links)
            chars += len(result.url) + len(result.page_url) + len(result.redirect_to)
            chars += sum(map(len, result.links)) + sum(map(len, result.redirect_chain))
            count += 1
            if chars >= URL_CHARS_BATCH_MAX or links >= LINKS_PARCEL:
                break
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def _take_contacts(self) -> list[Contact]:
        taken, self._contacts = self._contacts, []
        self._bytes -= sum(held_bytes(contact.capture) for contact in taken)
        return taken

    def _take_reports(self) -> list[HostReport]:
        size = count = 0
        for report in self._reports[:REPORTS_BATCH_MAX]:
            size += len(report.note or b"")
            count += 1
            if size >= NOTE_BYTES_BATCH_MAX:
                break
        taken, self._reports = self._reports[:count], self._reports[count:]
        return taken


def _bound_links(links: list[str], traps: dict[str, int]) -> None:
    """Cut a list of links that would not fit into a message: only a page made for it has one so long."""
    chars = 0
    for place, url in enumerate(links):
        chars += len(url)
        if chars > LINK_CHARS_MAX or place >= LINKS_PARCEL:
            traps[LINKS_TOO_LONG] = traps.get(LINKS_TOO_LONG, 0) + len(links) - place
            del links[place:]
            return
