"""Metrics in Prometheus' text format: the crawl, the nodes, and how this coordinator answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from drumlin.access.misdeeds import Misdeed
from drumlin.api.gate import Gate
from drumlin.api.messages.people import Stats
from drumlin.coordinator.health import Trouble
from drumlin.engines.watched import EngineCalls
from drumlin.events.kafka import Kafka
from drumlin.metrics import registry
from drumlin.metrics.counting import Histogram
from drumlin.metrics.process import lines_of_process
from drumlin.metrics.text import by_label, histograms, many, one, page
from drumlin.model import FailureKind, Outcome
from drumlin.protocol import NodeStatus, Rejection

DUPLICATE_KINDS = ("exact", "near")


class RequestMetrics:
    """Counts requests by route and status, how long each took, and why some were refused. Routes and codes are the
    API's own, so they are few."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, str], int] = defaultdict(int)
        self._seconds: defaultdict[tuple[str], Histogram] = defaultdict(lambda: Histogram(registry.REQUEST_BUCKETS_S))
        self._refusals: Counter[str] = Counter()

    def observe(self, route: str, status: int, seconds: float) -> None:
        self._counts[route, str(status)] += 1
        self._seconds[route,].observe(seconds)

    def refused(self, code: str) -> None:
        self._refusals[code] += 1

    def lines(self) -> Iterable[Iterable[str]]:
        yield many(registry.REQUESTS, dict(sorted(self._counts.items())))
        yield histograms(registry.REQUEST_SECONDS, dict(sorted(self._seconds.items())))
        yield by_label(registry.REFUSALS, self._refusals)


class CoordinatorMetrics:
    """What one coordinator tells of itself and of the crawl.

    Every coordinator tells the same of the crawl, read from the engine. So the series of each are complete, whoever
    leads, and Prometheus takes the largest of them (`max without (instance)`)."""

    def __init__(self, requests: RequestMetrics, gate: Gate, engine: EngineCalls) -> None:
        self._requests = requests
        self._gate = gate
        self._engine = engine
        self._risen: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """The highest value of each counter of the crawl so far, by metric and label."""

    def page(
        self,
        stats: Stats | None,
        leads: bool,
        troubles: Sequence[Trouble],
        kafka: Kafka | None = None,
        bundles_owed: tuple[int, float] = (0, 0.0),
    ) -> bytes:
        """The whole page; without `stats`, only what this coordinator knows by itself. `bundles_owed` is how many are,
        and for how many seconds the oldest."""
        return page(
            [
                one(registry.READY, int(not troubles)),
                by_label(registry.TROUBLE, {trouble.code: 1 for trouble in troubles}),
                one(registry.LEADS, int(leads)),
                one(registry.BUNDLES_OWED, bundles_owed[0]),
                one(registry.BUNDLES_OWED_OLDEST, bundles_owed[1]),
                *(self._crawl_lines(stats) if stats is not None else ()),
                *self._own_lines(),
                *(kafka.lines() if kafka is not None else ()),
                *lines_of_process("coordinator"),
            ]
        )

    def _own_lines(self) -> Iterable[Iterable[str]]:
        gate, engine = self._gate, self._engine
        yield by_label(registry.MISDEEDS, _with_zeros(gate.misdeeds, Misdeed))
        yield one(registry.QUARANTINES, gate.quarantines)
        yield by_label(registry.RESULTS_REFUSED, _with_zeros(gate.refused_results, Rejection))
        yield one(registry.LEASES_EXPIRED, engine.leases_expired)
        yield histograms(registry.ENGINE_SECONDS, {(call,): seconds for call, seconds in engine.seconds.items()})
        yield from self._requests.lines()

    def _crawl_lines(self, stats: Stats) -> Iterable[Iterable[str]]:
        totals = stats.totals
        urls = {name: getattr(totals, name) for name in ("queued", "scheduled", "leased", "done", "dead")}
        hosts = {"ready": totals.hosts_ready, "waiting": totals.hosts_waiting, "leased": totals.hosts_leased}
        return [
            one(registry.RUNNING, int(stats.state == "running")),
            self._counted(registry.PAGES, {"": stats.pages}),
            self._counted(registry.BYTES, {"": stats.bytes}),
            by_label(registry.URLS, urls),
            self._counted(registry.OUTCOMES, _with_zeros(stats.outcomes, Outcome)),
            self._counted(registry.RESPONSES, stats.statuses),
            self._counted(registry.RETRIES, _with_zeros(stats.retries, FailureKind)),
            by_label(registry.DEAD_LETTERS, _with_zeros(stats.dead_letters, FailureKind)),
            self._counted(registry.DUPLICATES, _with_zeros(stats.duplicates, DUPLICATE_KINDS)),
            self._counted(registry.LINKS_REFUSED, stats.refused),
            by_label(registry.HOSTS, hosts),
            one(registry.HOSTS_IN_BACKOFF, totals.hosts_in_backoff),
            by_label(registry.NODES, _with_zeros(stats.nodes, NodeStatus)),
            one(registry.IN_FLIGHT, stats.in_flight),
            one(registry.UNANSWERED, stats.unanswered),
            one(registry.SETTLING_LAG, stats.lag_s),
        ]

    def _counted(self, metric: registry.Metric, values: Mapping[str, float]) -> Iterable[str]:
        """A counter of the crawl. It never falls: if the engine comes back with older data, Prometheus would take a
        lower value for a restart from 0, and count everything once more."""
        risen = self._risen[metric.name]
        for label, value in values.items():
            risen[label] = max(value, risen.get(label, 0))
        return by_label(metric, risen) if metric.labels else one(metric, risen[""])


def _with_zeros(values: Mapping[str, float], every: Iterable[str]) -> dict[str, float]:
    """All known values of a label, also those that never happened: else Prometheus would not see the first time."""
    return {**{str(value_of): 0 for value_of in every}, **values}
