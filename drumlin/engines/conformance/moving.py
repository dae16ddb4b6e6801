"""Conformance of moving a frontier: what one engine tells, another takes in, and both behave alike from then on."""

from __future__ import annotations

from itertools import count

from drumlin.dedupe import sketches
from drumlin.engines.base import Added, Engine
from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.engines.conformance.base import ConformanceBase, settled, settlement, url_of, urls_of
from drumlin.engines.kept import (
    SHORT_BITS,
    Kept,
    KeptContent,
    KeptCounters,
    KeptDone,
    KeptHost,
    KeptSketch,
    KeptTask,
    KeptValue,
    Section,
    mark_of,
    short_mark,
)
from drumlin.model import Content, FailureKind, NewURLs, Settlement, TaskState, Verdict, Visit

_HOSTS = [f"{name}.example" for name in ("a", "b", "c", "d")]
_MANY = 700
"""More than one slice or bucket of any engine."""


def told(engine: BlockingEngine) -> dict[Section, list[Kept]]:
    return {section: [one for page in engine.read_kept(section) for one in page] for section in Section}


def shard_for(engine: BlockingEngine | Engine, record: Kept) -> int:
    """The shard to which a record belongs."""
    if isinstance(record, KeptCounters):
        return record.shard % engine.shard_count
    if isinstance(record, KeptContent | KeptSketch):
        return engine.shard_of(record.content.domain if isinstance(record, KeptContent) else record.domain)
    assert isinstance(record, KeptHost | KeptTask | KeptDone)
    return engine.shard_of(record.host)


def fill(engine: BlockingEngine, kept: dict[Section, list[Kept]], *, page: int = 50) -> None:
    """Write records in small pages, and each page twice, as after a call that was sent again."""
    steps = {shard: count(1) for shard in range(engine.shard_count)}
    for section in Section:
        if section is Section.VALUES:
            continue
        by_shard: dict[int, list[Kept]] = {}
        for record in kept[section]:
            by_shard.setdefault(shard_for(engine, record), []).append(record)
        for shard, records in by_shard.items():
            for at in range(0, len(records), page):
                step = next(steps[shard])
                for _ in range(2):
                    engine.fill(shard, step, records[at : at + page], 200.0)


def alike(kept: dict[Section, list[Kept]]) -> dict[Section, list[object]]:
    """What any two engines must tell alike: without ids of tasks, and with marks as short as Redis has them."""
    found: dict[Section, list[object]] = {section: [] for section in Section}
    for section, records in kept.items():
        for one in records:
            if isinstance(one, KeptDone):
                found[section] += [(one.host, short_mark(mark)) for mark, _, _ in one.each()]
            elif isinstance(one, KeptTask):
                task = one.task
                place = sum(isinstance(other, tuple) and other[0] == one.host for other in found[section])
                past = (one.attempt_id, one.first_failed, one.retry_at, one.kind, one.error, one.last_failed)
                fields = (task.url, task.priority, task.depth, task.attempts, task.found_on, task.redirects)
                place = place if section is Section.QUEUED else 0
                found[section].append((one.host, place, one.state, *fields, task.crashes, task.added, *past))
            elif isinstance(one, KeptContent):
                content = one.content
                found[section].append((content.domain, content.digest[:12], content.url, content.record_id, one.near))
            elif isinstance(one, KeptSketch):
                found[section].append((one.domain, one.digest[:12], one.sketch))
            elif not isinstance(one, KeptCounters):
                found[section].append(one)
    return {section: sorted(records, key=repr) for section, records in found.items()}


class MovingConformance(ConformanceBase):
    """Examples as sentences."""

    def populate(self, engine: BlockingEngine) -> None:
        """A frontier with everything that one can have."""
        for host in _HOSTS:
            engine.add(engine.shard_of(host), [urls_of(host, *range(8))], 100.0)
        many = NewURLs("b.example", [url_of("b.example", path) for path in range(100, 100 + _MANY)], 7, 2, "http://x/")
        engine.add(engine.shard_of("b.example"), [many], 100.5)
        shard = engine.shard_of("a.example")
        lease = self.lease_one(engine, only_hosts=["a.example"], urls_per_host=7, delay_default_s=3.0)
        one, two, three, four, five, *_ = lease.tasks
        retry = {"retry_at": 500.25, "kind": FailureKind.TIMEOUT}
        parts = [
            settled(one, b"first", size=10, counts={"pages": 1, "fetched": 1}),
            settled(two, b"second", TaskState.SCHEDULED, **retry),
            settled(three, b"third", TaskState.DEAD, kind=FailureKind.DNS, error="no such host"),
            settled(four, b"fourth", TaskState.SCHEDULED, retry_at=101.0, attempted=False),
            settled(five, b"fifth", TaskState.DEAD, kind=FailureKind.TLS),
        ]
        learnt = {"next_contact": 102.5, "delay_s": 2.5, "note": b"\x00robots", "in_backoff": True, "slow_s": 4.0}
        engine.settle(shard, [settlement(lease, *parts, **learnt)], 101.0)
        engine.expire_all(101.5)
        engine.revive(shard, [five.url], 101.5)
        engine.strike(shard, lease.tasks[5].url, 101.5, limit=3, kind=FailureKind.CRASH, error="abort")
        done = self.lease_one(engine, 103.0, only_hosts=["b.example"], host="b.example", urls_max=_MANY)
        every = self.extend(engine, done, 103.0, until=120.0, urls_max=_MANY - 100)
        assert every is not None
        finished = [settled(task, b"%d" % task.id) for task in [*done.tasks, *every.tasks]]
        engine.settle(done.shard, [settlement(done, *finished, release=True)], 104.0)
        visit = Visit("v.example", "node", "node:v", 110.0, 200.0)
        assert engine.visit(engine.shard_of("v.example"), visit, 100.0) is not None
        engine.settle(
            engine.shard_of("v.example"),
            [Settlement("v.example", "node:v", [], release=True, next_contact=150.0, slow_s=9.0)],
            101.0,
        )
        self.remember(engine)

    def remember(self, engine: BlockingEngine) -> None:
        """Contents and values."""
        words = [f"word{number}" for number in range(200)]
        made = sketches([" ".join(text).encode() for text in (words, ["changed", *words[1:]], words[::-1])])
        contents = [
            Content("a.example", f"http://a.example/{number}", bytes([number]) * 32, sketch, 5.0, f"urn:{number}")
            for number, sketch in enumerate(made)
        ]
        engine.contents.record([*contents, Content("b.example", "http://b.example/", b"b" * 32, None, 6.0, "b")], 0.9)
        engine.put_meta("crawl", b"\x00settings")
        engine.check(within_s=60.0)
        engine.put_entries("orders", {"a": b"1", "b": b"\xff"})
        engine.put_entries("nodes", {"n": b""})

    def moved_to(self, engine: BlockingEngine, other: BlockingEngine) -> None:
        kept = told(engine)
        fill(other, kept)
        expected, found = alike(kept), alike(told(other))
        for section in Section:
            if section is not Section.VALUES:
                assert found[section] == expected[section], section

    def test_what_it_tells_is_all_there_in_the_memory_engine(self, engine: BlockingEngine) -> None:
        self.populate(engine)
        self.moved_to(engine, open_blocking("memory", shard_count=3))

    def test_it_takes_in_what_the_memory_engine_tells(self, engine: BlockingEngine) -> None:
        memory = open_blocking("memory", shard_count=1)
        self.populate(memory)
        self.moved_to(memory, engine)
        now = 400.0
        # A lease that was live is over, as if it had run out.
        assert memory.expire_all(110.0) == ["a.example"]
        before, after = memory.stats_all(now), engine.stats_all(now)
        tasks = ("queued", "scheduled", "leased", "done", "dead")
        for name in (*tasks, "hosts_ready", "hosts_waiting", "hosts_leased", "hosts_in_backoff"):
            assert sum(getattr(one, name) for one in after) == sum(getattr(one, name) for one in before), name
        assert {name: value for one in after for name, value in one.counters.items()} == before[0].counters
        host = engine.host_state(engine.shard_of("a.example"), "a.example")
        assert host is not None
        assert (host.next_contact, host.lease_id, host.note) == (114.0, "", b"\x00robots")
        assert self.state(engine, 0) is TaskState.DONE
        seen = [url_of("b.example", path) for path in range(100, 100 + _MANY)]
        fresh = [url_of("b.example", 99_999)]
        answers = engine.add(engine.shard_of("b.example"), [NewURLs("b.example", [*seen, *fresh])], now)
        assert answers == [Added.SEEN] * _MANY + [Added.ADDED]

    def test_a_result_from_before_the_move_counts_once(self, engine: BlockingEngine) -> None:
        memory = open_blocking("memory", shard_count=1)
        self.seed(memory, count=3)
        lease = self.lease_one(memory)
        memory.settle(lease.shard, [settlement(lease, settled(lease.tasks[0], b"first"))], 101.0)
        self.moved_to(memory, engine)
        shard = engine.shard_of("a.example")
        again = settlement(lease, settled(lease.tasks[0], b"first"), settled(lease.tasks[1], b"second"))
        for expected in (Verdict.SETTLED, Verdict.REPEATED):
            assert engine.settle(shard, [again], 200.0) == [[Verdict.REPEATED, expected]]
        assert [task.url for task in self.lease_one(engine, 300.0).tasks] == [lease.tasks[2].url]

    def test_short_marks_are_known_in_every_engine(self, engine: BlockingEngine) -> None:
        """They are all that a frontier on Redis tells of a URL that is done."""
        url = "http://a.example/?b=2&a=1"
        kept = {section: list[Kept]() for section in Section}
        kept[Section.HOSTS] = [KeptHost("a.example", 5.0, None, 0.0, False, b"", 1, 1, 10)]
        kept[Section.DONE] = [KeptDone("a.example", 0, 7, short_mark(mark_of(url)))]
        fill(engine, kept)
        assert engine.engine.mark_bits == SHORT_BITS
        shard = engine.shard_of("a.example")
        again = NewURLs("a.example", [url, "http://a.example/?a=1&b=2", "http://a.example/new"])
        assert engine.add(shard, [again], 100.0) == [Added.SEEN, Added.SEEN, Added.ADDED]
        story = engine.story(shard, url)
        assert story is not None
        assert (story.state, story.task) == (TaskState.DONE, None)
        self.moved_to(engine, open_blocking("memory", shard_count=2))

    def test_values_are_told_and_none_of_the_engines_own(self, engine: BlockingEngine) -> None:
        self.remember(engine)
        found = [one for page in engine.read_kept(Section.VALUES) for one in page if isinstance(one, KeptValue)]
        assert sorted((one.table, one.key, one.value) for one in found) == [
            ("", "crawl", b"\x00settings"),
            ("nodes", "n", b""),
            ("orders", "a", b"1"),
            ("orders", "b", b"\xff"),
        ]

    def test_contents_that_were_moved_answer_as_before(self, engine: BlockingEngine) -> None:
        memory = open_blocking("memory", shard_count=1)
        for host in ("a.example", "b.example"):
            self.seed(memory, host)
        self.remember(memory)
        self.moved_to(memory, engine)
        near = Content("a.example", "http://a.example/1", bytes([1]) * 32, None, 5.0, "urn:1")
        other = Content("a.example", "http://a.example/other", bytes([2]) * 32, None, 9.0, "urn:other")
        expected = memory.contents.record([near, other], 0.9)
        assert [one and one.url for one in expected] == ["http://a.example/0", "http://a.example/2"]
        assert engine.contents.record([near, other], 0.9) == expected
