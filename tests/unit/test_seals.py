"""Ids that only coordinators can make."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from drumlin.access.seals import Seals, without_seal
from drumlin.access.tokens import SECRET_KEY
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.model import Task
from drumlin.protocol import read_assignment_id

TASK = Task(7, "http://a.test/x", 5, 2, 1, "", ())


def seals_on(engine: MemoryEngine) -> Seals:
    made = Seals()
    drive(made.refresh(engine))
    return made


def test_an_id_says_what_was_given_out_and_every_coordinator_reads_it() -> None:
    engine = MemoryEngine()
    one, other = seals_on(engine), seals_on(engine)
    lease_id = one.sealed("n0:r1.0.3", "a.test")
    assert other.unsealed(lease_id, "a.test") == without_seal(lease_id) == "n0:r1.0.3"
    key = other.assignment(one.assignment_id(lease_id, TASK), TASK.url)
    assert key is not None
    assert (key.node, key.lease_id, key.task_id, key.depth, key.attempts) == ("n0", lease_id, 7, 2, 1)


def test_an_id_is_good_for_nothing_else() -> None:
    seals = seals_on(MemoryEngine())
    lease_id = seals.sealed("n0:r1.0.3", "a.test")
    text = seals.assignment_id(lease_id, TASK)
    assert seals.unsealed(lease_id, "b.test") == ""
    assert seals.unsealed(lease_id.replace("n0", "n1"), "a.test") == ""
    assert seals.assignment(text, "http://a.test/y") is None
    for wrong in ("7.2.1", "7.2.0", "7.0.1", "8.2.1"):
        changed = text.replace("/7.2.1.", f"/{wrong}.")
        assert (seals.assignment(changed, TASK.url) is None) == (wrong != "7.2.1")
    # The seal of a lease is not valid for an assignment, and the other way round.
    assert seals.assignment(f"{lease_id}/7.2.1.{lease_id.rpartition('.')[2]}", TASK.url) is None
    assert seals.unsealed(text, "a.test") == ""


@given(st.text(max_size=60), st.text(max_size=30))
def test_whatever_is_said_is_no_id(text: str, place: str) -> None:
    seals = Seals()
    assert seals.unsealed(text, place) == ""
    assert seals.assignment(text, place) is None


@given(st.sampled_from(range(50)), st.characters())
def test_no_letter_of_an_id_can_be_changed(place: int, letter: str) -> None:
    seals = Seals()
    text = seals.assignment_id(seals.sealed("n0:r.0.1", "a.test"), TASK)
    changed = text[:place] + letter + text[place + 1 :]
    assert changed == text or seals.assignment(changed, TASK.url) is None


def test_what_was_given_out_before_the_secret_changed_still_counts() -> None:
    engine = MemoryEngine()
    before = seals_on(engine)
    lease_id = before.sealed("n0:r1.0.3", "a.test")
    text = before.assignment_id(lease_id, TASK)
    drive(engine.put_meta(SECRET_KEY, b"another secret of thirty-two byte"))
    after = seals_on(engine)
    assert after.sealed("n0:r1.0.3", "a.test") != lease_id
    assert after.unsealed(lease_id, "a.test") == "n0:r1.0.3"
    assert after.assignment(text, TASK.url) is not None
    # And the coordinator that began earlier learns of the new key.
    newer = after.assignment_id(after.sealed("n0:r2.0.0", "a.test"), TASK)
    assert before.assignment(newer, TASK.url) is None
    drive(before.refresh(engine))
    assert before.assignment(newer, TASK.url) is not None


def test_another_crawl_reads_none_of_it() -> None:
    one, other = seals_on(MemoryEngine()), seals_on(MemoryEngine())
    text = one.assignment_id(one.sealed("n0:r1.0.3", "a.test"), TASK)
    assert other.assignment(text, TASK.url) is None


def test_an_id_is_as_short_as_messages_allow() -> None:
    seals = Seals()
    task = msgspec.structs.replace(TASK, id=(1 << 62), depth=10**6, attempts=10**6)
    text = seals.assignment_id(seals.sealed(f"{'n' * 64}:{'r' * 64}.65535-{1 << 62:x}.10000", "a.test"), task)
    assert len(text) <= 300
    assert read_assignment_id(text) is not None
