"""What an engine must do with settlements, as examples."""

from __future__ import annotations

from msgspec.structs import replace

from drumlin.engines.blocking import BlockingEngine
from drumlin.engines.conformance.base import ConformanceBase, settled, settlement, url_of
from drumlin.model import FailureKind, HostStanding, NewURLs, Preview, Settled, Settlement, TaskState, Verdict


class SettlingConformance(ConformanceBase):
    """Examples as sentences."""

    def test_settling_twice_changes_nothing_the_second_time(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine)
        report = [settlement(lease, settled(lease.tasks[0], b"1", counts={"pages": 1}, size=7), release=True)]
        assert engine.settle(lease.shard, report, 101.0) == [[Verdict.SETTLED]]
        before = engine.stats(lease.shard, 101.0)
        assert engine.settle(lease.shard, report, 102.0) == [[Verdict.REPEATED]]
        assert engine.stats(lease.shard, 101.0) == before
        assert before.counters == {"pages": 1}

    def test_an_empty_page_is_a_page_and_what_has_no_size_is_none(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine, urls_per_host=2)
        parts = [settled(lease.tasks[0], b"1", size=0), settled(lease.tasks[1], b"1", size=None)]
        engine.settle(lease.shard, [settlement(lease, *parts)], 101.0)
        (top,) = engine.top_hosts(lease.shard, 1)
        assert (top.pages, top.bytes) == (1, 0)

    def test_another_capture_of_a_done_url_is_stale(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine)
        engine.settle(lease.shard, [settlement(lease, settled(lease.tasks[0], b"1"))], 101.0)
        report = [settlement(lease, settled(lease.tasks[0], b"2", counts={"pages": 1}))]
        assert engine.settle(lease.shard, report, 102.0) == [[Verdict.STALE]]
        assert engine.stats(lease.shard, 102.0).counters == {}

    def test_a_late_settlement_of_an_unleased_task_is_accepted(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        lease = self.lease_one(engine)
        engine.expire_all(110.0)
        report = [settlement(lease, settled(lease.tasks[0], b"1"), note=b"late", delay_s=9.0)]
        assert engine.settle(lease.shard, report, 111.0) == [[Verdict.SETTLED]]
        assert self.lease(engine, 999.0) == []
        assert engine.host_note(lease.shard, "a.example") == b""

    def test_a_late_settlement_of_a_task_leased_to_another_is_stale(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        late = self.lease_one(engine)
        engine.expire_all(110.0)
        current = self.lease_one(engine, 120.0)
        assert engine.settle(late.shard, [settlement(late, settled(late.tasks[0], b"1"))], 121.0) == [[Verdict.STALE]]
        report = [settlement(current, settled(current.tasks[0], b"2"))]
        assert engine.settle(late.shard, report, 122.0) == [[Verdict.SETTLED]]

    def test_what_was_refused_once_never_counts_though_nobody_holds_the_task_any_more(
        self, engine: BlockingEngine
    ) -> None:
        """Its node has thrown the page away by then. The same message may come twice, or wait in a coordinator."""
        self.seed(engine, count=1)
        late = self.lease_one(engine)
        engine.expire_all(110.0)
        lost = self.lease_one(engine, 120.0)
        report = [settlement(late, settled(late.tasks[0], b"1", counts={"pages": 1}, size=7))]
        assert engine.settle(late.shard, report, 121.0) == [[Verdict.STALE]]
        engine.expire_all(lost.deadline)
        assert engine.preview(late.shard, report) == [Preview(False, [Verdict.STALE])]
        assert engine.settle(late.shard, report, lost.deadline + 1.0) == [[Verdict.STALE]]
        # Nor does that of the second lease, which came too late as well. The task goes to a third, which settles it.
        other = [settlement(lost, settled(lost.tasks[0], b"2"))]
        assert engine.settle(late.shard, other, lost.deadline + 1.0) == [[Verdict.STALE]]
        third = self.lease_one(engine, lost.deadline + 100.0)
        assert third.tasks == late.tasks
        again = [settlement(third, settled(third.tasks[0], b"3", counts={"pages": 1}, size=7))]
        assert engine.settle(late.shard, again, third.deadline - 1.0) == [[Verdict.SETTLED]]
        assert engine.settle(late.shard, again, third.deadline - 1.0) == [[Verdict.REPEATED]]
        assert engine.stats(late.shard, third.deadline).counters == {"pages": 1}

    def test_what_is_to_be_refused_is_left_open_where_it_could_be_settled(self, engine: BlockingEngine) -> None:
        """A preview has called it stale, so its links were not added. The lease that was in its way has ended since."""
        self.seed(engine, count=2)
        late = self.lease_one(engine, urls_per_host=1)
        engine.expire_all(110.0)
        lost = self.lease_one(engine, 120.0, urls_per_host=1)
        part = settled(late.tasks[0], b"1", size=7)
        assert engine.preview(late.shard, [settlement(late, part)]) == [Preview(False, [Verdict.STALE])]
        engine.expire_all(lost.deadline)
        before = engine.story(late.shard, part.url)
        refused = [settlement(late, replace(part, refused=True))]
        assert engine.settle(late.shard, refused, lost.deadline) == [[Verdict.OPEN]]
        assert engine.story(late.shard, part.url) == before
        assert engine.settle(late.shard, [settlement(late, part)], lost.deadline) == [[Verdict.SETTLED]]
        assert engine.settle(late.shard, refused, lost.deadline) == [[Verdict.REPEATED]]
        live = self.lease_one(engine, lost.deadline + 100.0, urls_per_host=1)
        held = settlement(live, replace(settled(live.tasks[0], b"2"), refused=True))
        assert engine.settle(live.shard, [held], lost.deadline + 101.0) == [[Verdict.OPEN]]

    def test_a_settlement_must_name_the_task_and_its_url(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine)
        first, second, _ = lease.tasks
        wrong = Settled(first.id, second.url, TaskState.DONE, b"1")
        unknown = Settled(first.id, "http://a.example/unknown", TaskState.DONE, b"1")
        report = [settlement(lease, wrong, unknown), Settlement("unknown.example", "lease", [unknown])]
        assert engine.settle(lease.shard, report, 101.0) == [[Verdict.STALE, Verdict.STALE], [Verdict.STALE]]
        assert engine.stats(lease.shard, 101.0).leased == 3

    def test_released_tasks_return_to_the_front_in_their_old_order(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=5)
        lease = self.lease_one(engine, urls_per_host=3)
        engine.settle(lease.shard, [settlement(lease, settled(lease.tasks[1], b"1"), release=True)], 101.0)
        again = self.lease_one(engine, 102.0)
        assert [task.url[-1] for task in again.tasks] == ["0", "2", "3", "4"]

    def test_what_was_learnt_about_the_host_comes_with_its_next_lease(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine)
        engine.settle(lease.shard, [settlement(lease, release=True, note=b"robots", delay_s=2.5)], 101.0)
        again = self.lease_one(engine, 102.0)
        assert (again.note, again.delay_s) == (b"robots", 2.5)
        engine.settle(lease.shard, [settlement(again, release=True, note=b"")], 103.0)
        assert self.lease_one(engine, 104.0).note == b""

    # Previews

    def test_a_preview_says_what_settling_would_answer_and_changes_nothing(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine)
        first, second, third = lease.tasks
        engine.settle(lease.shard, [settlement(lease, settled(first, b"1"))], 101.0)
        parts = settled(first, b"1"), settled(first, b"2"), settled(second, b"3"), settled(third, b"4")
        before = engine.stats(lease.shard, 102.0), engine.host_state(lease.shard, lease.host)
        asked = settlement(lease, *parts, release=True, note=b"robots", next_contact=500.0, delay_s=9.0)
        verdicts = [Verdict.REPEATED, Verdict.STALE, Verdict.SETTLED, Verdict.SETTLED]
        assert engine.preview(lease.shard, [asked]) == [Preview(True, verdicts)]
        assert (engine.stats(lease.shard, 102.0), engine.host_state(lease.shard, lease.host)) == before
        assert engine.settle(lease.shard, [asked], 102.0) == [verdicts]

    def test_a_preview_judges_each_as_if_it_came_alone(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        lease = self.lease_one(engine)
        twice = settlement(lease, settled(lease.tasks[0], b"1"), settled(lease.tasks[0], b"1"))
        assert engine.preview(lease.shard, [twice]) == [Preview(True, [Verdict.SETTLED] * 2)]

    def test_settling_goes_by_what_happened_since_the_preview(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        lease = self.lease_one(engine)
        early = settled(lease.tasks[0], b"1"), Settled(1, url_of(lease.host, 9), TaskState.DONE, b"2")
        engine.preview(lease.shard, [settlement(lease, *early)])
        engine.settle(lease.shard, [settlement(lease, settled(lease.tasks[0], b"3"), release=True)], 101.0)
        engine.add(lease.shard, [NewURLs(lease.host, [url_of(lease.host, 9)], 1, 1, "")], 101.0)
        again = self.lease_one(engine, 102.0)
        late = settlement(again, settled(lease.tasks[0], b"1"), settled(again.tasks[0], b"2"))
        assert engine.settle(lease.shard, [late], 103.0) == [[Verdict.STALE, Verdict.SETTLED]]

    def test_a_preview_tells_the_late_from_the_made_up(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=2)
        lease = self.lease_one(engine, urls_per_host=1)
        retry = settled(lease.tasks[0], b"1", TaskState.SCHEDULED, retry_at=500.0)
        engine.settle(lease.shard, [settlement(lease, retry, release=True)], 101.0)
        again = self.lease_one(engine, 102.0)
        engine.expire_all(113.0)
        late = settlement(again, settled(again.tasks[0], b"2"), settled(lease.tasks[0], b"3"))
        unknown = Settlement("unknown.example", "t", [Settled(1, "http://unknown.example/", TaskState.DONE, b"1")])
        wrong = settlement(again, Settled(again.tasks[0].id, url_of("a.example", 7), TaskState.DONE, b"2"))
        assert engine.preview(lease.shard, [late, wrong]) == [
            Preview(False, [Verdict.SETTLED, Verdict.STALE]),
            Preview(False, [Verdict.STALE]),
        ]
        shard = engine.shard_of("unknown.example")
        assert engine.preview_all({shard: [unknown]}) == {shard: [Preview(False, [Verdict.STALE])]}
        assert engine.preview_all({shard: []}) == {shard: []}

    def test_a_task_that_is_put_off_has_no_attempt_held_against_it(self, engine: BlockingEngine) -> None:
        self.seed(engine, count=1)
        lease = self.lease_one(engine)
        off = settled(lease.tasks[0], b"1", TaskState.SCHEDULED, retry_at=200.0, attempted=False)
        assert engine.settle(lease.shard, [settlement(lease, off, release=True)], 101.0) == [[Verdict.SETTLED]]
        story = engine.story(lease.shard, lease.tasks[0].url)
        assert story is not None
        assert (story.state, story.retry_at) == (TaskState.SCHEDULED, 200.0)
        engine.expire_all(200.0)
        again = self.lease_one(engine, 201.0)
        assert [task.attempts for task in again.tasks] == [0]
        failed = settled(again.tasks[0], b"2", TaskState.DEAD, kind=FailureKind.DNS, attempted=False)
        engine.settle(lease.shard, [settlement(again, failed)], 202.0)
        (letter,) = engine.dead_letters_all()
        assert (letter.attempts, letter.first_failed) == (1, 202.0)

    def test_a_host_is_in_trouble_until_its_holder_says_otherwise(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine)
        shard = lease.shard
        engine.settle(shard, [settlement(lease, in_backoff=True, release=True, next_contact=500.0)], 101.0)
        assert [host.host for host in engine.hosts(shard, HostStanding.BACKOFF, 101.0, limit=9)] == ["a.example"]
        (state,) = engine.hosts(shard, HostStanding.WAITING, 101.0, limit=9)
        assert state.in_backoff
        engine.settle(shard, [settlement(lease, in_backoff=False)], 102.0)
        assert engine.stats(shard, 102.0).hosts_in_backoff == 1
        again = self.lease_one(engine, 500.0)
        engine.settle(shard, [settlement(again, settled(again.tasks[0], b"1"))], 501.0)
        assert engine.stats(shard, 501.0).hosts_in_backoff == 1
        engine.settle(shard, [settlement(again, in_backoff=False)], 502.0)
        assert engine.stats(shard, 502.0).hosts_in_backoff == 0
        assert engine.hosts(shard, HostStanding.BACKOFF, 502.0, limit=9) == []
        (state,) = engine.hosts(shard, HostStanding.LEASED, 502.0, limit=9)
        assert not state.in_backoff

    def test_a_slowed_host_whose_lease_is_lost_waits_as_long_as_between_two_contacts(
        self, engine: BlockingEngine
    ) -> None:
        self.seed(engine)
        first = self.lease_one(engine)
        engine.settle(first.shard, [settlement(first, release=True, slow_s=30.0, delay_s=2.0)], 101.0)
        self.lease_one(engine, 102.0, node="dead", delay_default_s=1.0)
        assert engine.release_nodes(["dead"], 103.0) == 1
        assert self.lease(engine, 132.9) == []
        second = self.lease_one(engine, 133.0, delay_default_s=1.0)
        assert engine.expire_all(143.0) == [second.host]
        assert self.lease(engine, 172.9) == []
        third = self.lease_one(engine, 173.0)
        engine.settle(first.shard, [settlement(third, slow_s=0.0)], 174.0)
        engine.expire_all(183.0)
        assert self.lease(engine, 184.9) == []
        assert self.lease_one(engine, 185.0).host == third.host

    def test_a_lost_lease_waits_for_the_longest_delay_that_it_was_extended_with(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine, delay_default_s=1.0)
        engine.settle(lease.shard, [settlement(lease, delay_s=2.0)], 100.0)
        for delay_s in (40.0, 3.0):
            self.extend(engine, lease, 101.0, until=110.0, urls_max=0, delay_default_s=delay_s)
        engine.expire_all(110.0)
        assert self.lease(engine, 149.9) == []
        assert self.lease_one(engine, 150.0).host == lease.host

    def test_only_hosts_in_trouble_are_hurried(self, engine: BlockingEngine) -> None:
        for host, in_backoff in (("a.example", True), ("b.example", False)):
            self.seed(engine, host=host)
            lease = self.lease_one(engine, host=host, only_hosts=[host], request=host)
            report = settlement(lease, in_backoff=in_backoff, release=True, next_contact=900.0)
            engine.settle(lease.shard, [report], 101.0)
        assert sum(engine.hurry(shard, 200.0) for shard in range(engine.shard_count)) == 1
        assert [lease.host for lease in self.lease(engine, 200.0)] == ["a.example"]
        assert sum(engine.hurry(shard, 201.0) for shard in range(engine.shard_count)) == 0

    def test_a_hurried_host_still_waits_for_a_delay(self, engine: BlockingEngine) -> None:
        self.seed(engine)
        lease = self.lease_one(engine)
        report = settlement(lease, in_backoff=True, release=True, next_contact=900.0, slow_s=7.0)
        engine.settle(lease.shard, [report], 101.0)
        assert engine.hurry(lease.shard, 200.0, delay_default_s=3.0) == 1
        assert self.lease(engine, 206.9) == []
        assert self.lease_one(engine, 207.0).host == lease.host
