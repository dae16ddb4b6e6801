"""From arrival to settlement: what is read, asked, archived, sent and published, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from drumlin.model import Duplicate, Outcome
from drumlin.node import settling
from drumlin.node.keeping.archive import Arrival
from drumlin.node.keeping.outbox import PARCELS_UNDER_WAY_MAX
from drumlin.node.settling import (
    FILL_LAG_SHARE,
    FILL_LEFT_TIMES,
    FILL_LOOK_S,
    FILL_RESULTS_MIN,
    FILL_S,
    LAG_LEASE_SHARE,
    LAG_S_MAX,
    READ_WAIT_S,
    SETTLE_BATCH_MAX,
    SETTLE_WAIT_S,
    STORE_WAIT_S,
    UNSETTLED_PAGES_MAX,
    Settling,
)
from drumlin.protocol import Accepted, HostReport, Rejected
from tests.harness.settling_parts import Parts, arrival, host, parts, settling_of

__all__ = ["parts"]


def test_a_page_is_read_asked_for_stored_sent_and_only_then_published(parts: Parts) -> None:
    made, work = settling_of(parts), host()
    made.arrive(work, arrival())
    made.step()
    assert parts.heard == [], "a moment is left for more to arrive"
    parts.now += 1.0
    made.step()
    parts.answer()
    parts.now += 1.0
    made.step()
    assert parts.heard == ["read 1", "clear", "known", "sending 1 of a.test", "store 1", "results"]
    assert not made.empty
    message = parts.answer()
    assert parts.heard[-2:] == ["publish 1", "answered 1 of a.test"]
    assert (made.empty, made.due()) == (True, float("inf"))
    (sent,) = message.results
    assert (sent.links, sent.traps, sent.record_id) == (["http://a.test/1/next"], {"calendar": 1}, "r")


def encoded(number: int, encoding: str = "gzip") -> Arrival:
    """A page whose body is decoded when it is read, not before."""
    made = arrival(number)
    assert made.capture is not None
    made.capture.headers["content-encoding"] = encoding
    made.capture.body = b""
    return made


def test_pages_that_grow_when_they_are_decoded_are_decoded_a_few_at_a_time(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred bodies of 64 KB that arrive together may stand for 6 GB."""
    monkeypatch.setattr(settling, "READ_BYTES_MAX", 100)
    monkeypatch.setattr(settling, "UNSETTLED_BYTES_MAX", 250)
    parts.decoded_bytes = 60
    made = settling_of(parts)
    for number in range(10):
        made.arrive(host(), encoded(number))
    for _ in range(6):
        parts.now += 1.0
        made.step()
    assert [heard for heard in parts.heard if heard.startswith("read")] == ["read 2", "read 2"]
    assert made.due() == float("inf"), "nothing to do before an answer"
    for _ in range(40):
        while parts.sent:
            parts.answer()
        parts.now += 1.0
        made.step()
    assert [heard for heard in parts.heard if heard.startswith("read")] == ["read 2"] * 5
    assert (made.empty, made.full) == (True, False)


def test_pages_whose_links_are_many_bytes_are_read_no_further_than_there_is_room(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "READ_BATCH", 2)
    monkeypatch.setattr(settling, "UNSETTLED_BYTES_MAX", 250)
    parts.links_bytes = 100
    made = settling_of(parts)
    for number in range(6):
        made.arrive(host(), arrival(number))
    for _ in range(6):
        parts.now += 1.0
        made.step()
    assert [heard for heard in parts.heard if heard.startswith("read")] == ["read 2", "read 2"]
    for _ in range(40):
        while parts.sent:
            parts.answer()
        parts.now += 1.0
        made.step()
    assert [heard for heard in parts.heard if heard.startswith("read")] == ["read 2"] * 3
    assert (made.empty, made.full, made.held_bytes) == (True, False, 0)


def test_of_what_is_still_packed_one_is_read_at_a_time(parts: Parts) -> None:
    made = settling_of(parts)
    for number in range(3):
        packed = arrival(number)
        assert packed.capture is not None
        packed.capture.body = b"\x1f\x8b" + packed.capture.body
        made.arrive(host(), packed)
    parts.now += 1.0
    made.step()
    assert parts.heard[0] == "read 1"


def test_a_page_whose_body_does_not_decode_has_failed(parts: Parts) -> None:
    made = settling_of(parts)
    made.arrive(host(), encoded(1, "broken"))
    for _ in range(3):
        parts.now += 1.0
        made.step()
    (sent,) = parts.answer().results
    assert (sent.outcome, sent.kind, sent.error, sent.size) == (Outcome.FAILED, "decode", "It is broken.", 0)
    made.step()
    assert (made.empty, made.full) == (True, False)


@pytest.mark.parametrize("among_strangers", [True, False])
def test_among_strangers_a_page_is_archived_as_a_repetition_of_the_nodes_own_records_alone(
    parts: Parts, among_strangers: bool
) -> None:
    """A node that lies may name a record that does not exist, and the page's body would be lost."""
    parts.among_strangers = among_strangers
    made = settling_of(parts)
    stranger = Duplicate("http://b.a.test/", 1.0, "of another node", None)
    own = Duplicate("http://a.test/0/", 1.0, "r", None)
    seen: list[Duplicate | None] = []
    for number, claimed in enumerate((None, own, stranger)):
        page = arrival(number)
        made.arrive(host(), page)
        parts.now += 1.0
        made.step()
        parts.answer(claimed)
        parts.now += 1.0
        made.step()
        parts.answer()
        assert page.capture is not None
        seen.append(page.capture.duplicate)
    unsure = Duplicate("http://b.a.test/", 1.0, "", None)
    assert seen == [None, own, unsure if among_strangers else stranger]


def settle(made: Settling, parts: Parts, number: int) -> Callable[[Accepted], None]:
    """Let a page arrive and its result be sent; how to answer that."""
    made.arrive(host(), arrival(number))
    for _ in range(4):
        parts.now += 1.0
        made.step()
        if parts.sent[-1][0] == "known":
            parts.answer_known()
    return parts.sent.pop()[2]


@pytest.mark.parametrize("fate", ["rejected", "unanswered"])
def test_the_links_of_a_page_whose_result_did_not_count_are_told_again_when_it_is_fetched_again(
    parts: Parts, fate: str
) -> None:
    made = settling_of(parts)
    answer_first, answer_other = settle(made, parts, 1), settle(made, parts, 2)
    answer_other(Accepted(1, 0, []))
    if fate == "rejected":
        answer_first(Accepted(0, 1, [Rejected("n0:token/1.0.0.seal", "stale")], rejected_at=[0]))
        assert parts.heard[-3] == "untold http://a.test/1/next"
    settle(made, parts, 2)
    assert not [heard for heard in parts.heard if heard.startswith("again")]
    settle(made, parts, 1)(Accepted(1, 0, []))
    assert [heard for heard in parts.heard if heard.startswith("again")] == ["again http://a.test/1/"]
    settle(made, parts, 1)
    assert parts.heard.count("again http://a.test/1/") == 1, "now it has counted"


def test_what_has_no_content_is_not_asked_for(parts: Parts) -> None:
    made = settling_of(parts)
    made.arrive(host(), arrival(page=False))
    parts.now += 1.0
    made.step()
    parts.now += 1.0
    made.step()
    assert parts.heard == ["read 0", "clear", "sending 1 of a.test", "store 1", "results"]


@pytest.mark.parametrize(("url", "marked"), [("http://a.test/other", True), ("http://a.test/1/", False)])
def test_a_known_content_is_a_duplicate_unless_it_is_the_same_page_again(parts: Parts, url: str, marked: bool) -> None:
    made, arrived = settling_of(parts), arrival()
    made.arrive(host(), arrived)
    parts.now += 1.0
    made.step()
    parts.answer(Duplicate(url, 0.5, "earlier"))
    assert arrived.capture is not None
    assert (arrived.capture.duplicate is not None) == marked


def test_some_parcels_are_under_way_at_once_and_none_is_larger_than_allowed(parts: Parts) -> None:
    made, work = settling_of(parts), host()
    count = SETTLE_BATCH_MAX * PARCELS_UNDER_WAY_MAX + 50
    for number in range(count):
        made.arrive(work, arrival(number, page=False))
    for _ in range(40):
        parts.now += 1.0
        made.step()
    assert len(parts.sent) == PARCELS_UNDER_WAY_MAX
    sizes = []
    while parts.sent:
        sizes.append(len(parts.answer().results))
        parts.now += 1.0
        made.step()
    assert sum(sizes) == count
    assert max(sizes) <= SETTLE_BATCH_MAX
    assert made.empty


def sent_after_s(parts: Parts, made: Settling) -> float:
    """How long it takes from now until a parcel is sent, stepping whenever something is due."""
    began = parts.now
    for _ in range(100):
        if "results" in parts.heard:
            break
        parts.now = max(parts.now, made.due())
        made.step()
    return parts.now - began


def arrive(made: Settling, count: int, **more: Any) -> None:
    """So many results arrive, and are read if they are of pages."""
    for number in range(count):
        made.arrive(host(), arrival(number, **more))


@pytest.mark.parametrize(("lease_s", "filled_s"), [(20.0, FILL_S), (2.0, FILL_LAG_SHARE * LAG_LEASE_SHARE * 2.0)])
def test_a_parcel_is_filled_while_much_more_is_left_to_fetch(parts: Parts, lease_s: float, filled_s: float) -> None:
    made = settling_of(parts, lease_s)
    parts.left_to_fetch = 1_000
    arrive(made, FILL_RESULTS_MIN, page=False)
    assert sent_after_s(parts, made) == pytest.approx(READ_WAIT_S + filled_s)


@pytest.mark.parametrize(
    ("results", "left"),
    [(FILL_RESULTS_MIN - 1, 1_000), (FILL_RESULTS_MIN, FILL_LEFT_TIMES * FILL_RESULTS_MIN), (SETTLE_BATCH_MAX, 10_000)],
)
def test_a_parcel_is_not_filled_if_nothing_is_gained_or_its_links_may_be_the_next_work(
    parts: Parts, results: int, left: int
) -> None:
    made = settling_of(parts)
    parts.left_to_fetch = left
    arrive(made, results, page=False)
    assert sent_after_s(parts, made) <= READ_WAIT_S + SETTLE_WAIT_S + 1e-9


def test_a_parcel_goes_soon_after_little_is_left_to_fetch(parts: Parts) -> None:
    made = settling_of(parts)
    parts.left_to_fetch = 1_000
    arrive(made, FILL_RESULTS_MIN, page=False)
    for _ in range(3):
        parts.now = max(parts.now, made.due())
        made.step()
    assert "results" not in parts.heard
    parts.left_to_fetch = 0
    assert sent_after_s(parts, made) <= FILL_LOOK_S + 1e-9


def test_a_parcel_with_results_of_a_host_that_is_to_be_given_back_is_not_filled(parts: Parts) -> None:
    made, ending = settling_of(parts), host("b.test")
    parts.left_to_fetch = 1_000
    arrive(made, FILL_RESULTS_MIN, page=False)
    ending.ending = True
    made.arrive(ending, arrival(page=False))
    assert sent_after_s(parts, made) == pytest.approx(READ_WAIT_S + SETTLE_WAIT_S)


def test_a_parcel_of_many_bytes_is_not_filled(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "FILL_BYTES_MAX", 1_000)
    made = settling_of(parts)
    parts.left_to_fetch = 1_000
    arrive(made, FILL_RESULTS_MIN, size=1_000)
    parts.now = made.due()
    made.step()
    parts.answer()
    assert sent_after_s(parts, made) == pytest.approx(SETTLE_WAIT_S)


def test_what_does_not_fit_into_a_parcel_because_of_its_links_goes_with_the_next_at_once(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "LINKS_PARCEL", 20)
    made = settling_of(parts)
    parts.left_to_fetch = 10_000
    arrive(made, 50)
    parts.now = made.due()
    made.step()
    parts.answer_known()
    assert sent_after_s(parts, made) == pytest.approx(FILL_S)
    sizes = [len(parts.answer().results)]
    began = parts.now
    while parts.now < began + FILL_S / 2 and sum(sizes) < 50:
        parts.now = max(parts.now, made.due())
        made.step()
        sizes.append(len(parts.answer().results))
    assert sizes == [20, 20, 10]


def test_a_parcel_is_closed_by_the_characters_of_all_its_urls(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settling, "URL_CHARS_BATCH_MAX", 1_000)
    made = settling_of(parts)
    for number in range(10):
        one = arrival(number, page=False)
        one.result.redirect_chain = ["http://a.test/" + "x" * 400]
        made.arrive(host(), one)
    sent_after_s(parts, made)
    assert len(parts.answer().results) == 3


def test_a_host_is_given_back_with_or_after_its_last_result(parts: Parts) -> None:
    made, work = settling_of(parts), host()
    report = HostReport(work.lease_id, work.host, True, 0.0)
    parts.on_sending = lambda: made.report(report)
    made.arrive(work, arrival(page=False))
    for _ in range(2):
        parts.now += 1.0
        made.step()
    message = parts.answer()
    assert (len(message.results), message.hosts) == (1, [report])


def test_a_report_is_sent_without_any_result(parts: Parts) -> None:
    made = settling_of(parts)
    made.report(HostReport("token", "a.test", True, 0.0))
    assert made.due() > parts.now
    parts.now = made.due()
    made.step()
    assert parts.heard == ["results"]
    parts.answer()
    assert made.empty


def test_it_is_full_by_pages_or_by_bytes_until_they_are_settled(parts: Parts) -> None:
    made, work = settling_of(parts), host()
    for number in range(UNSETTLED_PAGES_MAX):
        assert not made.full
        made.arrive(work, arrival(number, page=False))
    assert (made.full, made.behind) == (True, True)
    heavy = settling_of(parts)
    heavy.arrive(work, arrival(size=settling.UNSETTLED_BYTES_MAX // 2))
    assert heavy.full
    for _ in range(2):
        parts.now += 1.0
        heavy.step()
        parts.answer()
    heavy.step()
    assert (heavy.full, heavy.empty) == (False, True)


# While no coordinator answers


def pass_time(parts: Parts, made: Settling, turns: int = 1) -> None:
    for _ in range(turns):
        parts.now += STORE_WAIT_S
        made.step()


def test_what_arrives_while_others_are_unanswered_is_archived_and_sent_in_order_later(parts: Parts) -> None:
    made, work = settling_of(parts), host()
    count = PARCELS_UNDER_WAY_MAX + 2
    for number in range(count):
        made.arrive(work, arrival(number, page=False))
        pass_time(parts, made, 2)
    heard = [one for one in parts.heard if one.startswith(("store ", "results"))]
    assert heard == ["store 1", "results"] * PARCELS_UNDER_WAY_MAX + ["store 1"] * 2
    sent = []
    while parts.sent:
        sent += [result.url for result in parts.answer().results]
    assert sent == [f"http://a.test/{number}/" for number in range(count)]
    assert made.empty


def test_what_is_known_is_not_asked_while_cut_off_and_not_waited_for_when_it_fails(parts: Parts) -> None:
    made = settling_of(parts)
    parts.cut_off = True
    made.arrive(host(), arrival())
    pass_time(parts, made, 2)
    assert ("known" in parts.heard, "store 1" in parts.heard) == (False, True)
    parts.answer()
    parts.cut_off = False
    made.arrive(host(), arrival(2))
    pass_time(parts, made)
    assert parts.heard[-1] == "known"
    assert parts.on_failure is not None
    parts.sent.clear()
    parts.on_failure(1.0)
    pass_time(parts, made)
    assert parts.heard[-2:] == ["store 1", "results"]


def test_memory_stays_bounded_through_an_outage_and_everything_is_sent_after_it(parts: Parts) -> None:
    made, work = settling_of(parts), host()
    parts.cut_off = True
    number = 0
    while not made.full:
        made.arrive(work, arrival(number, page=False))
        number += 1
        if number % 50 == 0:
            pass_time(parts, made)
    pass_time(parts, made, 5)
    assert made.unanswered == number == UNSETTLED_PAGES_MAX
    parts.cut_off = False
    sent: list[str] = []
    while parts.sent:
        sent += [result.url for result in parts.answer().results]
    assert sent == [f"http://a.test/{number}/" for number in range(UNSETTLED_PAGES_MAX)]
    pass_time(parts, made)
    assert (made.empty, made.full, made.unanswered) == (True, False, 0)
    published = [int(one.removeprefix("publish ")) for one in parts.heard if one.startswith("publish")]
    assert sum(published) == UNSETTLED_PAGES_MAX


# How far settling may lag behind fetching


def test_nothing_more_is_fetched_while_the_oldest_page_waits_for_its_answer_for_too_long(parts: Parts) -> None:
    made, work = settling_of(parts), host()
    made.arrive(work, arrival())
    parts.now += LAG_S_MAX - 0.1
    made.step()
    assert not made.full
    parts.now += 0.2
    made.step()
    assert [made.full] == [True]
    assert made.lag_s(parts.now) == pytest.approx(LAG_S_MAX + 0.1)
    for _ in range(2):
        parts.answer()
        pass_time(parts, made)
    assert (made.full, made.empty, made.lag_s(parts.now)) == (False, True, 0.0)


def test_settling_may_lag_by_a_part_of_a_short_lease_only(parts: Parts) -> None:
    made = settling_of(parts, lease_s=2.0)
    made.arrive(host(), arrival())
    parts.now += LAG_LEASE_SHARE * 2.0 + 0.1
    made.step()
    assert made.full


def test_the_lag_counts_from_the_arrival_of_the_oldest_page_wherever_it_is_on_its_way(parts: Parts) -> None:
    made = settling_of(parts)
    begun = parts.now
    made.arrive(host("first.test"), arrival(1))
    parts.now += 1.0
    made.step()
    assert (parts.heard[-1], made.lag_s(parts.now)) == ("known", parts.now - begun)
    made.arrive(host("second.test"), arrival(2))
    parts.answer()
    assert made.lag_s(parts.now) == parts.now - begun, "it is ready"
    pass_time(parts, made)
    assert (made._outbox.busy, made.lag_s(parts.now)) == (True, parts.now - begun)


def test_a_node_that_no_coordinator_answers_goes_on_however_long_its_results_wait(parts: Parts) -> None:
    made = settling_of(parts)
    parts.cut_off = True
    made.arrive(host(), arrival(page=False))
    pass_time(parts, made, 20)
    assert made.lag_s(parts.now) > LAG_S_MAX
    assert not made.full


def test_it_is_told_how_many_results_of_which_hosts_are_sent_and_answered(parts: Parts) -> None:
    made, first, second = settling_of(parts), host("first.test"), host("second.test")
    for number, work in enumerate((first, second, first)):
        made.arrive(work, arrival(number, page=False))
    pass_time(parts, made, 2)
    assert [one for one in parts.heard if one.startswith("sending")] == [
        "sending 2 of first.test",
        "sending 1 of second.test",
    ]
    assert "answered 2 of first.test" not in parts.heard
    parts.answer()
    assert parts.heard[-2:] == ["answered 2 of first.test", "answered 1 of second.test"]
