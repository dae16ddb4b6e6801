"""What a node tells of its results, and how what cannot be told is told all the same."""

from __future__ import annotations

from drumlin.model import Outcome
from drumlin.node.keeping.outbox import results_message, tellable
from drumlin.node.outcomes import result_without_capture
from drumlin.protocol import LINKS_MAX, Assignment, Result


def result_of(number: int) -> Result:
    task = Assignment(f"n0:token/{number}.0.0.seal", f"http://a.test/{number}/", 5, 0.0, "a.test", 0.0)
    return result_without_capture(task, Outcome.FETCHED, str(number), 1.0, "", "")


def test_more_links_than_a_result_may_name_go_with_copies_of_it() -> None:
    result = result_of(1)
    other = result_of(2)
    result.links = [f"http://a.test/{number}" for number in range(2 * LINKS_MAX + 5)]
    result.link_hints = [0.5] * (LINKS_MAX + 1)
    message = results_message([result, other], [])
    assert message.canonical_links
    assert [one.url for one in message.results] == [result.url, other.url, result.url, result.url]
    assert [len(one.links) for one in message.results] == [LINKS_MAX, 0, LINKS_MAX, 5]
    assert [url for one in message.results for url in one.links] == result.links
    assert [len(one.link_hints) for one in message.results] == [LINKS_MAX, 0, 1, 0]
    assert {one.capture_id for one in message.results} == {result.capture_id, other.capture_id}


def test_a_result_that_the_protocol_cannot_say_becomes_a_dead_letter_that_says_so() -> None:
    good, odd = result_of(1), result_of(2)
    odd.retry_after_s = 1e30
    assert tellable(good) is good
    told = tellable(odd)
    assert tellable(told) is told
    assert (told.url, told.assignment_id, told.outcome, told.kind) == (odd.url, odd.assignment_id, "failed", "trap")
    assert "retry_after_s" in told.error
