"""Robots before everything: a host's robots.txt is asked for within its lease, as a contact like any other.

A redirect may lead to another host. RFC 9309 wants it followed, and the other host wants to be asked by one node at a
time and at its own pace, like any other. So the query becomes a guest there: it waits for that host's next contact and
is asked for under that host's own lease, which this node holds already or asks for (`AskVisit`). If another node holds
the host, what others have learnt of its robots.txt will do.
"""

from __future__ import annotations

import re

import msgspec

from drumlin.contact.actions import AskVisit, FetchRobots, KeepRobots
from drumlin.contact.backing_off import BackingOff, unreached
from drumlin.contact.desk import Desk
from drumlin.contact.events import RobotsArrived
from drumlin.contact.hosts import HostWork, RobotsQuery, scheme_of
from drumlin.contact.rules import PREPARING_S_PER_BYTE, Robots, robots_of
from drumlin.contact.terms import Answer, Moment
from drumlin.http.headers import header_fields, location_of
from drumlin.http.retry_after import retry_after_s
from drumlin.model import FailureKind, Outcome
from drumlin.protocol import CrawlState, is_redirect, read_note
from drumlin.robots import BODY_BYTES_MAX, REDIRECTS_MAX, Decision, decide, named_sitemaps
from drumlin.urls import canonical, host_of

REFUSALS_MAX = 4
REFUSAL_WAIT_S = 0.5
LONG_RULES_BYTES_MAX = 64 * 1024 * 1024
"""How many bytes the rules of all hosts that are held may have together, as far as they are too long for notes. Beyond
that a host with such rules is left alone for a while: no more of them than these can have their turn anyway, since long
rules have only a share of a node's time (`robots_line`)."""
TOO_MUCH = "robots.txt: too long to be held now, beside those of other hosts"
_SITEMAP = re.compile(rb"site-?map", re.IGNORECASE)
_MAX_AGE = re.compile(r"max-age=(\d{1,9})")


def robots_url(scheme: str, host: str) -> str:
    return f"{scheme}://{host}/robots.txt"


class RobotsAsking:
    """All queries for robots.txt: those under way, and those that wait for another host."""

    def __init__(self, desk: Desk, backing_off: BackingOff) -> None:
        self._desk = desk
        self._backing_off = backing_off
        self._visits: dict[str, list[RobotsQuery]] = {}
        """Hosts whose lease was asked for, and who wants to visit them."""

    # A query's steps

    def start(self, host: HostWork, scheme: str, now: Moment) -> None:
        """Ask for robots.txt, or go on with a query that was begun: here, or where a redirect led."""
        query = host.robots_query or RobotsQuery(host, scheme, robots_url(scheme, host.host))
        host.robots_in_flight = True
        host.robots_query = None
        if host_of(query.url) == host.host:
            self.ask(query, host, now)
        else:
            self._desk.to_visit.append(query)

    def ask(self, query: RobotsQuery, place: HostWork, now: Moment) -> None:
        """Ask for the file, under the lease of the host that it is on."""
        fetch = FetchRobots(place, query, query.url, place.send_by, query.cookie, BODY_BYTES_MAX)
        self._desk.begin(fetch, now)

    def arrived(self, event: RobotsArrived, now: Moment) -> None:
        fetch, answer = event.fetch, event.answer
        query, place = fetch.query, fetch.host
        query.host.robots_in_flight = False
        self._desk.end(fetch, answer)
        self._desk.changed.append(query.host)
        if place.went_down_with_connection(answer.stale, self._desk.settings.per_host):
            query.host.robots_query = query
            return
        target = self._next_url(query, answer, now)
        self._desk.actions.append(KeepRobots(fetch, answer, target))
        query.redirects += bool(target)
        if target and query.redirects <= REDIRECTS_MAX:
            # The next step waits its turn, like every contact of the host.
            query.url = target
            query.host.robots_query = query
        else:
            self._decide(event, now)

    def too_late(self, fetch: FetchRobots, *, lease_over: bool) -> None:
        """The request was not sent. If its lease is over, a guest has to find another way."""
        query = fetch.query
        query.host.robots_in_flight = False
        self._desk.changed.append(query.host)
        if not lease_over:
            query.host.robots_query = query
        elif fetch.host is not query.host:
            self._desk.sent_away.append(query)

    def _next_url(self, query: RobotsQuery, answer: Answer, now: Moment) -> str:
        """Where a redirect leads; to the same URL only if it has set a cookie."""
        cookies, redirect = self._desk.cookies, is_redirect(answer.status)
        if redirect or cookies.of_hosts:
            cookies.learn(answer.response_headers(), query.url, now.wall)
        query.chain.append(query.url)
        target = _redirect(answer, query.url)
        query.cookie = cookies.header(target or query.url, query.chain)
        again = redirect and not target and query.cookie != answer.cookie
        return query.url if again and location_of(answer.response_headers()) else target

    def _decide(self, event: RobotsArrived, now: Moment) -> None:
        query, place, answer = event.fetch.query, event.fetch.host, event.answer
        headers = header_fields(answer.response_headers())
        max_age = _MAX_AGE.search(headers.get("cache-control", ""))
        agent = self._desk.settings.agent
        decision = decide(
            answer.status or None,
            event.body,
            query.redirects,
            event.flaw or answer.failure,
            now.wall,
            float(max_age[1]) if max_age else None,
            agent=agent,
        )
        if decision.retry:
            self._give_up(event, decision.reason, retry_after_s(headers, now.wall), now)
            return
        self._desk.robots_line.charge(len(event.body) * PREPARING_S_PER_BYTE, answer.finished)
        if decision.too_long_to_note and not self._has_room(decision):
            self._backing_off.begin(query.host, query.scheme, FailureKind.ROBOTS_UNREACHABLE, TOO_MUCH, now)
            return
        robots = Robots(self._lasting(decision, now), agent)
        self._remember(query.host, query.scheme, robots, answer.first_byte, now)
        scheme = scheme_of(query.url)
        own_rules = place is not query.host and query.url == robots_url(scheme, place.host)
        if own_rules and query.redirects <= REDIRECTS_MAX:
            # They bind the other host too, and it need not be asked again for its next guest.
            self._remember(place, scheme, robots, answer.first_byte, now)

    def _has_room(self, decision: Decision) -> bool:
        """Whether rules that are too long for a note can be held beside those of other hosts."""
        known = (robots.decision for host in self._desk.hosts.by_name.values() for robots in host.robots.values())
        held = sum(len(one.rules_body or b"") for one in known if one.too_long_to_note)
        return held + len(decision.rules_body or b"") <= LONG_RULES_BYTES_MAX

    def _give_up(self, event: RobotsArrived, reason: str, asked_s: float, now: Moment) -> None:
        """There is no robots.txt to be had for now, so nothing of the host may be asked for. A host that cannot be
        reached at all is called that, and not a host without rules. If a redirect led elsewhere, the trouble is that
        host's too."""
        query, place, answer = event.fetch.query, event.fetch.host, event.answer
        error = answer.error or reason
        if answer.failure == FailureKind.FORBIDDEN_ADDRESS and not query.redirects:
            self._fail_urls(query.host, answer.failure, f"robots.txt: {error}")
            return
        if place is not query.host and unreached(answer):
            self._backing_off.begin(place, scheme_of(query.url), answer.failure, error, now)
        elif place is not query.host:
            self._backing_off.slow_down(place, answer, now)
        own = not query.redirects and unreached(answer)
        kind = answer.failure if own else FailureKind.ROBOTS_UNREACHABLE
        self._backing_off.begin(query.host, query.scheme, kind, f"robots.txt: {error}", now, asked_s)

    def _fail_urls(self, host: HostWork, kind: str, error: str) -> None:
        """End every URL of a lease that cannot be fetched now, without contact."""
        tasks = list(host.tasks)
        host.tasks.clear()
        host.suspects.clear()
        for task in tasks:
            self._desk.settle(host, task, Outcome.FAILED, kind=kind, error=error)

    def _lasting(self, decision: Decision, now: Moment) -> Decision:
        """What robots.txt means, with when it must be asked for again, by either clock."""
        ttl_s = min(decision.expires - now.wall, self._desk.settings.robots_ttl_s)
        return msgspec.structs.replace(decision, expires=now.wall + ttl_s, expires_shared=now.shared + ttl_s)

    def _remember(self, host: HostWork, scheme: str, robots: Robots, heard: float, now: Moment) -> None:
        settings = self._desk.settings
        host.robots[scheme] = robots
        host.backoff.pop(scheme, None)
        self._backing_off.blame(host, scheme)
        host.delay_s = max(host.delay_s, robots.crawl_delay_s)
        host.next_contact = max(host.next_contact, heard + host.delay_s)
        self._desk.changed.append(host)
        base = robots_url(scheme, host.host)
        # A long file is not parsed again for sitemaps that it does not have.
        names_some = _SITEMAP.search(robots.decision.rules) is not None
        sitemaps = named_sitemaps(robots.rules, base) if settings.sitemaps and names_some else []
        # The crawl's own delay is not the host's: a crawl that is resumed with a shorter one means it.
        own_delay_s = host.delay_s if robots.crawl_delay_s == host.delay_s > settings.delay_s else None
        self._desk.report_note(host, now, sitemaps, own_delay_s)

    # Guests

    def visit(self, query: RobotsQuery, now: Moment) -> None:
        """Take a query to the host that a redirect led to: have it hear what is known there, wait for that host's next
        contact, or wait for a lease of it."""
        place = host_of(query.url)
        held = self._desk.hosts.by_name.get(place)
        if held is not None:
            self._receive(held, query, now)
        elif place in self._visits:
            self._visits[place].append(query)
        else:
            self._visits[place] = [query]
            self._desk.actions.append(AskVisit(place, (query.host.lease_id, query.host.host)))

    def visit_ended(self, place: str, note: bytes, now: Moment) -> None:
        """The coordinator has answered, or could not be asked."""
        queries = self._visits.pop(place, [])
        held = self._desk.hosts.by_name.get(place)
        known = robots_of(read_note(note), self._desk.settings.agent) if held is None else {}
        for query in queries:
            if held is not None:
                self._receive(held, query, now)
            elif not self.finds(query, place, known, now):
                self._desk.sent_away.append(query)

    def let_in(self, query: RobotsQuery, place: HostWork, now: Moment) -> None:
        """It is a guest's turn: have it find what is known, ask for the file, or go away if the host must be left
        alone. A file that is not the host's robots.txt is not asked for if the host's rules are known and deny it."""
        scheme = scheme_of(query.url)
        given_back = self._desk.hosts.by_name.get(query.host.host) is not query.host
        if given_back or self.finds(query, place.host, place.robots, now):
            return
        robots = place.robots.get(scheme)
        known = robots is not None and not expired(robots, now) and query.url != robots_url(scheme, place.host)
        if self._backing_off.wait_s(place, scheme, now):
            self._desk.sent_away.append(query)
        elif known and robots is not None and not self._desk.robots_line.allows(robots, query.url, now.boot):
            query.host.robots_in_flight = False
            error = f"robots.txt: it is at {query.url}, which {place.host} denies to crawlers"
            self._backing_off.begin(query.host, query.scheme, FailureKind.ROBOTS_UNREACHABLE, error, now)
        else:
            self.ask(query, place, now)

    def _receive(self, held: HostWork, query: RobotsQuery, now: Moment) -> None:
        """Let a query wait at a host that is held; not when nothing more is to be begun, or it would wait for ever. One
        whose own host was given back meanwhile is forgotten."""
        if self._desk.hosts.by_name.get(query.host.host) is not query.host:
            pass
        elif held.ending or self._desk.state is not CrawlState.RUNNING:
            self._desk.sent_away.append(query)
        elif not self.finds(query, held.host, held.robots, now):
            held.guests.append(query)
        self._desk.changed.append(held)

    def finds(self, query: RobotsQuery, place: str, known: dict[str, Robots], now: Moment) -> bool:
        """Whether `known`, the rules of the host that a redirect led to, are what was to be asked for there."""
        scheme = scheme_of(query.url)
        robots = known.get(scheme)
        if robots is None or expired(robots, now) or query.url != robots_url(scheme, place):
            return False
        query.host.robots_in_flight = False
        self._remember(query.host, query.scheme, robots, now.boot, now)
        return True

    def turned_away(self, query: RobotsQuery, now: Moment) -> None:
        """The host that a redirect led to cannot be had now: try again later. After a while the query's own host is in
        back-off: nothing is wrong with its URLs."""
        host = query.host
        host.robots_in_flight = False
        query.refusals += 1
        if query.refusals > REFUSALS_MAX:
            error = f"robots.txt: it is on {host_of(query.url)}, which cannot be asked now"
            self._backing_off.begin(host, query.scheme, FailureKind.ROBOTS_UNREACHABLE, error, now)
        else:
            host.robots_query = query
            host.next_contact = max(host.next_contact, now.boot + REFUSAL_WAIT_S * 2**query.refusals)
        self._desk.changed.append(host)


def expired(robots: Robots, now: Moment) -> bool:
    return robots.decision.expired(now.wall, now.shared)


def _redirect(answer: Answer, url: str) -> str:
    """Where the answer to a request for robots.txt at `url` sends us; empty when nowhere. Of a redirect only the head
    matters, so one whose body was cut short is followed too."""
    cut_short = answer.failure == FailureKind.RESET and answer.has_head
    if not is_redirect(answer.status) or (answer.failure and not cut_short):
        return ""
    location = location_of(answer.response_headers())
    target = canonical(location, url) if location else None
    return target if target and target != url else ""
