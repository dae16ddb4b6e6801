"""Answers that are not pages on their way to the archive: errors, and answers that settle no URL."""

from __future__ import annotations

import pytest

from drumlin.model import Outcome
from drumlin.node import settling
from drumlin.node.keeping.archive import Arrival, Contact
from drumlin.store import ROBOTS_OUTCOME, FetchRecord
from tests.harness.settling_parts import Parts, arrival, host, parts, settling_of

__all__ = ["parts"]


def contact(size: int = 10) -> Contact:
    capture = arrival(size=size).capture
    return Contact(FetchRecord("http://a.test/robots.txt", "a.test", 1.0, ROBOTS_OUTCOME, 200), "n0:token", capture)


def test_what_settles_no_url_is_archived_with_the_next_parcel(parts: Parts) -> None:
    made = settling_of(parts)
    made.contacted(contact())
    made.arrive(host(), arrival(page=False))
    parts.now += 1.0
    made.step()
    assert parts.heard == ["read 0", "clear", "sending 1 of a.test", "store 1 and 1", "results"]
    message = parts.answer()
    assert (len(message.results), made.empty) == (1, True)


def test_what_settles_no_url_is_archived_alone_without_asking_anybody(parts: Parts) -> None:
    made = settling_of(parts)
    made.contacted(contact())
    assert not made.empty, "a node that leaves waits for it"
    parts.now += 1.0
    assert made.due() < parts.now
    made.step()
    assert parts.heard == ["store 0 and 1", "publish 0"]
    assert (made.empty, made.due(), parts.sent) == (True, float("inf"), [])


def test_robots_txt_files_that_wait_to_be_archived_are_held_against_the_node(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "UNSETTLED_BYTES_MAX", 1_000)
    made = settling_of(parts)
    for _ in range(10):
        made.contacted(contact(size=60))
    assert made.full
    parts.now += 1.0
    made.step()
    assert not made.full


def refused(number: int) -> Arrival:
    """An answer that is not a page."""
    made = arrival(number)
    made.result.outcome = made.fetch.outcome = Outcome.FAILED
    return made


def test_a_refusal_is_archived_and_neither_read_nor_asked_for(parts: Parts) -> None:
    made = settling_of(parts)
    made.arrive(host(), refused(1))
    for _ in range(2):
        parts.now += 1.0
        made.step()
    assert parts.heard == ["read 0", "clear", "sending 1 of a.test", "store 1", "results"]
    (sent,) = parts.answer().results
    assert sent.record_id.startswith("urn:uuid:")
    assert (sent.links, sent.content_hash) == ([], "")
