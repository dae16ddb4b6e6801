"""A made-up web: hosts with sizes, pages, links, robots.txt, latencies and troubles, all of which follow from a seed.

A page's nature follows from its URL by a hash, so it does not depend on when it is asked for or on what was asked for
before. Only what hosts go through (outages, overload) depends on the time.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import msgspec
from xxhash import xxh3_64_intdigest

from drumlin.model import FailureKind
from drumlin.sim import figures

SCHEME = "http://"
ROBOTS_PATH = "/robots.txt"
DENIED_START = "/private/"
CHILDREN = 3
"""Every page links to so many that no page before it links to, so all pages of a host can be reached."""
SHARE_LINKED_ELSEWHERE = 0.3
DENIED_OF_RULED = figures.SHARE_DENIED / figures.SHARE_HOSTS_WITH_RULES
"""The share of the URLs that is denied, of hosts that deny any."""
SHARE_MENDED = 0.7
"""The share of broken requests that work at the next try."""
UNIT = float(1 << 64)
SEEDS_PER_HOST = 10
RETRY_AFTER_S = (3, 8, 30)
"""For how long overloaded hosts ask to be left alone, one host for longer than the next."""
OVERLOADED_EVERY = 12
"""A host that is overloaded now and then is so once in so many contacts."""


class WebAnswer(msgspec.Struct):
    """What a host makes of a request: `failure` if nothing comes back. `thinking_s` is how long that takes it."""

    status: int = 0
    header_lines: list[bytes] = []
    body: bytes = b""
    failure: str = ""
    thinking_s: float = 0.0


class WebHost:
    """One host. `delay_s` is what its robots.txt asks for, 0 when it asks for nothing."""

    __slots__ = (
        "contacted",
        "contacts",
        "delay_s",
        "denies",
        "down_until",
        "latency_s",
        "name",
        "number",
        "origin",
        "overloaded",
        "paused_until",
        "paused_url",
        "robots",
        "robots_at",
        "robots_broken_until",
        "robots_heard",
        "size",
        "way_s",
    )

    def __init__(self, number: int, size: int, chance: random.Random) -> None:
        self.number = number
        self.name = f"h{number}.example"
        self.origin = f"{SCHEME}{self.name}"
        self.size = size
        self.latency_s = min(
            figures.LATENCY_MAX_S, figures.LATENCY_MEDIAN_S * math.exp(chance.gauss(0.0, figures.LATENCY_SIGMA))
        )
        self.way_s = min(figures.WAY_S_MAX, 0.3 * self.latency_s)
        self.denies = chance.random() < figures.SHARE_HOSTS_WITH_RULES
        self.delay_s = float(chance.choice((2, 5, 10))) if chance.random() < figures.SHARE_HOSTS_WITH_DELAY else 0.0
        without = not self.denies and not self.delay_s
        self.robots = b"" if without and chance.random() < figures.SHARE_HOSTS_WITHOUT_ROBOTS else self._rules()
        self.robots_at = ""
        """The URL that its robots.txt redirects to, if it does."""
        self.robots_broken_until = 0.0
        self.robots_heard = False
        """Whether it has ever told its rules, or that there are none."""
        self.overloaded = chance.random() < figures.SHARE_HOSTS_OVERLOADED
        self.paused_until = 0.0
        """Until when it has asked to be left alone, and in answer to which URL."""
        self.paused_url = ""
        self.down_until = 0.0
        self.contacted = -math.inf
        self.contacts = 0

    def _rules(self) -> bytes:
        rules = f"Disallow: {DENIED_START}\n" if self.denies else "Allow: /\n"
        return f"User-agent: *\n{rules}{f'Crawl-delay: {self.delay_s:g}' if self.delay_s else ''}\n".encode()


def _head(status: int, *fields: bytes) -> list[bytes]:
    return [b"HTTP/1.1 %d X\r\n" % status, *fields, b"\r\n"]


_HTML, _TEXT = b"Content-Type: text/html\r\n", b"Content-Type: text/plain\r\n"
_HEADS = {status: _head(status, _HTML) for status in (200, 403, 404, 410, 503)}
_ROBOTS_HEAD = _head(200, _TEXT)
BUSY = (429, 503)
_BUSY_HEADS = {
    (status, wait_s): _head(status, _HTML, b"Retry-After: %d\r\n" % wait_s)
    for status in BUSY
    for wait_s in RETRY_AFTER_S
}
# Pages of a size share one body, so they take no room.
_BODIES = [b"x" * size for size in figures.BODY_BYTES]
_SHORT = b"no"


class Web:
    """All hosts. `on_contact` hears of every request that reaches one: the host, what was asked for, and when."""

    connect_s_max = figures.CONNECT_S_MAX

    def __init__(self, seed: int, hosts: int, size_mean: float) -> None:
        chance = random.Random(f"{seed}/web")
        self._seed = seed
        least = size_mean * (figures.SIZE_TAIL - 1) / figures.SIZE_TAIL
        self.hosts = [
            WebHost(number, max(1, int(least * chance.paretovariate(figures.SIZE_TAIL))), chance)
            for number in range(hosts)
        ]
        self.by_name = {host.name: host for host in self.hosts}
        for host in self.hosts:
            if not host.denies and not host.delay_s and chance.random() < figures.SHARE_HOSTS_ROBOTS_ELSEWHERE:
                self._have_rules_elsewhere(host, chance.choice(self.hosts))
        self._draw_outages(random.Random(f"{seed}/outages"))
        self.on_contact: Callable[[WebHost, str, float], None] = lambda host, url, now: None

    @staticmethod
    def _have_rules_elsewhere(host: WebHost, other: WebHost) -> None:
        """The rules of the other host hold for this one too."""
        if not other.robots_at and not other.delay_s:
            host.robots_at = f"{SCHEME}{other.name}{ROBOTS_PATH}"
            host.denies = other.denies

    def _draw_outages(self, chance: random.Random) -> None:
        for host in self.hosts:
            if chance.random() < figures.SHARE_OUT_OF_REACH:
                host.down_until = chance.expovariate(1.0 / figures.OUTAGE_S_MEAN)
            elif chance.random() < figures.SHARE_HOSTS_ROBOTS_BROKEN:
                host.robots_broken_until = chance.expovariate(1.0 / figures.ROBOTS_BROKEN_S_MEAN)

    def seeds(self) -> list[str]:
        """The first pages of every host: a crawl that is well under way knows some of each."""
        return [self.url(host, page) for host in self.hosts for page in range(min(host.size, SEEDS_PER_HOST))]

    def _drawn(self, text: str) -> float:
        """A number from 0 to 1 that follows from a text."""
        return xxh3_64_intdigest(text.encode(), self._seed & 0xFFFF_FFFF) / UNIT

    def url(self, host: WebHost, page: int) -> str:
        denied = host.denies and page > 0 and self._drawn(f"{host.number}/{page}/way") < DENIED_OF_RULED
        return f"{host.origin}{DENIED_START if denied else '/p/'}{page}"

    def host_of(self, url: str) -> WebHost:
        return self.by_name[url[len(SCHEME) : url.index("/", len(SCHEME))]]

    def links(self, url: str) -> list[str]:
        """What a page links to: the next pages of its host, one before them, and now and then another host."""
        host, page = self.host_of(url), int(url.rpartition("/")[2])
        first = page * CHILDREN + 1
        found = [self.url(host, child) for child in range(first, min(first + CHILDREN, host.size))]
        drawn = self._drawn(url + " elsewhere")
        if drawn < SHARE_LINKED_ELSEWHERE:
            other = self.hosts[int(drawn / SHARE_LINKED_ELSEWHERE * len(self.hosts))]
            found.append(self.url(other, int(self._drawn(url + " there") * min(other.size, 20))))
        if page:
            found.append(self.url(host, (page - 1) // CHILDREN))
        return found

    def reachable(self, url: str, now: float) -> bool:
        """Whether a connection to the URL's host can be made."""
        return self.host_of(url).down_until <= now

    def contact(self, url: str, attempt: int, now: float) -> WebAnswer:
        """A request reaches its host: what it is answered with."""
        host = self.host_of(url)
        self.on_contact(host, url, now)
        host.contacted = now
        host.contacts += 1
        if host.down_until > now:
            return WebAnswer(failure=FailureKind.RESET)
        if url.endswith(ROBOTS_PATH):
            return self._robots(host, now)
        if host.overloaded and host.contacts % OVERLOADED_EVERY == 0:
            return self._busy(host, url, now)
        answer = self._page(host, url, attempt)
        answer.thinking_s = host.latency_s * (0.5 + self._drawn(f"{url} {attempt}"))
        return answer

    def _robots(self, host: WebHost, now: float) -> WebAnswer:
        if host.robots_broken_until > now:
            return WebAnswer(503, _HEADS[503], _SHORT, thinking_s=host.latency_s)
        host.robots_heard = True
        if host.robots_at:
            head = _head(301, b"Location: %b\r\n" % host.robots_at.encode())
            return WebAnswer(301, head, thinking_s=host.latency_s)
        if not host.robots:
            return WebAnswer(404, _HEADS[404], _SHORT, thinking_s=host.latency_s)
        return WebAnswer(200, _ROBOTS_HEAD, host.robots, thinking_s=host.latency_s)

    def _busy(self, host: WebHost, url: str, now: float) -> WebAnswer:
        """An overloaded host says at once for how long it wants to be left alone."""
        status, wait_s = BUSY[host.number % len(BUSY)], RETRY_AFTER_S[host.number % len(RETRY_AFTER_S)]
        host.paused_until, host.paused_url = now + wait_s, url
        return WebAnswer(status, _BUSY_HEADS[status, wait_s], _SHORT, thinking_s=host.latency_s)

    def _page(self, host: WebHost, url: str, attempt: int) -> WebAnswer:
        # The first page of a host always answers, or a host's other pages could not be found.
        drawn = 1.0 if url.endswith("/p/0") else self._drawn(url)
        for share, status in _ENDS:
            if drawn < share:
                return self._other(host, url, status, attempt)
            drawn -= share
        return WebAnswer(200, _HEADS[200], _BODIES[int(drawn * 1e6) % len(_BODIES)])

    def _other(self, host: WebHost, url: str, status: int, attempt: int) -> WebAnswer:
        """An end that is not a page. What is broken mostly works at the second try, as on the real web."""
        if status == 0:
            if attempt and self._drawn(f"{url} again {attempt}") < SHARE_MENDED:
                return WebAnswer(200, _HEADS[200], _BODIES[0])
            return WebAnswer(failure=FailureKind.TIMEOUT if host.number % 2 else FailureKind.RESET)
        if status < 400:
            return WebAnswer(status, _head(status, b"Location: %b\r\n" % self._moved_to(host, url).encode()))
        return WebAnswer(status, _HEADS[status], _SHORT)

    def _moved_to(self, host: WebHost, url: str) -> str:
        drawn = self._drawn(f"{url} moved")
        if drawn < figures.SHARE_MOVED_ELSEWHERE:
            return self.url(self.hosts[int(drawn / figures.SHARE_MOVED_ELSEWHERE * len(self.hosts))], 0)
        return self.url(host, int(url.rpartition("/")[2]) // CHILDREN)


_ENDS = [
    (figures.SHARE_MOVED, 301),
    (figures.SHARE_MOVED_FOR_NOW, 302),
    (figures.SHARE_NOT_FOUND, 404),
    (figures.SHARE_GONE, 410),
    (figures.SHARE_FORBIDDEN, 403),
    (figures.SHARE_BROKEN, 0),
]
SHARE_PAGES = 1.0 - figures.SHARE_MOVED - figures.SHARE_MOVED_FOR_NOW - figures.SHARE_BROKEN
"""The share of first requests that bring a page. "Not found" is one too: it is kept, and counts."""


def seconds_a_page(page_s: float, timeout_s: float) -> float:
    """How much of the time of one connection a page takes on average, if nothing is ever waited for: with the requests
    that bring no page, which take as long, and with those that are broken, half of which last until they time out."""
    again = sum((1.0 - SHARE_MENDED) ** tries for tries in range(3))
    mended = SHARE_MENDED * again
    pages = SHARE_PAGES + figures.SHARE_BROKEN * mended
    answered_s = (page_s + figures.LATENCY_MEAN_S) * (1.0 - figures.SHARE_BROKEN * (1.0 - mended))
    return (answered_s + figures.SHARE_BROKEN * again * timeout_s / 2.0) / pages
