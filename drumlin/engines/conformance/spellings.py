"""Conformance for several spellings of one page: the first is kept, and any of them finds its story."""

from __future__ import annotations

from drumlin.engines.base import Added
from drumlin.engines.blocking import BlockingEngine
from drumlin.engines.conformance.base import ConformanceBase, settled, settlement
from drumlin.model import FailureKind, NewURLs, TaskState

HOST = "a.example"
FIRST, *OTHERS = (
    "https://a.example/~u/p?b=2&a=1&utm_source=mail",
    "https://a.example/%7Eu/p?a=1&b=2",
    "https://a.example/~u/p;jsessionid=1?b=2&a=1",
    "https://a.example/~u/p?a=1&b=2&gclid=x",
)
STRANGERS = ["http://a.example/~u/p?a=1&b=2", "https://a.example/~u/p?a=1", "https://a.example/~u/p"]


class SpellingConformance(ConformanceBase):
    """`drumlin.urls.identity` decides which URLs are the same page; leases and stories show the one found first."""

    def test_of_several_spellings_the_first_is_accepted(self, engine: BlockingEngine) -> None:
        shard = engine.shard_of(HOST)
        assert engine.add(shard, [NewURLs(HOST, [FIRST, OTHERS[0]])], 1.0) == [Added.ADDED, Added.SEEN]
        assert engine.add(shard, [NewURLs(HOST, OTHERS)], 2.0) == [Added.SEEN] * len(OTHERS)
        assert engine.add(shard, [NewURLs(HOST, STRANGERS)], 3.0) == [Added.ADDED] * len(STRANGERS)
        lease = self.lease_one(engine)
        assert [task.url for task in lease.tasks] == [FIRST, *STRANGERS]

    def test_parameters_of_one_name_keep_their_order(self, engine: BlockingEngine) -> None:
        urls = ["http://a.example/?x=2&x=1", "http://a.example/?x=1&x=2"]
        assert engine.add(engine.shard_of(HOST), [NewURLs(HOST, urls)], 1.0) == [Added.ADDED] * 2

    def test_any_spelling_finds_the_story_of_a_page_wherever_it_is(self, engine: BlockingEngine) -> None:
        shard = engine.shard_of(HOST)
        # Beside the page: another one that begins with the same characters, and its like over plain HTTP.
        engine.add(shard, [NewURLs(HOST, [FIRST, "https://a.example/~u/p?a=1&b=3", STRANGERS[0]])], 100.0)
        self._is_told(engine, TaskState.QUEUED)
        lease = self.lease_one(engine)
        self._is_told(engine, TaskState.LEASED)
        retry = settled(lease.tasks[0], b"1", TaskState.SCHEDULED, retry_at=150.0)
        engine.settle(shard, [settlement(lease, retry, release=True)], 101.0)
        self._is_told(engine, TaskState.SCHEDULED)
        engine.expire_all(150.0)
        again = self.lease_one(engine, 151.0)
        mine = next(task for task in again.tasks if task.url == FIRST)
        dead = settled(mine, b"2", TaskState.DEAD, kind=FailureKind.DNS)
        engine.settle(shard, [settlement(again, dead, release=True)], 152.0)
        self._is_told(engine, TaskState.DEAD)
        assert engine.revive(shard, [FIRST], 153.0) == 1
        last = self.lease_one(engine, 160.0)
        mine = next(task for task in last.tasks if task.url == FIRST)
        engine.settle(shard, [settlement(last, settled(mine, b"3"), release=True)], 161.0)
        for url in (FIRST, *OTHERS):
            story = engine.story(shard, url)
            assert story is not None
            assert (story.state, story.task) == (TaskState.DONE, None)

    def _is_told(self, engine: BlockingEngine, state: TaskState) -> None:
        for url in (FIRST, *OTHERS):
            story = engine.story(engine.shard_of(HOST), url)
            assert story is not None
            assert story.task is not None
            assert (story.state, story.task.url) == (state, FIRST)
