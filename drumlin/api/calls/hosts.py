"""Hosts and URLs for people: the state of a host's queue and its pace, and why; and the story of one URL."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec

from drumlin.access.tokens import Permission
from drumlin.api.explaining.host_views import CrawlStands, host_view, robots_of
from drumlin.api.explaining.same_name import at_other_ports, known_as
from drumlin.api.explaining.store_answers import Linkers, StoreAnswers
from drumlin.api.explaining.stories import DAY_FORM, Known, fetch_view, last_asked, searched, url_story
from drumlin.api.explaining.unfollowed import BY_TODAYS_RULES, Rules, unfollowed_story, why_refused
from drumlin.api.messages.hosts import (
    HostChange,
    HostsQuery,
    HostsView,
    HostView,
    URLQuery,
    URLStory,
)
from drumlin.api.routing import Call, Route
from drumlin.contact.rules import Robots
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.orders import HOSTS_APART_MAX
from drumlin.engines.kept import CLOSED_KEY, Closed
from drumlin.http.refusal import Refused
from drumlin.lifecycle.removal.tombstones import Tombstone
from drumlin.lines import one_line
from drumlin.model import HostStanding, HostState, TaskState, TaskStory
from drumlin.protocol import CrawlState, paths
from drumlin.robots import ROBOTS_PATH
from drumlin.urls import canonical, host_of

NOTES_SHOWN_BYTES_MAX = 4 * 1024 * 1024
"""A list of hosts shows robots rules only until their notes have this size together: a thousand may be huge."""
URL_SHOWN_CHARS = 200
LAST_FETCHES = 10
ASKED_APART = TaskStory(TaskState.DONE, None)
"""What there is to say of a robots.txt, which is in no queue."""


class HostCalls:
    """The calls about hosts and URLs."""

    def __init__(self, dispatcher: Dispatcher, answers: StoreAnswers, *, passes: bool = True) -> None:
        """`passes` says whether time passes for this crawl: whether it runs."""
        self._dispatcher = dispatcher
        self._passes = passes
        self._answers = answers
        self._engine = dispatcher.engine

    def routes(self) -> list[Route]:
        unknown = {404: "Nothing of this is known."}
        return [
            Route(
                method="GET",
                path=paths.HOSTS,
                summary="Hosts that are ready, waiting, leased, in back-off or blocked; or all, by name",
                answer=self.hosts,
                permission=Permission.READ,
                takes=HostsQuery,
                gives=HostsView,
                refusals={409: "Only the list of all hosts is in the order of their names."},
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
        if query.state == "all":
            return await self._by_name(call, query)
        if query.prefix or query.after:
            hint = "Add state=all: hosts of one state have another order than that of their names."
            raise Refused(409, "not_by_name", "Only among all hosts can one look by name.", hint)
        if query.state == "blocked":
            names = sorted(self._dispatcher.orders.blocked)[: query.limit]
            return HostsView([await self._blocked_view(name, call.now) for name in names])
        found: list[HostState] = []
        for shard in range(self._engine.shard_count):
            limit = query.limit - len(found)
            found += await self._engine.hosts(shard, HostStanding(query.state), call.now, limit=limit)
            if len(found) >= query.limit:
                break
            await self._dispatcher.lanes.breathe()
        return HostsView(self._views(found, call.now))

    async def _by_name(self, call: Call, query: HostsQuery) -> HostsView:
        # Host names are kept in lower case, and so compared.
        found = await self._engine.find_hosts_all(query.prefix.lower(), after=query.after, limit=query.limit)
        return HostsView(self._views(found, call.now), found[-1].host if len(found) == query.limit else "")

    def _views(self, states: list[HostState], now: float) -> list[HostView]:
        views: list[HostView] = []
        note_bytes = 0
        for state in states:
            note_bytes += max(len(state.note), sum(one.rules_bytes for one in robots_of(state.note).values()))
            views.append(self._view(state, now, rules=note_bytes <= NOTES_SHOWN_BYTES_MAX))
        return views

    async def _blocked_view(self, host: str, now: float) -> HostView:
        state = await self._engine.host_state(self._engine.shard_of(host), host)
        return self._view(state or HostState(host, 0.0, None, 0, 0, 0, 0), now)

    async def host(self, call: Call, message: None) -> HostView:
        """Everything about one host, also what was tried on it last, as far as the store shows it."""
        state = await self._known(call.parameters["host"])
        view = self._view(state, call.now)
        tried = await self._answers.host_fetches(state.host, LAST_FETCHES, call.identity.subject)
        view.last_fetches = [fetch_view(one) for one in tried.fetches]
        view.last_crawled_at = last_asked(tried.fetches)
        view.store = searched(tried.complete, tried.has_store)
        return view

    async def _known(self, name: str) -> HostState:
        host = host_named(name)
        await self._check_not_removed(self._dispatcher.findings.removed.of_host(host), host)
        state = await self._engine.host_state(self._engine.shard_of(host), host) if host else None
        if state is None:
            others = await at_other_ports(self._engine, host) if host else []
            hint = known_as(others) or "A host is written as in its URLs: example.com, or example.com:8080."
            raise Refused(404, "no_such_host", f"No URL of {name[:200]} is known.", hint)
        return state

    async def _check_not_removed(self, stone: Tombstone | None, name: str) -> None:
        """Say of what was removed on request that it was, and when."""
        if stone is not None:
            day = datetime.fromtimestamp(stone.at, UTC).strftime(DAY_FORM)
            hint = "Nothing of it is kept, and it is not fetched again."
            if (closed := Closed.read(await self._engine.get_meta(CLOSED_KEY))) is not None:
                hint = f"Not all of it may be gone. {closed.sentence} {closed.hint}"
            raise Refused(404, "removed", f"{name} was removed from the crawl on request, at {day}.", hint)

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

    def _view(self, state: HostState, now: float, *, rules: bool = True) -> HostView:
        return host_view(
            state,
            self._engine.shard_of(state.host),
            now,
            delay_default_s=self._dispatcher.config.delay_s,
            product_token=self._dispatcher.config.product_token,
            blocked=state.host in self._dispatcher.orders.blocked,
            budget=self._dispatcher.orders.budgets.get(state.host),
            per_host=self._dispatcher.config.per_host,
            crawl=self._stands(),
            rules=rules,
        )

    def _stands(self) -> CrawlStands:
        state = self._dispatcher.state
        return CrawlStands(
            gives=self._passes and state is CrawlState.RUNNING,
            passes=self._passes,
            finished=state is CrawlState.FINISHED,
        )

    # One URL

    async def url(self, call: Call, query: URLQuery) -> URLStory:
        url = canonical(query.url)
        if url is None:
            shown = one_line(query.url[:URL_SHOWN_CHARS])
            hint = "One looks like https://example.org/a."
            raise Refused(404, "no_such_url", f"{shown!r} is not a web address.", hint)
        await self._check_not_removed(self._dispatcher.findings.removed.of(url), url[:URL_SHOWN_CHARS])
        story = await self._engine.story(self._engine.shard_of(host_of(url)), url)
        if story is not None:
            return await self._story(url, story, call)
        if urlsplit(url).path == ROBOTS_PATH and (await self._answers.attempts(url, call.identity.subject)).fetches:
            return await self._story(url, ASKED_APART, call)
        return await self._unfollowed(url, call)

    async def _story(self, url: str, story: TaskStory, call: Call) -> URLStory:
        host = host_of(url)
        state = await self._engine.host_state(self._engine.shard_of(host), host)
        attempts = await self._answers.attempts(url, call.identity.subject)
        # A page is known by the first spelling of its URL, which may differ from the one asked about.
        known_as = [story.task.url] if story.task else [one.url for one in attempts.fetches]
        url = known_as[0] if known_as else url
        if story.task is None and attempts.fetches and not any(one.tells_origin for one in attempts.fetches):
            # Only the table of pages says where a URL was found; otherwise pages that link to it are searched.
            linkers = await self._answers.linkers(url, call.identity.subject)
            attempts = attempts._replace(linkers=linkers.links)
        view = self._view(state, call.now) if state else None
        denial = self._denial(url, state) if state else ""
        known = Known(url, story, state, story.letter, attempts, view, call.calendar, denial, call.now, self._passes)
        return url_story(known)

    def _denial(self, url: str, state: HostState) -> str:
        """Why the robots.txt of its host, as it was last read, does not allow a URL; empty if it does."""
        decision = robots_of(state.note).get(url.partition(":")[0])
        robots = Robots(decision, self._dispatcher.config.product_token) if decision and not decision.retry else None
        return robots.denial(url) if robots is not None and not robots.allows(url) else ""

    async def _unfollowed(self, url: str, call: Call) -> URLStory:
        """The story of a URL that the frontier never accepted, if stored pages link to it."""
        linkers = await self._answers.linkers(url, call.identity.subject)
        host = host_of(url)
        state = await self._engine.host_state(self._engine.shard_of(host), host)
        year = datetime.fromtimestamp(call.calendar.shown(call.now), UTC).year
        dispatcher = self._dispatcher
        rules = Rules(dispatcher.findings.scope, dispatcher.config, year, state.urls if state else 0)
        if linkers.links:
            return unfollowed_story(url, linkers, rules)
        refused = why_refused(url, rules)
        others = known_as(await at_other_ports(self._engine, host)) if state is None else ""
        told = [_no_links(linkers), *([BY_TODAYS_RULES] if refused else []), *refused, others]
        hint = " ".join(filter(None, told))
        if urlsplit(url).path == ROBOTS_PATH:
            hint = f"It is asked for before the pages of its host: `drumlin host {host}` tells what it says."
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
