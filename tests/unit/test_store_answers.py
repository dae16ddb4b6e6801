"""What a coordinator's store answers, and the indexes that are made meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from drumlin.api.explaining import store_answers
from drumlin.api.explaining.store_answers import StoreAnswers
from drumlin.store.tables.lookup import StoreReader
from tests.harness.recent import NothingRecent

WITHIN_S = 10.0


def test_what_goes_wrong_with_indexes_is_logged_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries: list[float] = []

    def failing(reader: StoreReader, now: float, in_time: object) -> int:
        tries.append(now)
        raise ValueError("substring not found")

    async def asked() -> None:
        answers = StoreAnswers(tmp_path, NothingRecent())
        async with answers.running(), asyncio.timeout(WITHIN_S):
            assert (await answers.attempts("http://a.test/")).complete
            while len(tries) < 2:
                await asyncio.sleep(0)

    monkeypatch.setattr(StoreReader, "index_some", failing)
    monkeypatch.setattr(store_answers, "INDEX_REST_S", 0.0)
    asyncio.run(asked())
    assert "cannot make indexes" in caplog.text
