"""The rules of the frontier, as pure functions: priorities, retries, pauses of hosts, budgets, traps.

Which URL comes next is kept by an engine (`drumlin.engines`); *why* is decided here. Nothing in this package reads a
clock, draws a random number or waits: `now` and chance are arguments, so that the simulator runs the same code.

Invariants: a failure kind always has a retry rule; no budget is exceeded by what an allowance permits.
"""

from drumlin.frontier.backoff import RETRY_RULES, RetryRule, next_step
from drumlin.frontier.budgets import Budget
from drumlin.frontier.pauses import ASKED_MAX_S, pause_s, recovered_s, slowed_s
from drumlin.frontier.priorities import priority_of
from drumlin.frontier.traps import (
    LINKS_TOO_LONG,
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
    "LINKS_TOO_LONG",
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
    "recovered_s",
    "slowed_s",
    "soft_404",
]
