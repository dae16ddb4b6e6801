"""From arrival to settlement: what is read, asked, archived, sent and published, and in which order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from drumlin.model import Capture, Duplicate, Outcome, Task
from drumlin.node import settling
from drumlin.node.archive import Archive, Arrival, StoredBatch
from drumlin.node.blackbox import BlackBox
from drumlin.node.client import CoordinatorClient
from drumlin.node.hosts import HostWork
from drumlin.node.outcomes import fetch_record, result_without_capture
from drumlin.node.settling import SETTLE_BATCH_MAX, UNSETTLED_PAGES_MAX, Settling
from drumlin.pipeline import Discovered, Pipeline
from drumlin.protocol import Accepted, HostReport, Known, WorkLease


class Parts:
    """Everything around a Settling, each noting what is asked of it."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.sent: list[tuple[str, Any, Callable[[Any], None]]] = []
        self.now = 100.0
        self.on_stored: Callable[[], None] = lambda: None

    # the coordinator's client
    def post(self, path: str, message: Any, reply: type, on_reply: Callable[[Any], None]) -> None:
        name = path.rpartition("/")[2]
        self.heard.append(name)
        self.sent.append((name, message, on_reply))

    # the pipeline
    def read(self, captures: list[Capture]) -> None:
        self.heard.append(f"read {len(captures)}")
        for capture in captures:
            capture.digest, capture.record_id = b"d" * 32, "r"

    def discover(self, capture: Capture) -> Discovered:
        return Discovered([capture.url + "next"], [], {"calendar": 1})

    # the archive
    def store(self, arrivals: list[Arrival]) -> StoredBatch:
        self.heard.append(f"store {len(arrivals)}")
        return StoredBatch(cast(Any, None), 0, arrivals)

    def publish(self, batch: StoredBatch, accepted: Accepted) -> None:
        self.heard.append(f"publish {len(batch.arrivals)}")

    # the black box
    def clear(self) -> None:
        self.heard.append("clear")

    def stored(self, host: HostWork) -> None:
        self.heard.append(f"stored {host.host}")
        if not host.unsettled:
            self.on_stored()

    def answer(self, duplicate: Duplicate | None = None) -> Any:
        """Answer the oldest call; what was asked."""
        name, message, on_reply = self.sent.pop(0)
        if name == "known":
            on_reply(Known([duplicate] * len(message.contents)))
        else:
            on_reply(Accepted(len(message.results), 0, []))
        return message


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    made = Parts()
    monkeypatch.setattr("drumlin.node.settling.time.monotonic", lambda: made.now)
    return made


def settling_of(parts: Parts) -> Settling:
    return Settling(
        "n0",
        cast(CoordinatorClient, parts),
        cast(Pipeline, parts),
        cast(Archive, parts),
        cast(BlackBox, parts),
        parts.stored,
    )


def host(name: str = "a.test") -> HostWork:
    return HostWork(WorkLease(f"n0:token {name}", name, 60.0, 0.0, []), 0.0, 0.0, 1.0, "drumlin")


def arrival(number: int = 1, *, page: bool = True, size: int = 10) -> Arrival:
    task = Task(number, f"http://a.test/{number}/", 5, 0, 0, "", ())
    outcome = Outcome.FETCHED if page else Outcome.DENIED
    result = result_without_capture(task, "n0:token", outcome, str(number), 1.0)
    capture = None
    if page:
        fields: dict[str, Any] = dict.fromkeys(("found_on", "protocol", "ip"), "")
        fields |= dict.fromkeys(("request_headers", "response_headers"), b"")
        capture = Capture(
            url=task.url,
            host="a.test",
            domain="a.test",
            task_id=number,
            lease_token="token",
            depth=0,
            redirects=(),
            fetched=1.0,
            duration_s=0.1,
            status=200,
            body_raw=b"x" * size,
            body=b"x" * size,
            headers={},
            **fields,
        )
    return Arrival(result, fetch_record(result, task, "a.test", "n0"), capture)


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
    assert parts.heard == ["read 1", "clear", "known", "store 1", "stored a.test", "results"]
    assert (made.empty, work.unsettled) == (False, 0)
    message = parts.answer()
    assert parts.heard[-1] == "publish 1"
    assert (made.empty, made.due()) == (True, float("inf"))
    (sent,) = message.results
    assert (sent.links, sent.traps, sent.record_id) == (["http://a.test/1/next"], {"calendar": 1}, "r")


def test_what_has_no_content_is_not_asked_for(parts: Parts) -> None:
    made = settling_of(parts)
    made.arrive(host(), arrival(page=False))
    parts.now += 1.0
    made.step()
    parts.now += 1.0
    made.step()
    assert parts.heard == ["read 0", "clear", "store 1", "stored a.test", "results"]


@pytest.mark.parametrize(("url", "marked"), [("http://a.test/other", True), ("http://a.test/1/", False)])
def test_a_known_content_is_a_duplicate_unless_it_is_the_same_page_again(parts: Parts, url: str, marked: bool) -> None:
    made, arrived = settling_of(parts), arrival()
    made.arrive(host(), arrived)
    parts.now += 1.0
    made.step()
    parts.answer(Duplicate(url, 0.5, "earlier"))
    assert arrived.capture is not None
    assert (arrived.capture.duplicate is not None) == marked


def test_one_batch_is_sent_at_a_time_and_none_is_larger_than_allowed(parts: Parts) -> None:
    made, work = settling_of(parts), host()
    for number in range(SETTLE_BATCH_MAX + 50):
        made.arrive(work, arrival(number, page=False))
    for _ in range(20):
        parts.now += 1.0
        made.step()
    assert len(parts.sent) == 1
    sizes = []
    while parts.sent:
        sizes.append(len(parts.answer().results))
        parts.now += 1.0
        made.step()
    assert sum(sizes) == SETTLE_BATCH_MAX + 50
    assert max(sizes) <= SETTLE_BATCH_MAX
    assert made.empty


def test_a_host_is_given_back_with_or_after_its_last_result(parts: Parts) -> None:
    made, work = settling_of(parts), host()
    report = HostReport(work.lease_id, work.host, True, 0.0)
    parts.on_stored = lambda: made.report(report)
    made.arrive(work, arrival(page=False))
    assert work.unsettled == 1
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
    assert (heavy.full, heavy.empty) == (False, True)
