"""A node from start to end: register, finish what dead nodes left in the store, work, leave.

A node of a local crawl is a child of its coordinator and ends with it. A node of a fleet stands by itself: it goes on
through outages, finishes its work and leaves on SIGTERM, and stops at once on a second SIGTERM. That loses nothing,
since everything that was fetched is in its journal.
"""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from types import FrameType

import msgspec

from drumlin import __version__
from drumlin.clock import monotonic
from drumlin.config import CrawlConfig
from drumlin.config.changes import log_differences
from drumlin.config.processes import ListenAddress
from drumlin.config.quantities import format_size
from drumlin.config.record import CrawlRecord
from drumlin.config.types import parse_rules
from drumlin.contact import ContactSettings
from drumlin.disk import translated_disk_errors
from drumlin.errors import EXIT_INTERRUPTED, DrumlinError, EngineError, StorageError
from drumlin.events.owed import owed_names, take_over
from drumlin.events.sender import Sender
from drumlin.fetch import Fetcher, FetchLimits, default_ca_file
from drumlin.fetch.guard import Guard
from drumlin.garbage_collection import collect_seldom
from drumlin.http.type_limits import TypeLimits
from drumlin.logs import Event, event, identify
from drumlin.node.agent import Agent, NodeSettings
from drumlin.node.calling.client import (
    PROBE_TIMEOUT_S,
    CoordinatorClient,
    CoordinatorGone,
    CoordinatorRefused,
)
from drumlin.node.calling.parties import Coordinators, Credentials
from drumlin.node.calling.pulse import Pulse
from drumlin.node.figures import NodeFigures
from drumlin.node.keeping.archive import Archive
from drumlin.node.keeping.blackbox import BlackBox
from drumlin.node.keeping.bucket_uploads import BucketUploads
from drumlin.node.keeping.bundles import REFUSED_FOLDER, BundleUploads, Uploads, adopt_bundle, bundles_in
from drumlin.node.keeping.outbox import results_message, tellable
from drumlin.node.keeping.recovery import dead_spools, recover, report_killer
from drumlin.node.limits import allow_open_files, limit_memory
from drumlin.node.membership import Membership, NodeOptions, die_with_parent
from drumlin.node.traces import NodeTraces, node_traces
from drumlin.parse import SITEMAP_BYTES_MAX, keep_freed_memory
from drumlin.pipeline import Pipeline
from drumlin.protocol import Accepted, ChangedSettings, Done, Failure, Registered, Result, paths
from drumlin.reading import Reading
from drumlin.store.opening import open_store
from drumlin.tls import curl_options
from drumlin.urls import Scope

__all__ = ["NodeOptions", "run_node"]

SOFTWARE = f"drumlin/{__version__}"
ABORT_HOOK = "DRUMLIN_TEST_ABORT_ON"
GC_THRESHOLDS = (200_000, 10, 100)
START_WAIT_S = 120.0
RECOVER_WAIT_S = 120.0
LEAVE_WAIT_S = 25.0
UPLOAD_WAIT_S = 300.0
"""How long a node that leaves waits for the next of its bundles to be stored or, after a signal, for all of them:
whoever sent it, such as systemd, kills after a while (deploy/)."""
EVENTS_WAIT_S = 60.0
"""How long a node that leaves waits for a broker that takes no events. They are sent by the next start."""
FAILURE_CHARS_MAX = 500
EXIT_TERMINATED = 128 + signal.SIGTERM

log = logging.getLogger("drumlin.node")


def run_node(options: NodeOptions) -> None:
    """Be a node until the crawl needs it no more, or a signal ends it."""
    die_with_parent(options.parent_pid)
    limit_memory(options.memory_bytes_max)
    allow_open_files(options.concurrency)
    with Membership.enter(options) as membership, translated_disk_errors(options.out):
        identify(node=membership.name)
        node = Node(membership)
        _heed_signals(options.parent_pid, node)
        try:
            with _shown_at(options.metrics, node.figures), node_traces(options.traces, membership.name) as traces:
                node.run(traces)
        except MemoryError as cause:
            # If a page was being parsed, the black box still has its URL, and the next process reports it.
            message = f"This node used up its memory of {format_size(options.memory_bytes_max)}."
            raise DrumlinError(message, "Start it again; if it happens often raise --memory-max.") from cause
        except DrumlinError as broken:
            node.give_up(broken)
            raise


def _shown_at(address: ListenAddress | None, figures: NodeFigures) -> contextlib.AbstractContextManager[None]:
    """Let this node's figures be scraped at an address, if it has one."""
    if address is None:
        return contextlib.nullcontext()
    # Most nodes have none, and then no HTTP server is loaded.
    from drumlin.metrics.server import serving

    figures.be_watched()
    return serving(address.host, address.port, lambda: figures.page(monotonic()))


def _heed_signals(parent_pid: int, node: Node) -> None:
    """A node of a local crawl ignores signals: Ctrl-C, a closed terminal or a service manager signal all processes of
    the crawl, and the parent tells its nodes to leave. A node by itself finishes on the first signal and ends at once
    on the second."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if parent_pid else node.signalled)


class Node:
    """One node, from its registration to its leaving."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._options = membership.options
        self._paths = membership.paths
        self._name = membership.name
        self._coordinators = Coordinators(membership.options.endpoints)
        self._access = Credentials(membership.options.token)
        options = membership.options
        self._curl_options = curl_options(options.authority, options.certificate, options.key)
        self._gateway = self._client(_plain_fetcher())
        self._agent: Agent | None = None
        self._pulse: Pulse | None = None
        self._to_bucket: BucketUploads | None = None
        self._joined = False
        self._signals = 0
        self.figures = NodeFigures(options.memory_bytes_max, options.spool_bytes_max if options.bundled else 0)
        self._gateway.meanwhile = self._meanwhile

    def run(self, traces: NodeTraces | None) -> None:
        # `recovering` keeps the leases of this name's last process until its unsent results have been sent.
        registered = self._register(recovering=True)
        config = told_config(registered.config)
        pipeline, blackbox = self._prepare(config, registered)
        self._recover_own(pipeline)
        self._recover_others(pipeline)
        # Now the leases of the last process end, and its hosts can be given out again.
        self._register(recovering=False)
        where = f"{self._coordinators.endpoint}, stores in {self._options.store or self._options.out}"
        log.info("joined %s", where, extra=event(Event.JOINED, version=__version__, pid=os.getpid()))
        archive = self._archive(config, registered.seeds)
        fetcher = make_fetcher(config, self._options.concurrency)
        client = self._client(fetcher)
        uploads = self._uploads(client) if self._options.bundled else None
        events = self._sender(registered.crawl_id)
        settings = node_settings(config, self._options, self._name, registered.config_version)

        def read_settings(changed: ChangedSettings) -> NodeSettings:
            nonlocal config
            before, config = config, told_config(changed.config)
            log_differences(log, before, config, changed.config_version)
            pipeline.follow_scope(scope_maker(config, changed.seeds))
            return node_settings(config, self._options, self._name, changed.config_version)

        self._agent = agent = Agent(
            settings,
            fetcher,
            client,
            pipeline,
            archive,
            blackbox,
            uploads,
            figures=self.figures,
            read_settings=read_settings,
        )
        agent.trace(traces)
        agent.produce(events)
        prepare_process()
        if self._signals:
            agent.drain()
        settled = agent.run()
        log.info("drained: nothing is in flight any more", extra=event(Event.DRAINED))
        # The last bundles may take minutes, and without heartbeats this node would soon count as failed.
        self._pulse = agent.pulse.handed_on(self._gateway)
        archive.close()
        self._leave(pipeline, settled, events)

    def _meanwhile(self, now: float) -> None:
        """While the node's loop does not run, because the node has not joined yet or is leaving."""
        self.figures.waits(now, self._gateway.cut_off_s)
        if self._pulse is not None:
            self._pulse.step(now)

    def signalled(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            # This loses nothing: whatever is not settled is in the journal.
            os._exit(EXIT_TERMINATED)
        if not self._joined:
            log.info("leaving; no coordinator has let it in yet", extra=event(Event.LEFT))
            os._exit(EXIT_INTERRUPTED)
        said = "finishing what is in flight, then leaving; a second signal ends at once"
        log.info("%s", said, extra=event(Event.DRAINING))
        if self._agent is not None:
            self._agent.drain()

    def give_up(self, broken: DrumlinError) -> None:
        """Report to a coordinator why this node cannot go on. In a local crawl the coordinator ends the crawl; in a
        fleet other nodes take over, and the coordinator's log has the reason."""
        if not self._joined and not self._options.parent_pid:
            # It never joined, so another node may have this name, and the report would be about that one.
            return
        failure = Failure(broken.message[:FAILURE_CHARS_MAX], broken.hint[:FAILURE_CHARS_MAX], broken.exit_code)
        with contextlib.suppress(DrumlinError):
            self._gateway.call(paths.FAILED.format(node_id=self._name), failure, Done, within_s=LEAVE_WAIT_S)
            if not self._options.parent_pid:
                self._say_goodbye()

    # Beginning

    def _register(self, *, recovering: bool) -> Registered:
        message = self._membership.registration(recovering=recovering)
        registered = self._gateway.call(paths.REGISTER, message, Registered, within_s=START_WAIT_S)
        self._access.granted(registered)
        self._joined = True
        identify(crawl=registered.crawl_id)
        return registered

    def _prepare(self, config: CrawlConfig, registered: Registered) -> tuple[Pipeline, BlackBox]:
        path = self._paths.blackbox(self._name)
        alone = not self._options.parent_pid
        if alone:
            report_killer(path, self._submit)
        blackbox = BlackBox(path, timed=alone)
        return make_pipeline(config, registered.seeds, registered.scope_seeds, _before_parse(blackbox)), blackbox

    def _recover_own(self, pipeline: Pipeline) -> None:
        """Finish what an earlier process of this name left. Coordinators accept all of it, since the leases belong to
        the same name."""
        recover(self._paths, self._name, pipeline, self._submit)

    def _recover_others(self, pipeline: Pipeline) -> None:
        """Finish what nodes left whose process is gone. Results that coordinators do not accept yet stay for later."""
        for other in dead_spools(self._paths, but=self._name):
            try:
                recovered = recover(self._paths, other, pipeline, self._submit)
            except (StorageError, OSError) as broken:
                # Such as a copy of a node's folder that somebody has made here. It must not keep this node from work.
                log.warning("what %s has left cannot be finished: %s", other, broken)
                continue
            if not recovered:
                continue
            for bundle in bundles_in(self._paths.spool(other)):
                adopt_bundle(bundle, self._paths.spool(self._name))
            if self._paths.events:
                take_over(self._paths.spool(other), self._paths.spool(self._name))
            if not self._access.token:
                # Without access control we may remove the dead node in its name, so its leases return at once.
                self._gateway.call(
                    paths.NODE.format(node_id=other), None, Done, method="DELETE", within_s=RECOVER_WAIT_S
                )

    def _submit(self, results: list[Result], bundle: str) -> Accepted:
        try:
            return self._send_results(results, bundle)
        except CoordinatorRefused:
            safe = [tellable(result) for result in results]
            if safe == results:
                raise
            accepted = self._send_results(safe, bundle)
            # For these results something else was sent: that they do not fit into a message. Their pages do not count.
            changed = {place for place, result in enumerate(results) if safe[place] is not result}
            accepted.rejected_at = sorted(changed.union(accepted.rejected_at))
            return accepted

    def _send_results(self, results: list[Result], bundle: str) -> Accepted:
        message = results_message(results, [], bundle)
        return self._gateway.call(
            paths.RESULTS.format(node_id=self._name), message, Accepted, within_s=RECOVER_WAIT_S, signed=True
        )

    def _client(self, fetcher: Fetcher) -> CoordinatorClient:
        return CoordinatorClient(
            fetcher,
            self._coordinators,
            chance=random.random,
            access=self._access,
            curl_options=self._curl_options,
            store_authority=os.environ.get("AWS_CA_BUNDLE") or default_ca_file(),
            rejoin=lambda: self._membership.registration(recovering=True),
        )

    def _archive(self, config: CrawlConfig, seeds: list[str]) -> Archive:
        # A crawl on one machine has a record with all its runs. In a fleet, a node knows only seeds and settings.
        record = CrawlRecord.read(self._paths.root) or CrawlRecord.of(seeds, config)
        robots = "obeyed (RFC 9309)"
        return Archive(
            self._paths,
            self._name,
            software=SOFTWARE,
            info={"http-header-user-agent": config.sent_user_agent, "robots": robots, **record.warcinfo()},
            now=time.time(),
            sync=self._options.sync,
        )

    def _uploads(self, client: CoordinatorClient) -> Uploads:
        spool = self._paths.spool(self._name)
        if self._options.store:
            # The same one to the end: its thread may be at work when the node's loop ends.
            self._to_bucket = self._to_bucket or BucketUploads(open_store(self._options.store, self._name), spool)
            return self._to_bucket
        return BundleUploads(self._name, client, spool)

    def _sender(self, crawl_id: str) -> Sender | None:
        events = self._options.events
        if events is None:
            return None
        spool = self._paths.spool(self._name)
        return Sender(spool, self._paths.tables, events.producer, crawl=crawl_id, bytes_max=events.bytes_max)

    # Leaving

    def _leave(self, pipeline: Pipeline, settled: bool, events: Sender | None) -> None:
        """Send what is left, and tell the coordinator that this node leaves. If the crawl has ended, finish what dead
        nodes left as well, since nobody else may do it."""
        if not settled:
            hint = "Start the node again, or another on the same store, to send them."
            spool = self._paths.spool(self._name)
            raise EngineError(f"No coordinator took the last results in time; they are kept in {spool}.", hint)
        if self._options.bundled:
            # Its own come first: there may be trouble with what others have left.
            self._send_bundles()
        if not self._signals:
            self._recover_others(pipeline)
        if self._options.bundled:
            self._send_bundles()
        if events is not None:
            self._send_events(events)
        kept = len(bundles_in(self._paths.spool(self._name) / REFUSED_FOLDER))
        if kept:
            folder = self._paths.spool(self._name) / REFUSED_FOLDER
            log.warning("%d bundles were refused; they are in %s", kept, folder, extra=event(Event.REFUSED))
        # If no coordinator hears it, they notice by the missing heartbeats.
        with contextlib.suppress(CoordinatorGone):
            self._say_goodbye()
        log.info("left", extra=event(Event.LEFT))

    def _say_goodbye(self) -> None:
        self._end_pulse()
        path = f"{paths.NODE.format(node_id=self._name)}?boot={self._membership.boot}"
        self._gateway.call(path, None, Done, method="DELETE", within_s=LEAVE_WAIT_S)

    def _end_pulse(self) -> None:
        """Send no more heartbeats, and wait a little for the last one: if it arrived after the node has left, the node
        would count as present again."""
        pulse, deadline = self._pulse, monotonic() + PROBE_TIMEOUT_S
        self._pulse = None
        if pulse is not None:
            self._gateway.wait_for(lambda: not pulse.beating or monotonic() > deadline)

    def _send_events(self, events: Sender) -> None:
        """Send the last events. If the broker is away they stay owed, and whoever starts next in this store sends
        them."""
        deadline = monotonic() + EVENTS_WAIT_S
        events.look_soon()

        def done() -> bool:
            events.step(monotonic())
            return events.drained or monotonic() > deadline

        self._gateway.wait_for(done)
        if not events.drained:
            left = len(owed_names(self._paths.spool(self._name)))
            sentence = "events of %d segments wait for the broker; start the same command again to send them"
            log.warning(sentence, left, extra=event(Event.BROKER_LOST))

    def _send_bundles(self) -> None:
        uploads = self._uploads(self._gateway)
        left, deadline = len(uploads.waiting()), monotonic() + UPLOAD_WAIT_S

        def done() -> bool:
            nonlocal left, deadline
            uploads.step(monotonic())
            before, left = left, len(uploads.waiting())
            if left < before and not self._signals:
                deadline = monotonic() + UPLOAD_WAIT_S
            if monotonic() > deadline:
                hint = "Start the node again to send them."
                spool = self._paths.spool(self._name)
                taker = self._options.store or "No coordinator"
                took = "did not take" if self._options.store else "took"
                raise EngineError(f"{taker} {took} the last bundles in time; they are kept in {spool}.", hint)
            return not left and not uploads.busy

        self._gateway.wait_for(done)


def prepare_process() -> None:
    """Tune the allocator and the garbage collector for parsing pages for a long time."""
    keep_freed_memory()
    collect_seldom(*GC_THRESHOLDS)


def node_settings(config: CrawlConfig, options: NodeOptions, name: str, config_version: int = 0) -> NodeSettings:
    return NodeSettings(
        node=name,
        contact=contact_settings(config),
        concurrency=options.concurrency,
        lease_s=config.lease_s,
        retries_max=config.retries_max,
        spool_bytes_max=options.spool_bytes_max,
        config_version=config_version,
        fills_parcels=not options.parent_pid,
    )


def told_config(fields: Mapping[str, object]) -> CrawlConfig:
    """The crawl's settings as a coordinator tells them. One of a newer version may have settings that this node does
    not know: it works without them, or a fleet could not be upgraded while it runs."""
    known = {name: value for name, value in fields.items() if name in CrawlConfig.__struct_fields__}
    return msgspec.convert(known, CrawlConfig)


def contact_settings(config: CrawlConfig) -> ContactSettings:
    return ContactSettings(
        agent=config.product_token,
        delay_s=config.delay_s,
        per_host=config.per_host,
        redirects_max=config.redirects_max,
        robots_ttl_s=config.robots_ttl_s,
        sitemaps=config.follows_sitemaps,
        cookies=config.cookies,
        sitemap_bytes_max=max(config.body_bytes_max, SITEMAP_BYTES_MAX) if config.sitemaps else 0,
        types=TypeLimits(parse_rules(config.types)),
        host_patience_s=config.host_patience_s,
    )


def make_pipeline(
    config: CrawlConfig,
    seeds: Sequence[str] = (),
    scope_seeds: Sequence[str] = (),
    before_parse: Callable[[str], None] = lambda url: None,
) -> Pipeline:
    """`scope_seeds` are seeds that joined the crawl's scope on the way."""
    make_scope = scope_maker(config, seeds)
    pipeline = Pipeline(Reading.of(config), make_scope, year=datetime.now(UTC).year, before_parse=before_parse)
    pipeline.widen_scope(list(scope_seeds), len(scope_seeds))
    return pipeline


def scope_maker(config: CrawlConfig, seeds: Sequence[str]) -> Callable[[list[str]], Scope]:
    """A function that makes the scope of the crawl from the seeds that joined it while it ran."""
    return lambda more: Scope(config.scope, [*seeds, *more], config.include, config.exclude)


def make_fetcher(config: CrawlConfig, concurrency: int) -> Fetcher:
    limits = FetchLimits(
        connect_timeout_s=config.connect_timeout_s,
        fetch_timeout_s=config.fetch_timeout_s,
        body_bytes_max=config.body_bytes_max,
        speed_min_bytes_s=config.speed_min_bytes_s,
        speed_window_s=int(config.speed_window_s),
        header_bytes_max=config.header_bytes_max,
    )
    guard = Guard(allow_private=config.allow_private)
    return Fetcher(
        limits,
        user_agent=config.sent_user_agent,
        guard=guard,
        accept_encoding=config.accept_encoding,
        connections_max=2 * concurrency + 16,
    )


def _plain_fetcher() -> Fetcher:
    """A fetcher for calls to coordinators before the node's loop begins, and after it has ended or failed."""
    limits = FetchLimits(5.0, 60.0, 1 << 30, 0, 60)
    return Fetcher(limits, user_agent=SOFTWARE, guard=Guard(allow_private=True))


def _before_parse(blackbox: BlackBox) -> Callable[[str], None]:
    poison = os.environ.get(ABORT_HOOK, "")
    if not poison:
        return blackbox.parsing

    def parsing(url: str) -> None:
        blackbox.parsing(url)
        if poison in url:
            # Tests use this in place of a native library that crashes on a page.
            os.abort()

    return parsing
