"""Large answers that are being sent: beyond the bound, whoever has most left unread is cut off, oldest first."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from drumlin.api import bodies
from drumlin.api.bodies import UnreadAnswers


@pytest.fixture(autouse=True)
def bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "ANSWERS_BYTES_MAX", 100)


def test_within_the_bound_nobody_is_cut() -> None:
    answers, cut = UnreadAnswers(), list[str]()
    for number in range(5):
        with answers.holding("a", 60, lambda: cut.append("a")), answers.holding("b", 40, lambda: cut.append("b")):
            assert len(answers) == 2, number
    assert (len(answers), cut) == (0, [])


def test_the_oldest_of_whoever_has_most_is_cut_and_others_are_not() -> None:
    answers, cut = UnreadAnswers(), list[str]()
    with ExitStack() as stack:
        for who, size in (("honest", 30), ("greedy 1", 20), ("greedy 2", 20), ("late", 20), ("greedy 3", 20)):
            holding = answers.holding(who.split()[0], size, lambda who=who: cut.append(who))  # type: ignore[misc]
            stack.enter_context(holding)
        assert cut == ["greedy 1"]
        stack.enter_context(answers.holding("late", 30, lambda: cut.append("late, too")))
        assert cut == ["greedy 1", "late"]
    assert len(answers) == 0


def test_what_is_larger_than_the_bound_is_cut_itself() -> None:
    answers, cut = UnreadAnswers(), list[str]()
    with answers.holding("a", 101, lambda: cut.append("a")):
        assert (cut, len(answers)) == (["a"], 0)
    assert len(answers) == 0


def test_an_answer_that_fails_is_let_go() -> None:
    answers = UnreadAnswers()
    with pytest.raises(ConnectionError), answers.holding("a", 60, lambda: None):
        raise ConnectionError
    assert len(answers) == 0
