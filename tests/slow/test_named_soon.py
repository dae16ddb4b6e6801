"""The promise that a trouble of the engine is named, and every call answered, within five seconds.

The same checks run in `make test` with a wider bound, since other tests share the machine there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration import test_diagnosis as diagnosis

PROMISED_S = 5.0


@pytest.fixture(autouse=True)
def _as_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(diagnosis, "NAMED_WITHIN_S", PROMISED_S)
    monkeypatch.setattr(diagnosis, "ANSWERED_WITHIN_S", PROMISED_S)


def test_a_full_redis_is_named_within_five_seconds(tmp_path: Path) -> None:
    diagnosis.test_redis_without_memory_is_named_and_forgotten_when_it_has_some(tmp_path)


def test_a_frozen_redis_holds_nobody_for_five_seconds(tmp_path: Path) -> None:
    diagnosis.test_a_frozen_redis_holds_nobody(tmp_path)


def test_a_redis_that_is_cut_off_holds_nobody_for_five_seconds(tmp_path: Path) -> None:
    diagnosis.test_a_redis_that_is_cut_off_holds_nobody(tmp_path)
