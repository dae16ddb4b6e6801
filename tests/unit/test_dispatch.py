"""The dispatcher on the memory engine: leases out, results in, budgets kept, nothing lost."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.config import CrawlConfig
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.engines.memory import MemoryEngine
from drumlin.model import Outcome, Task, Verdict
from drumlin.protocol import CrawlState, HostReport, KnownRequest, Result, Results, WorkLease, WorkRequest
from drumlin.urls import host_of

HOSTS = [f"h{number}.test" for number in range(5)]
SEEDS = [f"http://{host}/" for host in HOSTS]


def dispatcher(seeds: list[str] = SEEDS, shards: int = 3, **config: Any) -> Dispatcher:
    settings_of_crawl = CrawlConfig(**({"delay_s": 1.0, "backoff_base_s": 1.0, "lease_s": 10.0} | config))
    made = Dispatcher(MemoryEngine(shards), settings_of_crawl, seeds, chance=random.Random(1))
    made.seed(seeds, 0.0)
    return made


class Asker:
    """Numbers its requests, as a node does."""

    def __init__(self, made: Dispatcher, node: str = "n0") -> None:
        self.made = made
        self.node = node
        self.requests = 0

    def work(
        self, now: float, hosts: int = 10, tasks: int = 100, renew: tuple[tuple[str, str], ...] = ()
    ) -> list[WorkLease]:
        self.requests += 1
        request = WorkRequest(f"{self.node}:{self.requests}", tasks, hosts, list(renew), 0)
        return self.made.work(self.node, request, now).leases


def result(lease: WorkLease, task: Task, outcome: Outcome = Outcome.FETCHED, **more: Any) -> Result:
    made = Result(
        lease.lease_id,
        task.id,
        task.url,
        lease.host,
        "test",
        task.depth,
        task.attempts,
        outcome,
        0 if outcome is Outcome.DENIED else 200,
        f"{lease.lease_id}:{task.id}".encode(),
        1.0,
        size=10 if outcome is Outcome.FETCHED else 0,
        digest=f"{task.url:.<32}".encode()[-32:],
        record_id="r",
        redirects=task.redirects,
    )
    for name, value in more.items():
        setattr(made, name, value)
    return made


def release(lease: WorkLease, next_contact_s: float = 0.0, **more: Any) -> HostReport:
    return HostReport(lease.lease_id, lease.host, True, next_contact_s, **more)


def test_the_links_of_a_page_are_queued_before_it_is_settled() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    found = result(lease, lease.tasks[0], links=["http://h0.test/a", "http://h0.test/b", "http://h0.test/a"])
    accepted = made.results(Results([found], [release(lease)]), 1.0)
    totals = made.totals(1.0)
    assert accepted.verdicts == [Verdict.SETTLED]
    assert (totals.queued, totals.done, totals.pages, totals.bytes) == (2, 1, 1, 10)


def test_a_batch_sent_twice_counts_once() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    batch = Results([result(lease, lease.tasks[0], links=["http://h0.test/a"])], [release(lease)])
    made.results(batch, 1.0)
    before = made.totals(1.0)
    assert made.results(batch, 2.0).verdicts == [Verdict.REPEATED]
    assert made.totals(1.0) == before


def test_a_host_is_leased_to_one_node_at_a_time_and_not_before_its_next_contact() -> None:
    made = dispatcher(SEEDS[:1])
    first, second = Asker(made, "n0"), Asker(made, "n1")
    (lease,) = first.work(0.0)
    assert second.work(0.0) == []
    found = result(lease, lease.tasks[0], links=["http://h0.test/a"])
    made.results(Results([found], [release(lease, next_contact_s=5.0)]), 1.0)
    assert second.work(4.0) == []
    (again,) = second.work(5.5)
    assert (again.host, again.wait_s) == ("h0.test", 0.5)


def test_what_a_node_learnt_of_a_host_is_given_to_the_next() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    learnt = HostReport(lease.lease_id, lease.host, False, 0.0, 7.5, b"note", ["http://h0.test/map.xml"])
    made.results(Results([], [learnt]), 1.0)
    made.results(Results([result(lease, lease.tasks[0])], [release(lease)]), 1.0)
    (again,) = Asker(made, "n1").work(10.0)
    assert (again.delay_s, again.note, [task.url for task in again.tasks]) == (7.5, b"note", ["http://h0.test/map.xml"])


def test_a_failure_is_retried_until_it_is_dead_and_both_are_counted() -> None:
    made = dispatcher(SEEDS[:1], retries_max=1)
    asker = Asker(made)
    for now in (0.0, 100.0):
        made.tick(now, now)
        (lease,) = asker.work(now)
        failed = result(lease, lease.tasks[0], Outcome.FAILED, kind="timeout", error="too slow", status=0)
        made.results(Results([failed], [release(lease)]), now)
    assert made.totals(200.0).group("retried.") == {"timeout": 1}
    assert made.totals(200.0).group("dead.") == {"timeout": 1}
    assert made.tick(200.0, 200.0).pending == 0
    assert made.state is CrawlState.FINISHED


def test_a_redirect_is_followed_in_scope_and_where_a_seed_leads_is_a_seed_too() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    moved = result(lease, lease.tasks[0], Outcome.REDIRECTED, status=301, redirect_to="http://www.test/")
    made.results(Results([moved], [release(lease)]), 1.0)
    assert made.scope_seeds == ["http://www.test/"]
    (target,) = Asker(made).work(5.0)
    assert (target.tasks[0].url, target.tasks[0].redirects) == ("http://www.test/", (SEEDS[0],))
    reopened = Dispatcher(made.engine, made.config, SEEDS[:1], chance=random.Random(1))
    assert reopened.scope_seeds == ["http://www.test/"]


def test_a_page_that_redirects_out_of_scope_is_not_followed() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    task = lease.tasks[0]
    moved = result(lease, task, Outcome.REDIRECTED, status=301, redirect_to="http://www.test/", depth=1)
    made.results(Results([moved], [release(lease)]), 1.0)
    assert (made.totals(1.0).pending, made.scope_seeds) == (0, [])


def test_a_repeated_content_is_a_duplicate_of_the_first() -> None:
    made = dispatcher(SEEDS[:2])
    leases = Asker(made).work(0.0)
    same = [result(lease, lease.tasks[0], digest=b"d" * 32) for lease in leases]
    accepted = made.results(Results(same, []), 1.0)
    known = made.known(KnownRequest([("test", b"d" * 32), ("test", b"e" * 32)]))
    assert [duplicate is not None for duplicate in accepted.duplicates] == [False, True]
    assert made.totals(1.0).group("duplicates.") == {"exact": 1}
    assert [duplicate is not None for duplicate in known.duplicates] == [True, False]


def test_a_node_that_starts_again_or_leaves_gives_its_hosts_back() -> None:
    made = dispatcher(SEEDS[:1])
    Asker(made).work(0.0)
    made.register("n0", 5.0)
    (lease,) = Asker(made, "n1").work(5.0)
    # The dead process may have contacted the host just now, so it is left alone for its delay.
    assert (lease.host, lease.wait_s) == ("h0.test", 1.0)
    made.leave("n1", 7.0)
    assert (made.totals(7.0).leased, sorted(made.nodes)) == (0, ["n0"])


def test_a_renewed_lease_gets_further_urls_and_a_foreign_one_is_lost() -> None:
    made = dispatcher(SEEDS[:1], lease_s=4.0)
    asker = Asker(made)
    (lease,) = asker.work(0.0)
    made.seed([f"http://h0.test/{number}" for number in range(9)], 1.0)
    (renewed,) = asker.work(1.0, hosts=0, renew=((lease.lease_id, lease.host),))
    assert (renewed.lease_id, len(renewed.tasks)) == (lease.lease_id, 3)
    lost = made.work("n0", WorkRequest("n0:x", 10, 0, [("wrong", lease.host)], 0), 1.0).lost
    assert lost == [lease.host]


def test_while_it_drains_nothing_is_given_out() -> None:
    made = dispatcher()
    made.drain("interrupted")
    made.drain("pages_max")
    work = made.work("n0", WorkRequest("r", 10, 10, [], 0), 0.0)
    assert (work.state, work.leases, made.stop_reason) == (CrawlState.DRAINING, [], "interrupted")


def test_a_page_that_kills_its_process_twice_is_a_dead_letter() -> None:
    made = dispatcher(SEEDS[:1])
    assert not made.strike(SEEDS[0], 1.0, kind="crash", error="SIGSEGV")
    assert made.strike(SEEDS[0], 2.0, kind="crash", error="SIGSEGV")
    assert made.totals(2.0).group("dead.") == {"crash": 1}


def test_a_host_takes_no_more_urls_than_allowed_and_the_refused_are_counted() -> None:
    made = dispatcher(SEEDS[:1], host_urls_max=3)
    assert made.seed([f"http://h0.test/{number}" for number in range(9)], 0.0) == 2
    assert made.totals(0.0).group("refused.") == {"host_urls_max": 7}


@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_no_host_is_out_of_every_nodes_reach(nodes: int) -> None:
    made = dispatcher(shards=4)
    askers = [Asker(made, f"n{number}") for number in range(nodes)]
    leased = [lease.host for asker in askers for lease in asker.work(0.0)]
    assert sorted(leased) == HOSTS


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
        self.held: list[list[WorkLease]] = [[], []]
        self.sent: list[Results] = []
        self.now = 0.0
        self.fetched: set[str] = set()

    def step(self) -> None:
        node = self.data.draw(st.integers(0, 1))
        what = self.data.draw(st.sampled_from(["work", "finish", "finish", "part", "repeat", "die", "wait"]))
        getattr(self, what)(node)
        self.made.tick(self.now, self.now)
        self.check()

    def work(self, node: int) -> None:
        self.held[node] += self.askers[node].work(self.now, hosts=self.data.draw(st.integers(1, 4)), tasks=6)

    def finish(self, node: int) -> None:
        if self.held[node]:
            lease = self.held[node].pop()
            self.submit(lease, lease.tasks, [release(lease, 1.0)])

    def part(self, node: int) -> None:
        if self.held[node]:
            lease = self.held[node][-1]
            self.submit(lease, lease.tasks[:1], [])
            del lease.tasks[:1]

    def repeat(self, node: int) -> None:
        if self.sent:
            self.made.results(self.data.draw(st.sampled_from(self.sent)), self.now)

    def die(self, node: int) -> None:
        self.held[node].clear()
        self.made.register(f"n{node}", self.now)

    def wait(self, node: int) -> None:
        self.now += self.data.draw(st.sampled_from([0.5, 3.0, 12.0]))

    def submit(self, lease: WorkLease, tasks: list[Task], reports: list[HostReport]) -> None:
        results = []
        for task in tasks:
            if self.data.draw(st.integers(0, 4)) == 0:
                results.append(result(lease, task, Outcome.FAILED, kind="reset", status=0))
            else:
                results.append(result(lease, task, links=leads_to(task.url)))
                self.fetched.add(task.url)
        batch = Results(results, reports)
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
        """Let one node finish the crawl without mishap."""
        for _ in range(500):
            self.now += 12.0
            self.made.tick(self.now, self.now)
            for lease in self.askers[0].work(self.now):
                batch = [result(lease, task, links=leads_to(task.url)) for task in lease.tasks]
                self.fetched |= {task.url for task in lease.tasks}
                self.made.results(Results(batch, [release(lease)]), self.now)
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
    assert crawl.made.stop_reason == "pages_max"
