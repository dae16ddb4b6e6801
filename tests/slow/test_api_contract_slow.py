"""schemathesis with many more examples, sequences of calls and both formats, on both kinds of coordinator."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.contract import check_contract
from tests.harness.coordinators import RemoteNode, RunningCoordinator

EXAMPLES = "60"
SECONDS_MAX = 3_000.0


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("controlled", [False, True])
def test_schemathesis_finds_nothing_however_long_it_looks(tmp_path: Path, controlled: bool) -> None:
    with RunningCoordinator(controlled=controlled, store=tmp_path / "store") as coordinator:
        coordinator.enqueue("http://a.example/", "http://b.example/")
        RemoteNode(coordinator, "n1").take()
        made = check_contract(coordinator, tmp_path, "--max-examples", EXAMPLES, seconds_max=SECONDS_MAX)
    print(f"{made:,} requests")
