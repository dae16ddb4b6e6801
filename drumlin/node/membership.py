"""Who a node is: its options, its name and the spool folder that the name locks, and how it registers."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from drumlin import __version__
from drumlin.config.processes import ListenAddress
from drumlin.disk import PRIVATE, storage_error, write_whole
from drumlin.errors import BusyError, ConfigError
from drumlin.events.options import EventsOptions
from drumlin.logs import Event, LogSettings, event
from drumlin.node.keeping.archive import CrawlPaths
from drumlin.node.keeping.bucket_uploads import BucketUploads
from drumlin.node.keeping.bundles import SPOOL_BYTES_MAX
from drumlin.protocol import NODE_ID_PATTERN, SHARED, THROUGH_COORDINATOR, TO_BUCKET, Register
from drumlin.store.names import machine_name
from drumlin.store.opening import open_store
from drumlin.store.spools import SpoolLock

PR_SET_PDEATHSIG = 1
SPOOL_WAIT_S = 60.0
NAMES_TRIED_MAX = 1_000
HOSTNAME_CHARS_MAX = 40

log = logging.getLogger("drumlin.node")


class NodeOptions(msgspec.Struct, frozen=True):
    """The options of a node process. `endpoint` has one or more coordinators, separated by commas. `out` is the store
    or, with `bundled`, a folder of this machine alone. If `node` is empty, the node chooses its name."""

    node: str
    endpoint: str
    out: Path
    concurrency: int
    sync: bool
    parent_pid: int = 0
    bundled: bool = False
    store: str = ""
    """With `bundled`: the address of a store in a bucket to which this node has credentials. Without one, bundles go
    through a coordinator."""
    token: str = ""
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    spool_bytes_max: int = SPOOL_BYTES_MAX
    memory_bytes_max: int = 0
    log: LogSettings = LogSettings()
    metrics: ListenAddress | None = None
    traces: bool = False
    """Whether to tell of URLs that a coordinator traces."""
    events: EventsOptions | None = None
    """Where to produce events of what this node stores; a node without a store has none."""

    @property
    def paths(self) -> CrawlPaths:
        return CrawlPaths(self.out, self.bundled, packed=not self.store, events=self.events is not None)

    def __repr__(self) -> str:
        """Without the token, which may be everybody's who brings nodes."""
        return f"<NodeOptions {self.node or 'unnamed'} of {self.endpoint}, {self.out}>"

    @property
    def endpoints(self) -> list[str]:
        return [endpoint.strip() for endpoint in self.endpoint.split(",") if endpoint.strip()]


class Membership:
    """A name in the crawl, held by the lock on its spool folder."""

    def __init__(self, options: NodeOptions, name: str) -> None:
        self.options = options
        self.name = name
        self.paths = options.paths
        self._instance, self.boot = self._begin()

    @classmethod
    @contextlib.contextmanager
    def enter(cls, options: NodeOptions) -> Iterator[Membership]:
        """Hold a name for as long as the context lasts."""
        paths = options.paths
        try:
            for folder in (paths.warc, paths.tables, paths.spools):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as cause:
            raise storage_error(Path(cause.filename or options.out), cause) from cause
        name, lock = _take_name(paths, options.node)
        try:
            if options.store:
                BucketUploads(open_store(options.store, name), paths.spool(name)).make_room()
            yield cls(options, name)
        finally:
            lock.free()

    def registration(self, *, recovering: bool) -> Register:
        """The message by which this node registers, the first time or again. Its capacity is 0, so it is measured."""
        metadata = {"pid": str(os.getpid()), "os": sys.platform, "version": __version__, "host": socket.gethostname()}
        sent = TO_BUCKET if self.options.store else THROUGH_COORDINATOR
        metadata["store"] = sent if self.options.bundled else SHARED
        if self.options.store:
            metadata["bucket"] = self.options.store
        return Register(
            0.0, self.name, metadata=metadata, recovering=recovering, instance=self._instance, boot=self.boot
        )

    def _begin(self) -> tuple[str, int]:
        """The instance, a secret that is made once for each spool folder, and the boot, the number of processes that
        have held the folder. A process that knows both must be the successor of all that held it before, because the
        folder's lock admits one at a time: so coordinators let it take over the name at once."""
        path = self.paths.spool(self.name) / "instance"
        known, _, boots = path.read_text().partition(" ") if path.exists() else ("", "", "")
        instance, boot = known or secrets.token_hex(16), int(boots or 0) + 1
        # The file is private: whoever knows the secret can take over this node's name.
        write_whole(path, f"{instance} {boot}".encode(), mode=PRIVATE)
        return instance, boot


def _take_name(paths: CrawlPaths, wanted: str) -> tuple[str, SpoolLock]:
    """The name that was asked for, or the first free one of this machine. So a node that is started again gets the name
    it had, and is its own successor."""
    if wanted:
        if re.match(NODE_ID_PATTERN, wanted) is None:
            hint = "Use up to 64 letters, digits, dots, hyphens and underscores, the first a letter or digit."
            raise ConfigError(f"{wanted!r} cannot be a node's name.", hint)
        lock = SpoolLock.take(paths.spool(wanted)) or _wait_for_name(paths, wanted)
        if lock is None:
            raise BusyError(f"Another process is node {wanted} of {paths.root}.", "Stop it or choose another name.")
        return wanted, lock
    machine = machine_name(HOSTNAME_CHARS_MAX)
    for number in range(1, NAMES_TRIED_MAX + 1):
        lock = SpoolLock.take(paths.spool(f"{machine}-{number}"))
        if lock is not None:
            return f"{machine}-{number}", lock
    raise BusyError(f"{NAMES_TRIED_MAX} nodes of this machine are at work in {paths.root}.", "Give this one a --name.")


def _wait_for_name(paths: CrawlPaths, wanted: str) -> SpoolLock | None:
    """Wait for a name that is taken: a neighbour may just be finishing what an earlier process of this name left."""
    sentence = "waiting to join, for up to %.0f s: another process is node %s of %s, or finishes its work"
    log.warning(sentence, SPOOL_WAIT_S, wanted, paths.root, extra=event(Event.REFUSED, node=wanted))
    return SpoolLock.take(paths.spool(wanted), wait_s=SPOOL_WAIT_S)


def die_with_parent(parent_pid: int) -> None:
    """Let the kernel kill this process when its parent dies, so no node of an earlier run works beside a resumed
    crawl."""
    if not parent_pid or not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        raise SystemExit(1)
