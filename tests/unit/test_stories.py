"""The story of a URL is for people: days instead of seconds since 1970, and causes beside statuses."""

from __future__ import annotations

from drumlin.api.explaining.stories import url_story
from drumlin.api.intake.workers import Attempts
from drumlin.coordinator.calendar import Calendar
from drumlin.model import DeadLetter, FailureKind, HostState, Task, TaskState, TaskStory
from drumlin.store.tables.lookup import StoredFetch

URL = "http://a.example/x"
HOST = "a.example"
SEED = "http://a.example/"
T = 1_790_000_000.0
DAY = "2026-09-21 14:13:20 UTC"
LOOP = "redirects back to http://a.example/y"
TASK = Task(1, URL, 4, 1, 1, SEED, ("http://a.example/y",), 0, T)


def told(
    state: TaskState, *fetches: StoredFetch, host: HostState | None = None, letter: DeadLetter | None = None
) -> list[str]:
    story = TaskStory(state, None if state is TaskState.DONE else TASK, retry_at=T)
    attempts = Attempts(list(fetches), complete=True, has_store=True)
    return url_story(URL, story, host, letter, attempts, None, Calendar()).story


def test_moments_are_days() -> None:
    held = HostState(HOST, 0.0, None, 0, 1, 0, 0, lease_id="t", node="n1", deadline=T)
    letter = DeadLetter(URL, HOST, FailureKind.REDIRECT_LOOP, 1, LOOP, T, T, SEED, TASK)
    assert told(TaskState.LEASED, host=held)[-1] == f"n1 has it to fetch, until {DAY}."
    assert told(TaskState.SCHEDULED)[-1] == f"To be tried again at {DAY}."
    assert told(TaskState.DEAD, letter=letter)[-1] == f"Given up (a dead letter) since {DAY}: redirect_loop, {LOOP}."


def test_one_is_not_called_several() -> None:
    said = "reached through 1 redirect, 1 link from a seed, with priority 4. It has failed 1 time."
    assert told(TaskState.SCHEDULED)[0] == f"Found on {SEED}, {said}"


def test_what_a_narrower_scope_leaves_out_has_not_failed() -> None:
    letter = DeadLetter(URL, HOST, FailureKind.SCOPE_CHANGED, 1, "", T, T, SEED, TASK)
    assert "failed" not in " ".join(told(TaskState.DEAD, letter=letter))


def test_a_failed_attempt_says_its_cause_also_when_there_was_a_status() -> None:
    failed = StoredFetch(T, "failed", 302, "redirect_loop", LOOP, "n1", "", "n1-1-1")
    assert told(TaskState.DEAD, failed)[-1] == (
        f"Failed by n1 at {DAY} with status 302: redirect_loop, {LOOP}; its row is in tables/fetches/n1-1-1.parquet."
    )
    silent = StoredFetch(T, "failed", 0, "connect", "", "n1", "", "n1-1-1")
    assert (
        told(TaskState.DEAD, silent)[-1]
        == f"Failed by n1 at {DAY}: connect; its row is in tables/fetches/n1-1-1.parquet."
    )


def test_a_redirect_says_where_it_leads() -> None:
    moved = StoredFetch(T, "redirected", 302, "", "", "n1", "", "n1-1-1", redirect_to=SEED)
    assert told(TaskState.DONE, moved)[-1] == (
        f"Redirected by n1 at {DAY} with status 302 to {SEED}; its row is in tables/fetches/n1-1-1.parquet."
    )


def test_a_page_says_where_it_was_found_and_what_it_repeats() -> None:
    page = StoredFetch(T, "fetched", 200, "", "", "n1", "", "n1-1-1", True, "n1.warc.gz", 7, found_on=SEED)
    place = "its row is in tables/pages/n1-1-1.parquet, its record at byte 7 of warc/n1.warc.gz."
    assert told(TaskState.DONE, page) == [
        f"Found on {SEED}.",
        "Done.",
        f"Fetched by n1 at {DAY} with status 200; {place}",
    ]
    for kind, words in (("exact", "it has the same content as"), ("near", "it has nearly the same text as")):
        page.duplicate_of, page.duplicate_kind = SEED, kind
        assert f"; {words} {SEED};" in told(TaskState.DONE, page)[-1]


def test_what_robots_deny_is_said_in_words() -> None:
    denied = StoredFetch(T, "denied", 0, "robots", "rules", "n1", "", "n1-1-1")
    assert f"Not requested by n1 at {DAY}: its robots.txt does not allow it;" in told(TaskState.DONE, denied)[-1]
    assert told(TaskState.DONE, denied)[0] == "Not fetched."
    silent = StoredFetch(T, "denied", 0, "robots", "status 403", "n1", "", "n1-1-1")
    assert "nothing of its host may be asked for: status 403;" in told(TaskState.DONE, silent)[-1]
