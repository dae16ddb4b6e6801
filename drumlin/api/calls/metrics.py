"""Metrics in Prometheus' text format: the crawl, the nodes, and how this coordinator answers."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from drumlin.access.misdeeds import Misdeed
from drumlin.api.messages.people import Stats
from drumlin.coordinator.health import Trouble

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENCY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)


class RequestMetrics:
    """Counts requests by route and status, and how long each took. Routes are the API's own, so both are few."""

    def __init__(self) -> None:
        self._counts: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._buckets: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(LATENCY_BUCKETS_S) + 1))
        self._sums_s: defaultdict[str, float] = defaultdict(float)

    def observe(self, route: str, status: int, seconds: float) -> None:
        self._counts[route, status] += 1
        self._buckets[route][bisect_left(LATENCY_BUCKETS_S, seconds)] += 1
        self._sums_s[route] += seconds

    def lines(self) -> Iterable[str]:
        yield "# HELP drumlin_requests_total Requests answered, by route and status."
        yield "# TYPE drumlin_requests_total counter"
        for (route, status), count in sorted(self._counts.items()):
            yield f'drumlin_requests_total{{route="{route}",status="{status}"}} {count}'
        name = "drumlin_request_seconds"
        yield f"# HELP {name} Time from a request's head to the end of its answer."
        yield f"# TYPE {name} histogram"
        for route, buckets in sorted(self._buckets.items()):
            total = 0
            for bound, count in zip((*LATENCY_BUCKETS_S, "+Inf"), buckets, strict=True):
                total += count
                yield f'{name}_bucket{{route="{route}",le="{bound}"}} {total}'
            yield f'{name}_sum{{route="{route}"}} {self._sums_s[route]:.6f}'
            yield f'{name}_count{{route="{route}"}} {total}'


def render(
    stats: Stats | None,
    leads: bool,
    troubles: Sequence[Trouble],
    requests: RequestMetrics,
    misdeeds: Mapping[str, int],
    quarantines: int,
) -> bytes:
    """The whole page; without `stats`, only what this coordinator knows by itself."""
    meaning = "What nodes did here that no honest node does, by kind."
    counted = {str(misdeed): misdeeds.get(misdeed, 0) for misdeed in Misdeed}
    wrong = {trouble.code: 1 for trouble in troubles}
    lines = [
        *_family("drumlin_ready", "gauge", "Whether the engine and the store can be used.", {"": int(not troubles)}),
        *_family("drumlin_trouble", "gauge", "What is wrong with the engine or the store, by code.", wrong, "code"),
        *_family("drumlin_leader", "gauge", "Whether the crawl's figures come from here.", {"": int(leads)}),
        *(_crawl_lines(stats) if stats is not None else ()),
        *_family("drumlin_misdeeds_total", "counter", meaning, counted, "kind"),
        *_family("drumlin_quarantines_total", "counter", "Nodes put into quarantine here.", {"": quarantines}),
        *requests.lines(),
    ]
    return ("\n".join(lines) + "\n").encode()


def _crawl_lines(stats: Stats) -> list[str]:
    totals = stats.totals
    urls = {name: getattr(totals, name) for name in ("queued", "scheduled", "leased", "done", "dead")}
    hosts = {"ready": totals.hosts_ready, "waiting": totals.hosts_waiting, "leased": totals.hosts_leased}
    return [
        *_family("drumlin_pages_total", "counter", "Pages fetched.", {"": stats.pages}),
        *_family("drumlin_bytes_total", "counter", "Bytes of pages fetched.", {"": stats.bytes}),
        *_family("drumlin_pages_per_second", "gauge", "Pages a second, lately.", {"": stats.pages_per_s}),
        *_family("drumlin_requests_in_flight", "gauge", "Requests to sites under way.", {"": stats.in_flight}),
        *_family("drumlin_pages_unanswered", "gauge", "Pages fetched that do not count yet.", {"": stats.unanswered}),
        *_family("drumlin_settling_lag_seconds", "gauge", "Wait of the oldest such page.", {"": stats.lag_s}),
        *_family("drumlin_crawl_running", "gauge", "Whether the crawl runs.", {"": int(stats.state == "running")}),
        *_family("drumlin_urls", "gauge", "Known URLs, by state.", urls, "state"),
        *_family("drumlin_hosts", "gauge", "Hosts with queued URLs, by state.", hosts, "state"),
        *_family("drumlin_hosts_in_backoff", "gauge", "Hosts out of reach.", {"": totals.hosts_in_backoff}),
        *_family("drumlin_nodes", "gauge", "Nodes, by status.", stats.nodes, "status"),
        *_family("drumlin_outcomes_total", "counter", "Settled URLs, by outcome.", stats.outcomes, "outcome"),
        *_family("drumlin_responses_total", "counter", "Responses, by status code.", stats.statuses, "code"),
        *_family("drumlin_retries_total", "counter", "Attempts to be repeated, by failure.", stats.retries, "kind"),
        *_family("drumlin_dead_letters", "gauge", "URLs given up, by kind.", stats.dead_letters, "kind"),
        *_family("drumlin_duplicates_total", "counter", "Repeated contents.", stats.duplicates, "kind"),
        *_family("drumlin_links_refused_total", "counter", "Links not followed, by reason.", stats.refused, "reason"),
    ]


def _family(name: str, kind: str, meaning: str, values: Mapping[str, float], label: str = "") -> Iterable[str]:
    yield f"# HELP {name} {meaning}"
    yield f"# TYPE {name} {kind}"
    for value_of, value in values.items():
        yield f'{name}{{{label}="{_escaped(value_of)}"}} {value}' if label else f"{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
