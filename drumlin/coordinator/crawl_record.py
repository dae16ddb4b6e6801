"""`crawl.json`: what a crawl directory is of. Its seeds and settings, and every run with its times and how it ended."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from drumlin import __version__
from drumlin.config import SETTINGS, CrawlConfig
from drumlin.store.disk import write_whole

RECORD_NAME = "crawl.json"
RUNS_MAX = 1_000
"""Of older runs nothing is kept."""
AT_WORK = "running or killed"


class Run(msgspec.Struct):
    """One run. Without an end it is at work, or its process was killed."""

    started: str
    version: str
    ended: str | None = None
    reason: str = AT_WORK
    pages: int = 0
    changed: list[str] = []


class CrawlRecord(msgspec.Struct):
    """The whole file. Settings are written as they may be typed."""

    seeds: list[str] = []
    settings: dict[str, str] = {}
    runs: list[Run] = []

    @classmethod
    def read(cls, folder: Path) -> CrawlRecord | None:
        """The record in a crawl directory; None where there is none, or none that can be read."""
        try:
            return msgspec.json.decode((folder / RECORD_NAME).read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return None

    def begin(self, seeds: list[str], config: CrawlConfig, changed: list[str], today: float) -> None:
        self.seeds = seeds
        self.settings = {
            setting.name: setting.display(getattr(config, setting.field))
            for setting in SETTINGS.values()
            if setting.section == "crawl"
        }
        self.runs = [*self.runs[-(RUNS_MAX - 1) :], Run(_time(today), __version__, changed=changed)]

    def end(self, reason: str, pages: int, today: float) -> None:
        run = self.runs[-1]
        run.ended, run.reason, run.pages = _time(today), reason, pages

    def write(self, folder: Path) -> None:
        write_whole(folder / RECORD_NAME, msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n")


def _time(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
