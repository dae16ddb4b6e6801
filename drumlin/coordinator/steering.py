"""The crawl's settings as they change while it runs.

The engine keeps the configuration that the crawl was founded with, and beside it each later version under its own
number. A version is written only if its number is still free. So of two changes at the same moment one is made on top
of the other and neither is lost, whichever coordinators they came through. Every coordinator looks for the next number
at every tick, which is one small read. Versions are never removed: people change settings by hand, so there are few.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from drumlin.config import CrawlConfig
from drumlin.config.changes import changed, log_differences
from drumlin.engines.base import Engine
from drumlin.errors import BusyError
from drumlin.frontier import Budget

CONFIG_KEY = "config"
VERSION_KEY = "config."
ATTEMPTS_MAX = 100
"""How often a change is tried again when another one took its number."""
FOLLOWED_WITHIN_S = 30.0
"""After this time every node has heard of a change with a heartbeat and given back the hosts it contacted before."""

log = logging.getLogger("drumlin.coordinator")


class Version(msgspec.Struct, frozen=True):
    """One version of the settings, in force since `at`. `writer` distinguishes it from others that wanted its
    number."""

    config: CrawlConfig
    at: float
    writer: str


class Steering:
    """The settings in force, as of the last `follow`."""

    def __init__(self, engine: Engine, founded: CrawlConfig, name: str) -> None:
        self._engine = engine
        self._name = name
        self._changes = 0
        self._followed = False
        self._slower_s = 0.0
        self._slower_until = float("-inf")
        self.config = founded
        self.version = 0
        """How often the settings have changed since the crawl was founded."""
        self.scope_changed = False
        """Whether URLs may be queued that only an earlier scope allowed."""

    @property
    def budget(self) -> Budget:
        return Budget(self.config.pages_max, self.config.bytes_max, self.config.time_max_s)

    def slower_s(self, now: float) -> float:
        """How much later hosts are due than the frontier says, because it computed their next contacts with a shorter
        delay than the present one."""
        return self._slower_s if now < self._slower_until else 0.0

    async def follow(self) -> None:
        """Learn what was changed through other coordinators."""
        while True:
            number = self.version + 1
            saved = await self._engine.get_meta(_key(number))
            if saved is None:
                self._followed = True
                return
            self._take(number, saved)

    async def change(self, values: Mapping[str, object], now: float) -> tuple[CrawlConfig, CrawlConfig]:
        """Change some fields; returns the settings before and after. `ConfigError` if they cannot have those values."""
        for _ in range(ATTEMPTS_MAX):
            await self.follow()
            # No await until `_append` has chosen the version's number, or another change could come in between.
            before, after = self.config, changed(self.config, values)
            if after == before or await self._append(after, now):
                return before, after
        raise BusyError("Others keep changing the settings at the same time.", "Try again.")

    async def start_with(self, config: CrawlConfig, now: float) -> CrawlConfig | None:
        """For a crawl on one machine, which may be started again. If its flags differ from those of the last start,
        they apply now; otherwise the changes that were made since then stay in force. Returns the settings that were
        in force before; None if they were never changed while the crawl ran."""
        flags = msgspec.json.encode(config)
        before = await self._engine.get_meta(CONFIG_KEY)
        await self.follow()
        in_force = self.config if self.version else None
        if before != flags:
            await self._engine.put_meta(CONFIG_KEY, flags)
            if self.version and self.config != config:
                await self._append(config, now)
        return in_force

    async def _append(self, config: CrawlConfig, now: float) -> bool:
        self._changes += 1
        number = self.version + 1
        wanted = msgspec.json.encode(Version(config, now, f"{self._name}/{self._changes}"))
        saved = await self._engine.put_meta_if_absent(_key(number), wanted)
        self._take(number, saved)
        return saved == wanted

    def _take(self, number: int, saved: bytes) -> None:
        """Put a version in force, unless another call has put it or a later one in force while this one waited."""
        if number <= self.version:
            return
        version = msgspec.json.decode(saved, type=Version)
        longer_s = version.config.delay_s - self.config.delay_s
        if longer_s > 0:
            self._slower_s = longer_s + self.slower_s(version.at)
            self._slower_until = version.at + version.config.delay_s + FOLLOWED_WITHIN_S
        self.scope_changed |= scope_of(version.config) != scope_of(self.config)
        if self._followed:
            # What was changed before this process began is not news.
            log_differences(log, self.config, version.config, number)
        self.version, self.config = number, version.config


def _key(number: int) -> str:
    return f"{VERSION_KEY}{number}"


def scope_of(config: CrawlConfig) -> tuple[object, ...]:
    """The settings that decide which URLs are in scope."""
    return config.scope, config.include, config.exclude
