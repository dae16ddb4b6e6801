"""The node's loop: get leases, contact the hosts that are due, and hand what arrives on to be read, stored and settled.

Everything happens on one thread. A host is contacted only while its lease is ours by our own clock, and robots.txt is
decided before every request.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any

import msgspec

from drumlin.clock import monotonic
from drumlin.config.settings import COOKIES_NONE, CookieMode
from drumlin.errors import SiteError
from drumlin.fetch import Fetcher, Transfer
from drumlin.model import FailureKind, Outcome
from drumlin.node.archive import Archive, Arrival
from drumlin.node.backing_off import BackingOff, silent, unreached
from drumlin.node.blackbox import BlackBox
from drumlin.node.bundles import SPOOL_BYTES_MAX, BundleUploads
from drumlin.node.client import FOREVER, CoordinatorClient
from drumlin.node.contact import RobotsContact, request_block
from drumlin.node.cookies import Cookies
from drumlin.node.hosts import HostTable, HostWork, Robots, scheme_of
from drumlin.node.leases import Leases
from drumlin.node.load import Load
from drumlin.node.outbox import Outbox
from drumlin.node.outcomes import (
    fetch_record,
    hsts_until,
    is_redirect,
    keep_cut,
    result_of_capture,
    result_without_capture,
    status_failure,
)
from drumlin.node.pulse import Pulse
from drumlin.node.settling import Settling
from drumlin.node.sitemaps import may_be_sitemap
from drumlin.node.steps import Step, asked_url, cookie_for, next_step
from drumlin.node.visits import Visits
from drumlin.pipeline import Pipeline, redirect_target
from drumlin.protocol import (
    Assignment,
    ChangedSettings,
    CrawlState,
    Heartbeat,
    HeartbeatReply,
    HostReport,
    Result,
    WorkLease,
)
from drumlin.robots import Decision

HSTS_RENEW_S = 3600.0
HSTS_STATUS = 307
LEASES_TOLD_MAX = 64
UNASKED = ", which was not asked for"
ASK_WAIT_S = 0.01
CONTACTING_S_MAX = 0.25
"""After so long the loop looks after all else before it contacts further hosts: robots rules that are slow to match, of
hundreds of hosts, would hold it up for longer than leases last."""
DRAIN_S = 30.0
END_WAIT_S = 60.0
PROCESS_BYTES = 6
HOST_PATIENCE_S = 7 * 86_400.0
ENDING = frozenset({CrawlState.DRAINING, CrawlState.FINISHED})


class NodeSettings(msgspec.Struct, frozen=True):
    """What of the crawl's and the process's configuration the loop needs."""

    node: str
    agent: str
    delay_s: float
    per_host: int
    concurrency: int
    redirects_max: int
    robots_ttl_s: float
    sitemaps: bool
    lease_s: float
    retries_max: int = 0
    cookies: CookieMode = COOKIES_NONE
    sitemap_bytes_max: int = 0
    spool_bytes_max: int = SPOOL_BYTES_MAX
    """What may wait on disk to be sent by a node that has no store of its own."""
    host_patience_s: float = HOST_PATIENCE_S
    """How long a host may be out of reach before its URLs are given up."""
    config_version: int = 0
    """How often the crawl's configuration has changed since it was founded."""


class Agent:
    """One node at work, from its first lease to its last settlement."""

    def __init__(
        self,
        settings: NodeSettings,
        fetcher: Fetcher,
        client: CoordinatorClient,
        pipeline: Pipeline,
        archive: Archive,
        blackbox: BlackBox,
        uploads: BundleUploads | None = None,
        *,
        read_settings: Callable[[ChangedSettings], NodeSettings] | None = None,
    ) -> None:
        """`read_settings` makes of changed settings what this loop needs, and tells others whom they concern."""
        self.settings = settings
        self.fetcher = fetcher
        self.pipeline = pipeline
        self.hosts = HostTable()
        self.cookies = Cookies(settings.cookies)
        self.state = CrawlState.RUNNING
        self.fetched = 0
        self.fetched_bytes = 0
        self._client = client
        self._leases = Leases(settings.node, client, self.hosts, pipeline, self)
        self.visits = Visits(self, self._leases)
        self.backing_off = BackingOff(self, random.Random())  # noqa: S311  # spreads probes; nothing secret
        self._archive = archive
        self._uploads = uploads
        self._read_settings = read_settings
        outbox = Outbox(settings.node, client, archive, self.release_if_idle, pipeline.tell_urls_again)
        self._settling = Settling(
            settings.node, client, pipeline, outbox, blackbox, self.release_if_idle, lease_s=settings.lease_s
        )
        self._request_headers = fetcher.request_headers
        self._process = os.urandom(PROCESS_BYTES).hex()
        self._attempts = 0
        self._load = Load(monotonic())
        self.pulse = Pulse(settings.node, client, self.heartbeat, self._beat_answered)
        self._drain_asked = False
        self._leave_by = FOREVER

    # The loop

    def run(self) -> bool:
        """Work until the crawl is finished, or drains and nothing of ours is left; False when results are, because time
        is up or no coordinator answers."""
        while not self._done():
            now = monotonic()
            if self._drain_asked:
                self._begin_drain(now)
            if now >= self._leave_by or (self.state in ENDING and self._client.cut_off_s > END_WAIT_S):
                return self._settling.settled
            if self.state is CrawlState.RUNNING:
                self._ask_for_leases(now)
            self._contact_due(now)
            self.fetcher.run_once(self._idle_s(now))
            self._client.repeat_failed()
            self._settling.step()
            self.pulse.step(monotonic())
            self._archive.show_old_rows(now)
            if self._uploads is not None:
                self._uploads.step(now)
        return True

    def drain(self) -> None:
        """Take nothing more, finish what is in flight, and leave: what a signal asks for. Safe to call at any moment:
        the loop sees to it at its next turn."""
        self._drain_asked = True

    def _begin_drain(self, now: float) -> None:
        self._drain_asked = False
        self._leave_by = min(self._leave_by, now + DRAIN_S)
        self.follow(CrawlState.DRAINING)

    def _done(self) -> bool:
        return self.state in ENDING and self._settling.empty and not self.hosts.by_name

    def _ask_for_leases(self, now: float) -> None:
        full = self._full
        self._leases.renew(now, further=not full)
        if not full:
            self._leases.ask(now, self.settings.concurrency - self.fetcher.in_flight)

    def _idle_s(self, now: float) -> float:
        """How long the loop may sleep for network events without being late for anything else."""
        until = min(self._settling.due(), self._client.due(), self.pulse.due())
        if self.state is CrawlState.RUNNING and not self._full:
            until = min(until, max(now, self._leases.due()) + ASK_WAIT_S)
            if self.fetcher.in_flight < self.settings.concurrency:
                until = min(until, self.hosts.next_due())
        return until - now

    @property
    def _full(self) -> bool:
        """What waits to be read, settled or sent is all that may: no further contact until some of it has gone."""
        waiting = self._uploads.waiting_bytes if self._uploads is not None else 0
        return self._settling.behind or self._settling.full or waiting >= self.settings.spool_bytes_max

    # Leases

    def granted(self, lease: WorkLease, sent: float) -> None:
        self.backing_off.begin_work()
        host = HostWork(lease, sent, monotonic(), self.settings.delay_s, self.settings.agent)
        before = self.hosts.by_name.get(lease.host)
        self.hosts.by_name[lease.host] = host
        if before is not None:
            # Its lease ran out before we looked.
            self.begin_no_more(before)
        if self.state is CrawlState.RUNNING:
            self.hosts.wait(host)
        else:
            self.lost(host)

    def renewed(self, host: HostWork) -> None:
        self.advance(host, monotonic())

    def lost(self, host: HostWork) -> None:
        """Begin none of the URLs that are left: they return to the queue with the lease."""
        self.begin_no_more(host)
        self.release_if_idle(host)

    def begin_no_more(self, host: HostWork) -> None:
        host.tasks.clear()
        host.suspects.clear()
        guests = list(host.guests)
        host.guests.clear()
        for guest in guests:
            guest.turned_away()

    def follow(self, state: CrawlState) -> None:
        """Do as the coordinator says; when it wants no more, give back every URL that was not begun."""
        if state is self.state or (self._leave_by < FOREVER and state not in ENDING):
            return
        self.state = state
        if state is not CrawlState.RUNNING:
            for host in list(self.hosts.by_name.values()):
                self.lost(host)

    def _follow_settings(self, changed: ChangedSettings) -> None:
        """Work by other settings from now on. Coordinators hear of them one after the other, so that one may still
        tell of older ones."""
        if self._read_settings is None or changed.config_version <= self.settings.config_version:
            return
        self.settings = self._read_settings(changed)
        for host in self.hosts.by_name.values():
            host.follow_delay(self.settings.delay_s)
        self.hosts.rearrange()

    def release_if_idle(self, host: HostWork) -> None:
        """Give a host back once it has no URLs left and its results are sent, at the latest with this report."""
        if not host.idle or self.hosts.by_name.get(host.host) is not host:
            return
        del self.hosts.by_name[host.host]
        self._leases.forget(host)
        note = host.note() if host.note_changed else None
        self._settling.report(
            HostReport(host.lease_id, host.host, release=True, next_contact_s=self._wait_s(host), note=note)
        )

    def report_note(self, host: HostWork, sitemaps: list[str], own_delay_s: float | None) -> None:
        """Have the coordinator remember a host's robots rules and the pace that it wishes, and queue its sitemaps."""
        host.note_changed = False
        report = HostReport(host.lease_id, host.host, False, self._wait_s(host), own_delay_s, host.note(), sitemaps)
        self._settling.report(report)

    def _wait_s(self, host: HostWork) -> float:
        return max(0.0, host.next_contact - monotonic())

    # Contact

    def _contact_due(self, now: float) -> None:
        if self._full:
            return
        for host in self.hosts.take_due(now, self.settings.concurrency - self.fetcher.in_flight):
            self.advance(host, now)
            if monotonic() > now + CONTACTING_S_MAX:
                return

    def advance(self, host: HostWork, now: float) -> None:
        """Contact the host if it may be contacted now; else have it wait; without URLs or guests, give it back."""
        while host.tasks or host.guests:
            if host.expired(now):
                self.begin_no_more(host)
            elif not host.may_contact(now, self.settings.per_host):
                if host.in_flight < self.settings.per_host and not host.waits_for_robots:
                    self.hosts.wait(host)
                return
            elif self.fetcher.in_flight >= self.settings.concurrency or self._full:
                self.hosts.wait(host)
                return
            else:
                self._contact(host, now)
        self.release_if_idle(host)

    def _contact(self, host: HostWork, now: float) -> None:
        """Let a guest in, or take the next URL as far as it goes: to robots.txt, to a decision without contact, or to
        the site."""
        if host.guests:
            guest = host.guests.popleft()
            if not guest.finds(host.host, host.robots):
                guest.begin(host, now)
            return
        task = host.tasks[0]
        scheme = scheme_of(task.url)
        if wait_s := self.backing_off.wait_s(host, scheme):
            self.backing_off.put_off(host, scheme, wait_s)
            return
        robots = host.robots.get(scheme)
        if robots is None or self.expired(robots):
            (host.robots_contact or RobotsContact(self, host, scheme)).start(now)
            return
        host.tasks.popleft()
        if scheme == "http" and host.hsts_until > time.time():
            target = "https:" + task.url.partition(":")[2]
            self.end(host, task, Outcome.REDIRECTED, status_code=HSTS_STATUS, redirect_to=target)
        elif not robots.allows(asked_url(task)):
            self.end(host, task, Outcome.DENIED, kind="robots", error=robots.decision.reason)
        else:
            self.began_contact(host, now)
            # A sitemap may be larger than the crawl's pages.
            limit = self.settings.sitemap_bytes_max if may_be_sitemap(task) else 0
            url, cookie = asked_url(task), cookie_for(task, self.cookies)
            self.fetcher.start(
                url, self._page_arrived, (host, task), body_bytes_max=limit, may_send=host.may_send, cookie=cookie
            )
        self._leases.check(host, now)

    def lasting(self, decision: Decision, wall: float) -> Decision:
        """What robots.txt means, with when it must be asked for again, by either clock."""
        ttl_s = min(decision.expires - wall, self.settings.robots_ttl_s)
        shared = self.shared_time() + ttl_s
        return msgspec.structs.replace(decision, expires=wall + ttl_s, expires_shared=shared)

    def expired(self, robots: Robots) -> bool:
        return robots.decision.expired(time.time(), self.shared_time())

    def shared_time(self) -> float:
        """The time that the coordinators share, as far as we know it."""
        return self._client.time.now()

    def began_contact(self, host: HostWork, now: float) -> None:
        host.in_flight += 1
        self._load.change(+1, now)
        host.contacted = now
        host.next_contact = now + host.delay_s

    def ended_contact(self, host: HostWork, transfer: Transfer) -> None:
        host.in_flight -= 1
        self._load.change(-1, transfer.finished)
        host.answered = not transfer.failure or bool(transfer.header_lines)
        reached = transfer.first_byte if self.settings.per_host == 1 else transfer.started
        host.contacted = max(host.contacted, reached)
        host.next_contact = max(host.next_contact, reached + host.delay_s)

    def ask_again(self, host: HostWork, task: Assignment) -> None:
        """Take a URL once more under the same lease; it returns with the lease if nothing more is to be begun."""
        if self.state is CrawlState.RUNNING:
            host.tasks.appendleft(task)

    def came_too_late(self, host: HostWork) -> None:
        """The lease ended before the request could be sent, so it was not: its URLs return with the lease."""
        host.in_flight -= 1
        self._load.change(-1, monotonic())
        self.lost(host)

    # Arrival

    def _page_arrived(self, transfer: Transfer) -> None:
        host, task = transfer.context
        if transfer.too_late:
            self.came_too_late(host)
            return
        answered_before = host.answered
        self.ended_contact(host, transfer)
        again: Assignment | None = task
        if not host.lost_request(transfer, self.settings.per_host):
            if transfer.failure:
                keep_cut(transfer, last_try=task.attempts >= self.settings.retries_max)
            again = self._next_step(transfer, task)
        if again is not None:
            self.ask_again(host, again)
        elif unreached(transfer):
            host.tasks.appendleft(task)
            self.backing_off.begin(host, scheme_of(task.url), transfer.failure, transfer.error)
        elif silent(transfer) and not answered_before:
            self.backing_off.suspect(host, task, self._arrival(transfer, host, task))
        else:
            self._settling.arrive(host, self._arrival(transfer, host, task))
        self.advance(host, transfer.finished)

    def failed(self, host: HostWork, arrival: Arrival) -> None:
        """A failure of which it was not clear whose it was is the URL's."""
        self._settling.arrive(host, arrival)

    def _next_step(self, transfer: Transfer, task: Assignment) -> Step | None:
        redirect = is_redirect(transfer.status)
        if transfer.failure or not (redirect or self.cookies.of_hosts):
            return None
        head = transfer.response_headers()
        self.cookies.learn(head, asked_url(task), time.time())
        if not redirect:
            return None
        return next_step(head, transfer.cookie, task, self.settings.redirects_max, self.cookies)

    def _arrival(self, transfer: Transfer, host: HostWork, task: Assignment) -> Arrival:
        wall = time.time()
        kind, error, asked_s = transfer.failure or status_failure(transfer.status), transfer.error, 0.0
        if not kind:
            try:
                return self._captured(transfer, host, task, wall)
            except SiteError as broken:
                kind, error = broken.kind, broken.message
        elif not transfer.failure:
            error = f"status {transfer.status}" + (UNASKED if kind == FailureKind.PROTOCOL else "")
            asked_s = self.backing_off.slow_down(host, transfer, wall)
        result = self._result(
            task,
            Outcome.FAILED,
            status_code=0 if transfer.failure else transfer.status,
            kind=kind,
            error=error,
            retry_after_s=asked_s,
        )
        return Arrival(result, fetch_record(result, task, host.host, self.settings.node, transfer))

    def _captured(self, transfer: Transfer, host: HostWork, task: Assignment, wall: float) -> Arrival:
        request = request_block(asked_url(task), host.host, self._request_headers, transfer.cookie)
        capture = self.pipeline.capture(transfer, task, host.host, request=request, now=wall)
        outcome, target = Outcome.FETCHED, ""
        if is_redirect(transfer.status):
            outcome, target = Outcome.REDIRECTED, redirect_target(capture, self.settings.redirects_max)
        if "strict-transport-security" in capture.headers and task.url.startswith("https:"):
            self._remember_hsts(host, capture.headers["strict-transport-security"], wall)
        result = result_of_capture(capture, task, outcome, self._attempt_id(task))
        result.redirect_to = target
        if host.slow_s:
            host.recover()
        self.fetched += 1
        self.fetched_bytes += len(capture.body_raw)
        return Arrival(result, fetch_record(result, task, host.host, self.settings.node, transfer), capture)

    def _remember_hsts(self, host: HostWork, value: str, wall: float) -> None:
        until = hsts_until(value, wall)
        if abs(until - host.hsts_until) > HSTS_RENEW_S:
            host.hsts_until = until
            host.note_changed = True

    def fail_tasks(self, host: HostWork, kind: str, error: str) -> None:
        """End every URL of a lease that cannot be fetched now, without contact."""
        tasks = list(host.tasks)
        host.tasks.clear()
        for task in tasks:
            self.end(host, task, Outcome.FAILED, kind=kind, error=error)

    def end(self, host: HostWork, task: Assignment, outcome: Outcome, **more: Any) -> None:
        """Settle a URL without contact."""
        result = self._result(task, outcome, **more)
        self._settling.arrive(host, Arrival(result, fetch_record(result, task, host.host, self.settings.node)))

    def _result(self, task: Assignment, outcome: Outcome, **more: Any) -> Result:
        wall = time.time()
        return result_without_capture(task, outcome, self._attempt_id(task), wall, **more)

    def _attempt_id(self, task: Assignment) -> str:
        """Tells this attempt at this URL from every other, also of an earlier process of this name."""
        self._attempts += 1
        return f"{self.settings.node}:{task.number}:{self._process}.{self._attempts:x}"

    # Heartbeat

    def heartbeat(self, now: float) -> Heartbeat:
        """How this node does."""
        return Heartbeat(
            status=self.state,
            current_load=round(self._load.take_mean(now), 3),
            total_crawled=self.fetched,
            leases=self.hosts.last_leases(LEASES_TOLD_MAX),
            hosts=len(self.hosts.by_name),
            unstarted=self.hosts.unstarted,
            total_bytes=self.fetched_bytes,
            unanswered=self._settling.unanswered,
            lag_s=self._settling.lag_s(now),
            config_version=self.settings.config_version,
        )

    def _beat_answered(self, reply: HeartbeatReply) -> None:
        self.follow(reply.state)
        if reply.settings is not None:
            self._follow_settings(reply.settings)
        if reply.revoke:
            revoked = set(reply.revoke)
            for host in [host for host in self.hosts.by_name.values() if host.lease_id in revoked]:
                self.lost(host)
