"""Hosts and URLs for people: the state of a host's queue and its pace, and why; and the story of one URL."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec

from drumlin.access.tokens import Permission
from drumlin.api.explaining.stories import url_story
from drumlin.api.explaining.unfollowed import left_out, unfollowed_story
from drumlin.api.explaining.why import in_backoff
from drumlin.api.intake.workers import Attempts, Intake, Linkers
from drumlin.api.messages.hosts import (
    BackOffView,
    HostChange,
    HostsQuery,
    HostsView,
    HostView,
    URLQuery,
    URLStory,
)
from drumlin.api.messages.people import HostStandingName, RobotsRules
from drumlin.api.routing import Call, Route
from drumlin.config.quantities import show_duration
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.giving.host_budgets import pages_left
from drumlin.coordinator.letters import LETTERS_OF_HOST_MAX
from drumlin.coordinator.orders import HOSTS_APART_MAX
from drumlin.coordinator.taking.host_reports import backoffs_of, slow_s_of
from drumlin.http.refusal import Refused
from drumlin.lines import one_line
from drumlin.model import HostStanding, HostState, TaskState
from drumlin.protocol import UNREADABLE, BackOff, paths, read_note
from drumlin.robots import ROBOTS_PATH, Decision, decisions_in
from drumlin.urls import canonical, domain_of, host_of

NOTES_SHOWN_BYTES_MAX = 4 * 1024 * 1024
"""A list of hosts shows robots rules only until their notes have this size together: a thousand may be huge."""
URL_SHOWN_CHARS = 200
NOTHING_TRIED = Attempts([], complete=True, has_store=True)


class HostCalls:
    """The calls about hosts and URLs."""

    def __init__(self, dispatcher: Dispatcher, intake: Intake) -> None:
        self._dispatcher = dispatcher
        self._intake = intake
        self._engine = dispatcher.engine

    def routes(self) -> list[Route]:
        unknown = {404: "Nothing of this is known."}
        return [
            Route(
                method="GET",
                path=paths.HOSTS,
                summary="Hosts that are ready, waiting, leased, in back-off or blocked",
                answer=self.hosts,
                permission=Permission.READ,
                takes=HostsQuery,
                gives=HostsView,
            ),
            Route(
                method="GET",
                path=paths.HOST,
                summary="One host: its queue, its pace and why, its lease, its robots rules",
                answer=self.host,
                permission=Permission.READ,
                gives=HostView,
                refusals=unknown,
            ),
            Route(
                method="PATCH",
                path=paths.HOST,
                summary="Change a host's delay or budget, or block it",
                answer=self.change,
                permission=Permission.OPERATE,
                takes=HostChange,
                gives=HostView,
                refusals=unknown | {409: "Too many hosts are blocked or on a budget already."},
                writes="host.change",
            ),
            Route(
                method="GET",
                path=paths.URLS,
                summary="The story of one URL",
                answer=self.url,
                permission=Permission.READ,
                takes=URLQuery,
                gives=URLStory,
                refusals=unknown,
            ),
        ]

    async def hosts(self, call: Call, query: HostsQuery) -> HostsView:
        if query.state == "blocked":
            names = sorted(self._dispatcher.orders.blocked)[: query.limit]
            return HostsView([await self._blocked_view(name, call.now) for name in names])
        standing = HostStanding(query.state)
        views: list[HostView] = []
        note_bytes = 0
        for shard in range(self._engine.shard_count):
            states = await self._engine.hosts(shard, standing, call.now, limit=query.limit - len(views))
            for state in states:
                note_bytes += max(len(state.note), sum(one.rules_bytes for one in robots_of(state.note).values()))
                shown = state if note_bytes <= NOTES_SHOWN_BYTES_MAX else msgspec.structs.replace(state, note=b"")
                views.append(self._view(shown, call.now))
            if len(views) >= query.limit:
                break
            await self._dispatcher.lanes.breathe()
        return HostsView(views)

    async def _blocked_view(self, host: str, now: float) -> HostView:
        state = await self._engine.host_state(self._engine.shard_of(host), host)
        return self._view(state or HostState(host, 0.0, None, 0, 0, 0, 0), now)

    async def host(self, call: Call, message: None) -> HostView:
        return self._view(await self._known(call.parameters["host"]), call.now)

    async def _known(self, name: str) -> HostState:
        host = host_named(name)
        state = await self._engine.host_state(self._engine.shard_of(host), host) if host else None
        if state is None:
            hint = "A host is written as in its URLs: example.com, or example.com:8080."
            raise Refused(404, "no_such_host", f"No URL of {name[:200]} is known.", hint)
        return state

    async def change(self, call: Call, change: HostChange) -> HostView:
        host = (await self._known(call.parameters["host"])).host
        # Orders may be refused, so they come before the delay is changed.
        await self._order(host, change)
        if change.delay_s is not msgspec.UNSET:
            await self._engine.set_delay(self._engine.shard_of(host), host, change.delay_s)
        return self._view(await self._known(host), call.now)

    async def _order(self, host: str, change: HostChange) -> None:
        orders = self._dispatcher.orders
        if change.blocked is True and not await orders.block(host):
            raise Refused(409, "too_many_blocked", f"{HOSTS_APART_MAX} hosts are blocked already.")
        if change.blocked is False:
            await orders.unblock(host)
        if change.budget is None:
            await orders.unlimit(host)
        elif change.budget is not msgspec.UNSET and not await orders.limit(host, change.budget):
            raise Refused(409, "too_many_budgets", f"{HOSTS_APART_MAX} hosts are on a budget already.")

    def _view(self, state: HostState, now: float) -> HostView:
        return host_view(
            state,
            self._engine.shard_of(state.host),
            now,
            delay_default_s=self._dispatcher.config.delay_s,
            product_token=self._dispatcher.config.product_token,
            blocked=state.host in self._dispatcher.orders.blocked,
            budget=self._dispatcher.orders.budgets.get(state.host),
            per_host=self._dispatcher.config.per_host,
        )

    # One URL

    async def url(self, call: Call, query: URLQuery) -> URLStory:
        url = canonical(query.url)
        story = await self._engine.story(self._engine.shard_of(host_of(url)), url) if url else None
        if url is None:
            shown = one_line(query.url[:URL_SHOWN_CHARS])
            raise Refused(
                404, "no_such_url", f"{shown!r} is not a web address.", "One looks like https://example.org/a."
            )
        if story is None:
            return await self._unfollowed(url, call)
        host = host_of(url)
        shard = self._engine.shard_of(host)
        state = await self._engine.host_state(shard, host)
        dead = story.state is TaskState.DEAD
        letters = await self._engine.dead_letters(shard, host=host, limit=LETTERS_OF_HOST_MAX) if dead else []
        # The frontier knows a page by the first spelling of its URL, which may differ from the one asked about.
        url = story.task.url if story.task else url
        letter = next((one for one in letters if one.url == url), None)
        tried = story.task is None or story.task.failures > 0
        attempts = await self._intake.attempts(url) if tried else NOTHING_TRIED
        if story.task is None and attempts.fetches and not any(one.found_on for one in attempts.fetches):
            # Only the table of pages says where a URL was found; otherwise pages that link to it are searched.
            attempts = attempts._replace(linkers=(await self._intake.linkers(url)).links)
        view = self._view(state, call.now) if state else None
        return url_story(url, story, state, letter, attempts, view, call.calendar)

    async def _unfollowed(self, url: str, call: Call) -> URLStory:
        """The story of a URL that the frontier never accepted, if stored pages link to it."""
        scope, config = self._dispatcher.findings.scope, self._dispatcher.config
        linkers = await self._intake.linkers(url)
        if linkers.links:
            year = datetime.fromtimestamp(call.calendar.shown(call.now), UTC).year
            return unfollowed_story(url, linkers.links, scope, config, year)
        hint = f"{_no_links(linkers)} {left_out(url, scope, config)}".strip()
        if urlsplit(url).path == ROBOTS_PATH:
            hint = (
                f"It is asked for before the pages of its host: `drumlin hosts show {host_of(url)}` says what it says."
            )
        # The URL is named as it was looked for: whoever has mistyped it sees that here.
        raise Refused(404, "no_such_url", f"Nothing is known of {url[:URL_SHOWN_CHARS]}.", hint)


def _no_links(linkers: Linkers) -> str:
    if not linkers.has_store:
        return "It was never queued, and this coordinator has no store to see who links to it."
    if not linkers.complete:
        return "It was never queued; not all of the store was looked through for pages that link to it."
    return "It was never queued, and nothing in the complete tables links or redirects to it."


def host_named(name: str) -> str:
    """The host that a person means; empty when it cannot be one."""
    url = canonical(f"http://{name}/") if "/" not in name and "@" not in name else None
    return host_of(url) if url else ""


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
) -> HostView:
    delay_s = max(state.delay_s or 0.0, delay_default_s, slow_s_of(state.note))
    standing, why = _standing(state, now, delay_s, blocked=blocked, budget=budget)
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
        robots={scheme: robots_rules(one, product_token) for scheme, one in robots_of(state.note).items()},
        max_concurrent=per_host,
        min_delay_ms=round(delay_s * 1000),
        rate_limit=1 / delay_s if delay_s else None,
        last_crawled_by=state.node or None,
        backoff={scheme: _backoff_view(one) for scheme, one in backoffs_of(state.note).items()},
    )


def _backoff_view(backoff: BackOff) -> BackOffView:
    return BackOffView(backoff.kind, backoff.error, backoff.since, backoff.tries, backoff.until, backoff.asked)


def _standing(
    state: HostState, now: float, delay_s: float, *, blocked: bool, budget: int | None
) -> tuple[HostStandingName, str]:
    """Where the host stands, and a sentence that says why."""
    if blocked:
        return "blocked", "An operator has blocked it: no node is given its URLs."
    if state.lease_id:
        left = show_duration(state.deadline - now)
        return "leased", f"{state.node} may contact it for another {left}{_slowly(state)}."
    if not state.queued:
        return "idle", "None of its URLs is queued; some may wait to be tried again later."
    if budget is not None and not pages_left(state, budget):
        return "idle", f"Its budget of pages is spent ({budget:,})."
    wait_s = state.next_contact - now
    if wait_s > 0 and math.isfinite(wait_s):
        if state.in_backoff:
            return "waiting", in_backoff(state, now)
        return "waiting", f"It may be contacted in {show_duration(wait_s)}{_pause(state, wait_s, delay_s)}."
    return "ready", "It is given to the next node that asks."


def _slowly(state: HostState) -> str:
    pace_s = slow_s_of(state.note)
    return f", every {show_duration(pace_s)} since it was asked too often (status 429)" if pace_s else ""


def _pause(state: HostState, wait_s: float, delay_s: float) -> str:
    """Why a host that can be asked is not asked now."""
    if wait_s > delay_s + 1.0:
        return ": it asked for a pause, or seemed overloaded"
    return _slowly(state) or f": every {show_duration(delay_s)}"
