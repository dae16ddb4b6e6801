"""The story of one URL, in the order in which it happened: where it was found, how it was queued, every attempt that
the store knows of, and how it stands now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple, cast, get_args

from drumlin.api.explaining.causes import cause
from drumlin.api.explaining.store_answers import Attempts
from drumlin.api.explaining.unfollowed import refers
from drumlin.api.messages.hosts import (
    FetchView,
    HostView,
    PriorityParts,
    StepName,
    StoreSearch,
    StoryStep,
    URLState,
    URLStory,
)
from drumlin.api.messages.people import dead_letter_view
from drumlin.coordinator.calendar import Calendar
from drumlin.engines.base import REFUSED
from drumlin.frontier import RETRY_RULES, priority_parts
from drumlin.lines import counted
from drumlin.model import DeadLetter, FailureKind, HostState, Outcome, Task, TaskState, TaskStory
from drumlin.protocol import NAMED_BY_ROBOTS
from drumlin.store.spools import JOURNAL_SUFFIX, SPOOLS
from drumlin.store.tables.lookup import StoredFetch
from drumlin.store.tables.rows import ROBOTS_OUTCOME
from drumlin.store.tables.schema import FETCHES, PAGES
from drumlin.store.tables.segments import PARQUET_SUFFIX
from drumlin.urls import host_of

ATTEMPTS_TOLD_MAX = 5
DENIED_BY_ROBOTS, ROBOTS_RULES = "robots", "rules"
"""The kind of a URL that a node did not fetch because of robots.txt, and the error that earlier versions noted."""
EXACT, WARC = "exact", "warc"
SITEMAP_HINT_MAX = 1
"""By how much a sitemap may change a priority; what changed it by more was a person."""
_OUTCOMES: dict[str, str] = {
    Outcome.NOT_MODIFIED: "Found unchanged",
    Outcome.DENIED: "Not requested",
    ROBOTS_OUTCOME: "Asked for",
}
_STEPS = frozenset(get_args(StepName))
DAY_FORM = "%Y-%m-%d %H:%M:%S UTC"


class Known(NamedTuple):
    """All that a coordinator has found out about a URL. `denial` says why the robots.txt of its host, as it was last
    read, does not allow it; empty if it does, or is not known. `passes` says whether time passes: whether the crawl
    runs."""

    url: str
    story: TaskStory
    state: HostState | None
    letter: DeadLetter | None
    attempts: Attempts
    view: HostView | None
    calendar: Calendar
    denial: str = ""
    now: float = 0.0
    passes: bool = True


def url_story(known: Known) -> URLStory:
    url, story, state, attempts, view = known.url, known.story, known.state, known.attempts, known.view
    task = story.task
    found_on = task.found_on if task else ""
    retry_at = story.retry_at if story.state is TaskState.SCHEDULED else None
    shown: URLState = story.state.value
    held = state is not None and story.state is TaskState.LEASED
    steps = [*_beginning(known), *_attempts(known), *_now(known), *_turn(known), *_unknown(known)]
    return URLStory(
        url=url,
        host=host_of(url),
        state=shown,
        found_on=found_on,
        redirects=list(task.redirects if task else _redirects(attempts)),
        priority=task.priority if task else None,
        depth=task.depth if task else None,
        attempts=task.failures if task else None,
        first_seen=task.added if task else None,
        retry_at=retry_at,
        capture_id="" if story.attempt_id == REFUSED else story.attempt_id.decode("utf-8", "replace"),
        lease_node=state.node if state and held else "",
        lease_until=state.deadline if state and held else None,
        dead_letter=dead_letter_view(known.letter) if known.letter else None,
        story=[step.told for step in steps],
        host_state=view,
        path="/" + url.split("/", 3)[3],
        discovered_from=found_on,
        next_fetch_after=retry_at,
        status=shown,
        last_crawled=last_asked(attempts.fetches),
        fetches=[fetch_view(one) for one in attempts.fetches],
        steps=steps,
        priority_parts=PriorityParts(*priority_parts(task.priority, task.depth)) if task else None,
        store=searched(attempts.complete, attempts.has_store),
    )


def last_asked(fetches: Sequence[StoredFetch]) -> float | None:
    """When the site was asked last. What robots.txt denies is not asked for."""
    return next((one.fetched for one in fetches if one.outcome != Outcome.DENIED), None)


def searched(complete: bool, has_store: bool) -> StoreSearch:
    """How much of the store was searched, in a word."""
    if not has_store:
        return "none"
    return "whole" if complete else "partly"


# How it began


def _beginning(known: Known) -> list[StoryStep]:
    task = known.story.task
    if task is None:
        return _origin_by(known.attempts)
    added = known.calendar.shown(task.added) if task.added else None
    on = f" at {_day(added)}" if added else ""
    origin = "A seed, or enqueued by somebody"
    if task.found_on == NAMED_BY_ROBOTS:
        origin = "A sitemap that robots.txt names, found"
    elif task.found_on:
        origin = f"Found on {task.found_on}"
    return [
        StoryStep("found", f"{origin}{_way(task.redirects, task.depth)}{on}.", added),
        StoryStep("queued", f"Queued with priority {task.priority} of 9: {_parts(task)}.", added),
    ]


def _way(redirects: Sequence[str], depth: int | None) -> str:
    """How a URL was reached from where it was found, and how far it is from a seed."""
    through = f", reached through {counted(len(redirects), 'redirect')}" if redirects else ""
    return through + (f", {counted(depth, 'link')} from a seed" if depth else "")


def _redirects(attempts: Attempts) -> Sequence[str]:
    """The URLs that redirected to one that is done, if the store says so."""
    return next((one.redirects for one in attempts.fetches if one.redirects), ())


def _parts(task: Task) -> str:
    """What a priority is made of, in words."""
    default, by_depth, rest = priority_parts(task.priority, task.depth)
    parts = [f"{default} to begin with"]
    if by_depth:
        parts.append(f"{-by_depth} less for being {counted(task.depth, 'link')} from a seed")
    if rest:
        by = "somebody's order" if abs(rest) > SITEMAP_HINT_MAX else "a sitemap's hint or somebody's order"
        parts.append(f"{abs(rest)} {'more' if rest > 0 else 'less'} by {by}")
    return ", ".join(parts)


def _origin_by(attempts: Attempts) -> list[StoryStep]:
    """Where a URL that is done was found, if the store says so."""
    told = next((one for one in attempts.fetches if one.found_on), None)
    linked = next((f"{link.page} {refers(link)}." for link in attempts.linkers), "")
    if told is not None and told.found_on == NAMED_BY_ROBOTS:
        return [StoryStep("found", "A sitemap that robots.txt names.")]
    if told is not None:
        return [StoryStep("found", f"Found on {told.found_on}{_way(_redirects(attempts), told.depth)}.")]
    if any(one.depth == 0 for one in attempts.fetches):
        # The tables tell these apart no further.
        through = _way(_redirects(attempts), 0)
        return [StoryStep("found", f"A seed, enqueued by somebody, or a sitemap that robots.txt names{through}.")]
    if any(one.outcome == ROBOTS_OUTCOME for one in attempts.fetches):
        return [StoryStep("found", "A robots.txt: it is asked for before the pages of its host, and is in no queue.")]
    return [StoryStep("found", linked)] if linked else []


# What was tried


def _attempts(known: Known) -> list[StoryStep]:
    """What the store says, in the order in which it happened."""
    newest = known.attempts.fetches[:ATTEMPTS_TOLD_MAX]
    more = len(known.attempts.fetches) - len(newest)
    alive = _is_alive(known)
    steps = [_attempt(one, again=place > 0 or alive, passes=known.passes) for place, one in enumerate(newest)]
    earlier = [StoryStep("store", f"{counted(more, 'earlier attempt')} not told here.")] if more else []
    return [*earlier, *reversed(steps)]


def _is_alive(known: Known) -> bool:
    return known.story.state not in (TaskState.DONE, TaskState.DEAD)


def _attempt(one: StoredFetch, *, again: bool, passes: bool) -> StoryStep:
    """One attempt; `again` says that it was not the last, `passes` that the crawl runs."""
    status = f" with status {one.status}" if one.status else ""
    target = f" to {one.redirect_to}" if one.redirect_to else ""
    reason = f": {said}" if (said := _denial(one) or _cause(one.kind, one.error)) else ""
    who = one.node or "somebody"
    nth = f" (attempt {one.attempt})" if one.attempt > 1 else ""
    begun = (
        f"{_OUTCOMES.get(one.outcome, one.outcome.capitalize())} by {who} at {_day(one.fetched)}{nth}{status}{target}"
    )
    retried = f"; tried again, as {why}" if again and (why := _why_again(one)) else ""
    what = cast(StepName, one.outcome) if one.outcome in _STEPS else "fetched"
    return StoryStep(
        what, f"{begun}{reason}{_twin(one)}; {_place(one, passes=passes)}{retried}.", one.fetched, one.node
    )


def _why_again(one: StoredFetch) -> str:
    """Why a failure of this kind is worth another try; empty if it is none, or is not."""
    rule = RETRY_RULES.get(one.kind) if one.outcome == Outcome.FAILED else None
    return rule.why if rule is not None and rule.retries else ""


def _place(one: StoredFetch, *, passes: bool) -> str:
    """Where its row and its record are."""
    record = _record(one)
    if one.unshown:
        shown = f", and in the tables {_soon(passes)}"
        counts = ", and no coordinator has counted it yet" if one.unsettled else shown
        return f"its row is in the journal {SPOOLS}/{one.node}/{one.segment}{JOURNAL_SUFFIX}{record}{counts}"
    table = PAGES if one.page else FETCHES
    return f"its row is in tables/{table}/{one.segment}{PARQUET_SUFFIX}{record}"


def _record(one: StoredFetch) -> str:
    """Where its record is, or since when it is not there any more."""
    if not one.warc_filename:
        return ""
    if one.retired is None:
        return f", its record at byte {one.warc_offset} of {WARC}/{one.warc_filename}"
    if one.retired.to:
        return f", its record at byte {one.warc_offset} of {one.retired.to}, moved there at {_day(one.retired.at)}"
    return f", its record was deleted by retention at {_day(one.retired.at)}"


def _soon(passes: bool) -> str:
    return "within a minute" if passes else "when the crawl goes on"


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
    if one.error in ("", ROBOTS_RULES):
        return "its robots.txt does not allow it"
    if "Disallow:" in one.error:
        return f"its robots.txt does not allow it ({one.error})"
    return f"nothing of its host may be asked for: {one.error}"


def _cause(kind: str, error: str) -> str:
    return ", ".join(part for part in (kind, error.strip().rstrip(".")) if part)


# How it stands now


def _now(known: Known) -> list[StoryStep]:
    story, state, letter, calendar = known.story, known.state, known.letter, known.calendar
    if story.state is TaskState.LEASED and state is not None:
        until = _day(calendar.shown(state.deadline))
        leased = StoryStep("leased", f"{state.node} has it to fetch, until {until}.", None, state.node)
        return [leased, *_next_contact(known, state)]
    if story.state is TaskState.SCHEDULED:
        return [_scheduled(known)]
    if story.state is TaskState.DEAD:
        return [_dead(letter, calendar)] if letter is not None else [StoryStep("dead", "Given up (a dead letter).")]
    if story.state is TaskState.DONE:
        return [_done(known.attempts)]
    return []


def _next_contact(known: Known, state: HostState) -> list[StoryStep]:
    """When the host of a leased URL may be contacted next, if that is not at once. A node may hold a host for long."""
    if known.view is None or not known.now < state.next_contact < math.inf:
        return []
    at = known.calendar.shown(state.next_contact)
    return [StoryStep("waits", f"Its host may be contacted next at {_day(at)}. {known.view.delay_why}", at)]


def _scheduled(known: Known) -> StoryStep:
    """When it is tried again. If its host is out of reach it has not failed itself: it was put off."""
    at = known.calendar.shown(known.story.retry_at)
    scheme = known.url.partition(":")[0]
    backoff = known.view.backoff.get(scheme) if known.view else None
    if backoff is not None:
        said = f"Put off until {_day(at)}, because its host is out of reach: {cause(backoff.kind, backoff.error)}."
        return StoryStep("put_off", said, at)
    task = known.story.task
    failures = f" It has failed {counted(task.failures, 'time')}." if task and task.failures else ""
    return StoryStep("retry", f"To be tried again at {_day(at)}.{failures}", at)


def _dead(letter: DeadLetter, calendar: Calendar) -> StoryStep:
    at = calendar.shown(letter.last_failed)
    if letter.kind == FailureKind.SCOPE_CHANGED:
        left_out = "the crawl's scope or depth was narrowed before its turn came. A wider one brings it back."
        return StoryStep("dead", f"Not fetched: {left_out}", at)
    tries = f" after {counted(letter.attempts, 'attempt')}" if letter.attempts else ""
    said = f"Given up{tries} (a dead letter) since {_day(at)}: {_cause(letter.kind, letter.last_error)}."
    return StoryStep("dead", said, at)


def _done(attempts: Attempts) -> StoryStep:
    last = attempts.fetches[0].outcome if attempts.fetches else ""
    if last == ROBOTS_OUTCOME:
        return StoryStep("done", f"`drumlin host {host_of(attempts.fetches[0].url)}` says what it allows.")
    if last == Outcome.FAILED:
        # No engine keeps which of the two it was, and rows of a node may come late, or be in another store.
        later = "a later one is not in this store, or not yet, or somebody dropped it from the dead letters"
        return StoryStep("done", f"Done, though its last attempt that is stored here failed: {later}.")
    return StoryStep("done", "Done: not fetched." if last == Outcome.DENIED else "Done.")


def _turn(known: Known) -> list[StoryStep]:
    """For a URL that is queued or put off: what its host waits for, and whether its robots.txt will allow it."""
    state, view = known.story.state, known.view
    waits = state is TaskState.QUEUED or (state is TaskState.SCHEDULED and bool(view and view.backoff))
    if not waits or view is None:
        return []
    put_off = known.url.partition(":")[0] in view.backoff
    waits_for = "It is put off with its host" if put_off else "It waits for its turn"
    steps = [StoryStep("put_off" if put_off else "waits", f"{waits_for}. {view.host}: {view.why}")]
    if known.denial:
        will = "as last read, does not allow it: it will be settled without a request"
        steps.append(StoryStep("denied", f"Its robots.txt, {will} ({known.denial})."))
    return steps


def _unknown(known: Known) -> list[StoryStep]:
    """What the store could not tell."""
    attempts, task = known.attempts, known.story.task
    tried = task is None or task.failures > 0 or known.story.state is TaskState.LEASED
    if not tried or (attempts.fetches and attempts.complete):
        return []
    if not attempts.has_store:
        told = "This coordinator has no store, so it cannot say who fetched it, when, and where its page is."
    elif attempts.away:
        told = f"The store cannot be searched now, so who fetched it, and when, is not known. {attempts.away}"
    elif not attempts.complete:
        told = "Only the newest tables of the store were searched for it, because there are many; ask again in a while."
    elif task is not None:
        return []
    elif attempts.rows_deleted:
        told = f"No table has a row of it: retention deletes old rows here, last at {_day(attempts.rows_deleted)}."
    else:
        when = f"a node shows its rows {_soon(known.passes)}, unless it stores elsewhere"
        told = f"No table and no journal in the store has a row of it yet, which would say how it ended: {when}."
    return [StoryStep("store", told)]


def _day(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime(DAY_FORM)


def fetch_view(one: StoredFetch) -> FetchView:
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
        attempt=one.attempt,
        unshown=one.unshown,
        unsettled=one.unsettled,
        url=one.url,
    )
