"""Calls about leases: sends what the law of contact asks for to a coordinator, and tells it the answers as events."""

from __future__ import annotations

from collections.abc import Callable

from drumlin.clock import Clocks
from drumlin.contact.actions import AskVisit, AskWork, Renew
from drumlin.contact.events import Event, Granted, RenewalEnded, Renewed, VisitEnded, WorkEnded
from drumlin.contact.hosts import HostTable
from drumlin.node.calling.wires import CoordinatorWire
from drumlin.node.traces import NodeTraces
from drumlin.pipeline import Pipeline
from drumlin.protocol import CrawlState, Work, WorkRequest, paths

TASKS_PER_REQUEST = 2_000
REQUEST_BYTES = 8
"""What tells the requests of one process from those of any other."""


class LeaseCalls:
    """Asks for work, renewals and visits. `tell` hears of what came of it, `follow` of the crawl's state."""

    def __init__(
        self,
        node: str,
        client: CoordinatorWire,
        hosts: HostTable,
        pipeline: Pipeline,
        tell: Callable[[Event], None],
        follow: Callable[[CrawlState], None],
        clocks: Clocks,
        start: str,
    ) -> None:
        """`start` tells the requests of this process from those of any other."""
        self.traces: NodeTraces | None = None
        """Hears which URLs are traced."""
        self._path = paths.WORK.format(node_id=node)
        self._client = client
        self._hosts = hosts
        self._pipeline = pipeline
        self._tell = tell
        self._follow = follow
        self._clocks = clocks
        self._lost_at = 0.0
        self._requests = 0
        self._start = start

    def ask(self, action: AskWork) -> None:
        request = self._request()
        request.max_hosts, request.unstarted = action.hosts, self._hosts.unstarted

        def take(work: Work, sent: float) -> None:
            self._tell(WorkEnded(work.retry_after_s))
            self._take_leases(work, sent)

        self._post(request, take, lambda again_s: self._tell(WorkEnded(again_s)))

    def renew(self, action: Renew) -> None:
        request = self._request()
        request.renew = action.leases
        request.max_tasks = TASKS_PER_REQUEST if action.further else 0

        def take(work: Work, sent: float) -> None:
            self._hear_of_crawl(work)
            for lease in work.leases:
                self._tell(Renewed(lease, sent, action.further))
            self._tell(RenewalEnded(work.lost))

        self._post(request, take, lambda again_s: self._tell(RenewalEnded(again_s=again_s)))

    def visit(self, action: AskVisit) -> None:
        request = self._request()
        request.visits, request.visits_for = [action.host], [action.sponsor]

        def take(work: Work, sent: float) -> None:
            self._take_leases(work, sent)
            self._tell(VisitEnded(action.host, work.notes.get(action.host, b"")))

        self._post(request, take, lambda again_s: self._tell(VisitEnded(action.host)))

    def _request(self) -> WorkRequest:
        self._requests += 1
        return WorkRequest(
            TASKS_PER_REQUEST,
            max_hosts=0,
            # Unlike that of any other request, also of an earlier process of this name.
            request_id=f"{self._start}-{self._requests:x}",
            scope_version=self._pipeline.scope_version,
            flat=False,
            hosts=len(self._hosts),
        )

    def _post(self, request: WorkRequest, take: Callable[[Work, float], None], failed: Callable[[float], None]) -> None:
        # Never repeated as it is: a lease granted unheard runs out by itself, and each request has a name of its own.
        sent = self._clocks.boot()
        self._client.post(self._path, request, Work, lambda work: take(work, sent), on_failure=failed, repeat_s=0.0)

    def _take_leases(self, work: Work, sent: float) -> None:
        self._hear_of_crawl(work)
        for lease in work.leases:
            self._tell(Granted(lease, sent))

    def _hear_of_crawl(self, work: Work) -> None:
        """Follow what holds for the whole crawl, before any of its URLs are begun."""
        if self.traces is not None:
            self.traces.received(work)
        self._pipeline.widen_scope(work.scope_seeds, work.scope_version)
        if work.lost_at != self._lost_at:
            self._lost_at = work.lost_at
            self._pipeline.tell_again()
        self._follow(work.state)
