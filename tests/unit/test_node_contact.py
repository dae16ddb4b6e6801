"""robots.txt as it arrives, and the request as the archive records it."""

from __future__ import annotations

import gzip
import time

import pytest

from drumlin.clock import monotonic
from drumlin.fetch import Transfer
from drumlin.model import FailureKind
from drumlin.node.contact import request_block, robots_body
from drumlin.node.coordinator_time import CoordinatorTime
from drumlin.node.hosts import HostWork, Robots
from drumlin.robots import BODY_BYTES_MAX, Decision, decide
from tests.harness.agents import Web, agent_in, lease_of, reports
from tests.harness.clocks import HandClock

RULES = b"User-agent: *\nDisallow: /\n"


def arrived(body: bytes, failure: str = "") -> Transfer:
    transfer = Transfer(None)
    transfer.status, transfer.failure = 200, failure
    transfer.body.write(body)
    return transfer


@pytest.mark.parametrize(
    ("body", "encoding", "failure", "expected"),
    [
        (RULES, "", "", (RULES, "")),
        (gzip.compress(RULES, mtime=0), "gzip", "", (RULES, "")),
        (gzip.compress(RULES, mtime=0), "", "", (RULES, "")),
        (gzip.compress(RULES, mtime=0), "none", "", (RULES, "")),
        (RULES, "UTF-8", "", (RULES, "")),
        (b"\x28\xb5\x2f\xfd broken", "", "", (b"", FailureKind.DECODE)),
        (b"no gzip", "gzip", "", (b"", FailureKind.DECODE)),
        (gzip.compress(b"#" * (BODY_BYTES_MAX + 9), mtime=0), "gzip", "", (b"", FailureKind.TOO_LARGE)),
    ],
    ids=[
        "plain",
        "packed",
        "packed in secret",
        "packed and denied",
        "no coding",
        "packed otherwise",
        "undecodable",
        "long when unpacked",
    ],
)
def test_a_robots_txt_is_read_as_far_as_needed(
    body: bytes, encoding: str, failure: str, expected: tuple[bytes, str]
) -> None:
    assert robots_body(arrived(body, failure), {"content-encoding": encoding} if encoding else {}) == expected


def test_a_robots_txt_that_could_not_be_read_allows_nothing() -> None:
    transfer = arrived(b"", FailureKind.TOO_LARGE)
    body, failure = robots_body(transfer, {})
    decision = decide(200, body, 0, failure or transfer.failure, 0.0)
    assert decision.deny_all


def test_rules_picked_for_another_name_of_the_crawler_are_asked_for_again() -> None:
    """A crawl may be resumed under another name."""
    long = b"#" * 100_000 + b"\nUser-agent: other\nDisallow: /\n"
    known = HostWork(lease_of("a.test"), 0.0, 0.0, 0.0, "drumlin")
    known.robots["http"] = Robots(decide(200, long, 0, "", 1e12, agent="drumlin"), "drumlin")
    assert "http" in HostWork(lease_of("a.test", note=known.note()), 0.0, 0.0, 0.0, "drumlin").robots
    assert HostWork(lease_of("a.test", note=known.note()), 0.0, 0.0, 0.0, "other").robots == {}


@pytest.mark.parametrize(
    ("url", "host", "line"),
    [
        ("http://a.test/", "a.test", b"GET / HTTP/1.1\r\nHost: a.test\r\n"),
        ("http://a.test:8080/x?y=a.test", "a.test:8080", b"GET /x?y=a.test HTTP/1.1\r\nHost: a.test:8080\r\n"),
        ("http://t/t/t", "t", b"GET /t/t HTTP/1.1\r\nHost: t\r\n"),
        ("http://http/", "http", b"GET / HTTP/1.1\r\nHost: http\r\n"),
        ("https://s/s", "s", b"GET /s HTTP/1.1\r\nHost: s\r\n"),
    ],
)
def test_the_request_is_recorded_as_it_was_sent(url: str, host: str, line: bytes) -> None:
    assert request_block(url, host, b"User-Agent: x\r\n\r\n") == line + b"User-Agent: x\r\n\r\n"


@pytest.mark.parametrize(
    ("rules", "pace", "reported"),
    [(b"", 2.0, None), (b"Crawl-delay: 1", 2.0, None), (b"Crawl-delay: 7", 7.0, 7.0)],
    ids=["no-wish", "wishes-less", "wishes-more"],
)
def test_only_the_pace_that_a_host_wishes_is_remembered_as_its_own(
    rules: bytes, pace: float, reported: float | None
) -> None:
    """The crawl's delay may be another when it is resumed."""
    web = Web()
    agent = agent_in(web, delay_s=2.0)
    agent.granted(lease_of("a.test", "/1"), monotonic())
    host = agent.hosts.by_name["a.test"]
    agent.advance(host, monotonic())
    web.answer(200, body=b"User-agent: *\nAllow: /\n" + rules)
    assert host.delay_s == pace
    assert [report.delay_s for report in reports(agent)] == [reported]


def test_a_wish_that_the_crawls_own_delay_went_beyond_counts_when_that_is_shorter() -> None:
    rules = Decision(b"User-agent: *\nCrawl-delay: 2\n", False, False, 1e12, False, "rules")
    known = HostWork(lease_of("a.test"), 0.0, 0.0, 5.0, "drumlin")
    known.robots["http"] = Robots(rules, "drumlin")
    resumed = HostWork(lease_of("a.test", note=known.note()), 0.0, 0.0, 0.5, "drumlin")
    assert resumed.delay_s == 2.0


@pytest.mark.parametrize("wall_s", [-1e6, 0.0, 1e6])
@pytest.mark.parametrize("shared_s", [-1e6, 0.0, 1e6])
def test_rules_are_asked_for_again_when_either_clock_says_so(wall_s: float, shared_s: float) -> None:
    """A crawl that rested for a week must not go by rules of then, and a wall clock may be wrong."""
    rules = Decision(b"", False, False, 500.0, False, "rules", expires_shared=900.0)
    assert rules.expired(499.0 + wall_s, 899.0 + shared_s) == (wall_s > 0 or shared_s > 0)


def test_rules_remember_when_they_expire_by_both_clocks() -> None:
    web = Web()
    web.time = CoordinatorTime(monotonic=HandClock(5.0))
    web.time.hear([b"HTTP/1.1 200 OK\r\n", b"x-drumlin-time: 7000000\r\n"])
    agent = agent_in(web, robots_ttl_s=600.0)
    agent.granted(lease_of("a.test", "/1"), monotonic())
    host = agent.hosts.by_name["a.test"]
    agent.advance(host, monotonic())
    web.answer(200, body=RULES)
    again = HostWork(lease_of("a.test", note=host.note()), 0.0, 0.0, 0.0, "drumlin").robots["http"].decision
    assert again.expires_shared == 7_600.0
    assert again.expires == pytest.approx(time.time() + 600.0, abs=60.0)
