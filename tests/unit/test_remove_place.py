"""Which crawl `drumlin remove` is about, when flags and variables name several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from drumlin.cli.remove import _place
from drumlin.config import load
from drumlin.errors import ConfigError
from drumlin.fleet import at_rest
from drumlin.fleet.layout import FleetPaths, FleetPlan, FleetRecord, FleetState
from drumlin.local.removing import Place

ENGINE = "redis://fleet/x"
ELSEWHERE = {"DRUMLIN_ENGINE": "redis://127.0.0.1:1/other", "DRUMLIN_STORE": "s3://other/crawl"}


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FleetPaths:
    """A fleet that is down, whose Redis need not be started."""

    @contextmanager
    def engine_of_fleet(paths: FleetPaths) -> Iterator[str]:
        yield ENGINE

    monkeypatch.setattr(at_rest, "engine_of_fleet", engine_of_fleet)
    paths = FleetPaths(tmp_path / "fleet")
    paths.make()
    plan = FleetPlan(1, [1], [(2, 3)], 1, 0, 1, "redis-server")
    paths.write(FleetRecord(plan, FleetState.DOWN, 0.0))
    return paths


def place(environment: dict[str, str], **flags: Any) -> Place:
    with _place(load(flags, environment, None, Path("/"))) as found:
        return found


def test_a_directory_that_is_named_is_stronger_than_variables(fleet: FleetPaths, tmp_path: Path) -> None:
    found = place(ELSEWHERE, out=str(fleet.root))
    assert (found.engine, found.store) == (ENGINE, str(fleet.store))
    alone = place(ELSEWHERE, out=str(tmp_path / "crawl"))
    assert alone.engine == f"rocksdb:{tmp_path / 'crawl' / 'frontier'}"
    assert place(ELSEWHERE).engine == ELSEWHERE["DRUMLIN_ENGINE"]


def test_another_store_than_the_fleets_is_refused(fleet: FleetPaths) -> None:
    root = str(fleet.root)
    assert place({}, out=root, store=str(fleet.store)).store == str(fleet.store)
    for environment, store in (({}, "s3://other/crawl"), ({"DRUMLIN_OUT": root}, "elsewhere")):
        with pytest.raises(ConfigError, match=f"stores in {fleet.store}, not in {store}"):
            place(environment, out=root, store=store)


def test_an_engine_needs_its_store_and_no_directory() -> None:
    with pytest.raises(ConfigError, match="where the crawl has stored its pages"):
        place({}, engine=ENGINE)
    with pytest.raises(ConfigError, match="name two different things"):
        place({}, engine=ENGINE, out="crawl", store="crawl")
