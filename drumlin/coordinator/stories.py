"""The story of one URL: where it was found, how it stands, and every attempt that the store knows of."""

from __future__ import annotations

from datetime import UTC, datetime

from drumlin.coordinator.calendar import Calendar
from drumlin.coordinator.intake import Attempts
from drumlin.coordinator.messages import dead_letter_view
from drumlin.coordinator.messages_hosts import FetchView, HostView, URLStory
from drumlin.coordinator.narrowing import CAPTURE_ID
from drumlin.lines import counted
from drumlin.model import DeadLetter, HostState, Task, TaskState, TaskStory
from drumlin.store.lookup import StoredFetch
from drumlin.urls import host_of

ATTEMPTS_TOLD_MAX = 5
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
    held = state is not None and story.state is TaskState.LEASED
    return URLStory(
        url=url,
        host=host_of(url),
        state=story.state,
        found_on=found_on,
        redirects=list(task.redirects) if task else [],
        priority=task.priority if task else None,
        depth=task.depth if task else None,
        attempts=task.attempts if task else None,
        first_seen=task.added if task else None,
        retry_at=retry_at,
        capture_id=story.capture_id.decode("utf-8", "replace"),
        lease_node=state.node if state and held else "",
        lease_until=state.deadline if state and held else None,
        dead_letter=dead_letter_view(letter) if letter else None,
        story=[*_origin(task), *_fate(story, state, letter, calendar), *_told(story, attempts)],
        host_state=view,
        path="/" + url.split("/", 3)[3],
        discovered_from=found_on,
        next_fetch_after=retry_at,
        status=story.state,
        last_crawled=attempts.fetches[0].fetched if attempts.fetches else None,
        fetches=[_fetch_view(one) for one in attempts.fetches],
    )


def _origin(task: Task | None) -> list[str]:
    if task is None:
        return []
    origin = f"Found on {task.found_on}" if task.found_on else "A seed, or enqueued by somebody"
    through = f", reached through {counted(len(task.redirects), 'redirect')}" if task.redirects else ""
    far = f", {counted(task.depth, 'link')} from a seed" if task.depth else ""
    tried = f" It has failed {counted(task.attempts, 'time')}." if task.attempts else ""
    return [f"{origin}{through}{far}, with priority {task.priority}.{tried}"]


def _fate(story: TaskStory, state: HostState | None, letter: DeadLetter | None, calendar: Calendar) -> list[str]:
    if story.state is TaskState.LEASED and state is not None:
        return [f"{state.node} has it to fetch, until {_day(calendar.shown(state.deadline))}."]
    if story.state is TaskState.SCHEDULED:
        return [f"To be tried again at {_day(calendar.shown(story.retry_at))}."]
    if story.state is TaskState.DEAD and letter is not None:
        since = _day(calendar.shown(letter.last_failed))
        return [f"A dead letter since {since}: {_cause(letter.kind, letter.last_error)}."]
    if story.capture_id == CAPTURE_ID:
        return ["Not fetched: the crawl's scope was narrowed before its turn came."]
    if story.state is TaskState.DONE:
        return ["Done."]
    return [f"It is {story.state}."]


def _told(story: TaskStory, attempts: Attempts) -> list[str]:
    """What the store says, newest first; and where it says nothing, why."""
    sentences = [_attempt(one) for one in attempts.fetches[:ATTEMPTS_TOLD_MAX]]
    if story.state is not TaskState.DONE or story.capture_id == CAPTURE_ID or sentences:
        return sentences
    if not attempts.has_store:
        return ["This coordinator has no store, so that it cannot say by whom, when and where its page is."]
    if not attempts.complete:
        return [
            "The newest tables of the store have no row of it; the others were not looked through, for there are many."
        ]
    return ["No complete table of the store has a row of it: a node may still be writing it, or stores elsewhere."]


def _attempt(one: StoredFetch) -> str:
    status = f" with status {one.status}" if one.status else ""
    cause = f": {said}" if (said := _cause(one.kind, one.error)) else ""
    record = f", its record at byte {one.warc_offset} of {one.warc_filename}" if one.warc_filename else ""
    place = "its page" if one.page else "its line"
    who = one.node or "somebody"
    begun = f"{one.outcome.capitalize()} by {who} at {_day(one.fetched)}{status}{cause}"
    return f"{begun}; {place} is in {one.segment}{record}."


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
    )
