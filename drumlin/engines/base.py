"""The contract that every engine keeps: the frontier's mechanical state, shard by shard.

An engine decides nothing. The caller computes when a host may next be contacted, when a URL is tried again and how
much of a budget is left, and passes these in together with `now`. An engine guarantees:

1. A host has at most one live lease.
2. Every accepted URL is in exactly one `TaskState`.
3. In each shard a call either happens completely or not at all, and once it has returned it survives kill -9 (durable
   engines).
4. Settling twice changes nothing the second time.

Calls are coroutines, since an engine may be a network away; those of embedded engines never suspend. A host and all of
its URLs live in the shard `shard_of(host)`. The calls that end in `_all` concern several shards or all of them, and an
engine on a network asks them all at once; other calls name one shard. Wherever a URL is passed with a host, the host is
the URL's own (`drumlin.urls.host_of`), and a priority is within `PRIORITY_MIN..PRIORITY_MAX`. Times are never negative.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from enum import IntEnum
from typing import Protocol

import xxhash

from drumlin.engines.kept import Kept, KeptTask, Section
from drumlin.model import (
    Content,
    DeadGroup,
    DeadLetter,
    Duplicate,
    FailureKind,
    GroupPlace,
    HostStanding,
    HostState,
    HostSummary,
    Lease,
    LetterPlace,
    NewURLs,
    Preview,
    RemovedURLs,
    Renewal,
    Settlement,
    ShardStats,
    TaskStory,
    Verdict,
    Visit,
)

REFUSED = b"-"
"""Stands for the last attempt at a task of which a result was refused because another lease held it; see `settle_all`.
No real attempt has this id."""
SHARD_COUNT_DEFAULT = 1
SHARD_COUNT_MAX = 65_535
# `expire_all` ends at most so many leases and queues at most so many scheduled tasks of each shard, to keep it short.
EXPIRE_LIMIT = 1_000
DEAD_LETTERS_LIMIT = 1_000


class Added(IntEnum):
    """What became of one URL offered to `Engine.add_all`."""

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
        """For each content, the earlier capture that it repeats, if any: one with the same bytes, or one whose text
        overlaps by at least `overlap_min`. From now on the content itself is known too."""

    async def adopt(self, contents: Sequence[Content]) -> None:
        """Add sketches to contents that are known without one, because an earlier version recorded them; from now on
        they are found as near-duplicates too. Unknown contents are ignored, and a second call changes nothing."""


class Engine(Protocol):
    """Where the shards of a frontier live."""

    shard_count: int
    shared: bool
    """Whether other processes may use the same frontier at the same time."""
    ids_of_hosts: bool
    """Whether two hosts of a shard may have tasks with the same id, as after an import."""

    @property
    def mark_bits(self) -> int:
        """How many bits tell a URL that is done from others (`drumlin.engines.kept`)."""

    @property
    def contents(self) -> Contents:
        """The fingerprints of what was fetched, kept in the same storage as the frontier."""

    def shard_of(self, host: str) -> int:
        """`shard_of(host, self.shard_count)`."""

    # What is to be fetched

    async def add_all(
        self, batches: Mapping[int, Sequence[NewURLs]], now: float, *, host_urls_max: int | None = None
    ) -> dict[int, list[Added]]:
        """Queue the URLs that were never accepted before; one answer for each URL of a shard, in order.

        Whether a URL was seen is decided by its `drumlin.urls.identity` (a 128-bit hash of it, so exact in practice).
        Of several spellings of a page the first is accepted, and tasks and dead letters carry that one. `story` finds a
        page by any spelling; all other calls need the accepted one. A new URL joins its host's queue, which is ordered
        by priority, highest first, then by arrival. `CAPPED` URLs, those of a host that already has `host_urls_max`
        accepted ones, are not remembered. A host that had nothing queued becomes ready at `now`, or at its next contact
        if that is later.
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

        A host is eligible when it has no live lease, has queued URLs, and its next contact is no later than
        `now + horizon_s`; eligible hosts are taken in order of (next contact, host). `request` must be unique: the
        leases' ids are `request.0`, `request.1`, … A lease's `not_before` is when the host may first be contacted.
        If the lease is lost, the host's next contact moves by at least `delay_default_s`. If `only_hosts` is not empty,
        no other host is eligible.
        """

    async def visit(self, shard: int, visit: Visit, now: float) -> Lease | None:
        """Lease a host without tasks, so a node may ask it for something that is not queued (a redirected robots.txt).

        None when another lease holds the host, or when its next contact is later than `due_by`. A host without a single
        accepted URL can be visited too; the engine then keeps only its pace and what settlements say of it.
        """

    async def forget(self, shard: int, hosts: Sequence[str], now: float) -> list[str]:
        """Forget the hosts that were only ever visited: no URL of theirs was accepted, no lease holds them, and their
        next contact has come. Returns the visited hosts that cannot be forgotten yet, because one of the last two
        conditions does not hold; ask again for those.
        """

    async def extend_all(
        self, renewals: Sequence[Renewal], now: float, *, until: float, delay_default_s: float = 0.0
    ) -> list[Lease | None]:
        """For each live lease named, move its deadline to `until`, give it up to `urls_max` further tasks, and raise
        its default delay to `delay_default_s`, since the crawl's delay may have become longer.

        A returned lease holds only the further tasks. It is None, and nothing was changed, when the id is not that
        of the host's live lease, or when that lease's deadline has passed.
        """

    async def settle_all(
        self, batches: Mapping[int, Sequence[Settlement]], now: float
    ) -> dict[int, list[list[Verdict]]]:
        """Record what became of leased tasks; one verdict for each `Settled`, in order. The first rule that fits holds:

        1. A task whose last settlement had the same `attempt_id` is `REPEATED`.
        2. With the id of the live lease, a task of that lease is `SETTLED`.
        3. With the id of a lease that is no longer live, a task that no lease holds and that was never settled is
           `SETTLED` too: its page was fetched and stored, and fetching it again would help nobody.
        4. Everything else is `STALE`, and stays so: a node throws away what was refused, so it must not count when the
           same message comes again. Therefore a task that was never settled, and that another lease holds when a result
           is refused, is marked with `REFUSED` as its attempt; then rule 3 no longer fits.

        What is to be `refused` is never settled: where rule 2 or 3 fits it is `OPEN`, and nothing changes.

        Only `SETTLED` changes the task otherwise: it becomes done, scheduled or dead, gets one more attempt if it was
        `attempted`, and its `counts` are added to the shard's counters.

        With the id of the live lease, the host's next contact is raised to `next_contact`; `delay_s`, `note`,
        `in_backoff` and `slow_s` replace the host's values unless they are None; and `release` ends the lease, which
        returns its unsettled tasks to their places in the queue. A lease past its deadline counts as live here until
        `expire_all` ends it.
        """

    async def preview_all(self, batches: Mapping[int, Sequence[Settlement]]) -> dict[int, list[Preview]]:
        """The verdicts that `settle_all` would give, each `Settled` judged as if it came alone. Changes nothing."""

    async def expire_all(self, now: float, *, limit: int = EXPIRE_LIMIT) -> list[str]:
        """End the leases whose deadline has come and queue the scheduled tasks whose time has come.

        At most `limit` of each in every shard, earliest first. An expired lease's tasks return to their places in the
        queue. The host's next contact becomes the latest of its old one, the deadline and `now`, plus the longest of
        the lease's default delay, the host's own delay and its `slow_s`, because the node may have contacted the host
        until then. Returns the hosts whose leases ended.
        """

    async def release_nodes(self, nodes: Sequence[str], now: float) -> int:
        """End all leases of nodes known to be dead. Next contact: the later of the old one and `now`, plus a delay as
        in `expire_all`. Returns how many leases ended."""

    async def strike(
        self, shard: int, url: str, now: float, *, limit: int, kind: FailureKind, error: str, counter: str = ""
    ) -> bool:
        """Count a crash against a queued or leased task, because a process died while it worked on it.

        At `limit` crashes the task leaves its queue or lease and becomes a dead letter, and `counter`, if one is named,
        becomes one more in the same step. Returns whether it did.
        """

    async def reprioritise(self, shard: int, changes: Sequence[tuple[str, int]]) -> int:
        """Give queued URLs another priority; URLs in other states stay as they are. Returns how many were changed."""

    # What went wrong for good

    async def dead_letters_all(
        self,
        *,
        kind: FailureKind | None = None,
        host: str = "",
        after: LetterPlace | None = None,
        limit: int = DEAD_LETTERS_LIMIT,
    ) -> list[DeadLetter]:
        """Dead letters in the order of kind, host and arrival: those of one `kind` or of all, of one `host` or of all.

        With `after`, the place of a letter, only those that come after it in this order, whether or not it is still
        there. So whoever goes on after the last letter of each answer sees every letter that is there all the while
        exactly once. The cost of a call depends on `limit` and the number of shards, not on how many letters there are.
        """

    async def dead_groups_all(
        self, *, kind: FailureKind | None = None, after: GroupPlace | None = None, limit: int = DEAD_LETTERS_LIMIT
    ) -> list[DeadGroup]:
        """How many dead letters there are of each kind and host, or of one kind and each host: most letters first, then
        in the order of kind and host. `after` and the cost are as in `dead_letters_all`; a group that grows or shrinks
        between two calls may be told twice or not at all."""

    async def revive(self, shard: int, urls: Sequence[str], now: float, *, counter: str = "") -> int:
        """Queue dead URLs again, with no attempts or crashes held against them. `counter`, if one is named, becomes
        less by as many in the same step. Returns how many."""

    async def drop(self, shard: int, urls: Sequence[str], *, counter: str = "") -> int:
        """Count dead URLs as done: they are no longer dead letters and stay seen. `counter` is as in `revive`. Returns
        how many."""

    async def forget_done(self, shard: int, urls: Sequence[str]) -> int:
        """Forget those of these URLs that are done: offered again, they are new. They still count as done, and among
        their hosts' URLs, because that they were fetched once stays true. Returns how many were forgotten."""

    # What is known

    async def story(self, shard: int, url: str) -> TaskStory | None:
        """What is known of one URL; None when it was never accepted. A done URL has no task any more, and the redis
        engine, to save memory, no longer has its attempt's id either."""

    async def host_note(self, shard: int, host: str) -> bytes:
        """The note that the host's last holder left (`Settlement.note`); empty when there is none."""

    async def host_state(self, shard: int, host: str) -> HostState | None:
        """The host's queue, pace and lease; None when nothing of it was ever accepted."""

    async def hosts(self, shard: int, standing: HostStanding, now: float, *, limit: int) -> list[HostState]:
        """The hosts with this standing: ready ones and waiting ones by next contact, leased ones by deadline, those in
        back-off by name."""

    async def find_hosts_all(self, prefix: str, *, after: str = "", limit: int) -> list[HostState]:
        """The hosts whose names begin with `prefix`, in the order of their names (by code points), only those whose
        names come after `after`. Hosts without an accepted URL are not told.

        Whoever goes on after the last name of each answer sees every host that was there at the beginning exactly once;
        one that came since is seen if its name was still ahead. The cost of a call depends on `limit` and the number of
        shards, not on how many hosts there are.
        """

    async def set_delay(self, shard: int, host: str, delay_s: float | None) -> None:
        """Replace the least time between two contacts of the host; None leaves it to the crawl's default."""

    async def hurry(self, shard: int, now: float, *, delay_default_s: float = 0.0) -> int:
        """Let hosts in back-off be contacted as soon as politeness allows: at `now` plus a delay as in `expire_all`,
        since they may have been contacted a moment ago. Leased hosts stay as they are. Returns how many now wait less.
        """

    async def stats_all(self, now: float) -> list[ShardStats]:
        """The totals of every shard, in order."""

    async def count(self, shard: int, counts: dict[str, int]) -> None:
        """Add to the shard's counters."""

    async def top_hosts(self, shard: int, n: int) -> list[HostSummary]:
        """The hosts with the most pages (tasks done with a size), then most queued, then by name. Reads all hosts."""

    async def get_meta(self, key: str) -> bytes | None:
        """A value that the crawl keeps beside the frontier under this key; None when there is none."""

    async def put_meta(self, key: str, value: bytes) -> None:
        """Set such a value."""

    async def put_meta_if_absent(self, key: str, value: bytes) -> bytes:
        """Set such a value unless there is one, and return the value that is kept: when several callers do this at the
        same time, all of them get the first one's."""

    # Small tables that all coordinators share

    async def put_entries(self, table: str, entries: Mapping[str, bytes]) -> None:
        """Set entries of a table. A table comes into being with its first entry."""

    async def get_entries(self, table: str) -> dict[str, bytes]:
        """All entries of a table, in order of their keys."""

    async def last_entries(self, table: str, *, limit: int, before: str = "") -> dict[str, bytes]:
        """The entries with the last keys of a table, or the last before a key; the last of all comes first. The others
        are not read."""

    async def get_entry(self, table: str, key: str) -> bytes | None:
        """One entry of a table."""

    async def delete_entries(self, table: str, keys: Sequence[str]) -> None:
        """Remove entries of a table; keys without an entry are ignored."""

    async def claim(self, name: str, holder: str, now: float, *, until: float) -> bool:
        """Let `holder` hold `name` until `until`, unless somebody else holds it at `now`. Returns whether that worked.
        Claiming again renews."""

    async def keep_time(self, mine: float) -> float:
        """Raise the time that the engine keeps to `mine` if it is earlier, and return it. 0 only reads it.

        All coordinators report their time here and so agree on one (`drumlin.coordinator.engine_time`). This write may
        be less durable than other calls: a time that is a little too early does no harm.
        """

    # The engine itself

    async def check(self, within_s: float) -> None:
        """Write something small wherever shards live. If that takes longer than `within_s`, or if data is gone that was
        acknowledged, a `DrumlinError` says why, with a `code` for programs."""

    # Moving a frontier

    def read_kept(self, section: Section) -> AsyncIterator[list[Kept]]:
        """Tell a part of all that is kept, a page at a time. Nothing may be changed meanwhile: no coordinator runs."""

    async def fill(self, shard: int, step: int, kept: Sequence[Kept], now: float) -> None:
        """Write what another engine told into an engine that was empty before. All records belong to this shard: hosts,
        tasks and marks to that of their host, contents and sketches to that of their domain, counters to any. Values
        are set by the calls above. Ids of tasks must be unique in the shard, or at least in the host (`ids_of_hosts`).

        `step` is 1 for the first call on a shard, then 2, and so on. A call whose step was done before changes nothing,
        so an import that was broken off can be made again from its beginning. `now` is the engine time of the crawl.
        """

    # Removal on request: nothing else may use the frontier meanwhile, so no coordinator runs

    async def remove(
        self, shard: int, host: str, urls: Sequence[str] | None, now: float, *, dry_run: bool = False
    ) -> RemovedURLs:
        """Forget a host with all its URLs, or only these URLs of it, in whatever state, as if they had never been
        accepted. A lease of the host ends as if it were lost. What the shard counts (`count`) stays: it names nobody.
        With `dry_run` nothing changes, and the answer is the same."""

    async def rewrite(self, shard: int, kept: Sequence[KeptTask]) -> None:
        """Replace tasks of this shard, as `read_kept` told them, by others that differ only in where they were found
        (`found_on` and `redirects`)."""

    async def remove_contents(
        self, domain: str, is_removed: Callable[[str], bool], *, dry_run: bool = False
    ) -> tuple[int, int]:
        """Forget the contents of a domain whose first captures have such URLs, with their sketches, and what names them
        in other contents. Returns how many contents and how many sketches were forgotten; see `remove` for
        `dry_run`."""

    async def expunge(self) -> None:
        """Make what was removed disappear from the engine's files and memory too, as far as the engine can do that
        itself: a database keeps what was deleted until it is compacted."""

    async def snapshot(self, name: str) -> str:
        """Write a copy as it is at this moment beside the engine, in the folder `checkpoints`, under this name, which
        no other copy may have. Costs little, since files are shared. Returns where it is; it can be opened as an engine
        of its own. An `EngineError` says what to do instead if the engine has no files of its own."""

    async def close(self) -> None:
        """Give up all resources; the engine answers nothing afterwards. Closing twice is harmless."""
