"""Conformance of removal on request: nothing names what was removed, everything else is as before, and counts agree."""

from __future__ import annotations

from msgspec.structs import replace

from drumlin.engines.base import Added
from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.engines.conformance.base import settled, settlement, url_of, urls_of
from drumlin.engines.conformance.moving import MovingConformance, alike, told
from drumlin.engines.kept import Kept, KeptHost, KeptTask, Section, number_of_records
from drumlin.model import Content, Duplicate, NewURLs, RemovedURLs, TaskState
from drumlin.urls import host_of

_NOW = 150.0


def remove(engine: BlockingEngine, host: str, urls: list[str] | None = None, *, dry_run: bool = False) -> RemovedURLs:
    return engine.remove(engine.shard_of(host), host, urls, _NOW, dry_run=dry_run)


def _counts(kept: dict[Section, list[Kept]]) -> list[int]:
    return [number_of_records(kept[name]) for name in (Section.QUEUED, Section.SCHEDULED, Section.DEAD, Section.DONE)]


def _stats(engine: BlockingEngine) -> list[int]:
    shards = engine.stats_all(_NOW)
    queued = sum(one.queued + one.leased for one in shards)
    return [queued, *(sum(getattr(one, name) for one in shards) for name in ("scheduled", "dead", "done"))]


class RemovingConformance(MovingConformance):
    """Examples as sentences."""

    def test_a_removed_host_is_named_nowhere_and_the_others_stay_as_they_are(self, engine: BlockingEngine) -> None:
        memory = open_blocking("memory", shard_count=2)
        for one in (engine, memory):
            self.populate(one)
        for host in ("a.example", "b.example", "v.example"):
            expected = remove(memory, host, dry_run=True)
            before = alike(told(engine))
            assert remove(engine, host, dry_run=True) == expected
            assert alike(told(engine)) == before, "a dry run changes nothing"
            assert remove(engine, host) == remove(memory, host) == expected
            assert remove(engine, host) == RemovedURLs()
            forgotten = [one.remove_contents(host, lambda url: bool(url)) for one in (engine, memory)]
            assert forgotten[0] == forgotten[1]
            kept = told(engine)
            assert host not in repr(kept)
            assert alike(kept) == alike(told(memory))
            assert _stats(engine) == _stats(memory) == _counts(kept)
        standing = engine.stats_all(_NOW)
        assert [sum(getattr(one, name) for one in standing) for name in ("hosts_leased", "hosts_in_backoff")] == [0, 0]
        engine.expunge()
        assert alike(told(engine)) == alike(told(memory))

    def test_a_removed_host_can_be_met_again_as_if_it_were_new(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=2)
        lease = self.lease_one(engine)
        engine.settle(lease.shard, [settlement(lease, settled(lease.tasks[0], b"1"), note=b"robots")], 101.0)
        assert remove(engine, "a.example") == RemovedURLs(1, 0, 0, 1, 1)
        assert engine.host_state(lease.shard, "a.example") is None
        assert engine.host_note(lease.shard, "a.example") == b""
        late = settlement(lease, settled(lease.tasks[1], b"2"))
        assert [one.value for one in engine.settle(lease.shard, [late], 151.0)[0]] == ["stale"]
        assert engine.add(lease.shard, [urls_of("a.example", 0, 1)], 151.0) == [Added.ADDED, Added.ADDED]
        assert len(self.lease_one(engine, 200.0).tasks) == 2

    def test_single_urls_are_removed_in_whatever_state_they_are(self, engine: BlockingEngine) -> None:
        memory = open_blocking("memory", shard_count=2)
        every = [url_of("a.example", path) for path in range(8)]
        for one in (engine, memory):
            self.populate(one)
        assert remove(engine, "a.example", every[:6], dry_run=True) == remove(memory, "a.example", every[:6])
        assert remove(engine, "a.example", [*every[:6], "http://a.example/never"]) == RemovedURLs(3, 1, 1, 1)
        assert alike(told(engine)) == alike(told(memory))
        assert _stats(engine) == _stats(memory)
        shard = engine.shard_of("a.example")
        assert [engine.story(shard, url) is None for url in every] == [True] * 6 + [False] * 2

    def test_urls_of_a_large_host_are_removed_and_its_others_stay_seen(self, engine: BlockingEngine) -> None:
        paths = list(range(600))
        shard = engine.shard_of("a.example")
        engine.add(shard, [urls_of("a.example", *paths)], 100.0)
        gone = [url_of("a.example", path) for path in paths[::2]]
        assert remove(engine, "a.example", gone) == RemovedURLs(300)
        assert engine.add(shard, [urls_of("a.example", *paths[1::2])], 151.0) == [Added.SEEN] * 300
        assert engine.add(shard, [urls_of("a.example", *paths[::2])], 151.0) == [Added.ADDED] * 300
        assert engine.stats(shard, 151.0).queued == 600

    def test_another_spelling_of_a_url_removes_it_too(self, engine: BlockingEngine) -> None:
        shard = engine.shard_of("a.example")
        engine.add(shard, [NewURLs("a.example", ["http://a.example/?b=2&a=1"])], 100.0)
        assert remove(engine, "a.example", ["http://a.example/?a=1&b=2"]) == RemovedURLs(1)
        assert engine.story(shard, "http://a.example/?b=2&a=1") is None

    def test_where_tasks_were_found_can_be_rewritten(self, engine: BlockingEngine) -> None:
        self.populate(engine)
        before = told(engine)
        tasks = [
            replace(one, task=replace(one.task, found_on="", redirects=("http://r.example/",)))
            for section in (Section.QUEUED, Section.SCHEDULED, Section.DEAD)
            for one in before[section]
            if isinstance(one, KeptTask)
        ]
        for task in tasks:
            engine.rewrite(engine.shard_of(task.host), [task])
        after = told(engine)
        found = [
            one.task
            for name in (Section.QUEUED, Section.SCHEDULED, Section.DEAD)
            for one in after[name]
            if isinstance(one, KeptTask)
        ]
        assert {(task.found_on, task.redirects) for task in found} == {("", ("http://r.example/",))}
        assert [(one.url, one.id) for one in found] == [(one.task.url, one.task.id) for one in tasks]
        assert [one for one in after[Section.HOSTS] if isinstance(one, KeptHost)] == before[Section.HOSTS]
        dead = engine.dead_letters_all()
        assert dead
        assert all(letter.found_on == "" for letter in dead)

    def test_contents_of_a_removed_host_are_unknown_and_no_longer_near(self, engine: BlockingEngine) -> None:
        self.seed(engine, "a.example")
        self.seed(engine, "b.example")
        self.remember(engine)

        def is_removed(url: str) -> bool:
            return bool(url) and host_of(url) == "a.example"

        expected = engine.remove_contents("a.example", is_removed, dry_run=True)
        assert expected[0] > 0
        assert expected[1] > 0
        assert engine.remove_contents("a.example", is_removed) == expected
        assert engine.remove_contents("a.example", is_removed) == (0, 0)
        kept = told(engine)
        assert "a.example/" not in repr([kept[Section.CONTENTS], kept[Section.SKETCHES]])
        assert engine.contents.known([("a.example", bytes([2]) * 32)]) == [None]
        known = [one for one in kept[Section.CONTENTS] if "b.example" in repr(one)]
        assert known

    def test_of_two_hosts_of_a_domain_one_can_lose_its_contents(self, engine: BlockingEngine) -> None:
        self.seed(engine, "one.example.org")
        contents = [
            Content("example.org", f"http://{host}.example.org/", bytes([number]) * 32, None, 1.0, f"urn:{number}")
            for number, host in enumerate(("one", "two", "one", "two"))
        ]
        engine.contents.record(contents, 0.9)
        assert engine.remove_contents("example.org", lambda url: "//one." in url) == (2, 0)
        known = engine.contents.known([("example.org", bytes([number]) * 32) for number in range(4)])
        assert known == [None, Duplicate(contents[1].url, 1.0, "urn:1"), None, Duplicate(contents[3].url, 1.0, "urn:3")]
        assert self.state(engine, 0, "one.example.org") == TaskState.QUEUED
