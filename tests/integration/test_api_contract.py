"""The OpenAPI document is true: schemathesis finds no 5xx and no breach of contract. tests/slow looks further."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.contract import check_contract
from tests.harness.coordinators import RemoteNode, RunningCoordinator

SECONDS_MAX = 280.0


@pytest.mark.timeout(300)
def test_schemathesis_finds_nothing_at_the_edges_of_what_is_permitted(tmp_path: Path) -> None:
    with RunningCoordinator(store=tmp_path / "store") as coordinator:
        coordinator.enqueue("http://a.example/", "http://b.example/")
        RemoteNode(coordinator, "n1").take()
        made = check_contract(coordinator, tmp_path, "--phases", "coverage", seconds_max=SECONDS_MAX, msgpack=False)
    assert made > 500


@pytest.mark.timeout(300)
def test_schemathesis_finds_nothing_where_tokens_are_asked_for(tmp_path: Path) -> None:
    with RunningCoordinator(controlled=True) as coordinator:
        options = ("--phases", "fuzzing", "--max-examples", "5")
        made = check_contract(coordinator, tmp_path, *options, seconds_max=SECONDS_MAX)
    assert made > 100
