"""Reading robots.txt: lines into groups. Common mistakes of site owners are forgiven if the intent is plain."""

from __future__ import annotations

import re

from drumlin.robots.agent import ANY_AGENT, group_tokens, product_token
from drumlin.robots.match import ALLOWED, Matcher, Rule

BODY_BYTES_MAX = 4 * 1024 * 1024  # RFC 9309 2.5: a crawler must read at least 500 KiB.
WHOLE_BYTES_MAX = 64 * 1024  # A file of up to this size is kept as it is, for people to read.
KEPT_BYTES_MAX = 1024 * 1024  # Of a longer file only the rules for one crawler are kept, up to this size.
RULES_MAX = 10_000  # And up to this number of rules: each rule with a star is tried on every URL.
LINES_MAX = 200_000  # A file of many short lines takes as long to read as hundreds of pages.
SITEMAPS_KEPT_MAX = 100
LINE_BYTES_MAX = 16 * 1024  # Longer than any URL that is in use; the rest of the line is dropped.
CRAWL_DELAY_MAX_S = 86_400.0
MATCHERS_MAX = 16  # Matchers kept for each file: a crawl has one agent, a tool perhaps a few.

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
_COMMON = {
    spelling: _KEYS[name]
    for name in (b"user-agent", b"allow", b"disallow")
    for spelling in (name, name.capitalize(), name.title())
}
"""The names as nearly all files spell them: found with one look-up, without stripping and lower-casing first."""


class Group:
    """The rules that follow one run of `User-agent` lines. An agent may have several groups, and a group several
    agents."""

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

    def denying_rule(self, agent: str, url: str) -> Rule | None:
        """The `Disallow` that keeps the crawler `agent` from `url`, to show to people; None if none does, or if it is
        not known which."""
        line = self.for_agent(agent).denying_line(url)
        rules = (rule for group in self._groups_of(product_token(agent)) for rule in group.rules)
        return next((rule for rule in rules if rule.line == line), None) if line > ALLOWED else None

    def crawl_delay(self, agent: str) -> float | None:
        """The seconds between two requests that the file asks of `agent`; None if it does not ask."""
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

    def is_prepared(self, agent: str) -> bool:
        return agent in self._matchers

    def _groups_of(self, token: str) -> list[Group]:
        return self.groups.get(token) or self.groups.get(ANY_AGENT, [])

    def _prepare(self, token: str) -> Matcher:
        return Matcher(rule for group in self._groups_of(token) for rule in group.rules)


def parse(body: bytes) -> Rules:
    """Read a robots.txt. Any bytes are accepted; lines that cannot be understood are skipped. A file that is too long
    to be read to its end denies everything, because a line that was not read could be the one that denies."""
    lines = body.removeprefix(_BOM).splitlines() if len(body) <= BODY_BYTES_MAX else None
    if lines is None or len(lines) > LINES_MAX:
        return Rules({ANY_AGENT: [_nothing_allowed()]}, [])
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        name, _, value = line.partition(b":")
        common = _COMMON.get(name)
        plain = common is not None and b"#" not in value and len(line) <= LINE_BYTES_MAX
        entry = (common, value.strip()) if common is not None and plain else _entry(line)
        if entry is not None:
            reader.take(*entry, number)
    return Rules(reader.groups, list(reader.sitemaps))


class _Reader:
    """Assigns lines to groups.

    For the rules, only Allow and Disallow end a run of User-agent lines: RFC 9309 says that other lines must not change
    how these are read. For the delays, a Crawl-delay ends a run too: people who write one Crawl-delay under each agent
    mean it for that agent alone. Hence two groups are open at a time, one for rules and one for delays.
    """

    def __init__(self) -> None:
        self.groups: dict[str, list[Group]] = {}
        self.sitemaps: dict[str, None] = {}
        self._ruled: Group | None = None
        self._delayed: Group | None = None
        self._ruled_open = False
        self._delayed_open = False

    def take(self, key: int, value: bytes, line: int) -> None:
        if key in (_ALLOW, _DISALLOW):
            self._rule(key == _ALLOW, value, line)
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

    def _rule(self, allow: bool, pattern: bytes, line: int) -> None:
        self._ruled_open = self._delayed_open = False
        if self._ruled is not None and pattern:
            self._ruled.rules.append(Rule(allow, pattern, line))

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


def picked(rules: Rules, agent: str) -> bytes | None:
    """A robots.txt with the rules for `agent` alone, and some sitemaps; None if it would be too long."""
    groups = rules.groups.get(product_token(agent)) or rules.groups.get(ANY_AGENT, [])
    # The rules are for us alone by now, so the group is everybody's. The empty rule makes it a group even without
    # rules.
    lines = [b"User-agent: *", b"Disallow:"]
    distinct = dict.fromkeys(rule[:2] for group in groups for rule in group.rules)
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
        words = line.split()  # "Disallow /x" without its colon is clear enough; a line of more words is prose.
        if len(words) != 2:
            return None
        name, value = words
    key = _KEYS.get(name.strip().lower())
    return None if key is None else (key, value.strip())
