"""The face for people and their tools: how the crawl stands, and the levers to change it.

Viewers read, operators write, and every write is in the audit log. Health and readiness are open to all, since load
balancers have no tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from drumlin.coordinator import api_metrics
from drumlin.coordinator.api_events import MEDIA_TYPE as EVENTS_TYPE
from drumlin.coordinator.api_events import Events
from drumlin.coordinator.api_figures import Figures
from drumlin.coordinator.api_metrics import RequestMetrics
from drumlin.coordinator.audit import AuditLog
from drumlin.coordinator.auth import Permission
from drumlin.coordinator.bodies import Refused
from drumlin.coordinator.conduct import Gate
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.health import Health as CoordinatorHealth
from drumlin.coordinator.health import Part, refusal
from drumlin.coordinator.messages import (
    AddedURLs,
    AddURLs,
    AuditQuery,
    AuditView,
    Changed,
    CrawlView,
    DeadLettersChange,
    DeadLettersQuery,
    DeadLettersView,
    Health,
    NodesQuery,
    NodesView,
    StateChange,
    Stats,
    WhyIdle,
    dead_letter_view,
    node_view,
)
from drumlin.coordinator.routing import Answer, Call, Route, Stream, Text
from drumlin.coordinator.settling import by_host
from drumlin.coordinator.totals import Totals
from drumlin.coordinator.watch import Watch
from drumlin.coordinator.why import bound_by, troubled, why_idle
from drumlin.engines.base import Added
from drumlin.model import DeadLetter, HostStanding, HostState, NewURLs
from drumlin.protocol import NodeStatus
from drumlin.urls import canonical, host_of

WAITING_SHOWN = 1
ADD_BYTES_MAX = 48 * 1024 * 1024
DEAD_LETTERS_BYTES_MAX = 16 * 1024 * 1024
INVALID_SHOWN_MAX = 100
STOPPED_BY_PERSON = "stopped by an operator"
CRAWL = "/api/v1/crawl"
NODE = "/api/v1/nodes/{node_id}"


class PeopleFace:
    """The calls of people."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        gate: Gate,
        audit: AuditLog,
        requests: RequestMetrics,
        health: CoordinatorHealth,
        watch: Watch,
        *,
        engine_time: EngineTime,
        work_may_have_come: Callable[[], None],
    ) -> None:
        self._dispatcher = dispatcher
        self._engine = dispatcher.engine
        self._gate = gate
        self._audit = audit
        self._requests = requests
        self._health = health
        self._watch = watch
        self._figures = Figures(dispatcher, health)
        self._time = engine_time
        self._events = Events(self._figures, engine_time, health)
        self._work_may_have_come = work_may_have_come

    def ticked(self, totals: Totals, now: float) -> None:
        self._figures.ticked(totals, now)

    def close(self) -> None:
        """End what would go on by itself."""
        self._events.close()

    def routes(self) -> list[Route]:
        return [*self._looks(), *self._levers(), *self._open()]

    def _looks(self) -> list[Route]:
        return [
            _look(CRAWL, "The crawl's state, settings, budgets and totals", self.crawl, CrawlView),
            _look("/api/v1/stats", "Figures for a dashboard", self.stats, Stats),
            _look("/api/v1/nodes", "All nodes", self.nodes, NodesView, NodesQuery),
            _always(_look("/api/v1/why-idle", "Why nothing is being fetched right now", self.why_idle, WhyIdle)),
            _look("/api/v1/dead-letters", "URLs given up", self.dead_letters, DeadLettersView, DeadLettersQuery),
            _look("/api/v1/audit", "Who changed what, newest first", self.audit, AuditView, AuditQuery),
            _always(_page("/api/v1/events", "Figures and changes as they come", self.events, bytes, EVENTS_TYPE)),
            _always(_page("/metrics", "Metrics for Prometheus", self.metrics, str, api_metrics.MEDIA_TYPE)),
        ]

    def _levers(self) -> list[Route]:
        unknown = {404: "There is no such node."}
        return [
            _lever(f"{CRAWL}/pause", "Give out nothing until resumed", self.pause, "crawl.pause"),
            _lever(f"{CRAWL}/resume", "Go on after a pause or a stop", self.resume, "crawl.resume"),
            _lever(f"{CRAWL}/stop", "Finish what is in flight, and end", self.stop, "crawl.stop"),
            _lever(f"{NODE}/drain", "Let a node finish and leave", self.drain, "node.drain", unknown),
            _lever(f"{NODE}/quarantine", "Keep a node out", self.quarantine, "node.quarantine", unknown),
            _lever(f"{NODE}/release", "Let a node work again", self.release, "node.release", unknown),
            Route(
                method="POST",
                path="/api/v1/urls",
                summary="Put a batch of URLs into the frontier",
                answer=self.add_urls,
                permission=Permission.OPERATE,
                takes=AddURLs,
                gives=AddedURLs,
                body_bytes_max=ADD_BYTES_MAX,
                writes="urls.add",
            ),
            *(
                Route(
                    method="POST",
                    path=f"/api/v1/dead-letters/{verb}",
                    summary=summary,
                    answer=answer,
                    permission=Permission.OPERATE,
                    takes=DeadLettersChange,
                    gives=Changed,
                    body_bytes_max=DEAD_LETTERS_BYTES_MAX,
                    writes=f"dead_letters.{verb}",
                )
                for verb, summary, answer in (
                    ("retry", "Queue dead letters again", self.retry),
                    ("drop", "Count dead letters as done", self.drop),
                )
            ),
        ]

    def _open(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path="/healthz",
                summary="Whether this coordinator is alive",
                answer=self.alive,
                permission=None,
                gives=Health,
            ),
            Route(
                method="GET",
                path="/readyz",
                summary="Whether this coordinator can serve: its engine and its store can be written",
                answer=self.ready,
                permission=None,
                gives=Health,
                refusals={503: "The engine or the store cannot be used; the code says why."},
            ),
        ]

    # Looks

    async def crawl(self, call: Call, message: None) -> CrawlView:
        return await self._figures.crawl(call.now)

    async def stats(self, call: Call, message: None) -> Stats:
        return await self._figures.stats(call.now)

    async def events(self, call: Call, message: None) -> Stream:
        """A stream for those who ask for one, as browsers' EventSource does; else one look."""
        if EVENTS_TYPE in call.header(b"accept"):
            return self._events.listen(call.identity.subject if call.authorization else "")
        return await self._events.once()

    async def nodes(self, call: Call, query: NodesQuery) -> NodesView:
        records = [one for one in await self._figures.nodes(call.now) if query.status in ("", one.status)]
        return NodesView([node_view(record) for record in records[: query.limit]])

    async def why_idle(self, call: Call, message: None) -> WhyIdle:
        await self._watch.be_fresh()
        if self._health.troubles:
            # Whatever else may be so follows from it, and might take an engine that answers to find out.
            return WhyIdle(idle=True, reasons=troubled(self._health.troubles, self._time.today()))
        dispatcher = self._dispatcher
        totals, nodes = await self._figures.totals(call.now), await self._figures.nodes(call.now)
        waiting = await self._first(HostStanding.WAITING, call.now) if totals.hosts_waiting else []
        backing_off = await self._first(HostStanding.BACKOFF, call.now) if totals.hosts_in_backoff else []
        orders = len(dispatcher.orders.blocked), len(dispatcher.orders.budgets)
        settled_s = call.now - dispatcher.settled_at
        reasons = why_idle(
            dispatcher.state, dispatcher.stop_reason, totals, nodes, waiting, *orders, call.now, settled_s, backing_off
        )
        return WhyIdle(bool(reasons), reasons, [] if reasons else bound_by(totals, nodes))

    async def _first(self, standing: HostStanding, now: float) -> list[HostState]:
        shards = range(self._engine.shard_count)
        found = [await self._engine.hosts(shard, standing, now, limit=WAITING_SHOWN) for shard in shards]
        return sorted((host for hosts in found for host in hosts), key=lambda host: host.next_contact)[:WAITING_SHOWN]

    async def dead_letters(self, call: Call, query: DeadLettersQuery) -> DeadLettersView:
        letters = await self._letters(query.kind, query.host, query.limit)
        return DeadLettersView([dead_letter_view(letter) for letter in letters])

    async def audit(self, call: Call, query: AuditQuery) -> AuditView:
        return AuditView(await self._audit.read(limit=query.limit, before=query.before or None))

    async def metrics(self, call: Call, message: None) -> Text:
        """The crawl's figures are the leader's to tell: told by each coordinator, they would count several times in a
        sum. With an engine that does not answer, what this coordinator knows by itself: above all, that."""
        reachable, leads = self._health.trouble(Part.ENGINE) is None, self._dispatcher.leads
        stats = await self._figures.stats(call.now) if reachable and leads else None
        gate = self._gate
        page = api_metrics.render(stats, leads, self._health.troubles, self._requests, gate.misdeeds, gate.quarantines)
        return Text(page, api_metrics.MEDIA_TYPE)

    async def alive(self, call: Call, message: None) -> Health:
        return Health("ok")

    async def ready(self, call: Call, message: None) -> Health:
        """From the last look, which is at most seconds old: a load balancer must not wait for an engine that hangs."""
        await self._watch.be_fresh()
        if self._health.troubles:
            raise refusal(self._health.troubles[0])
        return Health("ready")

    # Levers

    async def pause(self, call: Call, message: None) -> StateChange:
        await self._dispatcher.pause()
        return StateChange(str(self._dispatcher.state))

    async def resume(self, call: Call, message: None) -> StateChange:
        await self._dispatcher.resume()
        self._work_may_have_come()
        return StateChange(str(self._dispatcher.state))

    async def stop(self, call: Call, message: None) -> StateChange:
        await self._dispatcher.stop(STOPPED_BY_PERSON)
        return StateChange(str(self._dispatcher.state))

    async def drain(self, call: Call, message: None) -> StateChange:
        return await self._order(call, NodeStatus.DRAINING)

    async def quarantine(self, call: Call, message: None) -> StateChange:
        return await self._order(call, NodeStatus.QUARANTINED)

    async def release(self, call: Call, message: None) -> StateChange:
        self._gate.release(call.node_id)
        return await self._order(call, NodeStatus.ACTIVE)

    async def _order(self, call: Call, status: NodeStatus) -> StateChange:
        if not await self._dispatcher.set_node_status(call.node_id, status, call.now):
            raise Refused(404, "no_such_node", f"There is no node called {call.node_id}.", "See GET /api/v1/nodes.")
        self._figures.forget_nodes()
        return StateChange(str(status))

    async def add_urls(self, call: Call, message: AddURLs) -> AddedURLs:
        urls = [(href, canonical(href)) for href in message.urls]
        hosts = by_host(url for _, url in urls if url)
        new = [NewURLs(host, mine, message.priority) for host, mine in hosts.items()]
        answers = await self._dispatcher.enqueue(new, call.now)
        self._work_may_have_come()
        invalid = [href for href, url in urls if not url]
        added, seen, capped = (answers.count(answer) for answer in (Added.ADDED, Added.SEEN, Added.CAPPED))
        return AddedURLs(added, seen, capped, invalid[:INVALID_SHOWN_MAX])

    async def retry(self, call: Call, change: DeadLettersChange) -> Changed:
        changed = 0
        for shard, urls in (await self._chosen(change)).items():
            changed += await self._engine.revive(shard, urls, call.now)
        self._work_may_have_come()
        return Changed(changed)

    async def drop(self, call: Call, change: DeadLettersChange) -> Changed:
        changed = 0
        for shard, urls in (await self._chosen(change)).items():
            changed += await self._engine.drop(shard, urls)
        return Changed(changed)

    async def _chosen(self, change: DeadLettersChange) -> dict[int, list[str]]:
        """The URLs meant, by shard."""
        named = [url for href in change.urls if (url := canonical(href))]
        if not change.urls:
            named = [letter.url for letter in await self._letters(change.kind, change.host, change.limit)]
        shards: dict[int, list[str]] = {}
        for url in named:
            shard = self._engine.shard_of(host_of(url))
            story = await self._engine.story(shard, url) if change.urls else None
            shards.setdefault(shard, []).append(story.task.url if story and story.task else url)
        return shards

    async def _letters(self, kind: str, host: str, limit: int) -> list[DeadLetter]:
        shards: Sequence[int] = [self._engine.shard_of(host)] if host else range(self._engine.shard_count)
        letters: list[DeadLetter] = []
        for shard in shards:
            letters += await self._engine.dead_letters(shard, kind=kind, host=host, limit=limit - len(letters))
            if len(letters) >= limit:
                break
        return letters


def _look(path: str, summary: str, answer: Answer, gives: type, takes: type | None = None) -> Route:
    return Route(
        method="GET",
        path=path,
        summary=summary,
        answer=answer,
        permission=Permission.READ,
        takes=takes,
        gives=gives,
    )


def _always(route: Route) -> Route:
    """The same call, answered also while the engine cannot be used."""
    return msgspec.structs.replace(route, without_engine=True)


def _page(path: str, summary: str, answer: Answer, gives: type, media_type: str) -> Route:
    """A look whose answer is text of its own kind."""
    return Route(
        method="GET",
        path=path,
        summary=summary,
        answer=answer,
        permission=Permission.READ,
        gives=gives,
        gives_media_types=(media_type,),
    )


def _lever(
    path: str, summary: str, answer: Answer, writes: str, refusals: Mapping[int, str] = MappingProxyType({})
) -> Route:
    return Route(
        method="POST",
        path=path,
        summary=summary,
        answer=answer,
        permission=Permission.OPERATE,
        gives=StateChange,
        writes=writes,
        refusals=refusals,
    )
