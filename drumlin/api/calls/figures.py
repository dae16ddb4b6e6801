"""The crawl in figures, for people and programs that look often: read from the engine at most a few times a second."""

from __future__ import annotations

import math
from collections import Counter, deque

import msgspec

from drumlin.api.explaining.report import COMPLETE_KEY, YES
from drumlin.api.explaining.why import has_stopped
from drumlin.api.messages.people import Budgets, CrawlView, Stats, TotalsView
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.health import Health
from drumlin.coordinator.totals import Totals
from drumlin.protocol import CrawlState, NodeRecord, NodeStatus

TOTALS_FRESH_S = 0.25
NODES_FRESH_S = 1.0
NODES_READ_PER_S = 2_000
"""How many records of nodes are read a second, on average, at most: the more nodes a fleet has, the less often all of
them are read. Nodes of a large fleet send their figures less often, too."""
RATE_WINDOW_S = 10.0
RATE_SAMPLES_MAX = 100


class Sample(msgspec.Struct, frozen=True):
    """How many pages and bytes were done at a moment."""

    time: float
    pages: int
    bytes: int


class Rates:
    """Pages and bytes a second over the last `RATE_WINDOW_S`, from samples taken whenever somebody looks."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=RATE_SAMPLES_MAX)

    def add(self, sample: Sample) -> None:
        samples = self._samples
        if not samples or sample.time - samples[-1].time >= RATE_WINDOW_S / RATE_SAMPLES_MAX:
            samples.append(sample)
        # One sample from before the window stays, so the rate covers the whole window.
        while len(samples) > 2 and samples[1].time <= sample.time - RATE_WINDOW_S:
            samples.popleft()

    def per_s(self) -> tuple[float, float]:
        """Pages and bytes a second; zero until two samples were taken."""
        if len(self._samples) < 2:
            return 0.0, 0.0
        first, last = self._samples[0], self._samples[-1]
        passed_s = last.time - first.time
        return max(0.0, (last.pages - first.pages) / passed_s), max(0.0, (last.bytes - first.bytes) / passed_s)


class Figures:
    """Figures from the dispatcher and its engine, kept for a moment so many viewers cost no more than one."""

    def __init__(self, dispatcher: Dispatcher, health: Health) -> None:
        self._dispatcher = dispatcher
        self._health = health
        self._totals: tuple[float, Totals] | None = None
        self._ticked: tuple[float, Totals] | None = None
        self._nodes: tuple[float, list[NodeRecord]] | None = None
        self._rates = Rates()

    def ticked(self, totals: Totals, now: float) -> None:
        """Take a sample at each tick, so even the first viewer sees how fast the crawl is."""
        self._ticked = now, totals
        self._rates.add(Sample(now, totals.pages, totals.bytes))

    @property
    def state(self) -> CrawlState:
        return self._dispatcher.state

    async def totals(self, now: float) -> Totals:
        if self._totals is None or not 0 <= now - self._totals[0] < TOTALS_FRESH_S:
            totals = await self._dispatcher.totals(now)
            self._totals = now, totals
            self._rates.add(Sample(now, totals.pages, totals.bytes))
        return self._totals[1]

    async def nodes(self, now: float) -> list[NodeRecord]:
        if self._nodes is None or not 0 <= now - self._nodes[0] < self._nodes_fresh_s():
            reviewed = self._dispatcher.nodes.reviewed
            if reviewed is None or len(reviewed[1]) < NODES_READ_PER_S:
                reviewed = now, await self._dispatcher.node_records()
            # The leader reads a large fleet each second anyway, and nobody should have to wait for it.
            self._nodes = reviewed
        return self._nodes[1]

    def _nodes_fresh_s(self) -> float:
        return max(NODES_FRESH_S, len(self._nodes[1]) / NODES_READ_PER_S) if self._nodes is not None else 0.0

    def forget_nodes(self) -> None:
        """Read the nodes again for the next viewer, because one was changed."""
        self._nodes = self._dispatcher.nodes.reviewed = None

    async def stats(self, now: float) -> Stats:
        return self._stats(await self.totals(now), await self.nodes(now), now)

    def last(self) -> Stats | None:
        """The figures of the last tick, for when there is no time to ask the engine; None if nobody has looked yet."""
        if self._ticked is None or self._nodes is None:
            return None
        now, totals = self._ticked
        return self._stats(totals, self._nodes[1], now)

    def _stats(self, totals: Totals, nodes: list[NodeRecord], now: float) -> Stats:
        pages_per_s, bytes_per_s = self._rates.per_s()
        statuses = Counter(str(node.status) for node in nodes)
        active = [node for node in nodes if node.status is NodeStatus.ACTIVE]
        return Stats(
            time=now,
            state=self._dispatcher.state,
            totals=totals_view(totals),
            pages=totals.pages,
            bytes=totals.bytes,
            pages_per_s=round(pages_per_s, 2),
            bytes_per_s=round(bytes_per_s, 1),
            in_flight=sum(node.current_load for node in active),
            unanswered=sum(node.unanswered for node in active),
            lag_s=round(max((node.lag_s for node in active), default=0.0), 3),
            nodes=dict(statuses),
            statuses=totals.group("status."),
            outcomes=totals.group("outcome."),
            retries=totals.group("retried."),
            dead_letters=totals.group("dead."),
            duplicates=totals.group("duplicates."),
            refused=totals.group("refused."),
            troubles=self._health.troubles,
            stopped=has_stopped(self._dispatcher.state, totals, nodes),
        )

    async def crawl(self, now: float) -> CrawlView:
        dispatcher, totals = self._dispatcher, await self.totals(now)
        config = dispatcher.config
        budgets = Budgets(
            config.pages_max, config.bytes_max, config.time_max_s, totals.pages, totals.bytes, dispatcher.elapsed_s
        )
        return CrawlView(
            state=dispatcher.state,
            stop_reason=dispatcher.stop_reason,
            config=msgspec.to_builtins(config),
            config_hash=config.config_hash(),
            seeds=len(dispatcher.scope_of_seeds()) + len(dispatcher.scope_seeds),
            budgets=budgets,
            totals=totals_view(totals),
            troubles=self._health.troubles,
            complete=await dispatcher.engine.get_meta(COMPLETE_KEY) == YES,
            config_version=dispatcher.steering.version,
        )


def totals_view(totals: Totals) -> TotalsView:
    """The totals as people see them: infinity, which JSON cannot say, is null."""
    view = msgspec.convert(totals, TotalsView, from_attributes=True)
    view.next_event = totals.next_event if math.isfinite(totals.next_event) else None
    return view
