"""Starting a node: register, recover what dead nodes left in the store, work, leave.

A node of a local crawl is a child of its coordinator and ends with it. A node of a fleet stands by itself: it goes on
through outages, drains on SIGTERM, and stops at once on a second one, which loses nothing.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime
from types import FrameType

import msgspec

from drumlin import __version__
from drumlin.clock import monotonic
from drumlin.config import CrawlConfig
from drumlin.config.quantities import format_size
from drumlin.errors import EXIT_INTERRUPTED, DrumlinError, EngineError
from drumlin.fetch import Fetcher, FetchLimits
from drumlin.fetch.guard import Guard
from drumlin.garbage import collect_seldom
from drumlin.lines import tell
from drumlin.node.agent import Agent, NodeSettings
from drumlin.node.archive import Archive
from drumlin.node.blackbox import BlackBox
from drumlin.node.bundles import BUNDLE_SUFFIX, REFUSED_FOLDER, BundleUploads
from drumlin.node.client import (
    PROBE_TIMEOUT_S,
    Access,
    CoordinatorClient,
    CoordinatorGone,
    CoordinatorRefused,
    Coordinators,
)
from drumlin.node.limits import allow_open_files, limit_memory
from drumlin.node.membership import Membership, NodeOptions, die_with_parent
from drumlin.node.outbox import results_message, tellable
from drumlin.node.pulse import Pulse
from drumlin.node.recovery import dead_spools, recover, report_killer
from drumlin.parse import SITEMAP_BYTES_MAX, keep_freed_memory
from drumlin.pipeline import Pipeline, Reading
from drumlin.protocol import Accepted, ChangedSettings, Done, Failure, Registered, Result
from drumlin.store.disk import replace, translated_disk_errors
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
FAILURE_CHARS_MAX = 500
EXIT_TERMINATED = 128 + signal.SIGTERM


def run_node(options: NodeOptions) -> None:
    """Be a node until the crawl needs none, or a signal ends it."""
    die_with_parent(options.parent_pid)
    limit_memory(options.memory_bytes_max)
    allow_open_files(options.concurrency)
    with Membership.enter(options) as membership, translated_disk_errors(options.out):
        node = Node(membership)
        _heed_signals(options.parent_pid, node)
        try:
            node.run()
        except MemoryError as cause:
            # The black box still says what was being parsed, if anything was; the next process reports it.
            message = f"This node used up its memory of {format_size(options.memory_bytes_max)}."
            raise DrumlinError(message, "Start it again; if it happens often raise --memory-max.") from cause
        except DrumlinError as broken:
            node.give_up(broken)
            raise


def _heed_signals(parent_pid: int, node: Node) -> None:
    """Ctrl-C, a closed terminal and a service manager reach all processes of a local crawl, and its parent drains the
    nodes. A node that stands by itself drains on the first signal and ends at once on the second."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN if parent_pid else node.signalled)


class Node:
    """One node, from its registration to its leaving."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._options = membership.options
        self._paths = membership.paths
        self._name = membership.name
        self._api = f"/api/v1/nodes/{self._name}"
        self._coordinators = Coordinators(membership.options.endpoints)
        self._access = Access(membership.options.token)
        options = membership.options
        self._curl_options = curl_options(options.authority, options.certificate, options.key)
        self._gateway = self._client(_plain_fetcher())
        self._agent: Agent | None = None
        self._pulse: Pulse | None = None
        self._joined = False
        self._signals = 0

    def run(self) -> None:
        # Leases are kept until what this name's last process left unsent has been sent.
        registered = self._register(recovering=True)
        config = msgspec.convert(registered.config, CrawlConfig)
        pipeline, blackbox = self._prepare(config, registered)
        self._recover_own(pipeline)
        self._recover_others(pipeline)
        self._register(recovering=False)
        self._say(f"joined {self._options.endpoints[0]}, stores in {self._options.out}.")
        archive = self._archive(config)
        fetcher = make_fetcher(config, self._options.concurrency)
        client = self._client(fetcher)
        uploads = self._uploads(client)
        settings = node_settings(config, self._options, self._name, registered.config_version)

        def read_settings(changed: ChangedSettings) -> NodeSettings:
            later = msgspec.convert(changed.config, CrawlConfig)
            pipeline.follow_scope(scope_maker(later, changed.seeds))
            return node_settings(later, self._options, self._name, changed.config_version)

        self._agent = agent = Agent(
            settings, fetcher, client, pipeline, archive, blackbox, uploads, read_settings=read_settings
        )
        prepare_process()
        if self._signals:
            agent.drain()
        settled = agent.run()
        # Its last bundles may take minutes, and a node that says nothing for seconds counts as failed.
        self._pulse = agent.pulse.handed_on(self._gateway)
        self._gateway.meanwhile = self._pulse.step
        archive.close()
        self._leave(pipeline, settled)

    def signalled(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        if self._signals > 1:
            # Whatever is not settled is in the journal.
            os._exit(EXIT_TERMINATED)
        if not self._joined:
            self._say("leaving; no coordinator has let it in yet.")
            os._exit(EXIT_INTERRUPTED)
        self._say("finishing what is in flight, then leaving; a second signal ends at once.")
        if self._agent is not None:
            self._agent.drain()

    def give_up(self, broken: DrumlinError) -> None:
        """Something cannot go on. A local crawl's coordinator ends the crawl; in a fleet others take over, and the
        coordinator's log says why they had to."""
        if not self._joined and not self._options.parent_pid:
            # Whoever has the name, it is not this node.
            return
        failure = Failure(broken.message[:FAILURE_CHARS_MAX], broken.hint[:FAILURE_CHARS_MAX], broken.exit_code)
        with contextlib.suppress(DrumlinError):
            self._gateway.call(f"{self._api}/failed", failure, Done, within_s=LEAVE_WAIT_S)
            if not self._options.parent_pid:
                self._say_goodbye()

    # Beginning

    def _register(self, *, recovering: bool) -> Registered:
        message = self._membership.registration(recovering=recovering)
        registered = self._gateway.call("/api/v1/nodes/register", message, Registered, within_s=START_WAIT_S)
        self._access.granted(registered)
        self._joined = True
        return registered

    def _prepare(self, config: CrawlConfig, registered: Registered) -> tuple[Pipeline, BlackBox]:
        path = self._paths.blackbox(self._name)
        alone = not self._options.parent_pid
        if alone:
            report_killer(path, self._submit)
        blackbox = BlackBox(path, timed=alone)
        return make_pipeline(config, registered, _before_parse(blackbox)), blackbox

    def _recover_own(self, pipeline: Pipeline) -> None:
        """Everything is taken: the leases are our own name's."""
        recover(self._paths, self._name, pipeline, self._submit)

    def _recover_others(self, pipeline: Pipeline) -> None:
        """Finish the spools of nodes whose process is gone. What the coordinator does not take yet stays for later."""
        for other in dead_spools(self._paths, but=self._name):
            if not recover(self._paths, other, pipeline, self._submit):
                continue
            for bundle in self._paths.spool(other).glob("*" + BUNDLE_SUFFIX):
                replace(bundle, self._paths.spool(self._name) / bundle.name)
            if not self._access.token:
                # Where nobody checks who we are, the dead node's leases can return at once.
                self._gateway.call(f"/api/v1/nodes/{other}", None, Done, method="DELETE", within_s=RECOVER_WAIT_S)

    def _submit(self, results: list[Result], bundle: str) -> Accepted:
        try:
            return self._send_results(results, bundle)
        except CoordinatorRefused:
            safe = [tellable(result) for result in results]
            if safe == results:
                raise
            accepted = self._send_results(safe, bundle)
            # What counted of these is that they could not be told; their pages did not.
            changed = {place for place, result in enumerate(results) if safe[place] is not result}
            accepted.rejected_at = sorted(changed.union(accepted.rejected_at))
            return accepted

    def _send_results(self, results: list[Result], bundle: str) -> Accepted:
        message = results_message(results, [], bundle)
        return self._gateway.call(f"{self._api}/results", message, Accepted, within_s=RECOVER_WAIT_S, signed=True)

    def _client(self, fetcher: Fetcher) -> CoordinatorClient:
        return CoordinatorClient(
            fetcher,
            self._coordinators,
            chance=random.random,
            access=self._access,
            curl_options=self._curl_options,
            rejoin=lambda: self._membership.registration(recovering=True),
        )

    def _archive(self, config: CrawlConfig) -> Archive:
        return Archive(
            self._paths,
            self._name,
            software=SOFTWARE,
            info={"http-header-user-agent": config.user_agent, "robots": "obeyed (RFC 9309)"},
            now=time.time(),
            sync=self._options.sync,
        )

    def _uploads(self, client: CoordinatorClient) -> BundleUploads | None:
        if not self._options.bundled:
            return None
        return BundleUploads(self._name, client, self._paths.spool(self._name))

    # Leaving

    def _leave(self, pipeline: Pipeline, settled: bool) -> None:
        """Send what is left, and say good-bye. A crawl that has ended needs the spools of the dead as well."""
        if not settled:
            hint = "Start the node again, or another on the same store, to send them."
            raise EngineError(f"Results wait in {self._paths.spool(self._name)}, because of no answer in time.", hint)
        if not self._signals:
            self._recover_others(pipeline)
        if self._options.bundled:
            self._send_bundles()
        kept = len(list((self._paths.spool(self._name) / REFUSED_FOLDER).glob("*" + BUNDLE_SUFFIX)))
        if kept:
            self._say(f"{kept} bundles were refused; they are in {self._paths.spool(self._name) / REFUSED_FOLDER}.")
        # Unheard, it is noticed all the same, if later.
        with contextlib.suppress(CoordinatorGone):
            self._say_goodbye()
        self._say("left.")

    def _say_goodbye(self) -> None:
        self._end_pulse()
        path = f"{self._api}?boot={self._membership.boot}"
        self._gateway.call(path, None, Done, method="DELETE", within_s=LEAVE_WAIT_S)

    def _end_pulse(self) -> None:
        """Send no further heartbeat, and wait a little for the last: after a good-bye it would bring the node back."""
        pulse, deadline = self._pulse, monotonic() + PROBE_TIMEOUT_S
        self._gateway.meanwhile = lambda now: None
        if pulse is not None:
            self._gateway.wait_for(lambda: not pulse.beating or monotonic() > deadline)

    def _send_bundles(self) -> None:
        uploads = BundleUploads(self._name, self._gateway, self._paths.spool(self._name))
        deadline = monotonic() + UPLOAD_WAIT_S

        def done() -> bool:
            uploads.step(monotonic())
            if monotonic() > deadline:
                hint = "Start the node again to send them."
                raise EngineError(f"Bundles wait in {self._paths.spool(self._name)}: none was taken in time.", hint)
            return not uploads.waiting()

        self._gateway.wait_for(done)

    def _say(self, sentence: str) -> None:
        if not self._options.parent_pid:
            tell(f"drumlin node {self._name}: {sentence}")


def prepare_process() -> None:
    """Tune the allocator and the garbage collector for parsing pages all day."""
    keep_freed_memory()
    collect_seldom(*GC_THRESHOLDS)


def node_settings(config: CrawlConfig, options: NodeOptions, name: str, config_version: int = 0) -> NodeSettings:
    return NodeSettings(
        node=name,
        agent=config.product_token,
        delay_s=config.delay_s,
        per_host=config.per_host,
        concurrency=options.concurrency,
        redirects_max=config.redirects_max,
        robots_ttl_s=config.robots_ttl_s,
        # What a sitemap lists is one link away from it, and in a crawl of single pages it is out of scope.
        sitemaps=config.sitemaps and config.depth != 0 and config.scope != "page",
        lease_s=config.lease_s,
        retries_max=config.retries_max,
        cookies=config.cookies,
        sitemap_bytes_max=max(config.body_bytes_max, SITEMAP_BYTES_MAX) if config.sitemaps else 0,
        host_patience_s=config.host_patience_s,
        spool_bytes_max=options.spool_bytes_max,
        config_version=config_version,
    )


def make_pipeline(config: CrawlConfig, registered: Registered, before_parse: Callable[[str], None]) -> Pipeline:
    reading = Reading(
        agent=config.product_token,
        body_decoded_bytes_max=config.body_decoded_bytes_max,
        assets=config.assets,
        sitemaps=config.sitemaps,
        near_duplicates=config.near_duplicates,
        depth_max=config.depth,
    )
    make_scope = scope_maker(config, registered.seeds)
    pipeline = Pipeline(reading, make_scope, year=datetime.now(UTC).year, before_parse=before_parse)
    pipeline.widen_scope(registered.scope_seeds, len(registered.scope_seeds))
    return pipeline


def scope_maker(config: CrawlConfig, seeds: list[str]) -> Callable[[list[str]], Scope]:
    """Makes the scope of the crawl from the seeds that join it on the way."""
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
        user_agent=config.user_agent,
        guard=guard,
        accept_encoding=config.accept_encoding,
        connections_max=2 * concurrency + 16,
    )


def _plain_fetcher() -> Fetcher:
    """A loop for calls outside the crawl: before it begins, and after it has ended or broken."""
    limits = FetchLimits(5.0, 60.0, 1 << 30, 0, 60)
    return Fetcher(limits, user_agent=SOFTWARE, guard=Guard(allow_private=True))


def _before_parse(blackbox: BlackBox) -> Callable[[str], None]:
    poison = os.environ.get(ABORT_HOOK, "")
    if not poison:
        return blackbox.parsing

    def parsing(url: str) -> None:
        blackbox.parsing(url)
        if poison in url:
            # Stands in for a native library that crashes on a page, for tests.
            os.abort()

    return parsing
