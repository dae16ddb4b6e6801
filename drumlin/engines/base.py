"""The contract that every engine keeps: the frontier's mechanical state, shard by shard.

An engine decides nothing. When a host may next be contacted, when a URL is tried again, how much of a budget is
left: the caller computes these and passes them in, together with `now`. What an engine guarantees:

1. A host has at most one live lease.
2. Every accepted URL is in exactly one `TaskState`.
3. A call either happens completely or not at all, and once it has returned it survives kill -9 (durable engines).
4. Settling twice changes nothing the second time.

Calls are coroutines, since an engine may be a network away; those of embedded engines never suspend. They take batches
and name one shard; a host and all of its URLs live in the shard `shard_of(host)`. The calls that end in `_all` name
several shards: each is treated as a call of its own would, and an engine on a network asks them all at once.
Everywhere a URL is passed with a host, the host is the URL's own (`drumlin.urls.host_of`), and a priority is within
`PRIORITY_MIN..PRIORITY_MAX`. Times are never negative.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

import xxhash

from drumlin.model import (
    Content,
    DeadLetter,
    Duplicate,
    HostStanding,
    HostState,
    HostSummary,
    Lease,
    NewURLs,
    Preview,
    Renewal,
    Settlement,
    ShardStats,
    TaskStory,
    Verdict,
    Visit,
)

SHARD_COUNT_DEFAULT = 1
SHARD_COUNT_MAX = 65_535
# How many leases, and how many scheduled tasks, one `expire` call ends at most, so that it never stalls the loop.
EXPIRE_LIMIT = 1_000
DEAD_LETTERS_LIMIT = 1_000


class Added(IntEnum):
    """What became of one URL offered to `Engine.add`."""

    ADDED = 0
    SEEN = 1
    CAPPED = 2


def shard_of(host: str, shard_count: int) -> int:
    """The shard that keeps `host`: the same in every process and every version."""
    return xxhash.xxh3_64_intdigest(host.encode()) % shard_count


class Contents(Protocol):
    """What each registrable domain is known to contain (`drumlin.dedupe`)."""

    async def known(self, items: Sequence[tuple[str, bytes]]) -> list[Duplicate | None]:
        """For each domain and digest, the first capture of exactly this content there, if any."""

    async def record(self, contents: Sequence[Content], overlap_min: float) -> list[Duplicate | None]:
        """For each content the earlier capture that it repeats, exactly or with a text that overlaps by so much; from
        now on it is known itself."""


class Engine(Protocol):
    """Where the shards of a frontier live."""

    shard_count: int
    shared: bool
    """Whether other processes may use the same frontier at the same time."""

    @property
    def contents(self) -> Contents:
        """The fingerprints of what was fetched, kept in the same storage as the frontier."""

    def shard_of(self, host: str) -> int:
        """`shard_of(host, self.shard_count)`."""

    # What is to be fetched

    async def add(
        self, shard: int, found: Sequence[NewURLs], now: float, *, host_urls_max: int | None = None
    ) -> list[Added]:
        """Queue the URLs that were never accepted before; one answer for each URL, in order.

        The seen-test is exact in practice (128-bit xxh3 of `drumlin.urls.identity`): of several spellings of a page
        the first is accepted, and is the one that tasks and letters have. `story` finds it by any of them, the other
        calls take it as it is kept. A new URL joins its host's queue, which is ordered by priority, highest first, then
        by arrival. `CAPPED` URLs, those of a host that already has `host_urls_max` accepted ones, are not remembered.
        A host that had nothing queued becomes ready at `now`, or at its remembered next contact when that is later.
        """

    async def lease(
        self,
        shard: int,
        node: str,
        request: str,
        now: float,
        *,
        until: float,
        hosts_max: int,
        urls_max: int,
        urls_per_host: int,
        horizon_s: float = 0.0,
        delay_default_s: float = 0.0,
        skip_hosts: Container[str] = (),
        only_hosts: Sequence[str] = (),
    ) -> list[Lease]:
        """Give `node` the hosts that are due, longest due first, each with the head of its queue.

        Eligible is a host without a live lease, with queued URLs, and with its next contact no later than
        `now + horizon_s`, in order of (next contact, host). `request` must be unique: the leases' tokens are
        `request.0`, `request.1`, … `not_before` is when the host may first be contacted. `delay_default_s` is
        how far its next contact moves when the lease is lost and the host has no delay of its own. With `only_hosts` no
        others are eligible.
        """

    async def visit(self, shard: int, visit: Visit, now: float) -> Lease | None:
        """Give a node a host to contact for something that is none of its queued URLs: a lease without tasks.

        None when somebody holds the host, or its next contact is later than `due_by`. A host that nothing was ever
        accepted of can be visited too; all that is known of it then is its pace.
        """

    async def extend(
        self, shard: int, host: str, token: str, now: float, *, until: float, urls_max: int
    ) -> Lease | None:
        """Move a live lease's deadline to `until` and give it up to `urls_max` further tasks.

        The returned lease holds only the further tasks. None, and nothing changed, when `token` is not that of
        the host's live lease or its deadline has passed.
        """

    async def settle(self, shard: int, settlements: Sequence[Settlement], now: float) -> list[list[Verdict]]:
        """Record what became of leased tasks; one verdict for each `Settled`, in order.

        In this order: a task settled last with this very `capture_id` is `REPEATED`. With the live token, a task
        of the lease is `SETTLED`. With a token no longer live, a task that nobody holds and that was never settled
        is `SETTLED` too: its page was fetched and stored, and fetching it again helps nobody. All else is `STALE`.
        Only `SETTLED` changes anything: the task becomes done, scheduled or dead, with one more attempt unless it was
        not `attempted`, and `counts` join the shard's counters.

        With the live token the host's next contact is raised to `next_contact`, `delay_s`, `note` and `in_backoff`
        replace the host's unless None, and `release` ends the lease: its unsettled tasks return to their place in the
        queue.
        A lease past its deadline stays live for this purpose until `expire` ends it.
        """

    async def preview(self, shard: int, settlements: Sequence[Settlement]) -> list[Preview]:
        """What `settle` would answer to these, each `Settled` judged as if it came alone. Changes nothing."""

    async def expire(self, shard: int, now: float, *, limit: int = EXPIRE_LIMIT) -> list[str]:
        """End the leases whose deadline has come and queue the scheduled tasks whose time has come.

        At most `limit` of each, earliest first. An expired lease's tasks return to their place in the queue, and
        the host's next contact is the latest of its old one, the deadline and `now`, plus its delay: the node may
        have contacted it until the end. Returns the hosts whose leases ended.
        """

    async def release_node(self, shard: int, node: str, now: float) -> int:
        """End all leases of a node known to be dead. Next contact: the later of the old one and `now`, plus delay."""

    async def strike(self, shard: int, url: str, now: float, *, limit: int, kind: str, error: str) -> bool:
        """Note that a queued or leased task was being worked on when its process died; True when it became dead.

        At `limit` crashes the task leaves its queue or lease and becomes a dead letter.
        """

    async def reprioritise(self, shard: int, changes: Sequence[tuple[str, int]]) -> int:
        """Give queued URLs another priority; others are left alone. Returns how many were changed."""

    # Several shards at once

    async def add_all(
        self, batches: Mapping[int, Sequence[NewURLs]], now: float, *, host_urls_max: int | None = None
    ) -> dict[int, list[Added]]:
        """`add` for each shard named."""

    async def extend_all(self, renewals: Sequence[Renewal], now: float, *, until: float) -> list[Lease | None]:
        """`extend` for each lease named, in order."""

    async def settle_all(
        self, batches: Mapping[int, Sequence[Settlement]], now: float
    ) -> dict[int, list[list[Verdict]]]:
        """`settle` for each shard named."""

    async def preview_all(self, batches: Mapping[int, Sequence[Settlement]]) -> dict[int, list[Preview]]:
        """`preview` for each shard named."""

    async def expire_all(self, now: float, *, limit: int = EXPIRE_LIMIT) -> list[str]:
        """`expire` in every shard."""

    async def release_nodes(self, nodes: Sequence[str], now: float) -> int:
        """`release_node` for each of these nodes in every shard."""

    async def stats_all(self, now: float) -> list[ShardStats]:
        """`stats` of every shard, in order."""

    # What went wrong for good

    async def dead_letters(
        self, shard: int, *, kind: str = "", host: str = "", limit: int = DEAD_LETTERS_LIMIT
    ) -> list[DeadLetter]:
        """Dead letters in order of their tasks' arrival; an empty `kind` or `host` stands for all."""

    async def revive(self, shard: int, urls: Sequence[str], now: float) -> int:
        """Queue dead URLs again, with no attempts or crashes held against them. Returns how many."""

    async def drop(self, shard: int, urls: Sequence[str]) -> int:
        """Count dead URLs as done: they are no longer dead letters and stay seen. Returns how many."""

    # What is known

    async def story(self, shard: int, url: str) -> TaskStory | None:
        """What is known of one URL; None when it was never accepted. A done URL has no task any more, and an engine
        that keeps everything in memory may have forgotten its capture id."""

    async def host_note(self, shard: int, host: str) -> bytes:
        """What earlier leases learnt about the host; empty when nothing."""

    async def host_state(self, shard: int, host: str) -> HostState | None:
        """The host's queue, pace and lease; None when nothing of it was ever accepted."""

    async def hosts(self, shard: int, standing: HostStanding, now: float, *, limit: int) -> list[HostState]:
        """Hosts that are ready, waiting for their next contact, or leased, those due first coming first; or those in
        trouble, by name."""

    async def set_delay(self, shard: int, host: str, delay_s: float | None) -> None:
        """Replace the least time between two contacts of the host; None leaves it to the crawl's default."""

    async def hurry(self, shard: int, now: float) -> int:
        """Let the hosts in back-off that nobody holds be contacted from `now` on; returns how many have to wait no
        longer."""

    async def stats(self, shard: int, now: float) -> ShardStats:
        """Totals, kept as they change. `hosts_ready` stops counting at a bound, the rest then being waiting."""

    async def count(self, shard: int, counts: dict[str, int]) -> None:
        """Add to the shard's counters."""

    async def top_hosts(self, shard: int, n: int) -> list[HostSummary]:
        """The hosts with the most pages (tasks done with a body), then most queued, then by name. Reads all hosts."""

    async def get_meta(self, key: str) -> bytes | None:
        """A value of the crawl's own, kept beside the frontier."""

    async def put_meta(self, key: str, value: bytes) -> None:
        """Set such a value."""

    async def put_meta_if_absent(self, key: str, value: bytes) -> bytes:
        """Set such a value unless there is one. The value that is there then: of several callers at once, all get the
        first one's."""

    # Small tables that all coordinators share

    async def put_entries(self, table: str, entries: Mapping[str, bytes]) -> None:
        """Set entries of a table, which need not exist."""

    async def get_entries(self, table: str) -> dict[str, bytes]:
        """All entries of a table, in order of their keys."""

    async def get_entry(self, table: str, key: str) -> bytes | None:
        """One entry of a table."""

    async def delete_entries(self, table: str, keys: Sequence[str]) -> None:
        """Remove entries of a table; those that are not there are no matter."""

    async def claim(self, name: str, holder: str, now: float, *, until: float) -> bool:
        """Whether nobody else holds `name` at `now`; `holder` then holds it until `until`. Claiming again renews."""

    async def keep_time(self, mine: float) -> float:
        """Raise the time that is kept here to `mine`, unless it is that late already, and return it; 0 stands for none.

        All coordinators tell theirs and so agree on one (`drumlin.coordinator.engine_time`). It need not survive what a
        call otherwise survives: a value that is a little too early does no harm.
        """

    # The engine itself

    async def check(self, within_s: float) -> None:
        """Write something small wherever shards live. When that cannot be done within so many seconds, or something is
        gone that was acknowledged, a `DrumlinError` says why, with a `code` for programs."""

    async def snapshot(self, path: str) -> None:
        """Write a copy that can be opened as an engine of its own to `path`, which must not exist."""

    async def sync(self) -> None:
        """Make everything acknowledged safe from power loss too."""

    async def close(self) -> None:
        """Give up all resources; the engine answers nothing afterwards. Closing twice is harmless."""
