"""Wall clocks that are stepped by an hour, back and forth, while small crawls run; the whole of it is in tests/slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.fleet import needs_redis
from tests.harness.stepped_crawls import Shape, crawl_on_one_machine, finish, stepped, stepped_fleet
from tests.harness.stepping import needs_faketime

pytestmark = [needs_faketime, pytest.mark.timeout(300)]

SHAPE = Shape(hosts=6, pages=12)


def test_one_machine_does_not_notice_that_its_wall_clock_is_stepped_back_and_forth(tmp_path: Path) -> None:
    crawl_on_one_machine(tmp_path, SHAPE, None)


@needs_redis
def test_a_fleet_does_not_notice_that_wall_clocks_are_stepped_back_and_forth(tmp_path: Path) -> None:
    with stepped_fleet(tmp_path, SHAPE) as (fleet, web, clocks):
        with stepped(clocks, "coordinator-0", None), stepped(clocks, "node-1", None):
            finish(fleet, web)
