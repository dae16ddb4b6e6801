"""Starting a node: recover what dead nodes left in the crawl directory, register, work, leave."""

from __future__ import annotations

import ctypes
import gc
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from drumlin import __version__
from drumlin.config import CrawlConfig
from drumlin.errors import BusyError, DrumlinError
from drumlin.fetch import Fetcher, FetchLimits
from drumlin.fetch.guard import Guard
from drumlin.node.agent import Agent, NodeSettings
from drumlin.node.archive import Archive, CrawlPaths, SpoolLock, recover
from drumlin.node.blackbox import BlackBox
from drumlin.node.client import CoordinatorClient
from drumlin.parse import keep_freed_memory
from drumlin.pipeline import Pipeline, Reading
from drumlin.protocol import Accepted, Done, Failure, Register, Registered, Result, Results
from drumlin.store.disk import translated_disk_errors, write_whole
from drumlin.urls import Scope

SOFTWARE = f"drumlin/{__version__}"
ABORT_HOOK = "DRUMLIN_TEST_ABORT_ON"
GC_THRESHOLDS = (200_000, 10, 100)
PR_SET_PDEATHSIG = 1
SPOOL_WAIT_S = 60.0


class NodeOptions(msgspec.Struct, frozen=True):
    """What a node process is told on its command line."""

    node: str
    endpoint: str
    out: Path
    concurrency: int
    sync: bool
    parent_pid: int = 0


def run_node(options: NodeOptions) -> None:
    """Be a node until the crawl needs none. Failures to store are told to the coordinator before they are raised."""
    die_with_parent(options.parent_pid)
    _leave_signals_to_parent(options.parent_pid)
    paths = CrawlPaths(options.out)
    # A neighbour may just be finishing what an earlier process of this name left behind.
    lock = SpoolLock.take(paths.spool(options.node), wait_s=SPOOL_WAIT_S)
    if lock is None:
        raise BusyError(f"Another process is node {options.node} of {options.out}.", "Stop it or choose another name.")
    gateway = CoordinatorClient(_plain_fetcher(), options.endpoint)
    try:
        with translated_disk_errors(options.out):
            _work(options, paths, gateway)
    except DrumlinError as broken:
        failure = Failure(broken.message, broken.hint, broken.exit_code)
        gateway.call(f"/api/v1/nodes/{options.node}/failed", failure, Done)
        raise
    finally:
        lock.free()


def _leave_signals_to_parent(parent_pid: int) -> None:
    """Ctrl-C, a closed terminal and a service manager reach all processes of a crawl; its parent drains the nodes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if parent_pid:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _work(options: NodeOptions, paths: CrawlPaths, gateway: CoordinatorClient) -> None:
    api = f"/api/v1/nodes/{options.node}"
    # Leases are kept until what this name's last process left unsent has been sent.
    registered = register(gateway, options, paths, recovering=True)
    config = msgspec.convert(registered.config, CrawlConfig)
    blackbox = BlackBox(paths.blackbox(options.node))
    pipeline = make_pipeline(config, registered, _before_parse(blackbox))
    recover_spools(paths, options.node, pipeline, gateway)
    register(gateway, options, paths)
    fetcher = make_fetcher(config, options.concurrency)
    archive = Archive(
        options.out,
        options.node,
        software=SOFTWARE,
        info={"http-header-user-agent": config.user_agent, "robots": "obeyed (RFC 9309)"},
        now=time.time(),
        sync=options.sync,
    )
    client = CoordinatorClient(fetcher, options.endpoint)
    prepare_process()
    Agent(node_settings(config, options), fetcher, client, pipeline, archive, blackbox).run()
    archive.close()
    gateway.call(api, None, Done, method="DELETE")


def register(
    gateway: CoordinatorClient, options: NodeOptions, paths: CrawlPaths, *, recovering: bool = False
) -> Registered:
    message = Register(
        float(options.concurrency),
        options.node,
        metadata={"pid": str(os.getpid()), "os": sys.platform, "version": __version__},
        recovering=recovering,
        instance=instance_of(paths.spool(options.node)),
    )
    return gateway.call("/api/v1/nodes/register", message, Registered)


def instance_of(spool: Path) -> str:
    """A secret that is made once per spool folder: who knows it can only be the successor of who made it."""
    path = spool / "instance"
    if not path.exists():
        write_whole(path, secrets.token_hex(16).encode())
    return path.read_text()


def prepare_process() -> None:
    """Tune the allocator and the garbage collector for parsing pages all day: nearly nothing here forms cycles."""
    keep_freed_memory()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def node_settings(config: CrawlConfig, options: NodeOptions) -> NodeSettings:
    return NodeSettings(
        node=options.node,
        agent=config.product_token,
        delay_s=config.delay_s,
        per_host=config.per_host,
        concurrency=options.concurrency,
        redirects_max=config.redirects_max,
        robots_ttl_s=config.robots_ttl_s,
        # What a sitemap lists is one link away from it.
        sitemaps=config.sitemaps and config.depth != 0,
    )


def make_pipeline(config: CrawlConfig, setup: Registered, before_parse: Callable[[str], None]) -> Pipeline:
    reading = Reading(
        agent=config.product_token,
        body_decoded_bytes_max=config.body_decoded_bytes_max,
        assets=config.assets,
        sitemaps=config.sitemaps,
        near_duplicates=config.near_duplicates,
        depth_max=config.depth,
    )

    def make_scope(more: list[str]) -> Scope:
        return Scope(config.scope, [*setup.seeds, *more], config.include, config.exclude)

    pipeline = Pipeline(reading, make_scope, year=datetime.now(UTC).year, before_parse=before_parse)
    pipeline.widen_scope(setup.scope_seeds, len(setup.scope_seeds))
    return pipeline


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
    """A loop for calls outside the crawl: before it begins, and to report a failure after it broke."""
    limits = FetchLimits(5.0, 60.0, 1 << 30, 0, 60)
    return Fetcher(limits, user_agent=SOFTWARE, guard=Guard(allow_private=True))


def recover_spools(paths: CrawlPaths, node: str, pipeline: Pipeline, gateway: CoordinatorClient) -> None:
    """Finish this node's own spool, and those of other nodes whose process is gone."""

    def submit(results: list[Result]) -> Accepted:
        return gateway.call(f"/api/v1/nodes/{node}/results", Results(results, []), Accepted)

    recover(paths, node, pipeline, submit)
    for folder in sorted(paths.spools.iterdir()):
        lock = SpoolLock.take(folder) if folder.name != node and folder.is_dir() else None
        if lock is None:
            continue
        recover(paths, folder.name, pipeline, submit)
        gateway.call(f"/api/v1/nodes/{folder.name}", None, Done, method="DELETE")
        lock.free()


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


def die_with_parent(parent_pid: int) -> None:
    """Have the kernel kill this process when its parent dies, so that a resumed crawl finds no survivor at work."""
    if not parent_pid or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        raise SystemExit(1)
