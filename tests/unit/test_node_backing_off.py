"""A node whose hosts give no answer: what it asks for, what it gives back, and what it holds against whom."""

from __future__ import annotations

from typing import Any

import pytest

from drumlin.clock import monotonic
from drumlin.fetch import Transfer
from drumlin.model import FailureKind
from drumlin.node.agent import Agent
from drumlin.node.hosts import HostWork, Robots, read_note
from drumlin.protocol import HostReport, Result
from tests.harness.agents import ALLOWED, Web, agent_in, lease_of, reports


def fail(web: Web, failure: str, *, sent: bool = True) -> str:
    """Let the oldest request fail; what it was for."""
    url, _, on_done, context = web.begun.pop(0)
    transfer = Transfer(None)
    transfer.context, transfer.failure, transfer.error, transfer.sends = context, failure, "made up", int(sent)
    transfer.first_byte = transfer.finished = monotonic()
    on_done(transfer)
    return url


def answer(web: Web, status: int, **headers: str) -> None:
    _, _, on_done, context = web.begun.pop(0)
    transfer = Transfer(None)
    transfer.context, transfer.status = context, status
    transfer.started = transfer.first_byte = transfer.finished = monotonic()
    fields = [f"{name.replace('_', '-')}: {value}\r\n".encode() for name, value in headers.items()]
    transfer.header_lines = [b"HTTP/1.1 %d X\r\n" % status, *fields, b"\r\n"]
    on_done(transfer)


def results(agent: Agent) -> list[Result]:
    return [arrival.result for _, arrival in agent._settling._arrived]


def work(agent: Agent, *paths: str, known: bool = True, note: bytes = b"") -> HostWork:
    """A leased host with these URLs, its robots rules known or not, and its first request under way."""
    agent.granted(lease_of("a.test", *paths, note=note), monotonic())
    host = agent.hosts.by_name["a.test"]
    if known:
        host.robots["http"] = Robots(ALLOWED, "drumlin")
    agent.advance(host, monotonic())
    return host


def last_report(agent: Agent) -> HostReport:
    return reports(agent)[-1]


@pytest.mark.parametrize("failure", ["dns", "connect", "tls", "timeout", "reset"])
def test_a_host_that_cannot_be_reached_is_given_back_with_all_its_urls(failure: str) -> None:
    web = Web()
    agent = agent_in(web)
    work(agent, "/1", "/2", "/3")
    assert fail(web, failure, sent=False) == "http://a.test/1"
    assert (results(agent), web.begun, agent.hosts.by_name) == ([], [], {})
    report = last_report(agent)
    assert report.release
    assert 9.0 < report.next_contact_s <= 11.0
    note = read_note(reports(agent)[0].note or b"")
    assert (note.backoff["http"].kind, note.backoff["http"].tries) == (failure, 1)


def test_a_robots_txt_that_is_not_to_be_had_puts_off_its_host_for_as_long_as_it_asks() -> None:
    web = Web()
    agent = agent_in(web)
    work(agent, "/1", "/2", known=False)
    answer(web, 429, Retry_After="600")
    assert (results(agent), web.begun) == ([], [])
    assert 599.0 < last_report(agent).next_contact_s <= 600.0
    backoff = read_note(reports(agent)[0].note or b"").backoff["http"]
    assert (backoff.kind, backoff.asked) == (FailureKind.ROBOTS_UNREACHABLE, True)


def test_a_host_that_is_given_too_early_is_not_contacted() -> None:
    """Another scheme of it may be worth a lease, or somebody may have hurried it: a site's own wish holds."""
    web = Web()
    agent = agent_in(web)
    work(agent, "/1", known=False)
    answer(web, 503, Retry_After="600")
    note = reports(agent)[0].note
    assert note is not None
    again = agent_in(web)
    work(again, "/1", known=False, note=note)
    assert web.begun == []
    assert last_report(again).release
    assert 590.0 < last_report(again).next_contact_s <= 600.0


def test_what_was_tried_before_a_process_began_may_be_tried_again_when_its_host_is_given() -> None:
    web = Web()
    agent = agent_in(web)
    work(agent, "/1")
    fail(web, "connect", sent=False)
    note = reports(agent)[0].note
    assert note is not None
    work(agent, "/1", known=False, note=note)
    assert web.begun == [], "this very process has tried it"
    work(agent_in(web), "/1", known=False, note=note)
    assert [url for url, *_ in web.begun] == ["http://a.test/robots.txt"]


def test_a_url_is_blamed_if_the_host_answered_just_before() -> None:
    web = Web()
    agent = agent_in(web)
    host = work(agent, "/1", "/2", known=False)
    web.answer(404)
    assert fail(web, "reset") == "http://a.test/1"
    assert [(one.url, one.kind) for one in results(agent)] == [("http://a.test/1", "reset")]
    assert not host.backoff


@pytest.mark.parametrize("failure", ["reset", "timeout"])
def test_a_url_is_blamed_only_once_the_host_has_answered(failure: str) -> None:
    web = Web()
    agent = agent_in(web)
    work(agent, "/1", "/2")
    assert fail(web, failure) == "http://a.test/1"
    assert results(agent) == []
    assert web.answer(404) == "http://a.test/robots.txt"
    assert [(one.url, one.kind) for one in results(agent)] == [("http://a.test/1", failure)]
    assert [url for url, *_ in web.begun] == ["http://a.test/2"]


def test_nobody_is_blamed_if_the_host_does_not_answer_either() -> None:
    web = Web()
    agent = agent_in(web)
    work(agent, "/1", "/2")
    fail(web, "timeout")
    assert fail(web, "timeout") == "http://a.test/robots.txt"
    assert (results(agent), web.begun) == ([], [])
    assert last_report(agent).release


def test_urls_of_another_scheme_go_on_and_the_rest_is_put_off_one_by_one() -> None:
    web = Web()
    agent = agent_in(web)
    lease = lease_of("a.test", "/1", "/2", "/3")
    lease.assignments[0].url = "https://a.test/1"
    lease.assignments[1].url = "https://a.test/2"
    agent.granted(lease, monotonic())
    host = agent.hosts.by_name["a.test"]
    agent.advance(host, monotonic())
    assert fail(web, "tls", sent=False) == "https://a.test/robots.txt"
    assert [(one.url, one.put_off_s > 9.0) for one in results(agent)] == [
        ("https://a.test/1", True),
        ("https://a.test/2", True),
    ]
    assert [url for url, *_ in web.begun] == ["http://a.test/robots.txt"]


def test_urls_of_a_host_that_was_out_of_reach_for_too_long_are_given_up() -> None:
    web = Web()
    agent = agent_in(web, host_patience_s=0.0)
    work(agent, "/1", "/2")
    fail(web, "dns", sent=False)
    assert [(one.kind, one.gave_up) for one in results(agent)] == [("dns", True)] * 2


def test_a_private_address_is_no_outage() -> None:
    web = Web()
    agent = agent_in(web)
    work(agent, "/1", known=False)
    fail(web, "forbidden_address", sent=False)
    assert [(one.kind, one.put_off_s, one.gave_up) for one in results(agent)] == [("forbidden_address", 0.0, False)]


# How fast


def arrive(agent: Agent, web: Web, status: int, **headers: str) -> HostWork:
    host: Any = web.begun[0][3][0]
    answer(web, status, **headers)
    assert isinstance(host, HostWork)
    return host


@pytest.mark.parametrize(("delay_s", "slowed_s"), [(0.0, 1.0), (0.3, 1.0), (2.0, 4.0), (40.0, 60.0), (90.0, 90.0)])
def test_after_a_429_a_host_is_asked_half_as_often(delay_s: float, slowed_s: float) -> None:
    web = Web()
    agent = agent_in(web, delay_s=delay_s)
    work(agent, "/1", "/2")
    host = arrive(agent, web, 429)
    assert host.delay_s == slowed_s
    again = HostWork(lease_of("a.test", note=host.note()), 0.0, 0.0, delay_s, "drumlin")
    assert again.delay_s == slowed_s, "also by who has it next"


def test_answers_to_what_was_asked_before_a_429_do_not_slow_a_host_down_further() -> None:
    host = HostWork(lease_of("a.test"), 0.0, 0.0, 2.0, "drumlin")
    for asked_at in (1.0, 1.1, 1.2):
        host.slow_down(asked_at, 5.0 + asked_at)
    assert host.delay_s == 4.0
    host.slow_down(9.0, 9.5)
    assert host.delay_s == 8.0


def test_a_host_recovers_slowly_and_to_the_end() -> None:
    host = HostWork(lease_of("a.test"), 0.0, 0.0, 2.0, "drumlin")
    host.slow_down(1.0, 1.0)
    delays = []
    while host.slow_s:
        host.recover()
        delays.append(host.delay_s)
    assert delays == sorted(delays, reverse=True)
    assert 30 < len(delays) < 40
    assert host.delay_s == 2.0


@pytest.mark.parametrize(("asked", "least_s", "most_s"), [("7200", 7199.0, 7200.0), ("999999", 86_399.0, 86_400.0)])
@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_kept_to_up_to_a_day(asked: str, least_s: float, most_s: float, status: int) -> None:
    web = Web()
    agent = agent_in(web)
    work(agent, "/1", "/2")
    host = arrive(agent, web, status, Retry_After=asked)
    assert least_s < host.next_contact - monotonic() <= most_s
    assert web.begun == []
