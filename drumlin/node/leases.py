"""Getting and keeping leases: asking for hosts while there is room, renewing those that run out of time or URLs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Protocol

from drumlin.clock import monotonic
from drumlin.node.client import CoordinatorClient
from drumlin.node.hosts import HostTable, HostWork
from drumlin.pipeline import Pipeline
from drumlin.protocol import CrawlState, Work, WorkLease, WorkRequest

HOSTS_MAX = 8_192
HOSTS_PER_REQUEST = 128
TASKS_PER_REQUEST = 2_000
TASKS_LOW = 3
SOON_S = 0.2
RENEW_SCAN_S = 1.0
REQUEST_BYTES = 8
"""What tells the requests of one process from those of any other."""


class LeaseHolder(Protocol):
    """Who works with the leases: hears of hosts that were granted, renewed or lost, and of the crawl's state."""

    def granted(self, lease: WorkLease, sent: float) -> None: ...

    def renewed(self, host: HostWork) -> None: ...

    def lost(self, host: HostWork) -> None: ...

    def follow(self, state: CrawlState) -> None: ...


class Leases:
    """At most one request for hosts and one for renewals is under way at any time."""

    def __init__(
        self, node: str, client: CoordinatorClient, hosts: HostTable, pipeline: Pipeline, holder: LeaseHolder
    ) -> None:
        self._node = node
        self._client = client
        self._hosts = hosts
        self._pipeline = pipeline
        self._holder = holder
        self._asking = False
        self._ask_at = 0.0
        self._renewing = False
        self._to_renew: dict[str, HostWork] = {}
        self._lost_at = 0.0
        self._renew_at = 0.0
        self._scan_at = 0.0
        self._requests = 0
        self._start = os.urandom(REQUEST_BYTES).hex()

    def ask(self, now: float, room: int) -> None:
        """Ask for hosts when there is room for some."""
        room -= self._hosts.due_within(now + SOON_S)
        if self._asking or now < self._ask_at or room <= 0 or len(self._hosts) >= HOSTS_MAX:
            return
        self._asking = True
        self._post(min(room, HOSTS_PER_REQUEST), [], self._take, self._ask_failed)

    def visit(self, host: str, on_reply: Callable[[Work], None], on_failure: Callable[[], None]) -> None:
        """Ask for a lease of this very host, to contact it for something that is none of its URLs."""

        def take(work: Work, sent: float) -> None:
            self._heed(work, sent)
            on_reply(work)

        self._post(0, [], take, on_failure, visits=[host])

    def due(self) -> float:
        """When `ask` may next have something to do."""
        return float("inf") if self._asking else self._ask_at

    def renew(self, now: float, *, further: bool) -> None:
        """Renew what runs out, with `further` URLs or with time alone; give up what has run out."""
        if now >= self._scan_at:
            self._scan_at = now + RENEW_SCAN_S
            for host in list(self._hosts.by_name.values()):
                if now >= host.expires:
                    self._holder.lost(host)
                else:
                    self.check(host, now)
        if not self._to_renew or self._renewing or now < self._renew_at:
            return
        hosts = list(self._to_renew.values())
        self._to_renew.clear()
        self._renewing = True
        renew = [(host.lease_id, host.host) for host in hosts]
        tasks = TASKS_PER_REQUEST if further else 0
        self._post(0, renew, self._take_renewals, lambda: self._renewal_failed(hosts), max_tasks=tasks)

    def check(self, host: HostWork, now: float) -> None:
        """Have a lease renewed soon if it runs out of time or URLs."""
        if host.wanted and host.wants_renewal(now, TASKS_LOW):
            host.renewing = True
            self._to_renew[host.host] = host

    def forget(self, host: HostWork) -> None:
        self._to_renew.pop(host.host, None)

    def _post(
        self,
        max_hosts: int,
        renew: list[tuple[str, str]],
        on_reply: Callable[[Work, float], None],
        on_failure: Callable[[], None],
        visits: Sequence[str] = (),
        max_tasks: int = TASKS_PER_REQUEST,
    ) -> None:
        sent = monotonic()
        self._requests += 1
        request = WorkRequest(
            max_tasks,
            max_hosts=max_hosts,
            # Unlike that of any other request, also of an earlier process of this name.
            request_id=f"{self._start}-{self._requests:x}",
            renew=renew,
            scope_version=self._pipeline.scope_version,
            flat=False,
            unstarted=self._hosts.unstarted if max_hosts else 0,
            hosts=len(self._hosts),
            visits=list(visits),
        )
        path = f"/api/v1/nodes/{self._node}/work/request"
        # Never repeated as it is: a lease granted unheard runs out by itself, and each request has a name of its own.
        self._client.post(path, request, Work, lambda work: on_reply(work, sent), on_failure=on_failure, repeat_s=0.0)

    def _take(self, work: Work, sent: float) -> None:
        self._asking = False
        self._ask_at = monotonic() + work.retry_after_s
        self._heed(work, sent)

    def _heed(self, work: Work, sent: float) -> None:
        self._hear_of_crawl(work)
        for lease in work.leases:
            self._holder.granted(lease, sent)

    def _hear_of_crawl(self, work: Work) -> None:
        """Follow what holds for the whole crawl, before any of its URLs are begun."""
        self._pipeline.widen_scope(work.scope_seeds, work.scope_version)
        if work.lost_at != self._lost_at:
            self._lost_at = work.lost_at
            self._pipeline.tell_again()
        self._holder.follow(work.state)

    def _ask_failed(self) -> None:
        self._asking = False
        self._ask_at = monotonic() + self._client.wait_s()

    def _renewal_failed(self, hosts: list[HostWork]) -> None:
        """They are asked for again at the next look, as long as their time lasts."""
        self._renewing = False
        self._renew_at = monotonic() + self._client.wait_s()
        for host in hosts:
            host.renewing = False

    def _take_renewals(self, work: Work, sent: float) -> None:
        now = monotonic()
        self._renewing = False
        self._hear_of_crawl(work)
        for lease in work.leases:
            host = self._hosts.by_name.get(lease.host)
            if host is not None and host.lease_id == lease.lease_id:
                host.renew(lease, sent, now)
                self._holder.renewed(host)
        for name in work.lost:
            host = self._hosts.by_name.get(name)
            if host is not None and host.renewing:
                host.renewing = False
                self._holder.lost(host)
