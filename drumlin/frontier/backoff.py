"""How each kind of failure is retried: never, or after a wait that grows with each attempt.

The wait before attempt n+1 is `base * 2^(n-1)` times the kind's factor, and at most `max_s`. Chance makes it up to 50 %
longer or shorter, because URLs that failed together should not come back together. It is never shorter than what the
site asked for with Retry-After.
"""

from __future__ import annotations

import msgspec

from drumlin.frontier.pauses import ASKED_MAX_S
from drumlin.model import FailureKind

JITTER_SHARE = 0.5


class RetryRule(msgspec.Struct, frozen=True):
    """Whether a kind of failure is worth another try, and how patient to be."""

    retries: bool
    wait_factor: float = 1.0
    why: str = ""


RETRY_RULES: dict[str, RetryRule] = {
    FailureKind.DNS: RetryRule(True, 4.0, "name servers recover slowly"),
    FailureKind.CONNECT: RetryRule(True, 2.0, "the server may be restarting"),
    FailureKind.TLS: RetryRule(False, why="a bad certificate, or a server without TLS, stays so until a person acts"),
    FailureKind.TIMEOUT: RetryRule(True, 2.0, "the server may be overloaded"),
    FailureKind.RESET: RetryRule(True, 1.0, "a connection broke; the next may not"),
    FailureKind.PROTOCOL: RetryRule(True, 1.0, "an answer that is not HTTP may be a proxy's hiccup"),
    FailureKind.HTTP_4XX: RetryRule(False, why="the site answered; the answer is stored"),
    FailureKind.RATE_LIMITED: RetryRule(True, 6.0, "the site asked us to slow down"),
    FailureKind.HTTP_5XX: RetryRule(True, 2.0, "the site has trouble of its own"),
    FailureKind.ROBOTS_UNREACHABLE: RetryRule(True, 12.0, "without robots.txt nothing may be fetched"),
    FailureKind.TOO_LARGE: RetryRule(False, why="it will be as large next time"),
    FailureKind.DECODE: RetryRule(True, 1.0, "the body may have been cut"),
    FailureKind.REDIRECT_LOOP: RetryRule(False, why="a loop does not end by repeating it"),
    FailureKind.REDIRECT_LIMIT: RetryRule(False, why="the chain is as long next time"),
    FailureKind.BAD_REDIRECT: RetryRule(False, why="the target is not a web address"),
    FailureKind.FORBIDDEN_ADDRESS: RetryRule(False, why="the address is private; see --allow-private"),
    FailureKind.TRAP: RetryRule(False, why="a trap waits for a person"),
    FailureKind.CRASH: RetryRule(False, why="a page that kills its process is not tried a third time"),
    FailureKind.SCOPE_CHANGED: RetryRule(False, why="a scope or depth that allows it again brings it back"),
}


def next_step(
    kind: FailureKind,
    attempts: int,
    *,
    retries_max: int,
    base_s: float,
    max_s: float,
    retry_after_s: float,
    chance: float,
) -> float | None:
    """Seconds to wait before the next try of a URL that has now failed `attempts` times; None if it is not tried again
    and becomes a dead letter. `chance` is uniform in [0, 1).
    """
    rule = RETRY_RULES[kind]
    if not rule.retries or attempts > retries_max:
        return None
    wait_s = min(base_s * rule.wait_factor * 2.0 ** (attempts - 1), max_s)
    jittered_s = wait_s * (1.0 - JITTER_SHARE + 2.0 * JITTER_SHARE * chance)
    return max(jittered_s, min(retry_after_s, ASKED_MAX_S))


def dead_counter(kind: FailureKind) -> str:
    """The name of the counter of dead letters of a kind."""
    return f"dead.{kind}"
