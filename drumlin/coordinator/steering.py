"""The crawl's settings as they change while it runs.

The engine keeps the configuration that the crawl was founded with, and beside it each later version under a number of
its own. A version is written only if there is none of its number, so of two changes at once one is made on top of the
other and none is lost, whichever coordinators they came through. Every coordinator looks for the next number at every
tick, which is one small read. Versions are never removed: people change settings by hand, so there are few.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from drumlin.config import CrawlConfig
from drumlin.config.changes import changed
from drumlin.engines.base import Engine
from drumlin.errors import BusyError
from drumlin.frontier import Budget

CONFIG_KEY = "config"
VERSION_KEY = "config."
ATTEMPTS_MAX = 100
"""Of a change that others are quicker than each time."""
FOLLOWED_WITHIN_S = 30.0
"""By then every node has heard of a change with a heartbeat and has given back hosts that it contacted before."""


class Version(msgspec.Struct, frozen=True):
    """One version of the settings, in force since `at`. `writer` tells it from others that wanted its number."""

    config: CrawlConfig
    at: float
    writer: str


class Steering:
    """The settings in force, as of the last `follow`."""

    def __init__(self, engine: Engine, founded: CrawlConfig, name: str) -> None:
        self._engine = engine
        self._name = name
        self._changes = 0
        self._slower_s = 0.0
        self._slower_until = float("-inf")
        self.config = founded
        self.version = 0
        """How often the settings have changed since the crawl was founded."""
        self.scope_changed = False
        """Whether URLs may be queued that another scope let in."""

    @property
    def budget(self) -> Budget:
        return Budget(self.config.pages_max, self.config.bytes_max, self.config.time_max_s)

    def slower_s(self, now: float) -> float:
        """How much later hosts are due than the frontier knows: their next contacts were reckoned with a shorter
        delay than there is now."""
        return self._slower_s if now < self._slower_until else 0.0

    async def follow(self) -> None:
        """Take up what was changed through other coordinators."""
        while True:
            number = self.version + 1
            saved = await self._engine.get_meta(_key(number))
            if saved is None:
                return
            self._take(number, saved)

    async def change(self, values: Mapping[str, object], now: float) -> tuple[CrawlConfig, CrawlConfig]:
        """Give some fields other values; the settings before and after. ConfigError when that cannot be."""
        for _ in range(ATTEMPTS_MAX):
            await self.follow()
            # Nothing is awaited from here until the version's number is chosen.
            before, after = self.config, changed(self.config, values)
            if after == before or await self._append(after, now):
                return before, after
        raise BusyError("Others change the settings all the time.", "Try again.")

    async def start_with(self, config: CrawlConfig, now: float) -> None:
        """For a crawl on one machine, which may be started again with other flags: they count, unless they are those of
        the last start, whose changes then hold."""
        flags = msgspec.json.encode(config)
        before = await self._engine.get_meta(CONFIG_KEY)
        await self.follow()
        if before != flags:
            await self._engine.put_meta(CONFIG_KEY, flags)
            if self.version and self.config != config:
                await self._append(config, now)

    async def _append(self, config: CrawlConfig, now: float) -> bool:
        self._changes += 1
        number = self.version + 1
        wanted = msgspec.json.encode(Version(config, now, f"{self._name}/{self._changes}"))
        saved = await self._engine.put_meta_if_absent(_key(number), wanted)
        self._take(number, saved)
        return saved == wanted

    def _take(self, number: int, saved: bytes) -> None:
        """Have a version in force, unless another call heard of it, or of later ones, while this one waited."""
        if number <= self.version:
            return
        version = msgspec.json.decode(saved, type=Version)
        longer_s = version.config.delay_s - self.config.delay_s
        if longer_s > 0:
            self._slower_s = longer_s + self.slower_s(version.at)
            self._slower_until = version.at + version.config.delay_s + FOLLOWED_WITHIN_S
        self.scope_changed |= scope_of(version.config) != scope_of(self.config)
        self.version, self.config = number, version.config


def _key(number: int) -> str:
    return f"{VERSION_KEY}{number}"


def scope_of(config: CrawlConfig) -> tuple[object, ...]:
    """What of the settings decides which URLs are in scope."""
    return config.scope, config.include, config.exclude
