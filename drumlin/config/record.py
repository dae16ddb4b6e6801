"""The record of a crawl: its seeds and settings, and every run with its times and how it ended.

`crawl.json` has all of it. `report.json` and the warcinfo record of each WARC file repeat the first seeds and the last
runs.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from drumlin import __version__
from drumlin.config.settings import CrawlConfig, settings_of

RECORD_NAME = "crawl.json"
WARCINFO_FIELD = "drumlin-crawl"
RUNS_MAX = 1_000
"""How many runs are kept; older ones are dropped."""
AT_WORK = "running or killed"
SEEDS_TOLD_MAX = 100
RUNS_TOLD_MAX = 20
"""How many seeds and runs `report.json` and warcinfo records repeat."""


class Run(msgspec.Struct):
    """One run. If `ended` is None it is still running, or its process was killed."""

    started: str
    version: str
    ended: str | None = None
    reason: str = AT_WORK
    pages: int | None = None
    """How many pages the whole crawl had when the run ended."""
    changed: list[str] = []


class CrawlRecord(msgspec.Struct):
    """The whole file. Settings are written as a person may type them."""

    seeds: list[str] = []
    settings: dict[str, str] = {}
    runs: list[Run] = []

    @classmethod
    def of(cls, seeds: list[str], config: CrawlConfig) -> CrawlRecord:
        """A record without runs."""
        settings = {setting.name: setting.display(getattr(config, setting.field)) for setting in settings_of("crawl")}
        return cls(seeds, settings)

    @classmethod
    def read(cls, folder: Path) -> CrawlRecord | None:
        """The record in a crawl directory; None if there is none, or if it cannot be read."""
        try:
            return msgspec.json.decode((folder / RECORD_NAME).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return None

    def begin(self, seeds: list[str], config: CrawlConfig, changed: list[str], today: float) -> None:
        """`config` has the settings in force, also those that `drumlin set` changed in an earlier run."""
        begun = CrawlRecord.of(seeds, config)
        self.seeds, self.settings = begun.seeds, begun.settings
        self.runs = [*self.runs[-(RUNS_MAX - 1) :], Run(_time(today), __version__, changed=changed)]

    def end(self, reason: str, pages: int, config: CrawlConfig, today: float) -> None:
        """`config` has the settings in force at the end: `drumlin set` may have changed some while the run lasted."""
        run = self.runs[-1]
        before, self.settings = self.settings, CrawlRecord.of(self.seeds, config).settings
        for name, value in self.settings.items():
            if before.get(name) != value:
                run.changed.append(f"drumlin set {name} {value} (was {before.get(name)})")
        run.ended, run.reason, run.pages = _time(today), reason, pages

    def file(self) -> bytes:
        """The contents of `crawl.json`."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def told(self) -> CrawlRecord:
        """The same with at most the first `SEEDS_TOLD_MAX` seeds and the last `RUNS_TOLD_MAX` runs."""
        return CrawlRecord(self.seeds[:SEEDS_TOLD_MAX], self.settings, self.runs[-RUNS_TOLD_MAX:])

    def warcinfo(self) -> dict[str, str]:
        """The field of a warcinfo record, on one line."""
        return {WARCINFO_FIELD: msgspec.json.encode(self.told()).decode()}


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
