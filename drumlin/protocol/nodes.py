"""How a node joins, says that it is alive, fails and leaves, and how everybody sees it.

Waits are sent as durations, never as clock times, so no two clocks need agree. A coordinator may forget all of this: a
node that nobody knows is told to register again.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from drumlin.protocol.limits import Count, LeaseId, MetadataText, NodeId, Seconds, ShortText
from drumlin.protocol.states import CrawlState, NodeStatus

THROUGH_COORDINATOR = "through a coordinator"
"""The value of `store` in the metadata of a node that sends its files as bundles."""
TO_BUCKET = "a bucket"
"""The same of a node that puts them into a store of objects itself; `bucket` has its address."""
SHARED = "shared"
"""The same of a node that writes to the directory that is the store."""


class Register(msgspec.Struct):
    """A node begins. With `recovering` set it will first send the results that its predecessor left unsent; the old
    leases last until it registers again without `recovering`. `instance` is a random name that is kept in the spool
    folder. A living process holds that folder's lock, so a node with the same id and instance can only be the successor
    of one that is gone. `boot` counts the processes that have used the folder: a late message of an earlier process
    changes nothing."""

    capacity: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    node_id: NodeId | None = None
    ip_address: Annotated[str, msgspec.Meta(max_length=100)] = ""
    metadata: Annotated[dict[MetadataText, MetadataText], msgspec.Meta(max_length=16)] = {}
    recovering: bool = False
    instance: Annotated[str, msgspec.Meta(max_length=64)] = ""
    boot: Count = 0

    def __repr__(self) -> str:
        """Without the instance: whoever knows it can take over the node's name."""
        recovering = ", recovering" if self.recovering else ""
        return f"<Register {self.node_id or 'unnamed'}: boot {self.boot}{recovering}>"


class Registered(msgspec.Struct):
    """What a node needs to know. `config` is the crawl's configuration; `seeds` and `scope_seeds` define its scope.
    `token` and `key` (to sign results with) are set where access is controlled. `keeps_results` says whether this
    coordinator stores pages for nodes that have no store of their own. `config_version` counts the changes of the
    configuration since the crawl was founded. `crawl_id` tells crawls apart in logs."""

    node_id: str
    status: str
    heartbeat_interval: float
    c2_endpoint: str
    config: dict[str, Any]
    config_hash: str
    seeds: list[str]
    scope_seeds: list[str]
    token: str | None = None
    key: str | None = None
    keeps_results: bool = False
    config_version: int = 0
    crawl_id: str = ""

    def __repr__(self) -> str:
        """Without the token and the key."""
        return f"<Registered {self.node_id} in crawl {self.crawl_id}: settings {self.config_version}>"


class Effort(msgspec.Struct):
    """What a node's time goes into, in seconds since it started, `time_s` ago. In `cpu_s` it computed or waited for a
    core, in `disk_s` it waited for the disk while storing, and in `held_s` it contacted no further host because too
    much waited to be read or settled. So many `requests` to sites have ended; `answer_s` is what passed until their
    answers began, of all together, and `body_s` what passed from there to their ends."""

    time_s: Seconds = 0.0
    cpu_s: Seconds = 0.0
    disk_s: Seconds = 0.0
    held_s: Seconds = 0.0
    requests: Annotated[float, msgspec.Meta(ge=0, le=1e15)] = 0
    answer_s: Seconds = 0.0
    body_s: Seconds = 0.0


class EventsBeat(msgspec.Struct):
    """A broker takes none of a node's events: so many bytes of tables wait, it has been away for `away_s`, and `full`
    says that no more may wait, so nothing is fetched. `error` is what the broker's client says."""

    waiting_bytes: Count = 0
    away_s: Seconds = 0.0
    full: bool = False
    error: ShortText = ""


class Heartbeat(msgspec.Struct):
    """`current_load` is how many requests are in flight, `hosts` how many hosts the node holds, `unstarted` how many of
    their URLs it has not begun. `leases` names some leases with such URLs, beginning with those that the node would
    reach last: the coordinator may take them back. `unanswered` is how many URLs the node has finished whose results no
    coordinator has answered yet, `lag_s` how long the oldest of them has waited. `config_version` is the version of the
    configuration that the node follows; a node that leaves it out is not told of changes. `effort` says what its time
    goes into. `events` is left out while nothing is wrong with its events."""

    status: Annotated[str, msgspec.Meta(max_length=40)]
    current_load: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    total_crawled: Count
    leases: Annotated[list[LeaseId], msgspec.Meta(max_length=256)] = []
    hosts: Count = 0
    unstarted: Count = 0
    total_bytes: Count = 0
    unanswered: Count = 0
    lag_s: Seconds = 0.0
    config_version: Count | None = None
    effort: Effort | None = None
    events: EventsBeat | None = None


class ChangedSettings(msgspec.Struct):
    """The crawl's configuration after its last change, and the seeds that define its scope."""

    config_version: int
    config: dict[str, Any]
    seeds: list[str]


class HeartbeatReply(msgspec.Struct):
    """`revoke` names leases whose URLs the node should give back if it has not begun them, because other nodes have
    nothing to do. `token` replaces the node's own, which expires soon. `settings` is set if the node follows an older
    version of the configuration."""

    status: str
    next_heartbeat: float
    config_hash: str
    revoke: list[str] = []
    state: CrawlState = CrawlState.RUNNING
    token: str | None = None
    settings: ChangedSettings | None = None


class Failure(msgspec.Struct):
    """A node cannot go on, for instance because no space is left: the sentence for the person and the exit code. The
    coordinator fills in `node_id`."""

    message: ShortText
    hint: ShortText
    exit_code: Annotated[int, msgspec.Meta(ge=0, le=255)]
    node_id: ShortText = ""


class Done(msgspec.Struct):
    status: str = "ok"


class NodeRecord(msgspec.Struct):
    """A node as all coordinators and people see it. Times are seconds since the epoch."""

    node_id: str
    ip_address: str
    last_seen: float
    status: NodeStatus
    capacity: float
    current_load: float
    total_crawled: int
    registered_at: float
    metadata: dict[str, str]
    leases: int = 0
    unstarted: int = 0
    total_bytes: int = 0
    pages_per_s: float = 0.0
    instance: str = ""
    boot: int = 0
    released: bool = False
    unanswered: int = 0
    lag_s: float = 0.0
    config_version: int | None = None
    last_beat: float = 0.0
    effort: Effort | None = None
    lately: Effort | None = None
    """The same of the last ten seconds or so: the older, the less it counts."""
    events: EventsBeat | None = None

    def __repr__(self) -> str:
        """Without the instance: whoever knows it can take over the node's name."""
        seen = f"seen at {self.last_seen:.3f}, boot {self.boot}"
        return f"<NodeRecord {self.node_id} {self.status}: {seen}, {self.leases} hosts, {self.total_crawled} pages>"
