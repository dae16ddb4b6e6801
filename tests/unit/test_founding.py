"""Coordinators that found a crawl at the same moment, or join one that another founded."""

from __future__ import annotations

import pytest

from drumlin.config import CrawlConfig
from drumlin.coordinator.steering import CONFIG_KEY
from drumlin.engines.base import Engine
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import ConfigError
from drumlin.serving.service import found_crawl

ONE, OTHER = ["http://one.example/"], ["http://other.example/"]


class Overtaken(MemoryEngine):
    """Between this engine's first look and its first write another coordinator founds the crawl."""

    async def get_meta(self, key: str) -> bytes | None:
        looked = await super().get_meta(key)
        if key == CONFIG_KEY and looked is None:
            await found_crawl(_Plain(self), CrawlConfig(), ONE)
        return looked


class _Plain(MemoryEngine):
    """The same values, without another coordinator in between."""

    def __init__(self, other: MemoryEngine) -> None:
        super().__init__(1)
        self.values = other.values


def test_of_two_coordinators_that_found_a_crawl_at_once_the_first_wins() -> None:
    assert drive(found_crawl(Overtaken(1), CrawlConfig(), OTHER)) == (CrawlConfig(), ONE)


def test_who_was_overtaken_with_other_settings_is_told_so() -> None:
    with pytest.raises(ConfigError, match="depth"):
        drive(found_crawl(Overtaken(1), CrawlConfig(depth=3), OTHER))


def test_what_differs_is_called_by_the_name_of_its_option() -> None:
    with pytest.raises(ConfigError, match="founded with other values of time_max, delay\\.") as refused:
        drive(found_crawl(Overtaken(1), CrawlConfig(delay_s=7.0, time_max_s=5.0), OTHER))
    assert "To begin another crawl, end --engine with another name." in refused.value.hint


def test_a_crawl_whose_founder_died_halfway_is_founded_by_the_next() -> None:
    engine: Engine = MemoryEngine(1)
    drive(engine.put_meta_if_absent("seeds", b"\x91\xa6http:/"))
    config, seeds = drive(found_crawl(engine, CrawlConfig(depth=2), OTHER))
    assert (config.depth, seeds) == (2, ["http:/"])
