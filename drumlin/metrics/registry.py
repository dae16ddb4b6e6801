"""Every metric that drumlin tells, once. `docs/reference/metrics.md` is made from this table."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Kind(StrEnum):
    """Prometheus' types of metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Teller(StrEnum):
    """Which processes tell a metric."""

    PROCESS = "every process"
    COORDINATOR = "each coordinator"
    CRAWL = "every coordinator, the same of the whole crawl"
    NODE = "each node"
    WITH_EVENTS = "every process with `--events`"
    WITH_SEEDS = "each coordinator with `--seeds-from`"


class Metric(msgspec.Struct, frozen=True):
    """One metric. `labels` has the meaning of each label's values; `buckets` are the bounds of a histogram."""

    name: str
    kind: Kind
    told_by: Teller
    help: str
    labels: dict[str, str] = {}
    buckets: tuple[float, ...] = ()


METRICS: dict[str, Metric] = {}
"""All metrics by name, in the order of the reference."""

REQUEST_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0)
FETCH_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
ENGINE_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 0.5, 1.0, 5.0)

_OUTCOME = (
    "what became of it: `fetched`, `redirected`, `denied` (by robots.txt), `skipped` (by `--types`), `failed` and so on"
)
_FAILURE = "the kind of failure (see [failures](failures.md))"


def _counter(told_by: Teller, name: str, meaning: str, **labels: str) -> Metric:
    return _kept(Metric(name, Kind.COUNTER, told_by, meaning, labels))


def _gauge(told_by: Teller, name: str, meaning: str, **labels: str) -> Metric:
    return _kept(Metric(name, Kind.GAUGE, told_by, meaning, labels))


def _histogram(told_by: Teller, name: str, meaning: str, buckets: tuple[float, ...], **labels: str) -> Metric:
    return _kept(Metric(name, Kind.HISTOGRAM, told_by, meaning, labels, buckets))


def _kept(metric: Metric) -> Metric:
    if metric.name in METRICS:
        raise ValueError(f"two metrics are called {metric.name}")
    METRICS[metric.name] = metric
    return metric


# The crawl

_CRAWL = Teller.CRAWL
RUNNING = _gauge(
    _CRAWL, "drumlin_crawl_running", "Whether the crawl runs: 0 while it is paused, and when it has ended."
)
PAGES = _counter(_CRAWL, "drumlin_pages_total", "Pages fetched.")
BYTES = _counter(_CRAWL, "drumlin_bytes_total", "Bytes of pages fetched, as they were sent.")
URLS = _gauge(
    _CRAWL,
    "drumlin_urls",
    "Known URLs.",
    state="`queued`, `scheduled` (to be tried again later), `leased` (given to a node), `done`, `dead` (given up)",
)
OUTCOMES = _counter(_CRAWL, "drumlin_outcomes_total", "URLs settled.", outcome=_OUTCOME)
RESPONSES = _counter(_CRAWL, "drumlin_responses_total", "Responses of sites.", code="the HTTP status code")
RETRIES = _counter(_CRAWL, "drumlin_retries_total", "Attempts that failed and are to be repeated.", kind=_FAILURE)
DEAD_LETTERS = _gauge(_CRAWL, "drumlin_dead_letters", "URLs given up, as they are now.", kind=_FAILURE)
DUPLICATES = _counter(
    _CRAWL, "drumlin_duplicates_total", "Pages with a content that was known.", kind="`exact` or `near`"
)
LINKS_REFUSED = _counter(
    _CRAWL, "drumlin_links_refused_total", "Links that were not followed.", reason="which rule refused them"
)
HOSTS = _gauge(
    _CRAWL,
    "drumlin_hosts",
    "Hosts with URLs to fetch.",
    state="`ready` (may be contacted now), `waiting` (for their delay, or for a retry), `leased` (given to a node)",
)
HOSTS_IN_BACKOFF = _gauge(
    _CRAWL, "drumlin_hosts_in_backoff", "Hosts that are out of reach; most of them count as waiting too."
)
NODES = _gauge(
    _CRAWL,
    "drumlin_nodes",
    "Nodes, as coordinators see them.",
    status="`active`, `draining`, `quarantined`, `failed` (fell silent), `inactive` (left), `quiet` (a worker without "
    "heartbeats that has not asked for a while)",
)
IN_FLIGHT = _gauge(
    _CRAWL, "drumlin_requests_in_flight", "Requests to sites under way, by the last heartbeats of nodes."
)
UNANSWERED = _gauge(_CRAWL, "drumlin_pages_unanswered", "URLs that nodes have finished and that do not count yet.")
SETTLING_LAG = _gauge(
    _CRAWL,
    "drumlin_settling_lag_seconds",
    "How long the oldest URL waits that a node has finished and that does not count yet.",
)

# Each coordinator

_COORDINATOR = Teller.COORDINATOR
READY = _gauge(_COORDINATOR, "drumlin_ready", "Whether the engine and the store can be used.")
TROUBLE = _gauge(
    _COORDINATOR,
    "drumlin_trouble",
    "1 for what is wrong with the engine or the store; nothing while all is well.",
    code="what is wrong, as in `/readyz`",
)
LEADS = _gauge(
    _COORDINATOR, "drumlin_leader", "Whether this coordinator leads: it ends leases that ran out, and notices the end."
)
BUNDLES_OWED = _gauge(
    _COORDINATOR,
    "drumlin_bundles_owed",
    "Bundles with settled pages that are not in the store yet. Told by the one coordinator that looks for them.",
)
BUNDLES_OWED_OLDEST = _gauge(
    _COORDINATOR,
    "drumlin_bundles_owed_oldest_seconds",
    "For how long the oldest of these is owed. More than some minutes: its node is away, or has lost its disk.",
)
_ROUTE = "method and path, with the names of parameters"
REQUESTS = _counter(
    _COORDINATOR, "drumlin_requests_total", "Requests answered.", route=_ROUTE, status="the HTTP status sent"
)
REQUEST_SECONDS = _histogram(
    _COORDINATOR,
    "drumlin_request_seconds",
    "Time from a request's head to the end of its answer.",
    REQUEST_BUCKETS_S,
    route=_ROUTE,
)
REFUSALS = _counter(
    _COORDINATOR, "drumlin_refusals_total", "Requests refused.", code="the code of the error in the answer"
)
RESULTS_REFUSED = _counter(
    _COORDINATOR,
    "drumlin_results_refused_total",
    "Results of nodes that did not count.",
    reason="`stale` (another attempt was first; harmless), `not_yours`, `malformed`, `made_up`, `foreign_links`",
)
ENGINE_SECONDS = _histogram(
    _COORDINATOR,
    "drumlin_engine_call_seconds",
    "Time that calls to the engine took, those that failed too.",
    ENGINE_BUCKETS_S,
    call="the call, as `drumlin/engines/base.py` names it; `check` is a small write each second",
)
LEASES_EXPIRED = _counter(
    _COORDINATOR,
    "drumlin_leases_expired_total",
    "Leases that this coordinator ended because they ran out: their nodes died, were cut off or were too slow.",
)
MISDEEDS = _counter(
    _COORDINATOR, "drumlin_misdeeds_total", "What nodes did here that no honest node does.", kind="which misdeed"
)
QUARANTINES = _counter(_COORDINATOR, "drumlin_quarantines_total", "Nodes that this coordinator put into quarantine.")

# Each node

_NODE = Teller.NODE
_OF = "`page` or `robots` (a robots.txt)"
NODE_FETCH_SECONDS = _histogram(
    _NODE,
    "drumlin_node_fetch_seconds",
    "Time from the start of a request to a site to the end of its answer, or to its failure.",
    FETCH_BUCKETS_S,
    of=_OF,
)
NODE_BODY_BYTES = _counter(
    _NODE, "drumlin_node_body_bytes_total", "Bytes of bodies received from sites, those of failed requests too.", of=_OF
)
NODE_URLS = _counter(
    _NODE,
    "drumlin_node_urls_total",
    "URLs that this node has finished.",
    outcome=_OUTCOME + "; `put_off` (host out of reach)",
)
NODE_FAILURES = _counter(_NODE, "drumlin_node_failures_total", "URLs that failed here, at any attempt.", kind=_FAILURE)
NODE_IN_FLIGHT = _gauge(_NODE, "drumlin_node_requests_in_flight", "Requests to sites under way.")
NODE_LEASES = _gauge(_NODE, "drumlin_node_leases", "Leases held: hosts that only this node may contact.")
NODE_LEASE_AGES = _gauge(
    _NODE,
    "drumlin_node_lease_ages_seconds",
    "Ages of all leases held, added up; divided by their number, their mean age.",
)
NODE_LEASE_OLDEST = _gauge(_NODE, "drumlin_node_lease_oldest_seconds", "Age of the oldest lease held.")
NODE_UNSTARTED = _gauge(_NODE, "drumlin_node_urls_unstarted", "URLs given to this node that are not asked for yet.")
NODE_UNANSWERED = _gauge(
    _NODE, "drumlin_node_urls_unanswered", "URLs finished whose results no coordinator has answered yet."
)
NODE_SETTLING_LAG = _gauge(
    _NODE, "drumlin_node_settling_lag_seconds", "How long the oldest finished URL waits for a coordinator's answer."
)
NODE_ROWS_LAG = _gauge(
    _NODE,
    "drumlin_node_rows_lag_seconds",
    "How long the oldest row of a settled URL waits to be seen by readers of the tables.",
)
NODE_CUT_OFF = _gauge(_NODE, "drumlin_node_cut_off_seconds", "For how long no coordinator has answered; 0 if one does.")
NODE_SPOOL = _gauge(
    _NODE, "drumlin_node_spool_bytes", "Bundles that wait on disk to be sent, of a node without a store."
)
NODE_SPOOL_MAX = _gauge(
    _NODE, "drumlin_node_spool_max_bytes", "How much may wait on disk to be sent; then nothing more is fetched."
)
NODE_MEMORY_MAX = _gauge(_NODE, "drumlin_node_memory_max_bytes", "`--memory-max` of this process; 0: no limit.")
NODE_LOOK_AGE = _gauge(
    _NODE,
    "drumlin_node_look_age_seconds",
    "How old the gauges of this node are. Its loop makes them every second, so if they are old it hangs or is leaving.",
)

# Every process

_PROCESS = Teller.PROCESS
BUILD = _gauge(
    _PROCESS, "drumlin_build_info", "Always 1.", process="`node` or `coordinator`", version="the version of drumlin"
)
PROCESS_CPU = _counter(_PROCESS, "process_cpu_seconds_total", "CPU time used, by user code and by the system for it.")
PROCESS_MEMORY = _gauge(_PROCESS, "process_resident_memory_bytes", "Memory that the process takes.")
PROCESS_FILES = _gauge(_PROCESS, "process_open_fds", "Open files and connections.")
PROCESS_START = _gauge(_PROCESS, "process_start_time_seconds", "When the process started, in seconds since the epoch.")

# Kafka

_WITH_EVENTS, _WITH_SEEDS = Teller.WITH_EVENTS, Teller.WITH_SEEDS
EVENTS_PRODUCED = _counter(_WITH_EVENTS, "drumlin_events_produced_total", "Events that the broker has confirmed.")
EVENTS_REFUSED = _counter(
    _WITH_EVENTS, "drumlin_events_refused_total", "Events that the broker refused; they are produced again."
)
EVENTS_TOO_LARGE = _counter(
    _WITH_EVENTS,
    "drumlin_events_too_large_total",
    "Events that were put aside in `dead-events.jsonl`: too large for the client or the broker, however much was cut.",
)
EVENTS_WAITING = _gauge(
    _WITH_EVENTS,
    "drumlin_events_waiting_bytes",
    "Size of the tables and logs whose events the broker has not confirmed.",
)
EVENTS_LAG = _gauge(_WITH_EVENTS, "drumlin_events_lag_seconds", "How long the oldest of these waits.")
EVENTS_AWAY = _gauge(
    _WITH_EVENTS, "drumlin_events_broker_away_seconds", "For how long the broker has taken no events; 0 if it does."
)
SEEDS_TAKEN = _counter(_WITH_SEEDS, "drumlin_seeds_taken_total", "URLs taken from the topic of `--seeds-from`.")
SEEDS_BAD = _counter(
    _WITH_SEEDS,
    "drumlin_seeds_bad_total",
    "Messages and lines of that topic that were passed over: no web address, or above 1,000 in a message.",
)
