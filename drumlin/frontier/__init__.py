"""The rules of the frontier, as pure functions: priorities, retries, pauses of hosts, budgets, traps.

An engine (`drumlin.engines`) keeps the URLs and hands them out; the rules by which it does so are here. Nothing in this
package reads a clock, draws a random number or waits: `now` and chance are arguments, so tests decide both.

- `backoff`: which failures are retried, and when. `pauses`: how long a host is left alone, and how slowly it is asked.
- `priorities`: which URL comes first. `budgets`: when a crawl has fetched enough.
- `traps`: which links are not worth following. It is the only module with a memory, of bounded size.
- `reference` writes docs/reference/failures.md. Read `backoff` first.

Invariants: every failure kind has a retry rule; the budget of pages is never exceeded; whatever is random only makes
waits longer or shorter within stated bounds.
"""

from drumlin.frontier.backoff import RETRY_RULES, RetryRule, next_step
from drumlin.frontier.budgets import Budget
from drumlin.frontier.pauses import ASKED_MAX_S, pause_s, recovered_s, slowed_s
from drumlin.frontier.priorities import priority_of, priority_parts
from drumlin.frontier.traps import (
    DEPTH,
    LINKS_TOO_LONG,
    NOFOLLOW,
    OUT_OF_SCOPE,
    REFUSALS,
    SOFT_404,
    URL_LENGTH,
    TrapFilter,
    TrapLimits,
    soft_404,
)

__all__ = [
    "ASKED_MAX_S",
    "DEPTH",
    "LINKS_TOO_LONG",
    "NOFOLLOW",
    "OUT_OF_SCOPE",
    "REFUSALS",
    "RETRY_RULES",
    "SOFT_404",
    "URL_LENGTH",
    "Budget",
    "RetryRule",
    "TrapFilter",
    "TrapLimits",
    "next_step",
    "pause_s",
    "priority_of",
    "priority_parts",
    "recovered_s",
    "slowed_s",
    "soft_404",
]
