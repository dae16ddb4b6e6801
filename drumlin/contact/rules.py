"""What robots.txt of a host lets us do, as it is kept with the host and travels in its note."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from drumlin.protocol import HostNote
from drumlin.robots import CRAWL_DELAY_MAX_S, Decision, Matcher, PreparedFiles, Rules, decisions_in, product_token

SHORT_BYTES_MAX = 1024
"""A robots.txt of no more is kept prepared for as long as its host is leased; most files are so short. Prepared it may
take 14 times as much memory, and a node holds thousands of hosts."""
PREPARING_S_PER_BYTE = 1e-7
"""What it takes to parse a robots.txt and prepare it for matching."""

PATTERN_SHOWN_BYTES = 200

_files = PreparedFiles()

Stopwatch = Callable[[], float]
"""Seconds since any moment. Only what work costs is measured with it; when something may happen is said by `now`."""


def standing_still() -> float:
    """A stopwatch for those to whom the cost does not matter."""
    return 0.0


class Robots:
    """What robots.txt of one scheme of a host lets us do, until it expires. Leases come with the rules of hundreds of
    hosts at once: a file is parsed when the first URL is asked about."""

    __slots__ = ("_agent", "_matcher", "_matching_s", "crawl_delay_s", "decision")

    def __init__(self, decision: Decision, agent: str) -> None:
        self._agent = agent
        self._matcher: Matcher | None = None
        self._matching_s = 0.0
        self.decision = decision
        self.crawl_delay_s = self._known_delay_s()
        if self.crawl_delay_s < 0.0:
            self.crawl_delay_s = self.rules.crawl_delay(agent) or 0.0
            delay = (product_token(agent), self.crawl_delay_s)
            self.decision = msgspec.structs.replace(decision, asked_delay=delay)

    def _known_delay_s(self) -> float:
        """The delay that was found when the file was read; less than 0 when it was read for somebody else."""
        if self.decision.rules_body is None:
            return 0.0
        reader, delay_s = self.decision.asked_delay or ("", -1.0)
        return delay_s if reader == product_token(self._agent) and 0.0 <= delay_s <= CRAWL_DELAY_MAX_S else -1.0

    @property
    def rules(self) -> Rules:
        return _files.of(self.decision.rules_body or b"", self.decision.packed_from)

    @property
    def expected_s(self) -> float:
        """About how long the next look at a URL will take."""
        if self._matcher is not None:
            return self._matching_s
        if _files.is_prepared(self.decision.rules_body or b"", self._agent):
            return self._matching_s
        return self.decision.rules_bytes * PREPARING_S_PER_BYTE

    def allows(self, url: str, stopwatch: Stopwatch = standing_still) -> bool:
        if self.decision.deny_all:
            return False
        if self.decision.allow_all:
            return True
        matcher = self._matcher or self._prepared()
        began = stopwatch()
        allowed = matcher.allowed(url)
        self._matching_s = stopwatch() - began
        return allowed

    def denial(self, url: str) -> str:
        """Why a URL is not allowed, for the fetch log: the line that denies it, as far as that is known. Of a long file
        only our own rules are kept, so the numbers of its lines are not known."""
        body = self.decision.rules_body
        rule = self.rules.denying_rule(self._agent, url) if body is not None else None
        if rule is None:
            return self.decision.reason
        said = f"Disallow: {rule.pattern[:PATTERN_SHOWN_BYTES].decode('utf-8', 'replace')}"
        return said if self.decision.agent else f"line {rule.line}: {said}"

    def _prepared(self) -> Matcher:
        matcher = self.rules.for_agent(self._agent)
        if self.decision.rules_bytes <= SHORT_BYTES_MAX:
            self._matcher = matcher
        return matcher


def robots_of(note: HostNote, agent: str) -> dict[str, Robots]:
    """What robots.txt of each scheme says to `agent`, as far as the host's note knows. The note may be
    about an agent that the crawl was called by before."""
    known = {scheme: one for scheme, one in decisions_in(note).items() if one.agent in ("", product_token(agent))}
    return {scheme: Robots(decision, agent) for scheme, decision in known.items()}
