"""Conformance of lists that go over all shards, a page at a time: hosts by name, dead letters, and groups of them."""

from __future__ import annotations

from drumlin.engines.blocking import BlockingEngine
from drumlin.engines.conformance.base import ConformanceBase, settled, settlement, urls_of
from drumlin.model import DeadGroup, FailureKind, GroupPlace, LetterPlace, NewURLs, TaskState

_HOSTS = sorted(f"{name}.example" for name in ("a", "aa", "b", "news", "news.b", "ñ", "z"))
_DNS, _TLS = FailureKind.DNS, FailureKind.TLS


class ListingConformance(ConformanceBase):
    """Examples as sentences."""

    def fill(self, engine: BlockingEngine, hosts: list[str], paths: int = 1) -> None:
        batches: dict[int, list[NewURLs]] = {}
        for host in hosts:
            batches.setdefault(engine.shard_of(host), []).append(urls_of(host, *range(paths)))
        engine.add_all(batches, 100.0)

    def bury(self, engine: BlockingEngine, host: str, *kinds: FailureKind) -> None:
        """Give up one URL of the host for each of these causes."""
        self.fill(engine, [host], len(kinds))
        lease = self.lease_one(engine, host=host, only_hosts=[host], request=host, urls_per_host=len(kinds))
        parts = [settled(task, b"1", TaskState.DEAD, kind=kind) for task, kind in zip(lease.tasks, kinds, strict=True)]
        engine.settle(lease.shard, [settlement(lease, *parts, release=True)], 101.0)

    def test_hosts_are_found_by_the_beginning_of_their_names(self, engine: BlockingEngine) -> None:
        self.fill(engine, _HOSTS)
        for prefix in ("", "a", "news", "news.", "ñ", "example", "\U0010ffff"):
            found = [state.host for state in engine.find_hosts_all(prefix, limit=99)]
            assert found == [host for host in _HOSTS if host.startswith(prefix)]
        (state,) = engine.find_hosts_all("news.b", limit=9)
        assert state == engine.host_state(engine.shard_of(state.host), state.host)

    def test_pages_of_hosts_tell_each_once_although_others_come(self, engine: BlockingEngine) -> None:
        self.fill(engine, _HOSTS)
        told: list[str] = []
        while page := engine.find_hosts_all("", after=told[-1] if told else "", limit=2):
            told += [state.host for state in page]
            self.fill(engine, [f"aa{len(told)}.example", f"zz{len(told)}.example"])
        assert [host for host in told if host in _HOSTS] == _HOSTS
        assert told == sorted(set(told))
        assert engine.find_hosts_all("a", after="b", limit=9) == []

    def test_a_host_without_a_url_is_not_found(self, engine: BlockingEngine) -> None:
        engine.set_delay(engine.shard_of("a.example"), "a.example", 5.0)
        assert engine.find_hosts_all("", limit=9) == []
        self.fill(engine, ["a.example"])
        assert [state.delay_s for state in engine.find_hosts_all("", limit=9)] == [5.0]

    def test_dead_letters_are_told_by_kind_host_and_arrival_in_pages(self, engine: BlockingEngine) -> None:
        for host in reversed(_HOSTS):
            self.bury(engine, host, _TLS, _DNS, _TLS)
        places: list[LetterPlace] = []
        while page := engine.dead_letters_all(after=places[-1] if places else None, limit=4):
            places += [letter.place for letter in page]
        assert places == sorted(set(places))
        assert [(kind, host) for kind, host, _ in places] == [("dns", host) for host in _HOSTS] + [
            ("tls", host) for host in _HOSTS for _ in range(2)
        ]
        some = engine.dead_letters_all(kind=_TLS, host="news.example", after=places[0], limit=9)
        assert [letter.place for letter in some] == [one for one in places if one[:2] == ("tls", "news.example")]

    def test_a_place_stays_a_place_after_its_letter_is_gone(self, engine: BlockingEngine) -> None:
        self.bury(engine, "a.example", _DNS, _DNS, _DNS)
        first, second, third = engine.dead_letters_all()
        engine.drop(engine.shard_of("a.example"), [first.url, second.url])
        assert engine.dead_letters_all(after=second.place) == [third]
        assert engine.dead_letters_all(after=third.place) == []

    def test_groups_of_dead_letters_are_told_largest_first(self, engine: BlockingEngine) -> None:
        self.bury(engine, "a.example", _DNS, _DNS, _TLS)
        self.bury(engine, "b.example", _DNS, _TLS, _TLS, _TLS)
        self.bury(engine, "ñ.example", _DNS)
        expected = [
            DeadGroup(_TLS, "b.example", 3),
            DeadGroup(_DNS, "a.example", 2),
            DeadGroup(_DNS, "b.example", 1),
            DeadGroup(_DNS, "ñ.example", 1),
            DeadGroup(_TLS, "a.example", 1),
        ]
        assert engine.dead_groups_all() == expected
        told: list[GroupPlace] = []
        while page := engine.dead_groups_all(after=told[-1] if told else None, limit=1):
            told += [group.place for group in page]
        assert told == [group.place for group in expected]
        assert engine.dead_groups_all(kind=_DNS, after=expected[1].place) == expected[2:4]

    def test_a_group_ends_with_its_last_letter(self, engine: BlockingEngine) -> None:
        self.bury(engine, "a.example", _DNS, _DNS)
        shard, urls = engine.shard_of("a.example"), [letter.url for letter in engine.dead_letters_all()]
        assert engine.revive(shard, urls[:1], 102.0) == 1
        assert engine.dead_groups_all() == [DeadGroup(_DNS, "a.example", 1)]
        assert engine.drop(shard, urls) == 1
        assert (engine.dead_groups_all(), engine.dead_letters_all()) == ([], [])

    def test_the_story_of_a_dead_url_has_its_letter(self, engine: BlockingEngine) -> None:
        self.bury(engine, "a.example", _DNS)
        (letter,) = engine.dead_letters_all()
        story = engine.story(engine.shard_of("a.example"), letter.url)
        assert story is not None
        assert (story.letter, story.task) == (letter, letter.task)
