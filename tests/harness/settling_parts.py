"""A Settling whose neighbours are replaced by parts that note the calls they get, all in one list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from drumlin.clock import Clocks
from drumlin.contact.hosts import HostWork
from drumlin.errors import SiteError
from drumlin.model import Capture, Duplicate, FailureKind, Outcome
from drumlin.node.calling.coordinator_time import CoordinatorTime
from drumlin.node.keeping.archive import Archive, Arrival, Contact, StoredBatch
from drumlin.node.keeping.blackbox import BlackBox
from drumlin.node.keeping.outbox import HostResults, Outbox
from drumlin.node.outcomes import fetch_record, result_without_capture
from drumlin.node.settling import Settling
from drumlin.pipeline import Pipeline
from drumlin.protocol import Accepted, Assignment, Known, Result, WorkLease
from drumlin.reading import Discovered


class Parts:
    """All neighbours of a Settling in one object. It notes the calls it gets."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.sent: list[tuple[str, Any, Callable[[Any], None]]] = []
        self.now = 100.0
        self.on_sending: Callable[[], None] = lambda: None
        self.on_failure: Callable[[float], None] | None = None
        self.cut_off = False
        self.cut_off_s = 0.0
        self.time = CoordinatorTime()
        self.among_strangers = False
        self.journal: list[list[Result]] = []
        self.decoded_bytes = 0
        self.left_to_fetch = 0
        self.links_bytes = 0

    # the coordinator's client
    def post(
        self, path: str, message: Any, reply: type, on_reply: Callable[[Any], None], signed: bool = False, **more: Any
    ) -> None:
        name = path.rpartition("/")[2]
        assert signed == (name == "results")
        self.heard.append(name)
        self.sent.append((name, message, on_reply))
        self.on_failure = more.get("on_failure")

    def repeat_failed(self) -> None: ...

    def due(self) -> float:
        return float("inf")

    def renewed(self, token: str | None) -> None: ...

    # the pipeline
    def decode_body(self, capture: Capture) -> None:
        if capture.headers.get("content-encoding") == "broken":
            raise SiteError(FailureKind.DECODE, "It is broken.")
        if capture.headers.get("content-encoding"):
            capture.body = bytes(self.decoded_bytes)

    def read(self, captures: list[Capture]) -> None:
        self.heard.append(f"read {len(captures)}")
        for capture in captures:
            capture.digest, capture.record_id, capture.links_bytes = b"d" * 32, "r", self.links_bytes

    def tell_links_again(self, capture: Capture) -> None:
        self.heard.append(f"again {capture.url}")

    def untold(self, urls: Sequence[str]) -> None:
        self.heard += [f"untold {url}" for url in urls]

    def tell_again(self) -> None:
        self.heard.append("all again")

    def discover(self, capture: Capture) -> Discovered:
        return Discovered([capture.url + "next"], [], {"calendar": 1})

    # the archive
    def store(self, arrivals: list[Arrival], now: float, contacts: Sequence[Contact] = ()) -> StoredBatch:
        self.heard.append(f"store {len(arrivals)}" + (f" and {len(contacts)}" if contacts else ""))
        self.journal.append([arrival.result for arrival in arrivals])
        return StoredBatch(cast(Any, None), len(self.journal) - 1, arrivals)

    def publish(self, batch: StoredBatch, accepted: Accepted) -> None:
        self.heard.append(f"publish {len(batch.arrivals)}")

    # the black box
    def reading(self, assignments: dict[str, str]) -> None:
        self.parsed = assignments

    def clear(self) -> None:
        self.heard.append("clear")

    # the law of contact
    def sending(self, results: HostResults) -> None:
        self.heard += [f"sending {count} of {host.host}" for host, count in results]
        self.on_sending()

    def answered(self, results: HostResults) -> None:
        self.heard += [f"answered {count} of {host.host}" for host, count in results]

    def answer_known(self) -> None:
        """Answer the latest call, which asks for known contents."""
        _, message, on_reply = self.sent.pop()
        on_reply(Known([None] * len(message.contents)))

    def answer(self, duplicate: Duplicate | None = None) -> Any:
        """Answer the oldest call. Returns its message."""
        name, message, on_reply = self.sent.pop(0)
        if name == "known":
            on_reply(Known([duplicate] * len(message.contents)))
        else:
            on_reply(Accepted(len(message.results), 0, []))
        return message


@pytest.fixture
def parts() -> Parts:
    return Parts()


def settling_of(parts: Parts, lease_s: float = 20.0) -> Settling:
    pipeline, blackbox, clocks = cast(Pipeline, parts), cast(BlackBox, parts), Clocks(lambda: parts.now)
    outbox = Outbox("n0", parts, cast(Archive, parts), parts.answered, parts.untold)
    return Settling(
        "n0",
        parts,
        pipeline,
        outbox,
        blackbox,
        parts.sending,
        lambda result: None,
        lambda within_s: parts.left_to_fetch,
        lease_s=lease_s,
        clocks=clocks,
    )


def host(name: str = "a.test") -> HostWork:
    return HostWork(WorkLease(f"n0:token {name}", name, 60.0, 0.0, []), 0.0, 0.0, 1.0, "drumlin")


def arrival(number: int = 1, *, page: bool = True, size: int = 10) -> Arrival:
    task = Assignment(f"n0:token/{number}.0.0.seal", f"http://a.test/{number}/", 5, 0.0, "a.test", 0.0)
    outcome = Outcome.FETCHED if page else Outcome.DENIED
    result = result_without_capture(task, outcome, str(number), 1.0, "", "")
    capture = None
    if page:
        fields: dict[str, Any] = dict.fromkeys(("found_on", "protocol", "ip"), "")
        fields |= dict.fromkeys(("request_headers", "response_headers"), b"")
        capture = Capture(
            url=task.url,
            host="a.test",
            domain="a.test",
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
