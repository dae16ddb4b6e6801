"""What the rocksdb engine acknowledged survives kill -9 at any moment, and what it had not is whole or absent."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from drumlin.engines.blocking import BlockingEngine, open_blocking
from drumlin.model import TaskState
from drumlin.urls import host_of

ROOT = Path(__file__).parents[2]
ROUNDS = 4
LINES_MAX = 120
LINKS_PER_RUN = 100_000


def acknowledged_before_death(directory: str, first: int, lines_max: int) -> list[list[Any]]:
    """Run the child until it has printed `lines_max` lines, kill it, and return all that it printed."""
    child = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("killed_crawl.py")), directory, str(first)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    with child:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(lines_max)]
        child.kill()
        lines += child.stdout.readlines()
    return [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]


def state(engine: BlockingEngine, url: str) -> TaskState | None:
    story = engine.story(engine.shard_of(host_of(url)), url)
    return story.state if story else None


def check(engine: BlockingEngine, events: list[list[Any]]) -> None:
    added = {url for kind, urls in events if kind == "added" for url in urls}
    settled = {url: (end, capture) for kind, parts in events if kind == "settled" for url, end, capture in parts}
    assert all(state(engine, url) is not None for url in added)
    for url, (end, capture) in settled.items():
        story = engine.story(0, url)
        assert story is not None
        if end == TaskState.SCHEDULED:
            # It may have been retried since then, by a call that was acknowledged or by the last one, which was not.
            assert story.task is None or story.task.attempts >= 1
        else:
            assert (story.state, story.attempt_id) == (end, capture.encode())


def check_that_the_last_lease_is_live_or_settled(engine: BlockingEngine, events: list[list[Any]]) -> None:
    if events[-1][0] == "leased":
        states = [state(engine, url) for url in events[-1][1]]
        # The last call may have happened without being acknowledged; it settles every second task of each lease.
        assert set(states) == {TaskState.LEASED} or TaskState.LEASED not in states


def count_of_urls(engine: BlockingEngine) -> int:
    stats = engine.stats(0, 0.0)
    return stats.queued + stats.scheduled + stats.leased + stats.done + stats.dead


def test_everything_acknowledged_survives_kill_9_at_random_moments(tmp_path: Path) -> None:
    chance, directory, events = random.Random(9), str(tmp_path / "engine"), []
    for number in range(ROUNDS):
        latest = acknowledged_before_death(directory, number * LINKS_PER_RUN, chance.randrange(3, LINES_MAX))
        events += latest
        engine = open_blocking(f"rocksdb:{directory}")
        check(engine, events)
        check_that_the_last_lease_is_live_or_settled(engine, latest)
        engine.close()
    assert {kind for kind, _ in events} == {"added", "leased", "settled"}, "there was something of each kind to lose"


def test_totals_agree_with_every_urls_state_after_a_kill(tmp_path: Path) -> None:
    directory = str(tmp_path / "engine")
    events = acknowledged_before_death(directory, 0, LINES_MAX)
    engine = open_blocking(f"rocksdb:{directory}")
    urls = {url for kind, urls in events if kind == "added" for url in urls}
    unacknowledged = count_of_urls(engine) - len(urls)
    assert unacknowledged in (0, 40)
    settled = {url for kind, parts in events if kind == "settled" for url, _, _ in parts}
    assert engine.stats(0, 0.0).counters["settled"] >= len(settled)
    ended = sum(state(engine, url) is TaskState.DONE for url in urls)
    assert ended == engine.stats(0, 0.0).done
    engine.close()
