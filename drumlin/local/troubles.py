"""The troubles of a crawl on one machine, for its live display: seeds that failed, and hosts that are out of reach."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from drumlin.api.explaining.causes import cause
from drumlin.api.explaining.why import next_try, out_of_reach
from drumlin.coordinator.patience import TOPIC_LOST, first_in_backoff
from drumlin.coordinator.totals import Totals
from drumlin.engines.base import Engine
from drumlin.lines import counted
from drumlin.model import TaskState
from drumlin.protocol import CrawlState, NodeRecord, NodeStatus
from drumlin.serving.seeding import Seeding
from drumlin.urls import host_of

SEEDS_WATCHED_MAX = 20
HOSTS_LOOKED_AT_MAX = 100
SHOWN_MAX = 3
LOOK_EVERY_S = 1.0


def standstill(state: CrawlState, nodes: Iterable[NodeRecord], seeding: Seeding | None = None) -> list[str]:
    """Why nothing is fetched although something could be: the crawl is paused, nodes are silent, or seeds cannot be
    read."""
    lines = ["paused; `drumlin resume` goes on"] if state is CrawlState.PAUSED else []
    silent = sorted(node.node_id for node in nodes if node.status is NodeStatus.FAILED)
    if silent:
        say = "says" if len(silent) == 1 else "say"
        lines.append(f"{', '.join(silent)} {say} nothing: frozen, or without CPU time")
    return [*lines, f"{TOPIC_LOST}: {seeding.lost}"] if seeding is not None and seeding.lost else lines


class Troubles:
    """Looks once a second. `lines` has sentences about the first few troubles, those of seeds before others."""

    def __init__(self, seeds: Sequence[str]) -> None:
        self.lines: list[str] = []
        self._open = list(seeds[:SEEDS_WATCHED_MAX])
        """Seeds whose fate is not settled yet."""
        self._seed_hosts = {host_of(url) for url in self._open}
        self._given_up: list[str] = []
        self._next = -math.inf

    async def look(self, engine: Engine, totals: Totals, now: float, at: float) -> None:
        """Look again, if a second has passed. `now` is the engine's time, `at` a time of the monotonic clock."""
        if at < self._next:
            return
        self._next = at + LOOK_EVERY_S
        hosts = await self._hosts(engine, now) if totals.hosts_in_backoff else {}
        lines = [*await self._seeds(engine, now, set(hosts)), *hosts.values()]
        if not lines and totals.scheduled and not totals.queued + totals.leased:
            lines = [f"{counted(totals.scheduled, 'URL')} failed, {next_try(totals.next_event, now)}"]
        more = len(lines) - SHOWN_MAX + max(0, totals.hosts_in_backoff - HOSTS_LOOKED_AT_MAX)
        self.lines = lines[:SHOWN_MAX] + ([f"and {more:,} more"] if more > 0 else [])

    async def _hosts(self, engine: Engine, now: float) -> dict[str, str]:
        found = await first_in_backoff(engine, now, HOSTS_LOOKED_AT_MAX)
        found.sort(key=lambda host: host.host not in self._seed_hosts)
        return {host.host: out_of_reach(host, now) for host in found}

    async def _seeds(self, engine: Engine, now: float, told: set[str]) -> list[str]:
        """Sentences about seeds that are given up or wait for another try, except on hosts in `told`, which have a
        sentence of their own."""
        waiting: list[str] = []
        for url in list(self._open):
            host = host_of(url)
            story = await engine.story(engine.shard_of(host), url)
            if story is None or story.state is TaskState.DONE:
                self._open.remove(url)
            elif story.state is TaskState.DEAD:
                self._open.remove(url)
                why = cause(story.letter.kind, story.letter.last_error) if story.letter else "it failed"
                self._given_up.append(f"{url}: {why}, given up")
            elif story.state is TaskState.SCHEDULED and host not in told:
                waiting.append(f"{url}: failed, {next_try(story.retry_at, now)}")
        return self._given_up + waiting
