"""What the answer to a request for robots.txt means. Pure: the caller fetches, follows redirects and reads the clock.

If the answer leaves the site's wish unknown, nothing is allowed and the host is asked again later. RFC 9309 would let a
crawler take everything from a host whose robots.txt has been out of reach for 30 days; drumlin never does.
"""

from __future__ import annotations

import msgspec

from drumlin.model import FailureKind
from drumlin.protocol import is_redirect
from drumlin.protocol.statuses import TOO_MANY_REQUESTS
from drumlin.robots.agent import product_token
from drumlin.robots.packing import NOTED_BYTES_MAX, pack, unpack
from drumlin.robots.rules import BODY_BYTES_MAX, WHOLE_BYTES_MAX, parse, picked

REDIRECTS_MAX = 5  # RFC 9309 2.3.1.2: at least five are followed, across hosts too.
RULES_TTL_S = 86_400.0  # RFC 9309 2.4: a cached copy is not used for longer than 24 hours.
RULES_TTL_MIN_S = 600.0  # Even if a site forbids caching, it is not asked again before every page.
UNAVAILABLE_TTL_S = 86_400.0  # How long "there is no robots.txt" (most of 4xx) holds.

_REDIRECT_FAILURES = frozenset({FailureKind.REDIRECT_LIMIT, FailureKind.REDIRECT_LOOP, FailureKind.BAD_REDIRECT})


class Decision(msgspec.Struct, frozen=True):
    """What one answer means, until it expires. Exactly one of `rules_body`, `allow_all` and `deny_all` is given.

    It expires at `expires` by the wall clock of the node that fetched it, or at `expires_shared` by the time that the
    coordinators share (0: not known), whichever comes first. Both are needed: the shared time stands still while the
    crawl is not running, and a wall clock may be wrong.

    `retry` means that the site's wish is unknown. The host is asked again after a while (the caller knows how often it
    was asked in vain), and until then its URLs are put off instead of being counted as denied.
    """

    rules_body: bytes | None
    allow_all: bool
    deny_all: bool
    expires: float
    retry: bool
    reason: str
    expires_shared: float = 0.0
    agent: str = ""
    """The product token whose rules `rules_body` has; empty if it is the whole file."""
    asked_delay: tuple[str, float] | None = None
    """A product token and the Crawl-delay for it in seconds (0: none), so the file need not be parsed to know it."""
    packed_from: int = 0
    """How many bytes the rules had before they were compressed; 0 if `rules_body` has them as they are."""

    @property
    def rules(self) -> bytes:
        """The rules as they are written."""
        return unpack(self.rules_body or b"", self.packed_from)

    @property
    def rules_bytes(self) -> int:
        """How long the rules are."""
        return self.packed_from or len(self.rules_body or b"")

    @property
    def too_long_to_note(self) -> bool:
        """Whether a host's note has no room for the rules."""
        return len(self.rules_body or b"") > NOTED_BYTES_MAX

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
    agent: str = "",
) -> Decision:
    """Read the answer to a request for robots.txt.

    `status` is that of the last response (None: there was none), `redirects` how many were followed, `failure` a
    `FailureKind` or "". `max_age_s` is what Cache-Control allows. Of a long file only the rules for the crawler
    `agent` are kept.
    """
    if redirects > REDIRECTS_MAX or failure in _REDIRECT_FAILURES:
        return _unavailable(now, "too many redirects or a redirect without a target")
    if status is not None and 200 <= status < 300 and failure in ("", FailureKind.TOO_LARGE):
        return _rules(body, failure, now, max_age_s, agent)
    if failure or status is None:
        return _unreachable(now, failure or "no answer")
    if is_redirect(status):
        return _unavailable(now, f"status {status} without a target")
    if 400 <= status < 500 and status != TOO_MANY_REQUESTS:
        return _unavailable(now, f"status {status}")
    return _unreachable(now, f"status {status}")


def _rules(body: bytes, failure: str, now: float, max_age_s: float | None, agent: str) -> Decision:
    age_s = RULES_TTL_S if max_age_s is None else min(max(max_age_s, RULES_TTL_MIN_S), RULES_TTL_S)
    denial = Decision(None, False, True, now + age_s, False, "too long to be read or kept")
    if failure or len(body) > BODY_BYTES_MAX:
        return denial
    if len(body) <= WHOLE_BYTES_MAX:
        kept, packed_from = pack(body)
        whole = Decision(kept, False, False, now + age_s, False, "rules", packed_from=packed_from)
        if not whole.too_long_to_note:
            return whole
    # Parsing a long file takes long, so everything that is needed of it is taken out now.
    rules, token = parse(body), product_token(agent)
    own = picked(rules, agent)
    if own is None:
        return denial
    kept, packed_from = pack(own)
    delay = (token, rules.crawl_delay(agent) or 0.0)
    return Decision(
        kept, False, False, now + age_s, False, "rules", agent=token, asked_delay=delay, packed_from=packed_from
    )


def _unavailable(now: float, reason: str) -> Decision:
    return Decision(None, True, False, now + UNAVAILABLE_TTL_S, False, reason)


def _unreachable(now: float, reason: str) -> Decision:
    return Decision(None, False, True, now, True, reason)
