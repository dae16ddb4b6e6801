"""The story of one URL: where it was found, how it stands, and every attempt that the store knows of."""

from __future__ import annotations

from datetime import UTC, datetime

from drumlin.api.explaining.unfollowed import refers
from drumlin.api.intake.workers import Attempts
from drumlin.api.messages.hosts import FetchView, HostView, URLState, URLStory
from drumlin.api.messages.people import dead_letter_view
from drumlin.coordinator.calendar import Calendar
from drumlin.lines import counted
from drumlin.model import DeadLetter, FailureKind, HostState, Outcome, Task, TaskState, TaskStory
from drumlin.protocol import NAMED_BY_ROBOTS
from drumlin.store.tables.lookup import StoredFetch
from drumlin.store.tables.schema import FETCHES, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.urls import host_of

ATTEMPTS_TOLD_MAX = 5
DENIED_BY_ROBOTS, ROBOTS_RULES = "robots", "rules"
"""The kind and the error of a URL that a node did not fetch because a rule of robots.txt denies it."""
EXACT, WARC = "exact", "warc"
_OUTCOMES: dict[str, str] = {Outcome.NOT_MODIFIED: "Found unchanged", Outcome.DENIED: "Not requested"}
DAY_FORM = "%Y-%m-%d %H:%M:%S UTC"


def url_story(
    url: str,
    story: TaskStory,
    state: HostState | None,
    letter: DeadLetter | None,
    attempts: Attempts,
    view: HostView | None,
    calendar: Calendar,
) -> URLStory:
    task = story.task
    found_on = task.found_on if task else ""
    retry_at = story.retry_at if story.state is TaskState.SCHEDULED else None
    shown: URLState = story.state.value
    held = state is not None and story.state is TaskState.LEASED
    return URLStory(
        url=url,
        host=host_of(url),
        state=shown,
        found_on=found_on,
        redirects=list(task.redirects) if task else [],
        priority=task.priority if task else None,
        depth=task.depth if task else None,
        attempts=task.failures if task else None,
        first_seen=task.added if task else None,
        retry_at=retry_at,
        capture_id=story.attempt_id.decode("utf-8", "replace"),
        lease_node=state.node if state and held else "",
        lease_until=state.deadline if state and held else None,
        dead_letter=dead_letter_view(letter) if letter else None,
        story=[
            *(_origin(task, letter) if task else _origin_by(attempts)),
            *_fate(story, state, letter, calendar, attempts),
            *_turn(story, view),
            *_told(story, attempts),
        ],
        host_state=view,
        path="/" + url.split("/", 3)[3],
        discovered_from=found_on,
        next_fetch_after=retry_at,
        status=shown,
        last_crawled=attempts.fetches[0].fetched if attempts.fetches else None,
        fetches=[_fetch_view(one) for one in attempts.fetches],
    )


def _origin_by(attempts: Attempts) -> list[str]:
    """Where a URL that is done was found, if the store says so."""
    told = next((one.found_on for one in attempts.fetches if one.found_on), "")
    linked = next((f"{link.page} {refers(link)}." for link in attempts.linkers), "")
    if told == NAMED_BY_ROBOTS:
        return ["A sitemap that robots.txt names."]
    if told:
        return [f"Found on {told}."]
    return [linked] if linked else []


def _origin(task: Task, letter: DeadLetter | None) -> list[str]:
    origin = f"Found on {task.found_on}" if task.found_on else "A seed, or enqueued by somebody"
    through = f", reached through {counted(len(task.redirects), 'redirect')}" if task.redirects else ""
    far = f", {counted(task.depth, 'link')} from a seed" if task.depth else ""
    asked = task.failures and not (letter and letter.kind == FailureKind.SCOPE_CHANGED)
    tried = f" It has failed {counted(task.failures, 'time')}." if asked else ""
    return [f"{origin}{through}{far}, with priority {task.priority}.{tried}"]


def _fate(
    story: TaskStory, state: HostState | None, letter: DeadLetter | None, calendar: Calendar, attempts: Attempts
) -> list[str]:
    if story.state is TaskState.LEASED and state is not None:
        return [f"{state.node} has it to fetch, until {_day(calendar.shown(state.deadline))}."]
    if story.state is TaskState.SCHEDULED:
        return [f"To be tried again at {_day(calendar.shown(story.retry_at))}."]
    if letter is not None and letter.kind == FailureKind.SCOPE_CHANGED:
        return [
            "Not fetched: the crawl's scope or depth was narrowed before its turn came. A wider one brings it back."
        ]
    if story.state is TaskState.DEAD and letter is not None:
        since = _day(calendar.shown(letter.last_failed))
        return [f"Given up (a dead letter) since {since}: {_cause(letter.kind, letter.last_error)}."]
    if story.state is TaskState.DONE and attempts.fetches and attempts.fetches[0].outcome == Outcome.FAILED:
        return ["Given up, and dropped from the dead letters by somebody: it is not fetched again."]
    if story.state is TaskState.DONE and attempts.fetches and attempts.fetches[0].outcome == Outcome.DENIED:
        return ["Not fetched."]
    if story.state is TaskState.DONE:
        return ["Done."]
    return [f"It is {story.state}."]


def _turn(story: TaskStory, view: HostView | None) -> list[str]:
    """For a URL that is queued or put off: what its host waits for."""
    waits = story.state is TaskState.QUEUED or (story.state is TaskState.SCHEDULED and bool(view and view.backoff))
    return [f"{view.host}: {view.why}"] if view is not None and waits else []


def _told(story: TaskStory, attempts: Attempts) -> list[str]:
    """What the store says, newest first; or why it says nothing."""
    sentences = [_attempt(one) for one in attempts.fetches[:ATTEMPTS_TOLD_MAX]]
    if story.state is not TaskState.DONE or sentences:
        return sentences
    if not attempts.has_store:
        return ["This coordinator has no store, so it cannot say who fetched it, when, and where its page is."]
    if not attempts.complete:
        return [
            "The newest tables of the store have no row of it; the others were not searched, because there are many."
        ]
    when = "a node shows its rows within a minute, unless it stores elsewhere"
    return [f"No complete table of the store has a row of it yet, which would say how it ended: {when}."]


def _attempt(one: StoredFetch) -> str:
    status = f" with status {one.status}" if one.status else ""
    target = f" to {one.redirect_to}" if one.redirect_to else ""
    cause = f": {said}" if (said := _denial(one) or _cause(one.kind, one.error)) else ""
    record = f", its record at byte {one.warc_offset} of {WARC}/{one.warc_filename}" if one.warc_filename else ""
    table = PAGES if one.page else FETCHES
    who = one.node or "somebody"
    begun = f"{_OUTCOMES.get(one.outcome, one.outcome.capitalize())} by {who} at {_day(one.fetched)}{status}{target}"
    place = f"its row is in tables/{table}/{one.segment}{PARQUET_SUFFIX}{record}"
    return f"{begun}{cause}{_twin(one)}; {place}."


def _twin(one: StoredFetch) -> str:
    """Which page it repeats, if any."""
    if not one.duplicate_of:
        return ""
    alike = "has the same content" if one.duplicate_kind == EXACT else "has nearly the same text"
    return f"; it {alike} as {one.duplicate_of}"


def _denial(one: StoredFetch) -> str:
    """Why it was not allowed, in words; empty if it was."""
    if one.outcome != Outcome.DENIED or one.kind != DENIED_BY_ROBOTS:
        return ""
    by_rules = one.error in ("", ROBOTS_RULES)
    return "its robots.txt does not allow it" if by_rules else f"nothing of its host may be asked for: {one.error}"


def _cause(kind: str, error: str) -> str:
    return ", ".join(part for part in (kind, error.strip().rstrip(".")) if part)


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime(DAY_FORM)


def _fetch_view(one: StoredFetch) -> FetchView:
    return FetchView(
        crawl_time=one.fetched,
        node_id=one.node,
        outcome=one.outcome,
        status_code=one.status,
        kind=one.kind,
        error=one.error,
        result_id=one.record_id,
        segment=one.segment,
        page=one.page,
        warc_filename=one.warc_filename,
        warc_record_offset=one.warc_offset,
        redirect_to=one.redirect_to,
        duplicate_of=one.duplicate_of,
        duplicate_kind=one.duplicate_kind,
    )
