"""The calls of people and their tools: the state of the crawl, and the levers to change it.

Viewers read, operators write, and every write is in the audit log. Health and readiness need no token, since load
balancers have none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType

import msgspec

from drumlin.access.audit import AuditLog
from drumlin.access.tokens import Permission
from drumlin.api.calls.dead_letters import INVALID_SHOWN_MAX, DeadLetterCalls
from drumlin.api.calls.events import MEDIA_TYPE as EVENTS_TYPE
from drumlin.api.calls.events import Events
from drumlin.api.calls.figures import Figures
from drumlin.api.calls.marks import Marks
from drumlin.api.calls.metrics import CoordinatorMetrics
from drumlin.api.explaining.bounds import Seen, bound_by
from drumlin.api.explaining.report import COMPLETE_KEY
from drumlin.api.explaining.why import brokers_away, bundles_awaited, seeds_lost, troubled, why_idle
from drumlin.api.gate import Gate
from drumlin.api.messages.people import (
    AddedURLs,
    AddURLs,
    AuditQuery,
    AuditView,
    CheckpointMade,
    CrawlView,
    Health,
    MakeCheckpoint,
    NodesQuery,
    NodesView,
    StateChange,
    Stats,
    WhyIdle,
    node_view,
)
from drumlin.api.routing import Answer, Call, Route, Stream, Text
from drumlin.api.watch import Watch
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.health import Health as CoordinatorHealth
from drumlin.coordinator.health import Part, refusal
from drumlin.coordinator.taking.host_reports import slow_s_of
from drumlin.coordinator.totals import Totals
from drumlin.engines.base import Added
from drumlin.errors import EngineError
from drumlin.events.kafka import Kafka
from drumlin.http.refusal import Refused
from drumlin.metrics.text import MEDIA_TYPE as METRICS_TYPE
from drumlin.model import HostStanding, HostState, NewURLs
from drumlin.protocol import ORDERS, NodeEvent, NodeStatus, paths
from drumlin.urls import by_host, canonical

BACKOFFS_SHOWN = 1
HOSTS_LOOKED_AT = 8
ADD_BYTES_MAX = 48 * 1024 * 1024
STOPPED_BY_PERSON = "stopped by an operator"


class PeopleCalls:
    """The calls of people."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        gate: Gate,
        audit: AuditLog,
        metrics: CoordinatorMetrics,
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
        self._metrics = metrics
        self._health = health
        self._watch = watch
        self._figures = Figures(dispatcher, health)
        self._letters = DeadLetterCalls(dispatcher.engine, self._figures, work_may_have_come)
        self._time = engine_time
        self._events = Events(self._figures, Marks(dispatcher.engine), engine_time, health)
        self._work_may_have_come = work_may_have_come
        self.kafka: Kafka | None = None

    def ticked(self, totals: Totals, now: float) -> None:
        self._figures.ticked(totals, now)

    def close(self) -> None:
        """End the streams of events."""
        self._events.close()

    def routes(self) -> list[Route]:
        return [*self._looks(), *self._levers(), *self._letters.routes(), *self._open()]

    def _looks(self) -> list[Route]:
        return [
            _look(paths.CRAWL, "The crawl's state, settings, budgets and totals", self.crawl, CrawlView),
            _look(paths.STATS, "Figures for a dashboard", self.stats, Stats),
            _look(paths.NODES, "All nodes", self.nodes, NodesView, NodesQuery),
            _always(
                _look(paths.WHY_IDLE, "Why nothing is being fetched right now, or not more", self.why_idle, WhyIdle)
            ),
            _look(paths.AUDIT, "Who changed what and who logged in, newest first", self.audit, AuditView, AuditQuery),
            _always(_page(paths.EVENTS, "Figures and changes as they come", self.events, bytes, EVENTS_TYPE)),
            _always(_page(paths.METRICS, "Metrics for Prometheus", self.metrics, str, METRICS_TYPE)),
        ]

    def _levers(self) -> list[Route]:
        unknown = {404: "There is no such node."}
        spent = {409: "A budget of the crawl is spent: it would stop at once."}
        return [
            _lever(paths.PAUSE, "Give out nothing until resumed", self.pause, "crawl.pause"),
            _lever(paths.RESUME, "Go on after a pause or a stop", self.resume, "crawl.resume", spent),
            _lever(paths.STOP, "Finish what is in flight, and end", self.stop, "crawl.stop"),
            _lever(paths.DRAIN, "Let a node finish and leave", self.drain, "node.drain", unknown),
            _lever(paths.QUARANTINE, "Keep a node out", self.quarantine, "node.quarantine", unknown),
            _lever(paths.RELEASE, "Let a node work again", self.release, "node.release", unknown),
            Route(
                method="POST",
                path=paths.CHECKPOINT,
                summary="Keep the frontier as it is now, beside it; only if it is in RocksDB",
                answer=self.checkpoint,
                permission=Permission.OPERATE,
                takes=MakeCheckpoint,
                gives=CheckpointMade,
                writes="crawl.checkpoint",
                refusals={409: "There is one of this name, or the engine has no checkpoints."},
            ),
            Route(
                method="POST",
                path=paths.URLS,
                summary="Put a batch of URLs into the frontier",
                answer=self.add_urls,
                permission=Permission.OPERATE,
                takes=AddURLs,
                gives=AddedURLs,
                body_bytes_max=ADD_BYTES_MAX,
                writes="urls.add",
            ),
        ]

    def _open(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path=paths.HEALTH,
                summary="Whether this coordinator is alive",
                answer=self.alive,
                permission=None,
                gives=Health,
            ),
            Route(
                method="GET",
                path=paths.READINESS,
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
        """A stream for clients that ask for one, as a browser's EventSource does; otherwise a single event."""
        if EVENTS_TYPE in call.header(b"accept"):
            return self._events.listen(call.identity.subject if call.credential else "")
        return await self._events.once()

    async def nodes(self, call: Call, query: NodesQuery) -> NodesView:
        """A page of the nodes, which are kept in the order of their names."""
        every = await self._figures.nodes(call.now)
        first = bisect_right(every, query.after, key=lambda one: one.node_id)
        chosen = (one for one in every[first:] if query.status in ("", one.status))
        records = list(islice((one for one in chosen if one.node_id.startswith(query.prefix)), query.limit + 1))
        shown = records[: query.limit]
        orders = self._dispatcher.orders.nodes
        views = [node_view(one, orders.get(one.node_id)) for one in shown]
        return NodesView(views, shown[-1].node_id if len(records) > query.limit else "", call.now)

    async def why_idle(self, call: Call, message: None) -> WhyIdle:
        return await self.why(call.now)

    async def why(self, now: float) -> WhyIdle:
        """Why nothing is being fetched, or not more."""
        await self._watch.be_fresh()
        troubles = troubled(self._health.troubles, self._time.today())
        if self._health.trouble(Part.ENGINE) is not None:
            # Other reasons would follow from this one, and finding them out needs an engine that answers.
            return WhyIdle(idle=True, reasons=troubles)
        dispatcher = self._dispatcher
        totals, nodes = await self._figures.totals(now), await self._figures.nodes(now)
        troubles += brokers_away(nodes, self.kafka) + seeds_lost(self.kafka) + bundles_awaited(dispatcher.nodes.owed)
        waiting = await self._first(HostStanding.WAITING, now, HOSTS_LOOKED_AT) if totals.hosts_waiting else []
        backing_off = await self._first(HostStanding.BACKOFF, now, BACKOFFS_SHOWN) if totals.hosts_in_backoff else []
        held = await self._first(HostStanding.LEASED, now, HOSTS_LOOKED_AT) if totals.hosts_leased else []
        orders = len(dispatcher.orders.blocked), len(dispatcher.orders.budgets)
        settled_s = now - dispatcher.settled_at
        stands = dispatcher.state, dispatcher.stop_reason, totals, nodes
        reasons = why_idle(*stands, waiting, *orders, now, settled_s, backing_off, held)
        if reasons:
            return WhyIdle(idle=True, reasons=[*troubles, *reasons])
        delays = [self._delay_s(host) for host in (*held, *waiting) if not host.in_backoff]
        bytes_per_s = (await self._figures.stats(now)).bytes_per_s
        heartbeat_s = dispatcher.nodes.heartbeat_s
        seen = Seen(totals, nodes, self._watch.lately, delays, backing_off, now, bytes_per_s, held, heartbeat_s)
        return WhyIdle(idle=False, reasons=[], bound_by=[*troubles, *bound_by(seen)])

    def _delay_s(self, host: HostState) -> float:
        return max(host.delay_s or 0.0, self._dispatcher.config.delay_s, slow_s_of(host.note))

    async def _first(self, standing: HostStanding, now: float, limit: int) -> list[HostState]:
        shards = range(self._engine.shard_count)
        found = [await self._engine.hosts(shard, standing, now, limit=limit) for shard in shards]
        return sorted((host for hosts in found for host in hosts), key=lambda host: host.next_contact)[:limit]

    async def audit(self, call: Call, query: AuditQuery) -> AuditView:
        return AuditView(await self._audit.read(limit=query.limit, before=query.before or None))

    async def metrics(self, call: Call, message: None) -> Text:
        """If the engine does not answer, the page has what this coordinator knows by itself, including that."""
        reachable = self._health.trouble(Part.ENGINE) is None
        stats = await self._figures.stats(call.now) if reachable else None
        dispatcher = self._dispatcher
        told = (dispatcher.leads, self._health.troubles, self.kafka, dispatcher.nodes.bundles_owed)
        page = self._metrics.page(stats, *told)
        return Text(page, METRICS_TYPE)

    async def alive(self, call: Call, message: None) -> Health:
        return Health("ok")

    async def ready(self, call: Call, message: None) -> Health:
        """Answer from the last test of engine and store, which is at most seconds old: a load balancer must not have to
        wait for an engine that hangs."""
        await self._watch.be_fresh()
        if self._health.troubles:
            raise refusal(self._health.troubles[0])
        return Health("ready")

    # Levers

    async def pause(self, call: Call, message: None) -> StateChange:
        await self._dispatcher.pause()
        return StateChange(str(self._dispatcher.state))

    async def resume(self, call: Call, message: None) -> StateChange:
        dispatcher, totals = self._dispatcher, await self._dispatcher.totals(call.now)
        spent = dispatcher.budget.exhausted(totals.pages, totals.bytes, dispatcher.elapsed_s)
        if spent:
            hint = f"Raise it first: `drumlin set {spent} ...`."
            raise Refused(409, "budget_spent", f"The crawl has spent its {spent}, and would stop at once.", hint)
        await dispatcher.resume()
        # What was merged and reported is not all any more. The coordinator that finishes the store hears of it later.
        await dispatcher.engine.put_meta(COMPLETE_KEY, b"")
        self._work_may_have_come()
        return StateChange(str(self._dispatcher.state))

    async def stop(self, call: Call, message: None) -> StateChange:
        await self._dispatcher.stop(STOPPED_BY_PERSON)
        return StateChange(str(self._dispatcher.state))

    async def drain(self, call: Call, message: None) -> StateChange:
        return await self._order(call, NodeEvent.DRAIN)

    async def quarantine(self, call: Call, message: None) -> StateChange:
        return await self._order(call, NodeEvent.QUARANTINE)

    async def release(self, call: Call, message: None) -> StateChange:
        self._gate.release(call.node_id)
        return await self._order(call, NodeEvent.RELEASE)

    async def _order(self, call: Call, event: NodeEvent) -> StateChange:
        if not await self._dispatcher.change_node(call.node_id, event):
            raise Refused(
                404,
                "no_such_node",
                f"There is no node called {call.node_id}.",
                f"`drumlin nodes` and GET {paths.NODES} list them.",
            )
        self._figures.forget_nodes()
        return StateChange(str(ORDERS.get(event, NodeStatus.ACTIVE)))

    async def checkpoint(self, call: Call, message: MakeCheckpoint) -> CheckpointMade:
        try:
            return CheckpointMade(message.name, await self._engine.snapshot(message.name))
        except EngineError as refused:
            raise Refused(409, "no_checkpoint", refused.message, refused.hint) from refused

    async def add_urls(self, call: Call, message: AddURLs) -> AddedURLs:
        urls = [(href, canonical(href)) for href in message.urls]
        hosts = by_host(url for _, url in urls if url)
        new = [NewURLs(host, mine, message.priority) for host, mine in hosts.items()]
        answers = await self._dispatcher.enqueue(new, call.now)
        self._work_may_have_come()
        invalid = [href for href, url in urls if not url]
        added, seen, capped = (answers.count(answer) for answer in (Added.ADDED, Added.SEEN, Added.CAPPED))
        removed = len(urls) - len(invalid) - len(answers)
        return AddedURLs(added, seen, capped, invalid[:INVALID_SHOWN_MAX], removed)


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
    """The same call, but answered even while the engine cannot be used."""
    return msgspec.structs.replace(route, without_engine=True)


def _page(path: str, summary: str, answer: Answer, gives: type, media_type: str) -> Route:
    """A call that only reads, whose answer has a media type of its own."""
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
