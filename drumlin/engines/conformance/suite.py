"""The conformance suite: what an engine must do, as examples and as a state machine. Needs pytest and Hypothesis.

To test an engine of your own, subclass and say how to open it:

    class TestMyEngine(EngineConformance):
        durable = True

        def open(self, directory: str) -> BlockingEngine:
            return BlockingEngine(MyEngine(directory))

A durable engine is closed and opened again on the same directory at random moments, and must answer as if it had not
been. The state machine drives the engine and the memory engine, which is the specification, side by side, and compares
every answer and every URL's story.
"""

from __future__ import annotations

from itertools import count
from math import inf
from typing import Any

from drumlin.dedupe import sketches
from drumlin.engines.base import Added, shard_of
from drumlin.engines.blocking import BlockingEngine
from drumlin.engines.conformance.base import settled, settlement, url_of, urls_of
from drumlin.engines.conformance.listing import ListingConformance
from drumlin.engines.conformance.machine import check_against_the_specification
from drumlin.engines.conformance.removing import RemovingConformance
from drumlin.engines.conformance.settling import SettlingConformance
from drumlin.engines.conformance.shared import SharedConformance
from drumlin.engines.conformance.spellings import SpellingConformance
from drumlin.model import (
    Content,
    Duplicate,
    FailureKind,
    HostStanding,
    HostState,
    Lease,
    NewURLs,
    Renewal,
    Settlement,
    TaskState,
    Verdict,
    Visit,
)


class EngineConformance(
    ListingConformance, RemovingConformance, SettlingConformance, SharedConformance, SpellingConformance
):
    """The whole suite: subclass this one and define `open` (see `base.ConformanceBase`)."""

    # Adding

    def test_a_url_is_accepted_once(self, engine: BlockingEngine) -> None:
        new = urls_of("a.example", 1)
        shard = engine.shard_of("a.example")
        assert engine.add(shard, [new, new], 1.0) == [Added.ADDED, Added.SEEN]
        assert engine.add(shard, [new], 2.0) == [Added.SEEN]
        assert engine.stats(shard, 2.0).queued == 1

    def test_a_done_url_stays_seen(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        lease = self.lease_one(engine)
        engine.settle(lease.shard, [settlement(lease, settled(lease.tasks[0], b"1"), release=True)], 101.0)
        assert engine.add(lease.shard, [urls_of("a.example", 0)], 102.0) == [Added.SEEN]

    def test_a_host_at_its_cap_gets_no_more_urls_and_the_refused_are_forgotten(self, engine: BlockingEngine) -> None:
        shard = engine.shard_of("a.example")
        added = engine.add(shard, [urls_of("a.example", 0), urls_of("a.example", 1, 2)], 1.0, host_urls_max=2)
        assert added == [Added.ADDED, Added.ADDED, Added.CAPPED]
        assert engine.story(shard, url_of("a.example", 2)) is None
        assert engine.add(shard, [urls_of("a.example", 2)], 1.0, host_urls_max=3) == [Added.ADDED]

    def test_urls_found_in_several_places_are_answered_in_order_and_keep_their_origins(
        self, engine: BlockingEngine
    ) -> None:
        shard = engine.shard_of("a.example")
        other = next(host for n in count() if engine.shard_of(host := f"h{n}.example") == shard)
        found = [
            NewURLs("a.example", ["http://a.example/1", "http://a.example/2"], 5, 1, "http://a.example/"),
            NewURLs(other, [f"http://{other}/1"], 5, 2, "http://a.example/"),
            NewURLs("a.example", ["http://a.example/2", "https://a.example/3"], 7, 3, "http://b.example/"),
        ]
        new, seen = Added.ADDED, Added.SEEN
        assert engine.add(shard, found, 1.0) == [new, new, new, seen, new]
        leases = {lease.host: lease.tasks for lease in self.lease(engine)}
        assert [(task.url, task.priority, task.depth, task.found_on) for task in leases["a.example"]] == [
            ("https://a.example/3", 7, 3, "http://b.example/"),
            ("http://a.example/1", 5, 1, "http://a.example/"),
            ("http://a.example/2", 5, 1, "http://a.example/"),
        ]
        ids = [task.id for tasks in leases.values() for task in sorted(tasks, key=lambda task: task.url[-1])]
        first = min(ids)
        assert sorted(ids) == [first, first + 1, first + 2, first + 3]
        assert [task.id for task in leases[other]] == [first + 2]

    def test_adding_nothing_is_allowed(self, engine: BlockingEngine) -> None:
        assert engine.add(0, [], 1.0) == []
        assert engine.add(engine.shard_of("a.example"), [NewURLs("a.example", [])], 1.0) == []
        assert engine.settle(0, [], 1.0) == []

    # Leasing

    def test_higher_priority_comes_first_then_earlier_arrival(self, engine: BlockingEngine) -> None:
        shard = engine.shard_of("a.example")
        priorities = [5, 9, 0, 9]
        news = [NewURLs("a.example", [f"http://a.example/{n}"], p) for n, p in enumerate(priorities)]
        engine.add(shard, news, 1.0)
        lease = self.lease_one(engine)
        assert [task.url[-1] for task in lease.tasks] == ["1", "3", "0", "2"]

    def test_a_leased_host_is_not_leased_again(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        assert self.lease(engine, urls_per_host=1)
        assert self.lease(engine, 101.0) == []

    def test_a_host_gets_its_share_and_the_request_no_more_than_it_asked_for(self, engine: BlockingEngine) -> None:
        shard = engine.shard_of("a.example")
        hosts = [host for n in range(99) if engine.shard_of(host := f"h{n:02}.example") == shard][:4]
        for host in hosts:
            self.seed(engine, host, count=5)
        leases = self.lease(engine, urls_per_host=2, urls_max=5)
        assert [(lease.host, len(lease.tasks)) for lease in leases] == list(zip(hosts, [2, 2, 1], strict=False))
        assert len({lease.lease_id for lease in leases}) == len(leases)

    def test_a_host_is_leased_no_earlier_than_the_horizon_before_its_next_contact(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine, urls_per_host=1)
        engine.settle(lease.shard, [settlement(lease, release=True, next_contact=150.0)], 101.0)
        assert self.lease(engine, 149.0) == []
        assert self.lease_one(engine, 149.0, horizon_s=1.0).not_before == 150.0

    def test_skipped_hosts_keep_their_turn(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        assert self.lease(engine, skip_hosts={"a.example"}) == []
        assert len(self.lease(engine)) == 1

    def visit(self, engine: BlockingEngine, host: str, node: str, now: float, **more: float) -> Lease | None:
        visit = Visit(host, node, f"{node}:{now}", 120.0, **{"due_by": now, **more})
        return engine.visit(engine.shard_of(host), visit, now)

    def test_a_host_is_visited_by_one_node_at_a_time_at_its_own_pace(self, engine: BlockingEngine) -> None:
        lease = self.visit(engine, "v.example", "n1", 100.0)
        assert lease is not None
        assert (lease.lease_id, lease.tasks, lease.not_before) == ("n1:100.0", [], 100.0)
        assert self.visit(engine, "v.example", "n2", 100.0) is None
        engine.settle(lease.shard, [settlement(lease, release=True, next_contact=105.0, note=b"seen")], 101.0)
        assert self.visit(engine, "v.example", "n2", 104.0) is None
        again = self.visit(engine, "v.example", "n2", 104.0, due_by=105.0)
        assert again is not None
        assert (again.not_before, again.note) == (105.0, b"seen")

    def test_a_visited_host_is_leased_to_nobody_else_and_keeps_its_queue(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=2)
        lease = self.visit(engine, "a.example", "n1", 100.0, delay_default_s=5.0)
        assert lease is not None
        assert self.lease(engine) == []
        assert self.visit(engine, "a.example", "n2", 100.0) is None
        assert engine.expire_all(120.0) == ["a.example"]
        assert self.lease(engine, 124.0) == []
        assert len(self.lease_one(engine, 125.0).tasks) == 2

    def test_a_visit_is_extended_like_any_lease(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=2)
        lease = self.visit(engine, "a.example", "n1", 100.0)
        assert lease is not None
        more = self.extend(engine, lease, 101.0, until=130.0, urls_max=5)
        assert more is not None
        assert len(more.tasks) == 2

    def test_a_host_that_was_only_visited_is_forgotten_once_it_is_due(self, engine: BlockingEngine) -> None:
        lease = self.visit(engine, "v.example", "n1", 100.0)
        assert lease is not None
        assert engine.forget(lease.shard, ["v.example"], 101.0) == ["v.example"], "it is held"
        end = settlement(lease, release=True, next_contact=105.0, note=b"seen", in_backoff=True)
        engine.settle(lease.shard, [end], 101.0)
        assert engine.forget(lease.shard, ["v.example", "never.example"], 104.0) == ["v.example"], "its pace counts"
        assert engine.forget(lease.shard, ["v.example"], 105.0) == []
        assert engine.host_note(lease.shard, "v.example") == b""
        assert engine.stats(lease.shard, 105.0).hosts_in_backoff == 0
        again = self.visit(engine, "v.example", "n2", 105.0)
        assert again is not None
        assert again.not_before == 105.0

    def test_a_host_with_urls_is_never_forgotten(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine)
        engine.settle(lease.shard, [settlement(lease, release=True, note=b"seen")], 101.0)
        assert engine.forget(lease.shard, ["a.example"], 200.0) == []
        assert engine.host_note(lease.shard, "a.example") == b"seen"
        assert len(self.lease(engine, 200.0)) == 1

    def test_an_extended_lease_holds_further_tasks_and_a_new_deadline(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=5)
        lease = self.lease_one(engine, urls_per_host=2)
        more = self.extend(engine, lease, 105.0, until=130.0, urls_max=2)
        assert more is not None
        assert [task.url[-1] for task in more.tasks] == ["2", "3"]
        assert engine.expire_all(129.0) == []
        assert engine.expire_all(130.0) == [lease.host]

    def test_an_expired_lease_cannot_be_extended(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine)
        assert self.extend(engine, lease, lease.deadline, until=999.0, urls_max=1) is None
        unknown = Renewal(lease.shard, lease.host, "another", 1)
        assert engine.extend_all([unknown], 101.0, until=999.0) == [None]

    def test_a_url_found_while_its_host_is_leased_comes_with_the_extension(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        lease = self.lease_one(engine)
        engine.add(lease.shard, [NewURLs("a.example", ["http://a.example/new"], 9)], 101.0)
        more = self.extend(engine, lease, 102.0, until=120.0, urls_max=5)
        assert more is not None
        assert [task.url for task in more.tasks] == ["http://a.example/new"]

    # Time

    def test_a_scheduled_task_is_leased_again_only_after_its_time(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        lease = self.lease_one(engine)
        retry = settled(lease.tasks[0], b"1", TaskState.SCHEDULED, retry_at=200.0)
        engine.settle(lease.shard, [settlement(lease, retry, release=True)], 101.0)
        engine.expire_all(199.0)
        assert self.state(engine, 0) is TaskState.SCHEDULED
        assert engine.stats(lease.shard, 199.0).next_event == 200.0
        engine.expire_all(200.0)
        assert [task.attempts for task in self.lease_one(engine, 201.0).tasks] == [1]

    def test_an_extension_gives_a_retried_task_again_but_none_still_held(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=3)
        lease = self.lease_one(engine, urls_per_host=2)
        retry = settled(lease.tasks[0], b"1", TaskState.SCHEDULED, retry_at=102.0)
        engine.settle(lease.shard, [settlement(lease, retry)], 101.0)
        engine.expire_all(102.0)
        more = self.extend(engine, lease, 103.0, until=120.0, urls_max=9)
        assert more is not None
        assert [task.url[-1] for task in more.tasks] == ["0", "2"]

    # Leases that are lost

    def test_a_lost_lease_comes_back_a_delay_after_its_deadline(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine, until=110.0, delay_default_s=3.0)
        assert engine.expire_all(112.0) == [lease.host]
        assert self.lease(engine, 114.9) == []
        assert self.lease_one(engine, 115.0).tasks == lease.tasks

    def test_expiry_is_bounded_by_its_limit(self, engine: BlockingEngine) -> None:
        shard = engine.shard_of("a.example")
        hosts = [host for n in range(99) if engine.shard_of(host := f"h{n:02}.example") == shard][:3]
        for host in hosts:
            self.seed(engine, host, count=1)
        self.lease(engine)
        assert [len(engine.expire_all(200.0, limit=2)) for _ in range(3)] == [2, 1, 0]

    def test_a_dead_nodes_leases_end_at_once_and_no_other_nodes(self, engine: BlockingEngine) -> None:
        shard = engine.shard_of("a.example")
        other = next(host for n in range(99) if engine.shard_of(host := f"h{n:02}.example") == shard)
        self.seed(engine)
        self.seed(engine, other)
        self.lease(engine, node="dead", hosts_max=1)
        self.lease(engine, 101.0, node="alive", hosts_max=1)
        engine.set_delay(shard, "a.example", 4.0)
        assert engine.release_nodes(["dead"], 102.0) == 1
        assert self.lease(engine, 105.9) == []
        assert self.lease_one(engine, 106.0).host == "a.example"

    # Done

    def test_a_done_url_that_is_forgotten_is_new_again(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=2)
        lease = self.lease_one(engine)
        engine.settle(lease.shard, [settlement(lease, settled(lease.tasks[0], b"1"), release=True)], 101.0)
        urls = [task.url for task in lease.tasks]
        assert engine.forget_done(lease.shard, [*urls, urls[0], "http://a.example/unknown"]) == 1
        assert engine.forget_done(lease.shard, urls) == 0
        assert engine.story(lease.shard, urls[0]) is None
        assert self.state(engine, 1) is TaskState.QUEUED
        new = {lease.shard: [NewURLs("a.example", urls)]}
        assert engine.add_all(new, 102.0)[lease.shard] == [Added.ADDED, Added.SEEN]
        again = self.lease_one(engine, 200.0)
        assert sorted(task.url for task in again.tasks) == sorted(urls)

    # Dead letters

    def test_a_dead_task_waits_as_a_letter_until_it_is_revived_or_dropped(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=2)
        lease = self.lease_one(engine)
        parts = [
            settled(task, b"1", TaskState.DEAD, kind=FailureKind.DNS, error="no such host") for task in lease.tasks
        ]
        engine.settle(lease.shard, [settlement(lease, *parts, release=True)], 101.0)
        letters = engine.dead_letters_all(kind=FailureKind.DNS, host="a.example")
        assert [(one.url, one.attempts, one.last_error) for one in letters] == [
            (task.url, 1, "no such host") for task in lease.tasks
        ]
        assert engine.dead_letters_all(kind=FailureKind.TLS) == []
        engine.count(lease.shard, {"dead.dns": 2, "other": 5})
        assert engine.revive(lease.shard, [letters[0].url, letters[0].url], 102.0, counter="dead.dns") == 1
        assert engine.drop(lease.shard, [letters[1].url, "http://a.example/unknown"], counter="dead.dns") == 1
        assert engine.drop(lease.shard, [letters[1].url], counter="dead.dns") == 0
        assert engine.dead_letters_all() == []
        counters = engine.stats_all(102.0)[lease.shard].counters
        assert (counters.get("dead.dns", 0), counters["other"]) == (0, 5), "a letter and its count change in one step"
        assert (self.state(engine, 0), self.state(engine, 1)) == (TaskState.QUEUED, TaskState.DONE)

    def test_a_dead_letter_remembers_its_first_and_last_failure(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        lease = self.lease_one(engine)
        retry = settled(lease.tasks[0], b"1", TaskState.SCHEDULED, retry_at=150.0)
        engine.settle(lease.shard, [settlement(lease, retry, release=True)], 101.0)
        engine.expire_all(150.0)
        again = self.lease_one(engine, 151.0)
        end = settled(again.tasks[0], b"2", TaskState.DEAD, kind=FailureKind.TIMEOUT)
        engine.settle(lease.shard, [settlement(again, end)], 155.0)
        (letter,) = engine.dead_letters_all()
        assert (letter.first_failed, letter.last_failed, letter.attempts) == (101.0, 155.0, 2)

    def test_the_second_crash_of_a_task_is_its_last(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=2)
        lease = self.lease_one(engine)
        url = lease.tasks[0].url
        crash: dict[str, Any] = {"limit": 2, "kind": FailureKind.CRASH, "error": "abort", "counter": "dead.crash"}
        assert not engine.strike(lease.shard, url, 101.0, **crash)
        assert self.state(engine, 0) is TaskState.LEASED
        engine.expire_all(110.0)
        assert "dead.crash" not in engine.stats_all(110.0)[lease.shard].counters
        assert engine.strike(lease.shard, url, 111.0, **crash)
        assert engine.stats_all(111.0)[lease.shard].counters["dead.crash"] == 1
        assert [one.task.crashes for one in engine.dead_letters_all()] == [2]
        assert [task.url for task in self.lease_one(engine, 112.0).tasks] == [lease.tasks[1].url]

    # Reordering and reporting

    def test_only_queued_tasks_change_their_priority(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=3)
        lease = self.lease_one(engine, urls_per_host=1)
        changes = [(url_of("a.example", path), 9) for path in (0, 2)]
        assert engine.reprioritise(lease.shard, changes) == 1
        more = self.extend(engine, lease, 101.0, until=120.0, urls_max=9)
        assert more is not None
        assert [(task.url[-1], task.priority) for task in more.tasks] == [("2", 9), ("1", 5)]

    def test_of_two_changes_to_one_url_the_second_counts(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        url = url_of("a.example", 0)
        assert engine.reprioritise(engine.shard_of("a.example"), [(url, 7), (url, 8)]) == 2
        assert [task.priority for task in self.lease_one(engine).tasks] == [8]

    def test_statistics_follow_every_state(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=6)
        lease = self.lease_one(engine, urls_per_host=4)
        states = [TaskState.DONE, TaskState.SCHEDULED, TaskState.DEAD]
        pairs = zip(lease.tasks, states, strict=False)
        parts = [settled(task, b"1", state, retry_at=500.0, kind=FailureKind.DNS, size=10) for task, state in pairs]
        engine.settle(lease.shard, [settlement(lease, *parts)], 101.0)
        stats = engine.stats(lease.shard, 101.0)
        assert (stats.queued, stats.scheduled, stats.leased, stats.done, stats.dead) == (2, 1, 1, 1, 1)
        assert (stats.hosts_ready, stats.hosts_waiting, stats.hosts_leased) == (0, 0, 1)
        (top,) = engine.top_hosts(lease.shard, 5)
        assert (top.host, top.pages, top.bytes, top.queued) == ("a.example", 1, 30, 2)

    def test_an_empty_shard_expects_nothing(self, engine: BlockingEngine) -> None:
        assert engine.stats(0, 1.0).next_event == inf
        assert engine.lease(0, "node", "r", 1.0, until=2.0, hosts_max=1, urls_max=1, urls_per_host=1) == []

    def test_a_host_shows_its_queue_pace_and_lease(self, engine: BlockingEngine) -> None:
        shard = engine.shard_of("a.example")
        assert engine.host_state(shard, "a.example") is None
        self.seed(engine)
        lease = self.lease_one(engine, urls_per_host=2)
        engine.settle(shard, [settlement(lease, note=b"robots", delay_s=2.0, next_contact=102.0)], 100.0)
        held = engine.host_state(shard, "a.example")
        assert held == HostState(
            "a.example", 102.0, 2.0, 1, 3, 0, 0, lease.lease_id, lease.node, lease.deadline, b"robots"
        )
        assert engine.hosts(shard, HostStanding.LEASED, 101.0, limit=9) == [held]
        engine.settle(shard, [settlement(lease, release=True)], 101.0)
        free = HostState("a.example", 102.0, 2.0, 3, 3, 0, 0, note=b"robots")
        assert engine.hosts(shard, HostStanding.WAITING, 101.0, limit=9) == [free]
        assert engine.hosts(shard, HostStanding.READY, 102.0, limit=9) == [free]
        assert engine.hosts(shard, HostStanding.READY, 102.0, limit=0) == []

    # Several shards at once

    def test_calls_on_several_shards_answer_for_each(self, engine: BlockingEngine) -> None:
        hosts = [f"h{n}.example" for n in range(6)]
        batches: dict[int, list[NewURLs]] = {}
        for host in hosts:
            batches.setdefault(engine.shard_of(host), []).append(urls_of(host, 0))
        added = engine.add_all(batches, 100.0)
        assert added == {shard: [Added.ADDED] * len(urls) for shard, urls in batches.items()}
        leases = [lease for host in hosts for lease in self.lease(engine, host=host, request=f"node-{host}")]
        assert sorted(lease.host for lease in leases) == hosts
        renewals = [Renewal(lease.shard, lease.host, lease.lease_id, 1) for lease in leases]
        renewals.append(Renewal(leases[0].shard, leases[0].host, "another", 1))
        renewed = engine.extend_all(renewals, 101.0, until=150.0)
        assert [lease and lease.host for lease in renewed] == [*(lease.host for lease in leases), None]
        reports: dict[int, list[Settlement]] = {}
        for lease in leases[:3]:
            reports.setdefault(lease.shard, []).append(settlement(lease, settled(lease.tasks[0], b"1"), release=True))
        verdicts = engine.settle_all(reports, 102.0)
        assert verdicts == {shard: [[Verdict.SETTLED]] * len(parts) for shard, parts in reports.items()}
        stats = engine.stats_all(102.0)
        assert len(stats) == engine.shard_count
        assert (sum(one.done for one in stats), sum(one.leased for one in stats)) == (3, 3)
        assert engine.release_nodes(["nobody", "node"], 103.0) == 3
        assert engine.expire_all(200.0) == []

    # The rest

    def test_contents_are_kept_beside_the_frontier(self, engine: BlockingEngine) -> None:
        assert engine.contents.known([("a.example", b"d" * 32)]) == [None]

    def test_contents_that_repeat_earlier_ones_of_their_domain_are_told(self, engine: BlockingEngine) -> None:
        words = [f"word{number}" for number in range(200)]
        texts = [words, ["changed", *words[1:]], words[::-1], words]
        made = sketches([" ".join(text).encode() for text in texts])
        first, near, other, same = (
            Content("a.example", f"https://a.example/{number}", bytes([number]) * 32, sketch, 5.0, f"urn:{number}")
            for number, sketch in enumerate(made)
        )
        exact = Content("a.example", "https://a.example/x", first.digest, first.sketch, 6.0, "urn:x")
        answers = engine.contents.record([first, near, other], 0.9)
        assert [answer and answer.url for answer in answers] == [None, first.url, None]
        assert answers[1] is not None
        assert answers[1].overlap is not None
        assert 0.95 < answers[1].overlap < 1
        assert engine.contents.record([near], 0.9) == [answers[1]]
        assert engine.contents.record([exact, same], 0.9) == [
            Duplicate(first.url, first.fetched, first.record_id),
            Duplicate(first.url, first.fetched, first.record_id, overlap=1.0),
        ]
        elsewhere = Content("b.example", "https://b.example/", b"b" * 32, first.sketch, 5.0, "urn:b")
        assert engine.contents.record([elsewhere], 0.9) == [None]

    def test_contents_that_another_version_recorded_can_be_given_sketches(self, engine: BlockingEngine) -> None:
        words = [f"word{number}" for number in range(200)]
        texts = [words, ["changed", *words[1:]], ["other", *words[:0:-1]], words[::-1]]
        made = sketches([" ".join(text).encode() for text in texts])
        first, near, unknown, later = (
            Content("a.example", f"https://a.example/{number}", bytes([number]) * 32, sketch, 5.0, f"urn:{number}")
            for number, sketch in enumerate(made)
        )
        without = Content("a.example", first.url, first.digest, None, first.fetched, first.record_id)
        assert engine.contents.record([without], 0.9) == [None]
        for _ in range(2):
            engine.contents.adopt([first, unknown])
        assert engine.contents.record([first], 0.9) == [None], "it answers as before"
        answers = engine.contents.record([near, later], 0.9)
        assert [answer and answer.url for answer in answers] == [first.url, None], "what is unknown stays so"
        assert engine.contents.known([("a.example", unknown.digest)]) == [None]

    def test_a_host_is_in_the_shard_that_its_hash_says(self, engine: BlockingEngine) -> None:
        assert engine.shard_of("a.example") == shard_of("a.example", engine.shard_count)
        assert shard_of("a.example", 1024) == shard_of("a.example", 1024)

    def test_it_behaves_as_the_memory_engine_does(self) -> None:
        check_against_the_specification(self.open, durable=self.durable)
