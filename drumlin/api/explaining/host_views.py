"""One host for people: where it stands and why, its delay and who asked for it, what its robots.txt says."""

from __future__ import annotations

import math
from typing import NamedTuple

from drumlin.api.explaining.why import after, in_backoff
from drumlin.api.messages.hosts import BackOffView, HostView
from drumlin.api.messages.people import HostStandingName, RobotsRules
from drumlin.config.quantities import show_duration, show_gap
from drumlin.coordinator.giving.host_budgets import pages_left
from drumlin.coordinator.taking.host_reports import backoffs_of, slow_s_of
from drumlin.model import HostState
from drumlin.protocol import UNREADABLE, BackOff, read_note
from drumlin.robots import Decision, decisions_in
from drumlin.urls import domain_of

SAME_S = 0.001
"""Delays that differ by less are the same one."""
NONE_QUEUED = "None of its URLs is queued; some may wait to be tried again later."
WHEN_IT_GOES_ON = "It is given to the first node when the crawl goes on."
ALL_DONE = "All of its URLs are done or given up."


class CrawlStands(NamedTuple):
    """How the crawl stands: whether it gives out work, whether time passes for it, and whether it is finished."""

    gives: bool = True
    passes: bool = True
    finished: bool = False


RUNS = CrawlStands()


def robots_of(note: bytes) -> dict[str, Decision]:
    """What is known about a host's robots.txt, by scheme; empty if the note cannot be read."""
    try:
        return decisions_in(read_note(note))
    except UNREADABLE:
        return {}


def robots_rules(decision: Decision, product_token: str) -> RobotsRules:
    return RobotsRules(
        decision.rules.decode("utf-8", "replace"),
        decision.expires,
        product_token,
        decision.allow_all,
        decision.deny_all,
        decision.reason,
    )


def host_view(
    state: HostState,
    shard: int,
    now: float,
    *,
    delay_default_s: float,
    product_token: str,
    blocked: bool,
    budget: int | None,
    per_host: int,
    crawl: CrawlStands = RUNS,
    rules: bool = True,
) -> HostView:
    """Everything about a host; without `rules`, what its robots.txt says is left out, which may be long."""
    delay_s = max(state.delay_s or 0.0, delay_default_s, slow_s_of(state.note))
    robots = robots_of(state.note)
    standing, why = _standing(state, now, delay_s, crawl, blocked=blocked, budget=budget)
    return HostView(
        host=state.host,
        domain=domain_of(state.host),
        shard=shard,
        state=standing,
        why=why,
        queued=state.queued,
        urls=state.urls,
        pages=state.pages,
        bytes=state.bytes,
        next_contact=state.next_contact,
        delay_s=delay_s,
        lease_node=state.node,
        lease_until=state.deadline if state.lease_id else None,
        blocked=blocked,
        budget=budget,
        robots={scheme: robots_rules(one, product_token) for scheme, one in robots.items() if rules},
        max_concurrent=per_host,
        min_delay_ms=round(delay_s * 1000),
        rate_limit=1 / delay_s if delay_s else None,
        last_crawled_by=state.node or None,
        backoff={scheme: _backoff_view(one) for scheme, one in backoffs_of(state.note).items()},
        delay_why=_why_delay(state, delay_s, delay_default_s, _asked_s(robots, product_token)),
        pages_left=None if budget is None else pages_left(state, budget),
        time=now,
    )


def _asked_s(robots: dict[str, Decision], token: str) -> float:
    """The Crawl-delay that the host's robots.txt asks of us, as the node that read it has noted; 0 without one."""
    delays = [one.asked_delay[1] for one in robots.values() if one.asked_delay and one.asked_delay[0] == token]
    return max(delays, default=0.0)


def _why_delay(state: HostState, delay_s: float, delay_default_s: float, asked_s: float) -> str:
    """Who asked for the delay that counts, which is the longest of several."""
    if not delay_s:
        return "Nothing asks for a delay: the crawl has --delay 0."
    if slow_s_of(state.note) >= delay_s - SAME_S and slow_s_of(state.note) > delay_default_s:
        return "It answered that it was asked too often (status 429); the delay shrinks again while it answers."
    if (state.delay_s or 0.0) <= delay_default_s:
        return "It is the crawl's --delay."
    if abs(asked_s - delay_s) < SAME_S:
        return "Its robots.txt asks for it (Crawl-delay)."
    return "An operator has set it (`drumlin hosts set`), or its robots.txt has asked for it before (Crawl-delay)."


def _backoff_view(backoff: BackOff) -> BackOffView:
    return BackOffView(backoff.kind, backoff.error, backoff.since, backoff.tries, backoff.until, backoff.asked)


def _standing(
    state: HostState, now: float, delay_s: float, crawl: CrawlStands, *, blocked: bool, budget: int | None
) -> tuple[HostStandingName, str]:
    """Where the host stands, and a sentence that says why."""
    if blocked:
        return "blocked", "An operator has blocked it: no node is given its URLs."
    if state.lease_id:
        left = show_duration(state.deadline - now)
        return "leased", f"{state.node} may contact it for another {left}{_slowly(state)}."
    if not state.queued:
        return "idle", ALL_DONE if crawl.finished else NONE_QUEUED
    if budget is not None and not pages_left(state, budget):
        return "idle", f"Its budget of pages is spent ({budget:,})."
    wait_s, passes = state.next_contact - now, crawl.passes
    if wait_s > 0 and math.isfinite(wait_s):
        if state.in_backoff:
            return "waiting", in_backoff(state, now, passes=passes)
        return "waiting", f"It may be contacted {after(wait_s, passes=passes)}{_pause(state, wait_s, delay_s)}."
    return "ready", "It is given to the next node that asks." if crawl.gives else WHEN_IT_GOES_ON


def _slowly(state: HostState) -> str:
    pace_s = slow_s_of(state.note)
    return f", every {show_duration(pace_s)} since it was asked too often (status 429)" if pace_s else ""


def _pause(state: HostState, wait_s: float, delay_s: float) -> str:
    """Why a host that can be asked is not asked now."""
    if wait_s > delay_s + 1.0:
        return ": it asked for a pause, seemed overloaded, or had a longer delay before"
    return _slowly(state) or f": every {show_gap(delay_s)}"
