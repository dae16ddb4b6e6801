"""Robots before everything: fetching a host's robots.txt within its lease, as a contact like any other."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

from drumlin.clock import monotonic
from drumlin.errors import SiteError
from drumlin.fetch import Transfer, request_target
from drumlin.fetch.decode import GZIP, decode, looks_compressed
from drumlin.http.headers import header_fields, location_of
from drumlin.http.retry_after import retry_after_s
from drumlin.model import FailureKind
from drumlin.node.backing_off import unreached
from drumlin.node.hosts import HostWork, Robots, scheme_of
from drumlin.node.outcomes import is_redirect, truncation
from drumlin.robots import BODY_BYTES_MAX, REDIRECTS_MAX, decide
from drumlin.urls import canonical, host_of

if TYPE_CHECKING:
    from drumlin.node.agent import Agent

SITEMAPS_MAX = 50
REFUSALS_MAX = 4
REFUSAL_WAIT_S = 0.5
_MAX_AGE = re.compile(r"max-age=(\d{1,9})")


class RobotsContact:
    """One fetch of robots.txt, following redirects. The host's URLs wait for it.

    A redirect may lead to another host. RFC 9309 wants it followed all the same; see `drumlin.node.visits` for how.
    """

    def __init__(self, agent: Agent, host: HostWork, scheme: str) -> None:
        self._agent = agent
        self._host = host
        self._scheme = scheme
        self._url = robots_url(scheme, host.host)
        self._cookie = ""
        self._chain: list[str] = []
        self._redirects = 0
        self._refusals = 0

    def start(self, now: float) -> None:
        """Take the next step: here, or where a redirect led."""
        self._host.robots_in_flight = True
        self._host.robots_contact = None
        place = host_of(self._url)
        if place == self._host.host:
            self.begin(self._host, now)
        else:
            self._agent.visits.ask(place, self)

    def begin(self, place: HostWork, now: float) -> None:
        """Ask for the file, under the lease of the host that it is on."""
        self._agent.began_contact(place, now)
        limit, may_send = BODY_BYTES_MAX, place.may_send
        self._agent.fetcher.start(
            self._url, self._arrived, place, body_bytes_max=limit, may_send=may_send, cookie=self._cookie
        )

    def finds(self, place: str, known: dict[str, Robots]) -> bool:
        """Whether `known`, the robots rules of the host that a redirect led to, are what was to be asked for there."""
        scheme = scheme_of(self._url)
        robots = known.get(scheme)
        if robots is None or self._agent.expired(robots) or self._url != robots_url(scheme, place):
            return False
        self._host.robots_in_flight = False
        self._remember(self._host, self._scheme, robots, monotonic())
        self._agent.hosts.wait(self._host)
        return True

    def turned_away(self) -> None:
        """The host that a redirect led to cannot be had now: try again later. After a while the host is in
        back-off: nothing is wrong with its URLs."""
        host = self._host
        host.robots_in_flight = False
        self._refusals += 1
        if self._refusals > REFUSALS_MAX:
            error = f"robots.txt: it is on {host_of(self._url)}, which cannot be asked now"
            self._agent.backing_off.begin(host, self._scheme, FailureKind.ROBOTS_UNREACHABLE, error)
        else:
            host.robots_contact = self
            host.next_contact = max(host.next_contact, monotonic() + REFUSAL_WAIT_S * 2**self._refusals)
        self._agent.hosts.wait(host)
        self._agent.release_if_idle(host)

    def _arrived(self, transfer: Transfer) -> None:
        host, place = self._host, transfer.context
        host.robots_in_flight = False
        if transfer.too_late:
            self._agent.came_too_late(place)
            if place is not host:
                self.turned_away()
            return
        self._agent.ended_contact(place, transfer)
        lost = place.lost_request(transfer, self._agent.settings.per_host)
        target = "" if lost else self._next_url(transfer)
        self._redirects += bool(target)
        if lost:
            host.robots_contact = self
        elif target and self._redirects <= REDIRECTS_MAX:
            # The next step waits its turn like every contact of the host.
            self._url = target
            host.robots_contact = self
        else:
            self._decide(transfer, place)
        if place is not host:
            self._agent.advance(place, transfer.finished)
        self._agent.advance(host, transfer.finished)

    def _next_url(self, transfer: Transfer) -> str:
        """Where a redirect leads; to the same URL only if it has set a cookie."""
        cookies, redirect = self._agent.cookies, is_redirect(transfer.status)
        if redirect or cookies.of_hosts:
            cookies.learn(transfer.response_headers(), self._url, time.time())
        self._chain.append(self._url)
        target = robots_redirect(transfer, self._url)
        self._cookie = cookies.header(target or self._url, self._chain)
        again = redirect and not target and self._cookie != transfer.cookie
        return self._url if again and location_of(transfer.response_headers()) else target

    def _decide(self, transfer: Transfer, place: HostWork) -> None:
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
            agent=self._agent.settings.agent,
        )
        if decision.retry:
            self._give_up(transfer, place, decision.reason, retry_after_s(headers, wall))
            return
        robots = Robots(self._agent.lasting(decision, wall), self._agent.settings.agent)
        self._remember(host, self._scheme, robots, transfer.first_byte)
        scheme = scheme_of(self._url)
        own_rules = place is not host and self._url == robots_url(scheme, place.host)
        if own_rules and self._redirects <= REDIRECTS_MAX:
            # They bind the other host too, and it need not be asked again for its next guest.
            self._remember(place, scheme, robots, transfer.first_byte)

    def _give_up(self, transfer: Transfer, place: HostWork, reason: str, asked_s: float) -> None:
        """There is no robots.txt to be had for now, so that nothing of the host may be asked for. A host that cannot be
        reached at all is called that, not a host without rules; where a redirect led, that is another host's trouble
        too."""
        backing_off, error = self._agent.backing_off, transfer.error or reason
        if transfer.failure == FailureKind.FORBIDDEN_ADDRESS and not self._redirects:
            self._agent.fail_tasks(self._host, transfer.failure, f"robots.txt: {error}")
            return
        if place is not self._host and unreached(transfer):
            backing_off.begin(place, scheme_of(self._url), transfer.failure, error)
        own = not self._redirects and unreached(transfer)
        kind = transfer.failure if own else FailureKind.ROBOTS_UNREACHABLE
        backing_off.begin(self._host, self._scheme, kind, f"robots.txt: {error}", asked_s)

    def _remember(self, host: HostWork, scheme: str, robots: Robots, heard: float) -> None:
        settings = self._agent.settings
        host.robots[scheme] = robots
        host.backoff.pop(scheme, None)
        self._agent.backing_off.blame(host, scheme)
        host.delay_s = max(host.delay_s, robots.crawl_delay_s)
        host.next_contact = max(host.next_contact, heard + host.delay_s)
        base = robots_url(scheme, host.host)
        named = robots.rules.sitemaps[:SITEMAPS_MAX] if settings.sitemaps else []
        sitemaps = [canonical(href, base) for href in named]
        # The crawl's own delay is not the host's: a crawl that is resumed with a shorter one means it.
        own_delay_s = host.delay_s if robots.crawl_delay_s == host.delay_s > settings.delay_s else None
        self._agent.report_note(host, [url for url in sitemaps if url], own_delay_s)


def robots_url(scheme: str, host: str) -> str:
    return f"{scheme}://{host}/robots.txt"


def robots_redirect(transfer: Transfer, url: str) -> str:
    """Where the answer to a request for robots.txt at `url` sends us; empty when nowhere."""
    if not is_redirect(transfer.status) or (transfer.failure and not truncation(transfer)):
        return ""
    location = location_of(transfer.response_headers())
    target = canonical(location, url) if location else None
    return target if target and target != url else ""


def robots_body(transfer: Transfer, headers: dict[str, str]) -> tuple[bytes, str]:
    """The file, and the failure of a body that does not decode or is too long."""
    body = transfer.body.getvalue()
    encoding = headers.get("content-encoding", "")
    if transfer.failure:
        return body, ""
    try:
        text = decode(body, encoding, BODY_BYTES_MAX) if encoding else body
        # Rules are text. Compressed once more than is said, they would be read as none, and so as "all allowed".
        return decode(text, GZIP, BODY_BYTES_MAX) if looks_compressed(text) else text, ""
    except SiteError as broken:
        return b"", broken.kind


def request_block(url: str, host: str, headers: bytes, cookie: str = "") -> bytes:
    """The request as it was sent."""
    if cookie:
        # libcurl puts it behind the User-Agent, which is the first of these.
        agent, _, others = headers.partition(b"\r\n")
        headers = b"%b\r\nCookie: %b\r\n%b" % (agent, cookie.encode("latin-1", "replace"), others)
    return f"GET {request_target(url)} HTTP/1.1\r\nHost: {host}\r\n".encode() + headers
