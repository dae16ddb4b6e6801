"""A Hypothesis state machine that drives an engine and the memory engine side by side.

It keeps every lease that it was ever given, so it also settles and extends leases that ended long ago. It lets
time stand still as well as leap, so deadlines, retries and next contacts often coincide.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from drumlin.engines.blocking import BlockingEngine
from drumlin.engines.conformance.moving import alike, fill, told
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.model import FailureKind, HostStanding, Lease, NewURLs, Renewal, Settled, Settlement, TaskState, Visit

EXAMPLES_MAX = 25
STEPS_MAX = 50

# `a` is a prefix of `a.b`, and so are their keys: a scan by prefix that is too wide would be noticed.
_HOSTS = ("a", "a.b", "b:8080", "ü.example")
_PATHS = range(5)
_HOST_OF_URL = {f"http://{host}/{path}": host for host in _HOSTS for path in _PATHS}
_DEAD_NODE = "node-1"

_urls = st.sampled_from(list(_HOST_OF_URL))
_news = st.builds(
    lambda host, paths, priority, depth: NewURLs(
        host, [f"http://{host}/{path}" for path in paths], priority, depth, "http://a/", ("http://a/r",)
    ),
    st.sampled_from(_HOSTS),
    st.lists(st.sampled_from(_PATHS), max_size=3),
    st.integers(0, 9),
    st.integers(0, 3),
)
_seconds = st.sampled_from((0.0, 0.5, 1.0, 5.0, 30.0))
_few = st.integers(0, 4)
_maybe_delay = st.none() | _seconds
_ends = st.sampled_from((TaskState.DONE, TaskState.SCHEDULED, TaskState.DEAD))


class EngineMachine(RuleBasedStateMachine):
    """One history: each rule makes the same call to both engines and compares the answers."""

    def __init__(self, open_engine: Callable[[str], BlockingEngine], durable: bool) -> None:
        super().__init__()
        self.durable = durable
        self.directory = TemporaryDirectory(prefix="drumlin-conformance-")
        self.path = str(Path(self.directory.name) / "engine")
        self.open_engine = open_engine
        self.engine = open_engine(self.path)
        self.model = BlockingEngine(MemoryEngine(self.engine.shard_count))
        self.now = 1_000.0
        self.moves = 0
        self.requests = 0
        self.captures = 0
        self.leases: list[Lease] = []
        self.forgotten = 0

    def teardown(self) -> None:
        self.engine.close()
        self.directory.cleanup()

    def both(self, call: str, *arguments: Any, **options: Any) -> Any:
        """Make a call to both, check that the engine answers as the specification does, and return the answer."""
        expected = getattr(self.model, call)(*arguments, **options)
        assert getattr(self.engine, call)(*arguments, **options) == expected
        return expected

    def shard_of_url(self, url: str) -> int:
        return self.model.shard_of(_HOST_OF_URL[url])

    def by_shard(self, urls: list[str]) -> dict[int, list[str]]:
        shards: dict[int, list[str]] = {shard: [] for shard in range(self.model.shard_count)}
        for url in urls:
            shards[self.shard_of_url(url)].append(url)
        return shards

    @rule(seconds=_seconds)
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(news=st.lists(_news, max_size=8), cap=st.none() | st.integers(0, 4))
    def add(self, news: list[NewURLs], cap: int | None) -> None:
        for shard in range(self.model.shard_count):
            mine = [new for new in news if self.model.shard_of(new.host) == shard]
            self.both("add", shard, mine, self.now, host_urls_max=cap)

    @rule(
        node=st.sampled_from(("node-0", _DEAD_NODE)),
        lasts_s=_seconds,
        hosts_max=_few,
        urls_max=_few,
        urls_per_host=_few,
        horizon_s=_seconds,
        delay_default_s=_seconds,
        skip=st.sets(st.sampled_from(_HOSTS), max_size=1),
        only=st.just([]) | st.lists(st.sampled_from(_HOSTS), max_size=2),
    )
    def lease(self, node: str, lasts_s: float, skip: set[str], only: list[str], **limits: Any) -> None:
        self.requests += 1
        for shard in range(self.model.shard_count):
            request, until = f"{node}/{self.requests}", self.now + lasts_s
            limits.update(until=until, skip_hosts=skip, only_hosts=only)
            self.leases += self.both("lease", shard, node, request, self.now, **limits)

    @rule(
        node=st.sampled_from(("node-0", _DEAD_NODE)),
        host=st.sampled_from(_HOSTS),
        lasts_s=_seconds,
        horizon_s=_seconds,
        delay_default_s=_seconds,
    )
    def visit(self, node: str, host: str, lasts_s: float, horizon_s: float, delay_default_s: float) -> None:
        self.requests += 1
        until, due_by = self.now + lasts_s, self.now + horizon_s
        visit = Visit(host, node, f"{node}/{self.requests}.0", until, due_by, delay_default_s)
        lease = self.both("visit", self.model.shard_of(host), visit, self.now)
        if lease is not None:
            self.leases.append(lease)

    @rule(hosts=st.lists(st.sampled_from(_HOSTS), unique=True))
    def forget(self, hosts: list[str]) -> None:
        for shard in range(self.model.shard_count):
            mine = [host for host in hosts if self.model.shard_of(host) == shard]
            self.both("forget", shard, mine, self.now)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), lasts_s=_seconds, urls_max=_few, delay_default_s=_seconds)
    def extend(self, data: st.DataObject, lasts_s: float, urls_max: int, delay_default_s: float) -> None:
        leases = data.draw(st.lists(st.sampled_from(self.leases), min_size=1, max_size=3))
        renewals = [Renewal(lease.shard, lease.host, lease.lease_id, urls_max) for lease in leases]
        until = self.now + lasts_s
        answers = self.both("extend_all", renewals, self.now, until=until, delay_default_s=delay_default_s)
        for lease, more in zip(leases, answers, strict=True):
            if more is not None:
                lease.tasks.extend(more.tasks)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.leases), min_size=1, max_size=3))
        shard = chosen[0].shard
        reports = [self.settlement(data, lease) for lease in chosen if lease.shard == shard]
        self.both("preview", shard, reports)
        self.both("settle", shard, reports, self.now)
        if data.draw(st.booleans()):
            self.both("settle", shard, reports, self.now)

    def settlement(self, data: st.DataObject, lease: Lease) -> Settlement:
        tasks = data.draw(st.lists(st.sampled_from(lease.tasks), max_size=4)) if lease.tasks else []
        return Settlement(
            lease.host,
            lease.lease_id,
            [self.settled(data, task.id, task.url) for task in tasks],
            release=data.draw(st.booleans()),
            next_contact=self.now + data.draw(_seconds),
            delay_s=data.draw(_maybe_delay),
            note=data.draw(st.none() | st.binary(max_size=3)),
            in_backoff=data.draw(st.none() | st.booleans()),
            slow_s=data.draw(_maybe_delay),
        )

    def settled(self, data: st.DataObject, task_id: int, url: str) -> Settled:
        self.captures += 1
        # Now and then draw an earlier capture, or none.
        capture = data.draw(st.sampled_from((self.captures, self.captures, 1, 0)))
        return Settled(
            task_id,
            url,
            data.draw(_ends),
            b"%d" % capture if capture else b"",
            retry_at=self.now + data.draw(_seconds),
            kind=data.draw(st.sampled_from((FailureKind.DNS, FailureKind.TLS))),
            error="error",
            size=data.draw(st.none() | _few),
            counts={"pages": 1},
            attempted=data.draw(st.booleans()),
            refused=data.draw(st.sampled_from((False, False, True))),
        )

    @rule(limit=st.integers(1, 3))
    def expire(self, limit: int) -> None:
        self.both("expire_all", self.now, limit=limit)

    @rule()
    def release_node(self) -> None:
        self.both("release_nodes", [_DEAD_NODE], self.now)

    @rule(url=_urls, limit=st.integers(1, 3))
    def strike(self, url: str, limit: int) -> None:
        shard = self.shard_of_url(url)
        self.both("strike", shard, url, self.now, limit=limit, kind=FailureKind.CRASH, error="abort")

    @rule(urls=st.lists(_urls, max_size=4), priority=st.integers(0, 9), step=st.integers(0, 1))
    def reprioritise(self, urls: list[str], priority: int, step: int) -> None:
        for shard, mine in self.by_shard(urls).items():
            changes = [(url, (priority + step * n) % 10) for n, url in enumerate(mine)]
            self.both("reprioritise", shard, changes)

    @rule(urls=st.lists(_urls, max_size=4), revived=st.booleans())
    def review(self, urls: list[str], revived: bool) -> None:
        for shard, mine in self.by_shard(urls).items():
            if revived:
                self.both("revive", shard, mine, self.now)
            else:
                self.both("drop", shard, mine)

    @rule(urls=st.lists(_urls, max_size=4))
    def forget_done(self, urls: list[str]) -> None:
        for shard, mine in self.by_shard(urls).items():
            self.forgotten += self.both("forget_done", shard, mine)

    @rule(host=st.sampled_from(_HOSTS), delay_s=_maybe_delay)
    def set_delay(self, host: str, delay_s: float | None) -> None:
        self.both("set_delay", self.model.shard_of(host), host, delay_s)

    @rule(delay_default_s=_seconds)
    def hurry(self, delay_default_s: float) -> None:
        for shard in range(self.model.shard_count):
            self.both("hurry", shard, self.now, delay_default_s=delay_default_s)

    @rule(counts=st.dictionaries(st.sampled_from(("pages", "bytes")), st.integers(0, 5)))
    def count(self, counts: dict[str, int]) -> None:
        self.both("count", 0, counts)

    @precondition(lambda self: self.durable)
    @rule()
    def reopen(self) -> None:
        self.engine.close()
        self.engine = self.open_engine(self.path)

    @rule()
    def both_tell_the_same(self) -> None:
        assert alike(told(self.engine)) == alike(told(self.model))

    @rule()
    def the_frontier_moves(self) -> None:
        """Both go on as engines that were empty and take in what the specification tells."""
        kept = told(self.model)
        self.engine.close()
        self.moves += 1
        self.path = f"{self.path}.{self.moves}"
        self.engine = self.open_engine(self.path)
        self.model = BlockingEngine(MemoryEngine(self.engine.shard_count))
        for engine in (self.engine, self.model):
            fill(engine, kept)

    @invariant()
    def every_url_has_the_same_story(self) -> None:
        for url in _HOST_OF_URL:
            self.both("story", self.shard_of_url(url), url)
        for host in _HOSTS:
            self.both("host_note", self.model.shard_of(host), host)
            self.both("host_state", self.model.shard_of(host), host)

    @invariant()
    def every_shard_has_the_same_totals(self) -> None:
        for shard in range(self.model.shard_count):
            self.both("stats", shard, self.now)
            self.both("top_hosts", shard, 3)
            for standing in HostStanding:
                self.both("hosts", shard, standing, self.now, limit=3)

    @invariant()
    def every_list_over_all_shards_has_the_same_pages(self) -> None:
        letters = self.both("dead_letters_all")
        for of in ({"kind": FailureKind.DNS}, {"host": "a"}, {"host": "a.b", "kind": FailureKind.TLS}):
            self.both("dead_letters_all", **of, limit=2)
        groups = self.both("dead_groups_all")
        for kind in (None, FailureKind.TLS):
            self.both("dead_groups_all", kind=kind, limit=2)
        for letter in letters:
            self.both("dead_letters_all", after=letter.place, limit=2)
            self.both("dead_letters_all", after=letter.place, host=letter.host, limit=1)
        for group in groups:
            self.both("dead_groups_all", after=group.place, limit=1)
            self.both("dead_groups_all", kind=FailureKind.TLS, after=group.place, limit=2)
        for prefix, after in (("", ""), ("a", ""), ("a", "a"), ("", "a.b"), ("ü", ""), ("b:80", "a"), ("a", "b")):
            self.both("find_hosts_all", prefix, after=after, limit=2)

    @invariant()
    def every_accepted_url_is_in_one_state(self) -> None:
        stats = [self.engine.stats(shard, self.now) for shard in range(self.model.shard_count)]
        accepted = [self.engine.story(self.shard_of_url(url), url) for url in _HOST_OF_URL]
        total = sum(one.queued + one.scheduled + one.leased + one.done + one.dead for one in stats)
        assert total == sum(story is not None for story in accepted) + self.forgotten


def check_against_the_specification(
    open_engine: Callable[[str], BlockingEngine],
    *,
    durable: bool,
    examples_max: int = EXAMPLES_MAX,
    steps_max: int = STEPS_MAX,
) -> None:
    """Run random histories. `open_engine` opens the engine that is kept at a path; it may be called repeatedly."""
    machine = cast("type[RuleBasedStateMachine]", lambda: EngineMachine(open_engine, durable))
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples_max,
            stateful_step_count=steps_max,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
