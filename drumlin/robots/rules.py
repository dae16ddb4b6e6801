"""Reading robots.txt: lines into groups, with the mistakes that site owners make forgiven where the intent is plain."""

from __future__ import annotations

import re

from drumlin.robots.agent import ANY_AGENT, group_tokens, product_token
from drumlin.robots.match import Matcher, Rule

BODY_BYTES_MAX = 4 * 1024 * 1024  # RFC 9309 2.5: a crawler must read at least 500 KiB.
WHOLE_BYTES_MAX = 64 * 1024  # A file of up to this size is remembered as it is, for people to read.
KEPT_BYTES_MAX = 1024 * 1024  # Of a longer one, the rules for one crawler, up to this size.
RULES_MAX = 10_000  # Of these, too: each rule with a star is tried on every URL.
LINES_MAX = 200_000  # A file of nothing but short lines takes as long to read as hundreds of pages.
SITEMAPS_KEPT_MAX = 100
LINE_BYTES_MAX = 16 * 1024  # Longer than any URL that is in use; the rest of the line is dropped.
CRAWL_DELAY_MAX_S = 86_400.0
MATCHERS_MAX = 16  # Prepared matchers kept per file; a crawl has one agent, a tool perhaps a few.

_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(rb"[0-9]{1,9}(?:\.[0-9]{1,9})?|\.[0-9]{1,9}")

_USER_AGENT, _ALLOW, _DISALLOW, _CRAWL_DELAY, _SITEMAP = range(5)
_KEYS: dict[bytes, int] = {
    b"user-agent": _USER_AGENT,
    b"useragent": _USER_AGENT,
    b"user agent": _USER_AGENT,
    b"user_agent": _USER_AGENT,
    b"allow": _ALLOW,
    b"disallow": _DISALLOW,
    b"dissallow": _DISALLOW,
    b"dissalow": _DISALLOW,
    b"disalow": _DISALLOW,
    b"diasllow": _DISALLOW,
    b"disallaw": _DISALLOW,
    b"crawl-delay": _CRAWL_DELAY,
    b"crawldelay": _CRAWL_DELAY,
    b"crawl delay": _CRAWL_DELAY,
    b"crawl_delay": _CRAWL_DELAY,
    b"sitemap": _SITEMAP,
    b"site-map": _SITEMAP,
}


class Group:
    """What one run of `User-agent` lines shares. Several groups may name one agent, and one group several agents."""

    __slots__ = ("crawl_delay", "rules")

    def __init__(self) -> None:
        self.rules: list[Rule] = []
        self.crawl_delay: float | None = None


class Rules:
    """A parsed robots.txt. `groups` maps each product token to its groups, `sitemaps` is as written in the file."""

    __slots__ = ("_matchers", "groups", "sitemaps")

    def __init__(self, groups: dict[str, list[Group]], sitemaps: list[str]) -> None:
        self.groups = groups
        self.sitemaps = sitemaps
        self._matchers: dict[str, Matcher] = {}

    def allowed(self, agent: str, url: str) -> bool:
        """Whether the crawler `agent` (a product token or a User-Agent header) may request `url`."""
        return self.for_agent(agent).allowed(url)

    def crawl_delay(self, agent: str) -> float | None:
        """The least seconds between two requests that the file asks of `agent`, if it asks."""
        delays = (group.crawl_delay for group in self._groups_of(product_token(agent)))
        return max((delay for delay in delays if delay is not None), default=None)

    def for_agent(self, agent: str) -> Matcher:
        """The matcher of `agent`: its own groups merged, or else those of `*`. Prepared once."""
        matcher = self._matchers.get(agent)
        if matcher is None:
            matcher = self._prepare(product_token(agent))
            if len(self._matchers) >= MATCHERS_MAX:
                self._matchers.clear()
            self._matchers[agent] = matcher
        return matcher

    def _groups_of(self, token: str) -> list[Group]:
        return self.groups.get(token) or self.groups.get(ANY_AGENT, [])

    def _prepare(self, token: str) -> Matcher:
        return Matcher(rule for group in self._groups_of(token) for rule in group.rules)


def parse(body: bytes) -> Rules:
    """Read a robots.txt. Any bytes are accepted; what cannot be understood is skipped. A file that is too long to be
    read to its end denies everything: a line that is not read could be the one that denies."""
    lines = body.removeprefix(_BOM).splitlines() if len(body) <= BODY_BYTES_MAX else None
    if lines is None or len(lines) > LINES_MAX:
        return Rules({ANY_AGENT: [_nothing_allowed()]}, [])
    reader = _Reader()
    for line in lines:
        entry = _entry(line)
        if entry is not None:
            reader.take(*entry)
    return Rules(reader.groups, list(reader.sitemaps))


class _Reader:
    """Assigns lines to groups.

    Only Allow and Disallow end a run of User-agent lines: RFC 9309 forbids that other records change how these are
    read. A Crawl-delay belongs to the agents named since the last line of any kind that ends a run, which is
    what people who write one Crawl-delay per agent mean. Hence two groups are open at a time.
    """

    def __init__(self) -> None:
        self.groups: dict[str, list[Group]] = {}
        self.sitemaps: dict[str, None] = {}
        self._ruled: Group | None = None
        self._delayed: Group | None = None
        self._ruled_open = False
        self._delayed_open = False

    def take(self, key: int, value: bytes) -> None:
        if key in (_ALLOW, _DISALLOW):
            self._rule(key == _ALLOW, value)
        elif key == _USER_AGENT:
            self._agent(group_tokens(value.decode("latin-1")))
        elif key == _CRAWL_DELAY:
            self._delay(value)
        elif value:
            self.sitemaps[value.decode("utf-8", "replace")] = None

    def _agent(self, tokens: tuple[str, ...]) -> None:
        if self._ruled is None or not self._ruled_open:
            self._ruled = Group()
        if self._delayed is None or not self._delayed_open:
            self._delayed = Group()
        self._ruled_open = self._delayed_open = True
        for token in tokens:
            self.groups.setdefault(token, []).extend((self._ruled, self._delayed))

    def _rule(self, allow: bool, pattern: bytes) -> None:
        self._ruled_open = self._delayed_open = False
        if self._ruled is not None and pattern:
            self._ruled.rules.append(Rule(allow, pattern))

    def _delay(self, value: bytes) -> None:
        self._delayed_open = False
        number = _NUMBER.match(value)
        if self._delayed is not None and number is not None:
            seconds = min(float(number.group()), CRAWL_DELAY_MAX_S)
            self._delayed.crawl_delay = max(seconds, self._delayed.crawl_delay or 0.0)


def _nothing_allowed() -> Group:
    group = Group()
    group.rules.append(Rule(False, b"/"))
    return group


def condensed(body: bytes, agent: str) -> bytes | None:
    """What is worth remembering of a robots.txt: the file if it is short, else a file with the rules for `agent` alone,
    and some sitemaps. None when even those do not fit."""
    if len(body) <= WHOLE_BYTES_MAX:
        return body
    rules = parse(body)
    groups = rules.groups.get(product_token(agent)) or rules.groups.get(ANY_AGENT, [])
    lines = [b"User-agent: *", b"Disallow:"]
    distinct = dict.fromkeys(rule for group in groups for rule in group.rules)
    if len(distinct) > RULES_MAX:
        return None
    for allow, pattern in distinct:
        lines.append((b"Allow: " if allow else b"Disallow: ") + pattern)
    delay_s = rules.crawl_delay(agent)
    if delay_s is not None:
        lines.append(f"Crawl-delay: {delay_s:.9f}".encode())
    lines += [b"Sitemap: " + sitemap.encode() for sitemap in rules.sitemaps[:SITEMAPS_KEPT_MAX]]
    kept = b"\n".join(lines)
    return kept if len(kept) <= KEPT_BYTES_MAX else None


def _entry(line: bytes) -> tuple[int, bytes] | None:
    """Key and value of a line, or None for a comment, a blank line and anything unknown."""
    line = line[:LINE_BYTES_MAX].partition(b"#")[0]
    name, colon, value = line.partition(b":")
    if not colon:
        words = line.split()  # "Disallow /x" without its colon is plain enough; with more words it is prose.
        if len(words) != 2:
            return None
        name, value = words
    key = _KEYS.get(name.strip().lower())
    return None if key is None else (key, value.strip())
