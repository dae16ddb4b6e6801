"""An agent whose wires end in a test: what it says to sites and coordinators is noted, and answered when a test says
so. The rest of it is real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec.structs import replace

from drumlin.clock import Clocks
from drumlin.config import CrawlConfig
from drumlin.fetch import Transfer
from drumlin.node.agent import Agent, NodeSettings
from drumlin.node.calling.coordinator_time import CoordinatorTime
from drumlin.node.calling.wires import CoordinatorWire, SiteWire
from drumlin.node.keeping.archive import Archive, CrawlPaths
from drumlin.node.keeping.blackbox import BlackBox
from drumlin.node.main import make_pipeline
from drumlin.pipeline import Pipeline
from drumlin.protocol import ChangedSettings
from tests.harness.clocks import HandClock
from tests.harness.contacts import SETTINGS

NODE = NodeSettings("n0", SETTINGS, concurrency=100, lease_s=100.0)
RETRY_S = 3.0


class BothWires(SiteWire, CoordinatorWire, Protocol):
    """What an agent talks through, in one object."""


class Call(msgspec.Struct):
    """What was said to a coordinator, and who waits for the answer."""

    message: Any
    on_reply: Callable[[Any], None]
    on_failure: Callable[[float], None] | None
    repeat_s: float


class Around:
    """Both wires of an agent, and its clock."""

    request_headers = b""
    cut_off = False
    cut_off_s = 0.0
    among_strangers = False

    def __init__(self) -> None:
        self.clock = HandClock(1_000.0)
        self.time = CoordinatorTime(monotonic=self.clock, wall=self.clock)
        self.begun: list[str] = []
        self.said: list[Call] = []
        self.tokens: list[str | None] = []

    @property
    def clocks(self) -> Clocks:
        return Clocks(self.clock, self.clock)

    def of(self, kind: type) -> list[Any]:
        """What was said so far, of one kind."""
        return [call.message for call in self.said if isinstance(call.message, kind)]

    # Sites

    def count_beside(self, held_bytes: Callable[[], int]) -> None:
        """No body is under way."""

    def start(self, url: str, on_done: Callable[[Transfer], None], context: Any = None, **more: Any) -> None:
        self.begun.append(url)

    def run_once(self, timeout_s: float) -> int:
        return 0

    # Coordinators

    def post(self, path: str, message: Any, reply: type, on_reply: Callable[[Any], None], **more: Any) -> None:
        self.said.append(Call(message, on_reply, more.get("on_failure"), more.get("repeat_s", float("inf"))))

    def repeat_failed(self) -> None: ...

    def due(self) -> float:
        return float("inf")

    def renewed(self, token: str | None) -> None:
        self.tokens.append(token)


def agent_in(
    around: Around,
    folder: Path,
    read_settings: Callable[[ChangedSettings], NodeSettings] | None = None,
    **contact: Any,
) -> Agent:
    """An agent that works by these settings of the law of contact."""
    settings = replace(NODE, contact=replace(SETTINGS, **contact))
    pipeline = make_pipeline(CrawlConfig(), ["http://a.test/"])
    return open_agent(folder, settings, around, pipeline, around.clocks, read_settings)


def open_agent(
    folder: Path,
    settings: NodeSettings,
    wires: BothWires,
    pipeline: Pipeline,
    clocks: Clocks,
    read_settings: Callable[[ChangedSettings], NodeSettings] | None = None,
) -> Agent:
    """An agent with a store of its own in `folder`."""
    paths = CrawlPaths(folder)
    for needed in (paths.warc, paths.tables, paths.spool(settings.node)):
        needed.mkdir(parents=True, exist_ok=True)
    archive = Archive(paths, settings.node, software="drumlin", info={}, now=clocks.wall(), sync=False)
    box = BlackBox(paths.blackbox(settings.node))
    return Agent(settings, wires, wires, pipeline, archive, box, read_settings=read_settings, clocks=clocks)
