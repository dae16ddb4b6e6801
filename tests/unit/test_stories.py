"""The story of a URL is for people: in order, with days instead of seconds since 1970, and causes beside statuses."""

from __future__ import annotations

from typing import Any

from drumlin.api.explaining.host_views import host_view
from drumlin.api.explaining.store_answers import NO_STORE, Attempts
from drumlin.api.explaining.stories import Known, url_story
from drumlin.api.messages.hosts import URLStory
from drumlin.coordinator.calendar import Calendar
from drumlin.model import DeadLetter, FailureKind, HostState, Task, TaskState, TaskStory
from drumlin.store.tables.lookup import StoredFetch, StoredLink

URL = "http://a.example/x"
HOST = "a.example"
SEED = "http://a.example/"
T = 1_790_000_000.0
DAY = "2026-09-21 14:13:20 UTC"
LATER = "2026-09-21 14:14:20 UTC"
LOOP = "redirects back to http://a.example/y"
TASK = Task(1, URL, 4, 1, 1, SEED, ("http://a.example/y",), 0, T)
ROW = "its row is in tables/fetches/n1-1-1.parquet"


def fetch(outcome: str, status: int = 0, kind: str = "", error: str = "", **more: Any) -> StoredFetch:
    at = more.pop("at", T)
    return StoredFetch(at, outcome, status, kind, error, "n1", "", "n1-1-1", **more)


def tale(state: TaskState, *fetches: StoredFetch, **more: Any) -> URLStory:
    """The story, with the attempts newest first."""
    task = more.pop("task", TASK)
    story = TaskStory(state, None if state is TaskState.DONE else task, retry_at=T)
    attempts = more.pop("attempts", Attempts(list(fetches), complete=True, has_store=True))
    known = Known(URL, story, more.pop("host", None), more.pop("letter", None), attempts, None, Calendar())
    return url_story(known._replace(**more))


def told(state: TaskState, *fetches: StoredFetch, **more: Any) -> list[str]:
    return tale(state, *fetches, **more).story


def test_a_url_that_failed_and_was_fetched_then_tells_it_in_order() -> None:
    failed = fetch("failed", 503, "http_5xx", attempt=1)
    stored = fetch("fetched", 200, at=T + 60, attempt=2, page=True, warc_filename="n1.warc.gz", warc_offset=7)
    stored.found_on, stored.depth = SEED, 1
    story = tale(TaskState.DONE, stored, failed)
    place = "its row is in tables/pages/n1-1-1.parquet, its record at byte 7 of warc/n1.warc.gz"
    assert story.story == [
        f"Found on {SEED}, 1 link from a seed.",
        f"Failed by n1 at {DAY} with status 503: http_5xx; {ROW}; tried again, as the site has trouble of its own.",
        f"Fetched by n1 at {LATER} (attempt 2) with status 200; {place}.",
        "Done.",
    ]
    assert [(step.what, step.time) for step in story.steps] == [
        ("found", None),
        ("failed", T),
        ("fetched", T + 60),
        ("done", None),
    ]


def test_moments_are_days() -> None:
    held = HostState(HOST, 0.0, None, 0, 1, 0, 0, lease_id="t", node="n1", deadline=T)
    letter = DeadLetter(URL, HOST, FailureKind.REDIRECT_LOOP, 1, LOOP, T, T, SEED, TASK)
    assert told(TaskState.LEASED, host=held)[2] == f"n1 has it to fetch, until {DAY}."
    assert told(TaskState.SCHEDULED)[-1] == f"To be tried again at {DAY}. It has failed 1 time."
    given_up = f"Given up after 1 attempt (a dead letter) since {DAY}: redirect_loop, {LOOP}."
    assert told(TaskState.DEAD, letter=letter)[-1] == given_up


def test_one_is_not_called_several_and_a_priority_says_its_parts() -> None:
    found, queued, *_ = told(TaskState.SCHEDULED)
    assert found == f"Found on {SEED}, reached through 1 redirect, 1 link from a seed at {DAY}."
    assert queued == "Queued with priority 4 of 9: 5 to begin with, 1 less for being 1 link from a seed."


def test_the_parts_of_a_priority_name_who_may_have_changed_it() -> None:
    for priority, said in (
        (5, "5 to begin with"),
        (6, "5 to begin with, 1 more by a sitemap's hint or somebody's order"),
        (9, "5 to begin with, 4 more by somebody's order"),
        (2, "5 to begin with, 3 less by somebody's order"),
    ):
        seed = tale(TaskState.QUEUED, task=Task(1, URL, priority, 0, 0, "", (), 0, T))
        assert seed.story[1] == f"Queued with priority {priority} of 9: {said}."
        parts = seed.priority_parts
        assert parts is not None
        assert (parts.default, parts.depth, parts.hint_or_order) == (5, 0, priority - 5)


def test_what_a_narrower_scope_leaves_out_has_not_failed() -> None:
    letter = DeadLetter(URL, HOST, FailureKind.SCOPE_CHANGED, 1, "", T, T, SEED, TASK)
    assert "failed" not in " ".join(told(TaskState.DEAD, letter=letter))


def test_a_failed_attempt_says_its_cause_also_when_there_was_a_status() -> None:
    failed = fetch("failed", 302, "redirect_loop", LOOP)
    assert f"Failed by n1 at {DAY} with status 302: redirect_loop, {LOOP}; {ROW}." in told(TaskState.DEAD, failed)
    silent = fetch("failed", 0, "connect")
    assert f"Failed by n1 at {DAY}: connect; {ROW}." in told(TaskState.DEAD, silent)


def test_a_url_that_is_done_was_fetched_or_dropped_if_the_store_knows_only_that_it_failed() -> None:
    """A fleet's bundles come late: the page may have been fetched by a node whose rows are not here yet."""
    story = tale(TaskState.DONE, fetch("failed", 503, "http_5xx"))
    assert story.steps[-1].what == "done"
    either = "a later one is not in this store, or not yet, or somebody dropped it from the dead letters"
    assert story.story[-1] == f"Done, though its last attempt that is stored here failed: {either}."


def test_a_redirect_says_where_it_leads_and_who_links_to_it() -> None:
    moved = fetch("redirected", 302, redirect_to=SEED)
    link = StoredLink(SEED, "a", "", 0, nofollow=False, soft_404=False)
    attempts = Attempts([moved], complete=True, has_store=True, linkers=[link])
    first, second, _ = told(TaskState.DONE, attempts=attempts)
    assert first == f"{SEED} links to it."
    assert second == f"Redirected by n1 at {DAY} with status 302 to {SEED}; {ROW}."


def test_a_page_says_what_it_repeats() -> None:
    page = fetch("fetched", 200, page=True)
    for kind, words in (("exact", "it has the same content as"), ("near", "it has nearly the same text as")):
        page.duplicate_of, page.duplicate_kind = SEED, kind
        assert f"; {words} {SEED};" in told(TaskState.DONE, page)[0]


def test_what_robots_deny_names_the_line() -> None:
    denied = fetch("denied", 0, "robots", "line 3: Disallow: /x")
    said, done = told(TaskState.DONE, denied)
    assert said.startswith(f"Not requested by n1 at {DAY}: its robots.txt does not allow it (line 3: Disallow: /x);")
    assert done == "Done: not fetched."
    earlier = fetch("denied", 0, "robots", "rules")
    assert ": its robots.txt does not allow it;" in told(TaskState.DONE, earlier)[0]
    silent = fetch("denied", 0, "robots", "status 403")
    assert "nothing of its host may be asked for: status 403;" in told(TaskState.DONE, silent)[0]


def test_what_is_in_a_journal_only_says_so() -> None:
    fresh = fetch("fetched", 200, unshown=True, unsettled=True)
    held = HostState(HOST, 0.0, None, 0, 1, 0, 0, lease_id="t", node="n1", deadline=T)
    said = told(TaskState.LEASED, fresh, host=held)[2]
    assert "its row is in the journal nodes/n1/n1-1-1.journal, and no coordinator has counted it yet." in said
    fresh.unsettled = False
    assert "and in the tables within a minute." in told(TaskState.DONE, fresh)[0]
    assert "and in the tables when the crawl goes on." in told(TaskState.DONE, fresh, passes=False)[0]


def test_a_page_that_is_done_says_through_how_many_redirects_it_was_reached() -> None:
    moved = ["http://a.example/r1", "http://a.example/r2"]
    story = tale(TaskState.DONE, fetch("fetched", 200, page=True, found_on=SEED, depth=1, redirects=moved))
    assert story.story[0] == f"Found on {SEED}, reached through 2 redirects, 1 link from a seed."
    assert story.redirects == moved


def test_a_robots_txt_is_in_no_queue_and_its_host_says_what_it_allows() -> None:
    asked = fetch("robots", 404, url="http://a.example/robots.txt")
    first, second, last = told(TaskState.DONE, asked)
    assert "asked for before the pages of its host" in first
    assert second == f"Asked for by n1 at {DAY} with status 404; {ROW}."
    assert last == "`drumlin host a.example` says what it allows."


def test_what_robots_deny_was_not_asked_for() -> None:
    denied, asked = fetch("denied", 0, "robots", "rules", at=T + 60), fetch("fetched", 200)
    assert tale(TaskState.DONE, denied).last_crawled is None
    assert tale(TaskState.DONE, denied, asked).last_crawled == T


def test_many_attempts_are_not_all_told() -> None:
    tries = [fetch("failed", 503, "http_5xx", at=T - number) for number in range(8)]
    story = told(TaskState.SCHEDULED, *tries)
    assert story[2] == "3 earlier attempts not told here."
    assert len(story) == 2 + 1 + 5 + 1


def test_a_coordinator_says_what_its_store_could_not_tell() -> None:
    story = tale(TaskState.DONE, attempts=NO_STORE)
    assert (story.story[-1][:31], story.store) == ("This coordinator has no store, ", "none")
    partly = tale(TaskState.DONE, attempts=Attempts([], complete=False, has_store=True))
    assert ("Only the newest tables" in partly.story[-1], partly.store) == (True, "partly")
    nothing = tale(TaskState.DONE)
    assert ("No table and no journal" in nothing.story[-1], nothing.store) == (True, "whole")
    fresh = Task(1, URL, 5, 0, 0, "", (), 0, T)
    assert "store" not in [step.what for step in tale(TaskState.QUEUED, task=fresh, attempts=NO_STORE).steps]


def test_a_url_that_waits_says_for_what() -> None:
    asks_for_an_hour = HostState(HOST, T + 60, 3600.0, 1, 1, 0, 0, lease_id="t", node="n1", deadline=T)
    crawl: dict[str, Any] = {"delay_default_s": 1.0, "product_token": "drumlin", "blocked": False, "budget": None}
    view = host_view(asks_for_an_hour, 0, T, per_host=1, **crawl)
    leased = told(TaskState.LEASED, host=asks_for_an_hour, view=view, now=T)
    assert leased[3].startswith(f"Its host may be contacted next at {LATER}. An operator has set it")
    queued = told(TaskState.QUEUED, view=view, denial="line 3: Disallow: /x")
    assert queued[2] == f"It waits for its turn. {HOST}: {view.why}"
    assert queued[3].endswith("it will be settled without a request (line 3: Disallow: /x).")
