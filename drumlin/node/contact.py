"""Robots before everything: fetching a host's robots.txt within its lease, as a contact like any other."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import msgspec

from drumlin.errors import SiteError
from drumlin.fetch import Transfer
from drumlin.fetch.decode import decode
from drumlin.model import FailureKind
from drumlin.node.hosts import HostWork, Robots
from drumlin.pipeline import header_fields
from drumlin.robots import BODY_BYTES_MAX, REDIRECTS_MAX, decide, parse
from drumlin.urls import canonical

if TYPE_CHECKING:
    from drumlin.node.agent import Agent

SITEMAPS_MAX = 50
ROBOTS_BYTES_MAX = 16 * 1024 * 1024
ROBOTS_DECODED_BYTES_MAX = 16 * 1024 * 1024
# Failures before anything could be asked: they are the host's, and every URL of it would fail in the same way.
HOST_FAILURES = frozenset({FailureKind.DNS, FailureKind.CONNECT, FailureKind.TLS, FailureKind.FORBIDDEN_ADDRESS})
_MAX_AGE = re.compile(r"max-age=(\d{1,9})")


class RobotsContact:
    """One fetch of robots.txt, following redirects. The host's other URLs wait for it.

    A redirect may lead to another host, whose lease we do not hold: RFC 9309 wants it followed all the same, and
    without the rules nothing here may be fetched. It is one small request a day for each host that redirects so.
    """

    def __init__(self, agent: Agent, host: HostWork, scheme: str) -> None:
        self._agent = agent
        self._host = host
        self._scheme = scheme
        self._url = f"{scheme}://{host.host}/robots.txt"
        self._redirects = 0

    def start(self, now: float) -> None:
        self._host.robots_in_flight = True
        self._host.robots_contact = None
        self._agent.began_contact(self._host, now)
        self._agent.fetcher.start(
            self._url, self._arrived, self, body_bytes_max=ROBOTS_BYTES_MAX, may_send=self._host.may_send
        )

    def _arrived(self, transfer: Transfer) -> None:
        host = self._host
        host.robots_in_flight = False
        if transfer.too_late:
            self._agent.came_too_late(host)
            return
        self._agent.ended_contact(host, transfer)
        target = self._redirect_target(transfer)
        if target:
            # The next step waits its turn like every contact of the host.
            self._redirects += 1
            self._url = target
            host.robots_contact = self
        else:
            self._decide(transfer)
        self._agent.advance(host, transfer.finished)

    def _redirect_target(self, transfer: Transfer) -> str:
        if transfer.failure or not 300 <= transfer.status < 400 or self._redirects > REDIRECTS_MAX:
            return ""
        location = header_fields(transfer.response_headers()).get("location", "")
        target = canonical(location, self._url) if location else None
        return target if target and target != self._url else ""

    def _decide(self, transfer: Transfer) -> None:
        host, wall = self._host, time.time()
        headers = header_fields(transfer.response_headers())
        max_age = _MAX_AGE.search(headers.get("cache-control", ""))
        body, failure = robots_body(transfer, headers)
        decision = decide(
            transfer.status or None,
            body,
            self._redirects,
            failure or transfer.failure,
            wall,
            float(max_age[1]) if max_age else None,
            failures_before=host.robots_failures,
        )
        if decision.retry:
            host.robots_failures += 1
            self._agent.fail_tasks(
                host, self._failure_kind(transfer), f"robots.txt: {transfer.error or decision.reason}"
            )
            return
        expires = min(decision.expires, wall + self._agent.settings.robots_ttl_s)
        self._remember(Robots(msgspec.structs.replace(decision, expires=expires), self._agent.settings.agent), transfer)

    def _failure_kind(self, transfer: Transfer) -> str:
        """A host that cannot be reached at all is called that, not a host without rules. (A redirect's target is
        another.)
        """
        own = not self._redirects and transfer.failure in HOST_FAILURES
        return transfer.failure if own else FailureKind.ROBOTS_UNREACHABLE

    def _remember(self, robots: Robots, transfer: Transfer) -> None:
        host, settings = self._host, self._agent.settings
        host.robots[self._scheme] = robots
        host.robots_failures = 0
        rules = parse(robots.decision.rules_body or b"")
        host.delay_s = max(host.delay_s, rules.crawl_delay(settings.agent) or 0.0)
        host.next_contact = max(host.next_contact, transfer.first_byte + host.delay_s)
        sitemaps = [canonical(href) for href in rules.sitemaps[:SITEMAPS_MAX]] if settings.sitemaps else []
        self._agent.report_note(host, [url for url in sitemaps if url])


def robots_body(transfer: Transfer, headers: dict[str, str]) -> tuple[bytes, str]:
    """The file, cut where RFC 9309 lets us stop, and the failure of a body that does not decode or is not all there."""
    body = b"".join(transfer.body)
    if transfer.failure == FailureKind.TOO_LARGE and len(body) < BODY_BYTES_MAX:
        # A length that is refused before anything is read leaves no rules, which must not be read as "all allowed".
        return b"", FailureKind.PROTOCOL
    encoding = headers.get("content-encoding", "")
    try:
        return (decode(body, encoding, ROBOTS_DECODED_BYTES_MAX) if encoding else body)[:BODY_BYTES_MAX], ""
    except SiteError as broken:
        return b"", broken.kind


def request_block(url: str, host: str, headers: bytes) -> bytes:
    """The request as it was sent."""
    target = url[url.index("/", len("https://")) :]
    return f"GET {target} HTTP/1.1\r\nHost: {host}\r\n".encode() + headers
