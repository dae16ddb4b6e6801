"""What a lying node can do with links and redirects: an honest node that comes later must not suffer from them."""

from __future__ import annotations

import pytest

from drumlin.access.misdeeds import Misdeed
from drumlin.coordinator.taking.settling import Kept
from drumlin.model import Outcome
from drumlin.protocol import Assignment, AssignmentKey
from drumlin.urls import host_of
from tests.harness.dispatching import SEEDS, Asker, Driven, batch_of, dispatcher, release, result

PAGE, OTHER = SEEDS[:2]
MANY = [f"{PAGE}{number}" for number in range(3_000)]


def redirected(made: Driven, task: Assignment, now: float, chain: list[str]) -> Assignment:
    """Have a page of the first host redirect to another one, by way of what the node says; returns the target."""
    target = task.url + "on"
    moved = result(task, Outcome.REDIRECTED, status_code=301, redirect_to=target, redirect_chain=chain)
    made.results(batch_of([moved]), now)
    made.tick(now + 100.0)
    leases = Asker(made, f"node{now:.0f}").work(now + 101.0)
    return next(one for lease in leases for one in lease.assignments if one.url == target)


def first_page(made: Driven) -> Assignment:
    leases = Asker(made, "hostile").work(0.0)
    return next(one for lease in leases for one in lease.assignments if one.url == PAGE)


@pytest.mark.parametrize("chain", [[OTHER, "x"], ["u" * 8_200] * 50])
def test_the_chain_of_a_redirect_is_not_what_a_node_says_it_is(chain: list[str]) -> None:
    made = dispatcher([PAGE, OTHER], shards=1)
    target = redirected(made, first_page(made), 1.0, chain)
    assert target.redirects == (PAGE,)


def test_a_chain_of_redirects_is_no_longer_than_the_crawl_permits() -> None:
    made = dispatcher([PAGE], shards=1, redirects_max=2)
    task = first_page(made)
    for turn in range(4):
        task = redirected(made, task, 1.0 + turn * 1_000, [])
    assert task.redirects == (PAGE + "onon", PAGE + "ononon")


@pytest.mark.parametrize("claimed", [OTHER, OTHER + "x", "x", "http://"])
def test_links_are_queued_under_their_own_host_whatever_page_they_are_said_to_be_from(claimed: str) -> None:
    made = dispatcher([OTHER], shards=1)
    (lease,) = Asker(made).work(0.0)
    moved = result(lease.assignments[0], Outcome.REDIRECTED, status_code=301, redirect_to=PAGE)
    made.results(batch_of([moved], [release(lease)]), 1.0)
    task, links = first_page(made), [OTHER + "private", PAGE + "public"]
    assert task.redirects == (OTHER,)
    made.results(batch_of([result(task, links=links, page_url=claimed)]), 2.0, "hostile")
    made.tick(100.0)
    leases = Asker(made, "honest").work(101.0)
    given = [(lease.host, one.url) for lease in leases for one in lease.assignments]
    assert sorted(given) == [(host_of(url), url) for url in reversed(links)]


@pytest.mark.parametrize(
    "odd",
    [
        *("http://h0.test/\u00e9", "http://h0.test/\0", "http://h0.test/ ", "http://h0.test/\x7f", "http://h0.test/#a"),
        *("http://H0.test/", "http://h0.test:80/", "https://h0.test:443/", "http://h0.test./", "http://h0.test:081/"),
        *("http://a;b?/", "http://h0.test", "http://h0.test?/", "http://u@h0.test/", "http:///h0.test/", "http://.a/"),
        *("http://127.1/", "http://2130706433/", "http://127.0.0.0x1/", "http://127.0.0.01/", "http://h0..test/"),
        *("ftp://h0.test/", "HTTP://h0.test/", f"{PAGE}a\n{PAGE}b", f"{PAGE}\n", "http://h0.test:65536/", "x" * 9),
    ],
)
def test_one_badly_spelled_link_among_thousands_has_the_batch_refused(odd: str) -> None:
    made = dispatcher([PAGE], shards=1)
    (lease,) = Asker(made, "hostile").work(0.0)
    for links in ([*MANY, odd], [odd, *MANY], [*MANY[:2_000], odd, *MANY[2_000:]]):
        sent = [result(lease.assignments[0], links=MANY), result(lease.assignments[0], links=links)]
        accepted = made.results(batch_of(sent, [release(lease)]), 1.0, "hostile")
        assert {one.reason for one in accepted.rejected} == {"foreign_links"}
        assert made.made.misdeeds.take("hostile") == {Misdeed.FOREIGN_LINKS: 1}
    assert made.totals(1.0).pending == 1


def test_results_that_make_no_sense_are_refused_and_held_against_their_node() -> None:
    made = dispatcher([PAGE], shards=1)
    (lease,) = Asker(made, "hostile").work(0.0)
    accepted = made.results(batch_of([result(lease.assignments[0], content_hash="z" * 64)]), 1.0, "hostile")
    assert (accepted.accepted_count, [one.reason for one in accepted.rejected]) == (0, ["malformed"])
    assert made.made.misdeeds.take("hostile") == {Misdeed.MALFORMED: 1}
    assert made.totals(1.0).pending == 1


@pytest.mark.parametrize(("results", "sampled"), [(1, 8), (100, 8), (101, 16), (500, 40), (2_000, 40)])
def test_of_a_large_batch_as_large_a_share_of_the_links_is_checked(results: int, sampled: int) -> None:
    made = dispatcher([PAGE], shards=1)
    task = first_page(made)
    key = AssignmentKey("hostile", "hostile:1", 1, 0, 0, "")
    kept = [
        Kept(place, result(task, links=MANY[:10]), key, host_of(PAGE), Outcome.FETCHED, b"") for place in range(results)
    ]
    assert len(made.made.findings._sample(kept)) == sampled
