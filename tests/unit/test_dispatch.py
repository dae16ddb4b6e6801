"""The dispatcher on the memory engine: leases out, results in, budgets kept, nothing lost."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.engines.base import Added
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import BusyError
from drumlin.http.refusal import Refused
from drumlin.model import NewURLs, Outcome
from drumlin.protocol import (
    SITEMAPS_ELSEWHERE_MAX,
    Assignment,
    CrawlState,
    HostNote,
    HostReport,
    KnownRequest,
    NodeEvent,
    NodeStatus,
    Results,
    WorkLease,
    WorkRequest,
)
from drumlin.urls import host_of
from tests.harness.dispatching import HOSTS, SEEDS, Asker, Driven, batch_of, dispatcher, release, result


def test_the_links_of_a_page_are_queued_before_it_is_settled() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    found = result(lease.assignments[0], links=["http://h0.test/a", "http://h0.test/b", "http://h0.test/a"])
    accepted = made.results(batch_of([found], [release(lease)]), 1.0)
    totals = made.totals(1.0)
    assert (accepted.accepted_count, accepted.rejected_count) == (1, 0)
    assert (totals.queued, totals.done, totals.pages, totals.bytes) == (2, 1, 1, 10)


@pytest.mark.parametrize("seed", ["https://s/", "http://t/", "http://p:8080/"])
def test_a_link_is_queued_for_the_host_it_leads_to_whatever_its_page_is_called(seed: str) -> None:
    made = dispatcher([seed], shards=1, scope="any")
    asker = Asker(made)
    (lease,) = asker.work(0.0)
    elsewhere = seed.partition("/")[0] + "//elsewhere.test/"
    made.results(batch_of([result(lease.assignments[0], links=[elsewhere, seed + "here"])], [release(lease)]), 1.0)
    given = {lease.host: [one.url for one in lease.assignments] for lease in asker.work(60.0)}
    assert given == {lease.host: [seed + "here"], "elsewhere.test": [elsewhere]}


def test_a_batch_sent_twice_counts_once() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    batch = Results([result(lease.assignments[0], links=["http://h0.test/a"])], [release(lease)])
    first = made.results(batch, 1.0)
    before = made.totals(1.0)
    assert made.results(batch, 2.0) == first
    assert made.totals(1.0) == before


def test_a_host_is_leased_to_one_node_at_a_time_and_not_before_its_next_contact() -> None:
    made = dispatcher(SEEDS[:1])
    first, second = Asker(made, "n0"), Asker(made, "n1")
    (lease,) = first.work(0.0)
    assert second.work(0.0) == []
    found = result(lease.assignments[0], links=["http://h0.test/a"])
    made.results(batch_of([found], [release(lease, next_contact_s=5.0)]), 1.0)
    assert second.work(4.0) == []
    (again,) = second.work(5.5)
    assert (again.host, again.wait_s) == ("h0.test", 0.5)


def test_what_a_node_learnt_of_a_host_is_given_to_the_next() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    note = msgspec.msgpack.encode(HostNote(slow_s=1.0))
    learnt = HostReport(lease.lease_id, lease.host, False, 0.0, 7.5, note, ["http://h0.test/map.xml"])
    made.results(batch_of([], [learnt]), 1.0)
    made.results(Results([result(lease.assignments[0])], [release(lease)]), 1.0)
    (again,) = Asker(made, "n1").work(10.0)
    assert (again.min_delay_s, again.note, [task.url for task in again.assignments]) == (
        7.5,
        note,
        ["http://h0.test/map.xml"],
    )


def test_a_failure_is_retried_until_it_is_dead_and_both_are_counted() -> None:
    made = dispatcher(SEEDS[:1], retries_max=1)
    asker = Asker(made)
    for now in (0.0, 100.0):
        made.tick(now)
        (lease,) = asker.work(now)
        failed = result(lease.assignments[0], Outcome.FAILED, kind="timeout", error="too slow", status_code=0)
        made.results(batch_of([failed], [release(lease)]), now)
    assert made.totals(200.0).group("retried.") == {"timeout": 1}
    assert made.totals(200.0).group("dead.") == {"timeout": 1}
    assert made.tick(200.0).pending == 0
    assert made.state is CrawlState.FINISHED


def test_a_redirect_is_followed_in_scope_and_where_a_seed_leads_is_a_seed_too() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    moved = result(lease.assignments[0], Outcome.REDIRECTED, status_code=301, redirect_to="http://www.test/")
    made.results(batch_of([moved], [release(lease)]), 1.0)
    assert made.made.scope_seeds == ["http://www.test/"]
    (target,) = Asker(made).work(5.0)
    assert (target.assignments[0].url, target.assignments[0].redirects) == ("http://www.test/", (SEEDS[0],))
    reopened = Dispatcher(made.made.engine, made.made.config, SEEDS[:1], chance=random.Random(1))
    drive(reopened.open())
    assert reopened.scope_seeds == ["http://www.test/"]


def test_a_page_that_redirects_out_of_scope_is_not_followed() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    made.results(batch_of([result(lease.assignments[0], links=["http://h0.test/deep"])], [release(lease)]), 1.0)
    (deeper,) = Asker(made).work(5.0)
    moved = result(deeper.assignments[0], Outcome.REDIRECTED, status_code=301, redirect_to="http://www.test/")
    made.results(batch_of([moved], [release(deeper)]), 6.0)
    assert (made.totals(6.0).pending, made.made.scope_seeds) == (0, [])


@pytest.mark.parametrize("scope", ["host", "page"])
def test_a_sitemap_that_redirects_out_of_scope_widens_nothing_however_many_hops_it_takes(scope: str) -> None:
    """A site names its own sitemaps: if they were followed as seeds are, it could send the crawl anywhere."""
    made = dispatcher(SEEDS[:1], scope=scope)
    (lease,) = Asker(made).work(0.0)
    first, second = "http://h0.test/map.xml", "http://h0.test/moved.xml"
    named = HostReport(lease.lease_id, lease.host, True, sitemaps=[first])
    made.results(batch_of([result(lease.assignments[0])], [named]), 1.0)
    hops = [second] if scope == "host" else []
    for now, target in enumerate([*hops, "http://victim.test/"]):
        (lease,) = Asker(made, f"n{now}").work(5.0 + 5.0 * now)
        moved = result(lease.assignments[0], Outcome.REDIRECTED, status_code=302, redirect_to=target)
        made.results(batch_of([moved], [release(lease)]), 6.0 + 5.0 * now)
    assert (made.totals(60.0).pending, made.made.scope_seeds) == (0, [])


@pytest.mark.parametrize(("scope", "count"), [("host", 2), ("prefix", 2), ("page", 1)])
def test_a_sitemap_may_be_anywhere_and_its_parts_too_but_not_what_an_exclude_names(scope: str, count: int) -> None:
    made = dispatcher(["http://h0.test/docs/"], scope=scope, exclude=["/private/"])
    (lease,) = Asker(made).work(0.0)
    maps = ["http://h0.test/map.xml", "http://cdn.test/map.xml", "http://cdn.test/private/map.xml"]
    named = HostReport(lease.lease_id, lease.host, True, sitemaps=maps)
    made.results(batch_of([result(lease.assignments[0])], [named]), 1.0)
    assert made.totals(1.0).pending == count


def test_a_batch_with_more_parts_of_a_sitemap_elsewhere_than_a_node_tells_is_refused() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    named = HostReport(lease.lease_id, lease.host, True, sitemaps=["http://h0.test/map.xml"])
    made.results(batch_of([result(lease.assignments[0])], [named]), 1.0)
    (lease,) = Asker(made).work(5.0)
    for count, accepted in ((SITEMAPS_ELSEWHERE_MAX + 1, 0), (SITEMAPS_ELSEWHERE_MAX, 1)):
        parts = [f"http://victim{number}.test/map.xml" for number in range(count)]
        batch = Results([result(lease.assignments[0], links=parts)], [], canonical_links=True)
        assert made.results(batch, 6.0, "n0").accepted_count == accepted


def test_a_seed_that_redirects_to_what_is_excluded_is_not_followed() -> None:
    made = dispatcher(SEEDS[:1], exclude=["/logout"])
    (lease,) = Asker(made).work(0.0)
    moved = result(lease.assignments[0], Outcome.REDIRECTED, status_code=301, redirect_to="http://www.test/logout")
    made.results(batch_of([moved], [release(lease)]), 1.0)
    assert (made.totals(1.0).pending, made.made.scope_seeds) == (0, [])


def test_a_repeated_content_is_a_duplicate_of_the_first() -> None:
    made = dispatcher(["http://a.same.test/", "http://b.same.test/"])
    leases = Asker(made).work(0.0)
    same = [result(lease.assignments[0], content_hash="d" * 64) for lease in leases]
    accepted = made.results(batch_of(same), 1.0)
    known = made.known(KnownRequest([("same.test", "d" * 64), ("same.test", "e" * 64)]))
    assert [known.index for known in accepted.duplicates] == [1]
    assert made.totals(1.0).group("duplicates.") == {"exact": 1}
    assert [duplicate is not None for duplicate in known.duplicates] == [True, False]


def test_a_node_that_starts_again_or_leaves_gives_its_hosts_back() -> None:
    made = dispatcher(SEEDS[:1])
    made.register("n0", 0.0)
    Asker(made).work(0.0)
    made.register("n0", 5.0, boot=2)
    (lease,) = Asker(made, "n1").work(5.0)
    # The dead process may have contacted the host just now, so it is left alone for its delay.
    assert (lease.host, lease.wait_s) == ("h0.test", 1.0)
    made.leave("n1", 7.0)
    assert (made.totals(7.0).leased, made.made.nodes.names()) == (0, ["n0"])


def test_a_renewed_lease_gets_further_urls_and_a_foreign_one_is_lost() -> None:
    made = dispatcher(SEEDS[:1], lease_s=4.0)
    asker = Asker(made)
    (lease,) = asker.work(0.0)
    made.seed([f"http://h0.test/{number}" for number in range(9)], 1.0)
    (renewed,) = asker.work(1.0, hosts=0, renew=((lease.lease_id, lease.host),))
    assert (renewed.lease_id, len(renewed.assignments)) == (lease.lease_id, 3)
    lost = made.work("n0", WorkRequest(10, max_hosts=0, renew=[("wrong", lease.host)]), 1.0).lost
    assert lost == [lease.host]


def test_while_it_drains_nothing_is_given_out() -> None:
    made = dispatcher()
    drive(made.made.stop("interrupted"))
    drive(made.made.stop("pages_max"))
    work = made.work("n0", WorkRequest(10), 0.0)
    assert (work.state, work.leases, made.made.stop_reason) == (CrawlState.DRAINING, [], "interrupted")


def test_a_host_takes_no_more_urls_than_allowed_and_the_refused_are_counted() -> None:
    made = dispatcher(SEEDS[:1], host_urls_max=3)
    assert made.seed([f"http://h0.test/{number}" for number in range(9)], 0.0) == 2
    assert made.totals(0.0).group("refused.") == {"host_urls_max": 7}


# A fleet


def both(seeds: list[str] = SEEDS, **config: Any) -> tuple[Driven, Driven]:
    """Two coordinators on one engine."""
    first = dispatcher(seeds, **config)
    second = Dispatcher(
        first.made.engine, first.made.config, seeds, chance=random.Random(2), name="second", shards_asked_max=2
    )
    drive(second.open())
    return first, Driven(second)


def test_a_node_settles_only_its_own_leases_and_those_of_nodes_that_are_gone() -> None:
    made = dispatcher(SEEDS[:1])
    made.register("n0", 0.0)
    made.register("n1", 0.0)
    (lease,) = Asker(made).work(0.0)
    batch = batch_of([result(lease.assignments[0])], [release(lease)])
    assert made.results(batch, 1.0, "n1").rejected[0].reason == "not_yours"
    assert made.totals(1.0).leased == 1
    drive(made.made.change_node("n0", NodeEvent.FALLS_SILENT))
    assert made.results(batch, 1.0, "n1").accepted_count == 1


def test_what_is_no_assignment_is_rejected_and_the_rest_counts() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    good = result(lease.assignments[0])
    bad = [
        result(lease.assignments[0], assignment_id="n0:x"),
        result(lease.assignments[0], url="mailto:someone"),
    ]
    accepted = made.results(batch_of([bad[0], good, bad[1]]), 1.0, "n0")
    assert (accepted.accepted_count, accepted.rejected_at) == (1, [0, 2])
    assert {one.reason for one in accepted.rejected} == {"malformed"}


def test_links_as_found_are_made_canonical_and_kept_in_scope() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    raw = result(lease.assignments[0], links=["a?b=2&a=1#x", "http://elsewhere.test/", "mailto:x", "http://["])
    made.results(Results([raw], [release(lease)]), 1.0, "n0")
    (again,) = Asker(made).work(5.0)
    assert [task.url for task in again.assignments] == ["http://h0.test/a?b=2&a=1"]


def test_a_silent_worker_without_heartbeats_is_quiet_and_is_let_in_when_it_asks_again() -> None:
    made = dispatcher(SEEDS[:2], lease_s=10.0)
    made.register("worker", 0.0, instance="")
    assert Asker(made, "worker").work(0.0, hosts=1)
    for now in (1.0, 15.0, 30.0):
        made.tick(now)
    assert drive(made.made.node_records())[0].status is NodeStatus.QUIET
    assert Asker(made, "worker").work(31.0)
    assert drive(made.made.node_records())[0].status is NodeStatus.ACTIVE


def test_a_silent_node_is_failed_and_its_leases_end_no_sooner_than_their_deadline() -> None:
    made = dispatcher(SEEDS[:1], lease_s=30.0)
    made.register("n0", 0.0)
    (lease,) = Asker(made).work(0.0)
    for now in (1.0, 10.0, 29.0):
        made.tick(now)
    assert drive(made.made.node_records())[0].status is NodeStatus.FAILED
    assert Asker(made, "n1").work(29.0) == []
    made.tick(30.0)
    (again,) = Asker(made, "n1").work(31.5)
    assert again.host == lease.host


def test_a_second_node_of_the_same_name_is_refused_while_the_first_lives_and_a_successor_is_not() -> None:
    made = dispatcher(SEEDS[:1])
    made.register("n0", 0.0, instance="one")
    with pytest.raises(BusyError, match="another --name"):
        made.register("n0", 1.0, instance="two")
    Asker(made).work(1.0)
    made.register("n0", 2.0, instance="one", boot=2, recovering=True)
    assert made.totals(2.0).leased == 1
    made.register("n0", 3.0, instance="one", boot=2)
    assert made.totals(3.0).leased == 0


def test_a_registration_that_comes_again_or_late_ends_no_lease_that_is_at_work() -> None:
    first, second = both(SEEDS[:1])
    first.register("n0", 0.0)
    first.register("n0", 1.0, boot=2)
    Asker(first).work(1.0)
    second.register("n0", 2.0, boot=2)
    with pytest.raises(BusyError):
        second.register("n0", 3.0, boot=1)
    assert first.totals(3.0).leased == 1


def test_the_leases_of_a_node_that_cannot_prove_to_be_its_successor_run_out() -> None:
    made = dispatcher(SEEDS[:1])
    made.register("n0", 0.0, instance="")
    Asker(made).work(0.0)
    made.register("n0", 1.0, instance="", boot=2)
    assert made.totals(1.0).leased == 1


def test_what_one_coordinator_decides_the_other_does() -> None:
    first, second = both()
    for made in (first, second):
        made.tick(0.0)
    assert (first.made.leads, second.made.leads) == (True, False)
    drive(second.made.pause())
    first.tick(1.0)
    assert first.state is CrawlState.PAUSED
    assert Asker(first).work(1.0) == []
    drive(first.made.resume())
    second.tick(2.0)
    assert Asker(second).work(2.0)
    second.tick(20.0)
    assert second.made.leads


def test_two_coordinators_never_lease_a_host_twice_nor_exceed_the_pages_allowed() -> None:
    first, second = both(pages_max=3)
    leases = [*Asker(first, "n0").work(0.0), *Asker(second, "n1").work(0.1), *Asker(second, "n1").work(5.0)]
    assert len({lease.host for lease in leases}) == len(leases)
    assert sum(len(lease.assignments) for lease in leases) == 3


def test_a_url_that_a_person_names_widens_the_scope_for_all_coordinators() -> None:
    first, second = both(SEEDS[:1])
    new = NewURLs("h3.test", ["http://h3.test/"])
    assert drive(first.made.enqueue([new], 0.0)) == [Added.ADDED]
    assert drive(first.made.enqueue([new], 0.0)) == [Added.SEEN]
    second.tick(1.0)
    assert second.made.scope_seeds == ["http://h3.test/"]
    work = second.work("n0", WorkRequest(1, max_hosts=0), 1.0)
    assert (work.scope_seeds, work.scope_version) == (["http://h3.test/"], 1)


def test_when_all_that_was_pending_is_settled_the_crawl_may_be_finished() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    made.tick(0.5)
    before = made.made.may_be_finished
    made.results(batch_of([result(lease.assignments[0])], [release(lease)]), 1.0)
    assert (before, made.made.may_be_finished) == (False, True)
    made.tick(1.5)
    assert made.state is CrawlState.FINISHED


# Everything in any order


def leads_to(url: str) -> list[str]:
    """The links of a page: a web of five hosts with seven pages each."""
    host, _, page = url.removeprefix("http://").partition("/")
    here = HOSTS.index(host) * 7 + int(page or 0)
    return [f"http://{HOSTS[at // 7]}/{at % 7 or ''}" for at in ((here * 2 + 1) % 35, (here * 3 + 2) % 35)]


def reachable() -> set[str]:
    found, rest = set(SEEDS), list(SEEDS)
    while rest:
        for url in leads_to(rest.pop()):
            if url not in found:
                found.add(url)
                rest.append(url)
    return found


class Interleaving:
    """Two nodes that ask, fetch, fail, repeat themselves, die and come back, in the order that Hypothesis draws."""

    def __init__(self, data: st.DataObject, pages_max: int | None) -> None:
        self.data = data
        self.made = dispatcher(pages_max=pages_max, retries_max=20)
        self.askers = [Asker(self.made, "n0"), Asker(self.made, "n1")]
        self.boots = [1, 1]
        for node in (0, 1):
            self.made.register(f"n{node}", 0.0)
        self.held: list[list[WorkLease]] = [[], []]
        self.sent: list[Results] = []
        self.now = 0.0
        self.fetched: set[str] = set()

    def step(self) -> None:
        node = self.data.draw(st.integers(0, 1))
        what = self.data.draw(st.sampled_from(["work", "finish", "finish", "part", "repeat", "die", "wait"]))
        getattr(self, what)(node)
        self.made.tick(self.now)
        self.check()

    def work(self, node: int) -> None:
        self.held[node] += self.askers[node].work(self.now, hosts=self.data.draw(st.integers(1, 4)), tasks=6)

    def finish(self, node: int) -> None:
        if self.held[node]:
            lease = self.held[node].pop()
            self.submit(lease, lease.assignments, [release(lease, 1.0)])

    def part(self, node: int) -> None:
        if self.held[node]:
            lease = self.held[node][-1]
            self.submit(lease, lease.assignments[:1], [])
            del lease.assignments[:1]

    def repeat(self, node: int) -> None:
        if self.sent:
            self.made.results(self.data.draw(st.sampled_from(self.sent)), self.now)

    def die(self, node: int) -> None:
        self.held[node].clear()
        self.boots[node] += 1
        self.made.register(f"n{node}", self.now, boot=self.boots[node])

    def wait(self, node: int) -> None:
        self.now += self.data.draw(st.sampled_from([0.5, 3.0, 12.0]))

    def submit(self, lease: WorkLease, tasks: list[Assignment], reports: list[HostReport]) -> None:
        results = []
        for task in tasks:
            if self.data.draw(st.integers(0, 4)) == 0:
                results.append(result(task, Outcome.FAILED, kind="reset", status_code=0))
            else:
                results.append(result(task, links=leads_to(task.url)))
                self.fetched.add(task.url)
        batch = batch_of(results, reports)
        self.sent.append(batch)
        self.made.results(batch, self.now)

    def check(self) -> None:
        totals = self.made.totals(self.now)
        limit = self.made.budget.pages_max
        assert limit is None or totals.pages <= limit
        assert totals.known == totals.pending + totals.done + totals.dead
        assert totals.pages == totals.done <= len(self.fetched)
        assert totals.dead == 0

    def run_out(self) -> None:
        """Let one node finish the crawl without further failures."""
        for _ in range(500):
            self.now += 12.0
            self.made.tick(self.now)
            for lease in self.askers[0].work(self.now):
                batch = [result(task, links=leads_to(task.url)) for task in lease.assignments]
                self.fetched |= {task.url for task in lease.assignments}
                self.made.results(batch_of(batch, [release(lease)]), self.now)
            self.check()
            if self.made.state is not CrawlState.RUNNING:
                return


@settings(max_examples=25)
@given(st.data())
def test_whatever_happens_in_whatever_order_every_page_is_settled_once(data: st.DataObject) -> None:
    crawl = Interleaving(data, None)
    for _ in range(data.draw(st.integers(0, 30))):
        crawl.step()
    crawl.run_out()
    totals = crawl.made.totals(crawl.now)
    assert (crawl.made.state, totals.pending) == (CrawlState.FINISHED, 0)
    assert crawl.fetched == reachable()
    assert totals.done == totals.pages == len(reachable())
    assert all(host_of(url) in HOSTS for url in crawl.fetched)


@settings(max_examples=25)
@given(st.data(), st.integers(1, 20))
def test_whatever_happens_no_more_pages_are_settled_than_the_budget_allows(data: st.DataObject, limit: int) -> None:
    crawl = Interleaving(data, limit)
    for _ in range(data.draw(st.integers(0, 30))):
        crawl.step()
    crawl.run_out()
    assert crawl.made.totals(crawl.now).pages == limit
    assert crawl.made.made.stop_reason == "pages_max"


class SlowReader(MemoryEngine):
    """What is read comes late: after whatever else happened meanwhile."""

    async def get_meta(self, key: str) -> bytes | None:
        found = await super().get_meta(key)
        await asyncio.sleep(0.01)
        return found


def test_a_state_that_was_read_before_a_change_does_not_undo_it() -> None:
    async def resume_during_a_look() -> CrawlState:
        dispatcher = Dispatcher(SlowReader(1), CrawlConfig(), [], chance=random.Random(1))
        await dispatcher.stop("interrupted")
        look = asyncio.create_task(dispatcher._follow_state())
        await asyncio.sleep(0)
        await dispatcher.resume()
        await look
        return dispatcher.state

    assert asyncio.run(resume_during_a_look()) is CrawlState.RUNNING


def test_a_result_whose_rival_loses_its_lease_while_it_is_judged_is_judged_again_with_its_links(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was settled without its links once: the preview had called it stale, so none were added, and then the lease
    that was in its way ended."""
    made = dispatcher(SEEDS[:1], lease_s=20.0)
    (late,) = Asker(made).work(0.0)
    made.tick(100.0)
    (rival,) = Asker(made, "n1").work(110.0)
    assert rival.host == late.host
    engine = made.made.engine
    right = engine.preview_all

    async def preview_all(asked: Any) -> Any:
        answer = await right(asked)
        await engine.expire_all(200.0)
        return answer

    batch = batch_of([result(late.assignments[0], links=["http://h0.test/a"])], [release(late)])
    with monkeypatch.context() as patched:
        patched.setattr(engine, "preview_all", preview_all)
        with pytest.raises(Refused, match="judged again"):
            made.results(batch, 120.0)
    assert (made.totals(200.0).done, made.totals(200.0).queued) == (0, 1)
    assert made.results(batch, 200.0).accepted_count == 1
    assert (made.totals(200.0).done, made.totals(200.0).queued) == (1, 1)


def test_a_result_that_was_refused_is_refused_when_it_comes_again() -> None:
    """Its node has thrown the page away. The message may have waited in a coordinator that stood still."""
    made = dispatcher(SEEDS[:1], lease_s=20.0)
    (late,) = Asker(made).work(0.0)
    made.tick(100.0)
    Asker(made, "n1").work(110.0)
    batch = batch_of([result(late.assignments[0], links=["http://h0.test/a"])])
    assert made.results(batch, 120.0).rejected_at == [0]
    made.tick(200.0)
    assert made.results(batch, 201.0).rejected_at == [0]
    assert (made.totals(201.0).done, made.totals(201.0).queued) == (0, 1)
