"""What the answer to a request for robots.txt means. Pure: the caller fetches, follows redirects and keeps the time.

Everything unknown is read as "denied, ask again later". `Policy` can only make the reading stricter than the
default, with one exception that is named for what it does: `forgive_unreachable_after_s`.
"""

from __future__ import annotations

import msgspec

from drumlin.model import FailureKind
from drumlin.robots.agent import product_token
from drumlin.robots.rules import BODY_BYTES_MAX, condensed

REDIRECTS_MAX = 5  # RFC 9309 2.3.1.2: at least five are followed, across hosts too.
RULES_TTL_S = 86_400.0  # RFC 9309 2.4: a cached copy is not used for longer than 24 hours.
RULES_TTL_MIN_S = 600.0  # A site that forbids caching is still not asked before every page.
UNAVAILABLE_TTL_S = 86_400.0
FORGIVE_UNREACHABLE_RFC_S = 30 * 86_400.0  # RFC 9309 2.3.1.4: after about 30 days it may count as unavailable.

_TOO_MANY_REQUESTS = 429
_ACCESS_REFUSED = frozenset({401, 403})
_REDIRECT_FAILURES = frozenset({FailureKind.REDIRECT_LIMIT, FailureKind.REDIRECT_LOOP, FailureKind.BAD_REDIRECT})


class Policy(msgspec.Struct, frozen=True):
    """How the ambiguous answers are read."""

    refused_denies: bool = False
    """401 and 403 deny everything. RFC 9309 lets a crawler fetch everything then."""
    missing_denies: bool = False
    """Every 4xx denies everything: only hosts that publish rules are crawled."""
    redirects_deny: bool = False
    """Redirects that lead nowhere (too many, a loop, no target) deny everything. RFC 9309: as a 404."""
    forgive_unreachable_after_s: float | None = None
    """After so long without an answer allow everything, as RFC 9309 permits from 30 days on. None: never."""


DEFAULT_POLICY = Policy()


class Decision(msgspec.Struct, frozen=True):
    """The reading of one answer, good until `expires`. Exactly one of rules, `allow_all` and `deny_all` is given.

    `expires` is by the wall clock of who fetched it, and `expires_shared` by the time that the coordinators share, 0 if
    that is not known. Whichever comes first counts: the one does not stand still while a crawl rests, the other is not
    wrong when a wall clock is.

    `retry` says that the answer is not the site's wish but the lack of one: ask again after a while (the caller knows
    how often it was asked in vain), and until then put the host's URLs off instead of counting them as denied.
    """

    rules_body: bytes | None
    allow_all: bool
    deny_all: bool
    expires: float
    retry: bool
    reason: str
    expires_shared: float = 0.0
    agent: str = ""
    """The product token that the rules were picked for; empty when they are the whole file."""
    asked_delay: tuple[str, float] | None = None
    """The Crawl-delay in seconds, 0 for none, and for which product token: to know it, the file need not be parsed."""

    def expired(self, wall: float, shared: float) -> bool:
        return self.expires <= wall or 0.0 < self.expires_shared <= shared


def decide(
    status: int | None,
    body: bytes,
    redirects: int,
    failure: str,
    now: float,
    max_age_s: float | None = None,
    *,
    unreachable_since: float | None = None,
    policy: Policy = DEFAULT_POLICY,
    agent: str = "",
) -> Decision:
    """Read the answer to a request for robots.txt.

    `status` is that of the last response (None: there was none), `redirects` how many were followed, `failure` a
    `FailureKind` or "". `max_age_s` is what Cache-Control allows. `unreachable_since` is when the run of unreachable
    answers before this one began. Of a long file, only the rules for the crawler `agent` are kept.
    """
    if redirects > REDIRECTS_MAX or failure in _REDIRECT_FAILURES:
        return _unavailable(now, policy.redirects_deny, "too many redirects or a redirect without a target")
    if status is not None and 200 <= status < 300 and failure in ("", FailureKind.TOO_LARGE):
        return _rules(body, failure, now, max_age_s, agent)
    if failure or status is None:
        return _unreachable(now, unreachable_since, policy, failure or "no answer")
    if 300 <= status < 400 and status != 304:
        return _unavailable(now, policy.redirects_deny, f"status {status} without a target")
    if 400 <= status < 500 and status != _TOO_MANY_REQUESTS:
        denied = policy.missing_denies or (policy.refused_denies and status in _ACCESS_REFUSED)
        return _unavailable(now, denied, f"status {status}")
    return _unreachable(now, unreachable_since, policy, f"status {status}")


def _rules(body: bytes, failure: str, now: float, max_age_s: float | None, agent: str) -> Decision:
    age_s = RULES_TTL_S if max_age_s is None else min(max(max_age_s, RULES_TTL_MIN_S), RULES_TTL_S)
    kept = None if failure or len(body) > BODY_BYTES_MAX else condensed(body, agent)
    if kept is None:
        return Decision(None, False, True, now + age_s, False, "too long to be read or kept")
    picked_for = "" if kept is body else product_token(agent)
    return Decision(kept, False, False, now + age_s, False, "rules", agent=picked_for)


def _unavailable(now: float, denied: bool, reason: str) -> Decision:
    return Decision(None, not denied, denied, now + UNAVAILABLE_TTL_S, False, reason)


def _unreachable(now: float, since: float | None, policy: Policy, reason: str) -> Decision:
    patience_s = policy.forgive_unreachable_after_s
    if patience_s is not None and since is not None and now - since >= patience_s:
        return _unavailable(now, False, f"{reason}, unreachable for too long")
    return Decision(None, False, True, now, True, reason)
