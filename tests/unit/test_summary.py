"""The first sentence of a report: how the crawl ended, or that it has not."""

from __future__ import annotations

import asyncio
import io
import json
import random
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from drumlin.api.calls.people import STOPPED_BY_PERSON
from drumlin.api.explaining.report import COMPLETE_KEY, REPORT_NAME, Report, make_report
from drumlin.cli.figures import pace
from drumlin.cli.store import _report
from drumlin.cli.summary import ending, print_report
from drumlin.config import CrawlConfig
from drumlin.config.record import CrawlRecord, Run
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.engines import open_engine
from drumlin.engines.base import Engine
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.model import NewURLs, Settled, Settlement, TaskState
from drumlin.protocol import CrawlState
from drumlin.protocol.host_notes import BackOff, HostNote
from drumlin.serving.finishing import Finisher
from drumlin.store.files import DirectoryFiles

NOW = 1_790_000_000.0


@pytest.mark.parametrize(
    ("state", "reason", "pending", "said"),
    [
        ("finished", "", 0, "Finished: nothing is left to fetch."),
        ("finished", "", 2, "Finished, but 2 URLs are left: added since then, or beyond the budget of a host."),
        ("running", "", 2, "The crawl is running, not finished: 2 URLs are left. `drumlin resume` goes on"),
        ("paused", "", 2, "The crawl is paused, not finished: 2 URLs are left."),
        ("draining", "pages_max", 2, "Stopped by --pages-max: 2 URLs are left. Raise it"),
        ("draining", STOPPED_BY_PERSON, 2, "Stopped by an operator: 2 URLs are left. `drumlin resume` goes on"),
    ],
)
def test_only_a_crawl_that_has_ended_is_called_finished(state: str, reason: str, pending: int, said: str) -> None:
    report = drive(make_report(MemoryEngine(1), state, reason, 1.0, NOW))
    report.pages, report.urls_pending = 1, pending
    shown = io.StringIO()
    print_report(Console(file=shown, width=200), report, Path("store"))
    assert shown.getvalue().startswith(said)


def printed(report: Report, width: int = 80) -> str:
    shown = io.StringIO()
    print_report(Console(file=shown, width=width), report, Path("docs"))
    return shown.getvalue()


def test_a_report_ends_with_the_commands_that_make_sense_next() -> None:
    report = drive(make_report(MemoryEngine(1), "finished", "", 2.0, NOW))
    report.pages, report.urls, report.bytes, report.pages_per_s = 5_296, 5_608, 4_600_000, 11.8
    report.crawl = CrawlRecord(runs=[Run("2026-01-01T00:00:00Z", "0.1.0")])
    said = printed(report)
    assert "5,296 of 5,608 URLs known · 4.6 MB" in said
    assert "drumlin open docs" in said
    assert "drumlin query --out docs" in said
    assert "dead-letters" not in said, "nothing was given up"
    assert "duplicates" not in said, "what did not happen is left out"
    report.dead_letters = {"http_5xx": 126}
    said = printed(report)
    assert "126 the site reported an error of its own" in said
    assert "drumlin dead-letters --out docs  why 126 URLs were given up" in said
    assert max(map(len, said.splitlines())) <= 80


def test_a_fleets_report_names_no_command_that_does_not_know_its_store() -> None:
    report = drive(make_report(MemoryEngine(1), "finished", "", 2.0, NOW))
    report.pages = 1
    said = printed(report)
    assert "drumlin query --out docs" in said
    assert "drumlin open" not in said


def test_a_crawl_on_one_machine_is_gone_on_with_by_its_own_command() -> None:
    report = drive(make_report(MemoryEngine(1), "draining", STOPPED_BY_PERSON, 1.0, NOW))
    report.crawl = CrawlRecord(runs=[Run("2026-01-01T00:00:00Z", "0.1.0")])
    assert ending(report).endswith("The same `drumlin crawl` command goes on.")
    report.crawl = CrawlRecord()
    assert ending(report).endswith("`drumlin resume` goes on.")


def test_a_slow_crawl_has_a_speed() -> None:
    assert [pace(per_s) for per_s in (0.0, 0.02, 0.46, 9.96, 12.4, 1234.5)] == [
        "0",
        "0.02",
        "0.5",
        "10.0",
        "12",
        "1,234",
    ]


async def leave_alone(engine: Engine) -> None:
    """Make a crawl with one host, which is out of reach for another minute and a half, and stop its time."""
    await engine.add_all({0: [NewURLs("a.test", ["http://a.test/"])]}, NOW)
    (lease,) = await engine.lease(0, "n", "1", NOW, until=NOW + 60, hosts_max=9, urls_max=9, urls_per_host=1)
    task, again = lease.tasks[0], NOW + 90.0
    backoff = BackOff("dns", "no such host", NOW, 1, NOW, again, again)
    note = msgspec.msgpack.encode(HostNote(backoff={"http": backoff}))
    settled = Settled(task.id, task.url, TaskState.SCHEDULED, b"1", retry_at=again)
    left = Settlement(lease.host, lease.lease_id, [settled], True, again, note=note, in_backoff=True)
    await engine.settle_all({0: [left]}, NOW)
    await engine.keep_time(NOW)


def told(store: Path) -> list[str]:
    hosts: list[str] = json.loads((store / REPORT_NAME).read_bytes())["out_of_reach"]
    return hosts


def test_a_fleets_report_says_when_a_host_is_tried_next(tmp_path: Path) -> None:
    async def finished() -> None:
        engine = MemoryEngine(1)
        await leave_alone(engine)
        dispatcher = Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1))
        await dispatcher.open()
        dispatcher.state = CrawlState.FINISHED
        finisher = Finisher(dispatcher, tmp_path, DirectoryFiles(tmp_path))
        await finisher.tick(NOW)
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})

    asyncio.run(finished())
    assert told(tmp_path) == ["a.test: no such host, next try in 1 min 30 s"]


def test_a_crawl_that_is_resumed_while_its_index_is_merged_is_not_called_complete(tmp_path: Path) -> None:
    async def finish() -> bytes | None:
        engine = MemoryEngine(1)
        dispatcher = Dispatcher(engine, CrawlConfig(), [], chance=random.Random(1))
        dispatcher.state = CrawlState.DRAINING
        finisher = Finisher(dispatcher, tmp_path, DirectoryFiles(tmp_path))
        await finisher.tick(NOW)
        dispatcher.state = CrawlState.RUNNING
        assert finisher._work is not None
        await finisher._work
        return await engine.get_meta(COMPLETE_KEY)

    assert asyncio.run(finish()) is None


def test_store_finish_says_when_a_host_is_tried_next(tmp_path: Path) -> None:
    async def founded() -> None:
        engine = await open_engine(f"rocksdb:{tmp_path / 'frontier'}", shard_count=1)
        await leave_alone(engine)
        await engine.close()

    asyncio.run(founded())
    _report(f"rocksdb:{tmp_path / 'frontier'}").write(tmp_path / REPORT_NAME)
    assert told(tmp_path) == ["a.test: no such host, next try in 1 min 30 s"]
