"""The story of a URL is for people: days instead of seconds since 1970, and causes beside statuses."""

from __future__ import annotations

from drumlin.coordinator.calendar import Calendar
from drumlin.coordinator.intake import Attempts
from drumlin.coordinator.stories import url_story
from drumlin.model import DeadLetter, HostState, Task, TaskState, TaskStory
from drumlin.store.lookup import StoredFetch

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
    held = HostState(HOST, 0.0, None, 0, 1, 0, 0, token="t", node="n1", deadline=T)
    letter = DeadLetter(URL, HOST, "redirect_loop", 1, LOOP, T, T, SEED, TASK)
    assert told(TaskState.LEASED, host=held)[-1] == f"n1 has it to fetch, until {DAY}."
    assert told(TaskState.SCHEDULED)[-1] == f"To be tried again at {DAY}."
    assert told(TaskState.DEAD, letter=letter)[-1] == f"A dead letter since {DAY}: redirect_loop, {LOOP}."


def test_one_is_not_called_several() -> None:
    said = "reached through 1 redirect, 1 link from a seed, with priority 4. It has failed 1 time."
    assert told(TaskState.SCHEDULED)[0] == f"Found on {SEED}, {said}"


def test_a_failed_attempt_says_its_cause_also_when_there_was_a_status() -> None:
    failed = StoredFetch(T, "failed", 302, "redirect_loop", LOOP, "n1", "", "n1-1-1")
    assert told(TaskState.DEAD, failed)[-1] == (
        f"Failed by n1 at {DAY} with status 302: redirect_loop, {LOOP}; its line is in n1-1-1."
    )
    silent = StoredFetch(T, "failed", 0, "connect", "", "n1", "", "n1-1-1")
    assert told(TaskState.DEAD, silent)[-1] == f"Failed by n1 at {DAY}: connect; its line is in n1-1-1."
