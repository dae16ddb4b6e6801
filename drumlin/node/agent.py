"""The node's loop: perform what the law of contact decides, and hand what arrives on to be read, stored and settled.

Everything happens on one thread. When which host may be asked for what is decided in `drumlin.contact`; here are the
clocks, the network and the coordinator. Every clock that decides is read in `Agent._moment`, once for each event.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Any

import msgspec

from drumlin.clock import CLOCKS, Clocks
from drumlin.contact import Contacts, ContactSettings, Moment
from drumlin.contact.actions import (
    AskVisit,
    AskWork,
    FetchPage,
    FetchRobots,
    KeepRobots,
    Renew,
    Report,
    Settle,
    SettlePage,
)
from drumlin.contact.events import (
    Answered,
    Event,
    PageArrived,
    Revoked,
    RobotsArrived,
    Sending,
    SettingsChanged,
    StateChanged,
    Tick,
    TooLate,
)
from drumlin.events.figures import beat_of
from drumlin.events.sender import Sender
from drumlin.fetch import Transfer
from drumlin.node.arriving import Arriving, keep_refusal, robots_body
from drumlin.node.calling.client import FOREVER
from drumlin.node.calling.pulse import Pulse
from drumlin.node.calling.wires import CoordinatorWire, SiteWire
from drumlin.node.figures import PAGE, ROBOTS, Gauges, NodeFigures
from drumlin.node.keeping.archive import Archive
from drumlin.node.keeping.blackbox import BlackBox
from drumlin.node.keeping.bundles import SPOOL_BYTES_MAX, Uploads
from drumlin.node.keeping.outbox import Outbox
from drumlin.node.leases import REQUEST_BYTES, LeaseCalls
from drumlin.node.load import Efforts, Load
from drumlin.node.outcomes import keep_cut
from drumlin.node.settling import Settling
from drumlin.node.traces import NodeTraces
from drumlin.pipeline import Pipeline
from drumlin.protocol import ChangedSettings, CrawlState, Heartbeat, HeartbeatReply

LEASES_TOLD_MAX = 64
DRAIN_S = 30.0
END_WAIT_S = 60.0
PROCESS_BYTES = 6
ENDING = frozenset({CrawlState.DRAINING, CrawlState.FINISHED})


class NodeSettings(msgspec.Struct, frozen=True):
    """What of the crawl's and the process's configuration the loop needs."""

    node: str
    contact: ContactSettings
    concurrency: int
    lease_s: float
    retries_max: int = 0
    spool_bytes_max: int = SPOOL_BYTES_MAX
    """What may wait on disk to be sent by a node that has no store of its own."""
    config_version: int = 0
    """How often the crawl's configuration has changed since it was founded."""
    fills_parcels: bool = False
    """Whether to wait for larger parcels: they save calls to an engine that is reached over a network, as that of a
    fleet."""


class Agent:
    """One node at work, from its first lease to its last settlement."""

    _tick_at: float | None = None
    """When the next tick does anything, as `_tick_due` found; None after an event."""
    _tick_full = False
    """Whether the node was full when that was found."""
    _traces: NodeTraces | None = None
    _events: Sender | None = None
    _drain_asked = False

    def __init__(
        self,
        settings: NodeSettings,
        fetcher: SiteWire,
        client: CoordinatorWire,
        pipeline: Pipeline,
        archive: Archive,
        blackbox: BlackBox,
        uploads: Uploads | None = None,
        *,
        figures: NodeFigures | None = None,
        read_settings: Callable[[ChangedSettings], NodeSettings] | None = None,
        clocks: Clocks = CLOCKS,
        chance: Callable[[], float] = random.random,
        unique: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """`read_settings` makes of changed settings what this loop needs, and tells others whom they concern. `chance`
        spreads the probes of hosts out of reach. `unique` makes bytes by which this process is told from others."""
        self.settings = settings
        self._figures = figures or NodeFigures()
        self._fetcher, self._client = fetcher, client
        self._archive, self._uploads = archive, uploads
        self._read_settings = read_settings
        self._clocks = clocks
        self._contacts = Contacts(settings.contact, chance, clocks.boot)
        start = unique(REQUEST_BYTES).hex()
        self._leases = LeaseCalls(
            settings.node, client, self._contacts.hosts, pipeline, self._tell, self._follow, clocks, start
        )
        outbox = self._outbox = Outbox(
            settings.node, client, archive, lambda results: self._tell(Answered(results)), pipeline.tell_urls_again
        )
        self._settling = Settling(
            settings.node,
            client,
            pipeline,
            outbox,
            blackbox,
            lambda results: self._tell(Sending(results)),
            self._figures.finished,
            self._left_to_fetch,
            lease_s=settings.lease_s,
            clocks=clocks,
        )
        self._arriving = Arriving(settings.node, fetcher.request_headers, unique(PROCESS_BYTES).hex())
        fetcher.count_beside(lambda: self._settling.held_bytes)
        self._load, self._efforts = Load(clocks.boot()), Efforts(clocks)
        self.pulse = Pulse(settings.node, client, self.heartbeat, self._beat_answered, clocks=clocks)
        self._leave_by = FOREVER
        self._perform: dict[type[Any], Callable[[Any], None]] = {
            FetchPage: self._fetch_page,
            FetchRobots: self._fetch_robots,
            AskWork: self._leases.ask,
            Renew: self._leases.renew,
            AskVisit: self._leases.visit,
            Settle: self._settle,
            SettlePage: self._settle_page,
            KeepRobots: lambda action: self._settling.contacted(self._arriving.of_robots(action, clocks.wall())),
            Report: lambda action: self._settling.report(action.report),
        }

    def trace(self, traces: NodeTraces | None) -> None:
        """Tell of the URLs that coordinators trace, from now on."""
        self._traces = self._leases.traces = self._outbox.traces = traces

    def produce(self, events: Sender | None) -> None:
        """Produce events of what is stored, from now on."""
        self._events = events

    # The loop

    def run(self) -> bool:
        """Work until the crawl is finished, or drains and nothing of ours is left; False when results are, because time
        is up or no coordinator answers."""
        while not self.done:
            now = self._clocks.boot()
            if self.must_leave(now):
                return self._settling.settled
            self._fetcher.run_once(self.idle_s(now))
            self.turn(now)
        return True

    def must_leave(self, now: float) -> bool:
        """Whether this node ends although results are left. If it was asked to drain, it begins with that."""
        if self._drain_asked:
            self._begin_drain(now)
        return now >= self._leave_by or (self._contacts.state in ENDING and self._client.cut_off_s > END_WAIT_S)

    def turn(self, now: float) -> None:
        """One turn of the loop, after network events were acted on: see to all that is due. `now` is when it began."""
        full = self._full
        self._efforts.turned(now, held=full)
        # Hosts are asked for their next pages before those that have come are read.
        self._tell(Tick(self._room, full))
        self._client.repeat_failed()
        self._settling.step()
        self.pulse.step(self._clocks.boot())
        self._archive.show_old_rows(now)
        if self._uploads is not None:
            self._uploads.step(now)
        if self._events is not None:
            self._events.step(now)
        if now >= self._figures.look_at:
            self._figures.looked(self._gauges(now))

    def drain(self) -> None:
        """Take nothing more, finish what is in flight, and leave: what a signal asks for. Safe to call at any moment:
        the loop sees to it at its next turn."""
        self._drain_asked = True

    @property
    def is_leaving(self) -> bool:
        """Whether it was told to leave."""
        return self._drain_asked or self._leave_by < FOREVER

    def _begin_drain(self, now: float) -> None:
        self._drain_asked = False
        self._leave_by = min(self._leave_by, now + DRAIN_S)
        self._follow(CrawlState.DRAINING)

    @property
    def done(self) -> bool:
        """Whether the node may leave. A call for hosts that is under way is waited for: if the node left before it was
        answered, it would count as present again, and the hosts in the answer would be lost until their leases end."""
        if self._contacts.state not in ENDING or self._contacts.asking:
            return False
        return self._settling.empty and not self._contacts.hosts.by_name

    def idle_s(self, now: float) -> float:
        """How long the loop may sleep for network events without being late for anything else."""
        tick_at = self._contacts.due(now, room=self._room, full=self._full)
        first = min(tick_at, self._settling.due(), self._client.due(), self.pulse.due())
        return (first if self._events is None else min(first, self._events.due())) - now

    def turn_if_due(self, now: float) -> float:
        """A turn without those parts that would find nothing to do; returns when the next must come, by the boot clock.
        `run` turns after every network event; a simulation of thousands of nodes cannot afford that."""
        settling = self._settling
        if settling.may_be_late:
            settling.judge_lag(now)
        tick_at = self._tick_due(now)
        if tick_at > now:
            first = self._first_due(tick_at)
            if first > now:
                return first
        if tick_at <= now:
            self._tell(Tick(self._room, self._full))
        self._client.repeat_failed()
        if settling.due() <= now:
            settling.step()
        self.pulse.step(now)
        return self._first_due(self._tick_due(now))

    def _first_due(self, tick_at: float) -> float:
        """When the first part of a turn has something to do."""
        return min(tick_at, self._client.due(), self._settling.due(), self.pulse.due(), self._leave_by)

    def _tick_due(self, now: float) -> float:
        """When the next tick does anything. What was found stays true until something happens, or until then."""
        full = self._full
        if self._tick_at is None or self._tick_at <= now or full is not self._tick_full:
            self._tick_at = self._contacts.tick_due(now, room=self._room, full=full)
            self._tick_full = full
        return self._tick_at

    @property
    def _room(self) -> int:
        return self.settings.concurrency - self._contacts.under_way

    @property
    def _full(self) -> bool:
        """What waits to be read, settled or sent is all that may: no further contact until some of it has gone."""
        if self._settling.behind or self._settling.full:
            return True
        if self._uploads is not None and self._uploads.waiting_bytes >= self.settings.spool_bytes_max:
            return True
        return self._events is not None and self._events.full

    def _left_to_fetch(self, within_s: float) -> int:
        """How many URLs can be fetched while a parcel is filled, for so long at most."""
        if not self.settings.fills_parcels or self._full:
            return 0
        now = self._clocks.boot()
        return self._contacts.hosts.may_begin(now, now + within_s)

    # Events and actions

    def _moment(self) -> Moment:
        return Moment(self._clocks.boot(), self._clocks.wall(), self._client.time.now())

    def _tell(self, event: Event) -> None:
        """Have the law hear what happened, and do what it says."""
        self._tick_at = None
        for action in self._contacts.handle(event, self._moment()):
            self._perform[type(action)](action)

    def _fetch_page(self, fetch: FetchPage) -> None:
        self._load.change(+1, self._clocks.boot())
        self._fetcher.start(
            fetch.url,
            self._page_ended,
            fetch,
            body_bytes_max=fetch.body_bytes_max,
            send_by=fetch.send_by,
            cookie=fetch.cookie,
            types=fetch.types,
        )

    def _fetch_robots(self, fetch: FetchRobots) -> None:
        self._load.change(+1, self._clocks.boot())
        self._fetcher.start(
            fetch.url,
            self._robots_ended,
            fetch,
            body_bytes_max=fetch.body_bytes_max,
            send_by=fetch.send_by,
            cookie=fetch.cookie,
        )

    def _page_ended(self, transfer: Transfer) -> None:
        fetch: FetchPage = transfer.context
        self._load.change(-1, transfer.finished)
        if transfer.too_late:
            self._tell(TooLate(fetch))
            return
        self._figures.fetched(PAGE, transfer)
        self._efforts.ended(transfer.started, transfer.first_byte, transfer.finished)
        if transfer.failure:
            keep_cut(transfer, last_try=fetch.task.attempts >= self.settings.retries_max)
            keep_refusal(transfer)
        self._tell(PageArrived(fetch, transfer))

    def _robots_ended(self, transfer: Transfer) -> None:
        self._load.change(-1, transfer.finished)
        if transfer.too_late:
            self._tell(TooLate(transfer.context))
            return
        self._figures.fetched(ROBOTS, transfer)
        self._efforts.ended(transfer.started, transfer.first_byte, transfer.finished)
        if self._traces is not None:
            self._traces.robots(transfer.context.host.host, transfer)
        body, flaw = robots_body(transfer)
        self._tell(RobotsArrived(transfer.context, transfer, body, flaw))

    def _settle(self, action: Settle) -> None:
        self._settling.arrive(action.host, self._arriving.without_page(action, self._clocks.wall()))

    def _settle_page(self, action: SettlePage) -> None:
        arrival = self._arriving.of_page(action, self.settings.contact.redirects_max)
        self._settling.arrive(action.host, arrival)

    # What the coordinator says

    def _follow(self, state: CrawlState) -> None:
        """Do as the coordinator says; a node that was told to leave does not go on because the crawl does."""
        if state is not self._contacts.state and (self._leave_by == FOREVER or state in ENDING):
            self._tell(StateChanged(state))

    def _follow_settings(self, changed: ChangedSettings) -> None:
        """Work by other settings from now on. Coordinators hear of them one after the other, so one may still tell of
        older ones."""
        if self._read_settings is None or changed.config_version <= self.settings.config_version:
            return
        self.settings = self._read_settings(changed)
        self._tell(SettingsChanged(self.settings.contact))

    def heartbeat(self, now: float) -> Heartbeat:
        """How this node does."""
        hosts = self._contacts.hosts
        return Heartbeat(
            status=self._contacts.state,
            current_load=round(self._load.take_mean(now), 3),
            total_crawled=self._arriving.fetched,
            leases=hosts.last_leases(LEASES_TOLD_MAX),
            hosts=len(hosts),
            unstarted=hosts.unstarted,
            total_bytes=self._arriving.fetched_bytes,
            unanswered=self._settling.unanswered,
            lag_s=self._settling.lag_s(now),
            config_version=self.settings.config_version,
            effort=self._efforts.totals(now, self._archive.disk_s),
            events=beat_of(self._events.standing(now)) if self._events is not None else None,
        )

    def _gauges(self, now: float) -> Gauges:
        """The same for whoever scrapes this node."""
        hosts, uploads = self._contacts.hosts, self._uploads
        return Gauges(
            now,
            in_flight=self._contacts.under_way,
            lease_ages_s=hosts.ages_s(now),
            unstarted=hosts.unstarted,
            unanswered=self._settling.unanswered,
            settling_lag_s=self._settling.lag_s(now),
            rows_lag_s=self._archive.rows_lag_s(now),
            cut_off_s=self._client.cut_off_s,
            spool_bytes=uploads.waiting_bytes if uploads is not None else 0,
            events=self._events.standing(now) if self._events is not None else None,
        )

    def _beat_answered(self, reply: HeartbeatReply) -> None:
        self._follow(reply.state)
        if reply.settings is not None:
            self._follow_settings(reply.settings)
        if reply.revoke:
            self._tell(Revoked(reply.revoke))
