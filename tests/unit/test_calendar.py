"""Engine time has gaps; people see the day all the same."""

from __future__ import annotations

import msgspec

from drumlin.api.explaining.shown import PARTS, TIMES, TIMES_MS, on_calendar
from drumlin.api.messages.people import DeadLettersView, DeadLetterView
from drumlin.coordinator.calendar import GAPS_MAX, NEGLIGIBLE_S, TABLE, Calendar
from drumlin.coordinator.engine_time import StandingTime
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine

DAY_S = 86_400.0


def test_a_moment_before_a_gap_is_shown_as_it_was_and_one_after_it_with_the_gap() -> None:
    engine, calendar, other = MemoryEngine(1), Calendar(), Calendar()
    drive(calendar.note(engine, 1_000.0, 1_000.0 + NEGLIGIBLE_S / 2))
    assert calendar.plain
    drive(calendar.note(engine, 2_000.0, 2_000.0 + DAY_S))
    drive(calendar.note(engine, 3_000.0, 3_000.0 + 2 * DAY_S))
    drive(other.follow(engine))
    for one in (calendar, other):
        assert [one.shown(at) - at for at in (0.0, 1_999.0, 2_000.0, 2_999.0, 3_000.0, 9e9)] == [
            *(0.0, 0.0),
            *(DAY_S, DAY_S),
            *(2 * DAY_S, 2 * DAY_S),
        ]


def test_going_on_without_a_gap_notes_nothing() -> None:
    engine, calendar = MemoryEngine(1), Calendar()
    drive(calendar.note(engine, 2_000.0, 2_000.0 + DAY_S))
    drive(calendar.note(engine, 2_500.0, 2_500.0 + DAY_S))
    assert len(drive(engine.get_entries(TABLE))) == 1


def standing(engine: MemoryEngine, today: float) -> StandingTime:
    return StandingTime(engine, monotonic=lambda: 0.0, wall=lambda: today)


def test_what_is_changed_while_no_process_runs_is_dated_with_that_day() -> None:
    """Engine time stands still then; two changes are each told with their own day, and what was before with its."""
    engine, today = MemoryEngine(1), 5_000.0
    drive(engine.keep_time(1_000.0))
    moments = []
    for _ in range(2):
        today += DAY_S
        time = standing(engine, today)
        drive(time.move_on())
        moments.append((drive(time.now()), today))
    assert [round(time.calendar.shown(at), 3) for at, _ in moments] == [day for _, day in moments]
    assert time.calendar.shown(1_000.0) == 1_000.0


def test_only_so_many_gaps_are_remembered_and_the_latest_counts() -> None:
    engine, calendar = MemoryEngine(1), Calendar()
    for gap in range(GAPS_MAX + 5):
        drive(calendar.note(engine, 1_000.0 * gap + 1.0, 1_000.0 * gap + 1.0 + DAY_S * (gap + 1)))
    assert len(drive(engine.get_entries(TABLE))) == GAPS_MAX
    assert calendar.shown(1e9) == 1e9 + DAY_S * (GAPS_MAX + 5)


def test_what_never_happened_is_not_dated() -> None:
    calendar = Calendar()
    calendar.read({"0.0": repr(DAY_S).encode()})
    letter = DeadLetterView("u", "h", "dns", 1, "", 0.0, 5.0, "")
    (shown,) = on_calendar(DeadLettersView([letter]), calendar).dead_letters
    assert (shown.first_failed, shown.last_failed) == (0.0, 5.0 + DAY_S)


def test_every_time_that_is_dated_exists() -> None:
    for kind, names in [*TIMES.items(), *TIMES_MS.items(), *PARTS.items()]:
        assert set(names) <= {field.name for field in msgspec.structs.fields(kind)}
