"""The simulated fleet as a whole: it registers, begins turns at the given pace, loses nodes and gets them back.

It is an open loop: turns begin when they are due, however long earlier turns take. The pace is in pages a second. Since
coordinators decide how many pages a turn gets, the time between turns is adjusted to what recent turns got.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from ssl import SSLContext
from typing import Any

from bench.load_nodes import FleetSettings, SimulatedNode
from bench.load_record import LostWork, Record
from bench.load_web import LoadWeb

PAGES_MEMORY = 0.02
"""The weight of one turn in the estimate of how many pages a turn gets."""
TURN_SHARE_MIN = 0.7
"""If turns get less than this share of a batch, no further turns make up for it: a coordinator that is behind must not
be asked faster and faster."""
CHECK_S = 1.0
REGISTER_S_MAX = 120.0


class Fleet:
    """All simulated nodes, on one event loop."""

    def __init__(
        self, settings: FleetSettings, endpoints: Sequence[tuple[str, int]], web: LoadWeb, tls: SSLContext | None = None
    ) -> None:
        self.settings = settings
        self.endpoints = list(endpoints)
        self.web = web
        self.tls = tls
        self.record = Record()
        self.lost_work = LostWork()
        self.chance = random.Random(settings.seed)
        self.nodes = [SimulatedNode(self, number) for number in range(settings.nodes)]
        self.turn_pages = float(settings.batch_pages)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: deque[SimulatedNode] = deque()
        self._pace = 0.0
        self._turning = False
        self._ended = False

    # For its nodes

    def at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        if not self._ended:
            self._loop.call_later(max(0.0, when - time.perf_counter()), call, *arguments)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def rest(self, node: SimulatedNode) -> None:
        """A node has nothing to do: it waits in line for a turn."""
        if node.registered and not node.idle:
            node.idle = True
            self._idle.append(node)

    def learn_pages(self, pages: int) -> None:
        self.turn_pages += (pages - self.turn_pages) * PAGES_MEMORY

    # For whoever measures

    async def register_all(self) -> None:
        """Every node joins, at a bounded pace, and the line of idle nodes is shuffled."""
        began, pace = time.perf_counter(), self.settings.registrations_per_s
        for number, node in enumerate(self.nodes):
            self.at(began + number / pace, node.join, began + number / pace)
        until = began + len(self.nodes) / pace + REGISTER_S_MAX
        while self.registered < len(self.nodes) and time.perf_counter() < until:
            await asyncio.sleep(0.1)
        self.chance.shuffle(self._idle)
        self._check_times()

    @property
    def registered(self) -> int:
        return sum(node.registered for node in self.nodes)

    def set_pace(self, pages_per_s: float) -> None:
        """Begin turns so often that they make this many pages a second; 0 begins none."""
        self._pace = pages_per_s
        if pages_per_s and not self._turning:
            self._turning = True
            self._turn(time.perf_counter())

    def _turn(self, due: float) -> None:
        # If the generator itself was too slow, every turn that was due begins now, with its own due time.
        while due <= time.perf_counter():
            if not self._pace:
                self._turning = False
                return
            self._begin(due)
            due += max(self.turn_pages, TURN_SHARE_MIN * self.settings.batch_pages) / self._pace
        self.at(due, self._turn, due)

    def _begin(self, due: float) -> None:
        self.record.turns += 1
        while self._idle:
            node = self._idle.popleft()
            node.idle = False
            if node.registered:
                node.begin_turn(due)
                return
        self.record.turns_without_node += 1

    def kill(self, nodes: Sequence[SimulatedNode]) -> None:
        """These nodes vanish for good. Their hosts are watched until other nodes get them."""
        now = time.perf_counter()
        for node in nodes:
            self.lost_work.lose(node.vanish(), now)

    def flap(self, nodes: Sequence[SimulatedNode]) -> None:
        """From now on these nodes vanish now and then, and come back."""
        now = time.perf_counter()
        for node in nodes:
            self.at(now + self.chance.uniform(0.0, self.settings.up_s), self._fall, node)

    def _fall(self, node: SimulatedNode) -> None:
        node.vanish()
        self.at(time.perf_counter() + self.chance.uniform(0.5, 1.5) * self.settings.down_s, self._rise, node)

    def _rise(self, node: SimulatedNode) -> None:
        now = time.perf_counter()
        node.join(now)
        self.at(now + self.chance.uniform(0.5, 1.5) * self.settings.up_s, self._fall, node)

    def _check_times(self) -> None:
        now = time.perf_counter()
        for node in self.nodes:
            node.check_time(now)
        self.at(now + CHECK_S, self._check_times)

    def count_unanswered(self) -> None:
        """Add the calls that still wait for an answer to the record, with their age."""
        now = time.perf_counter()
        for node in self.nodes:
            self.record.unanswered(node.unanswered(now))

    def end(self) -> None:
        """Hang up everywhere."""
        self._ended = True
        self._pace = 0.0
        for node in self.nodes:
            node.vanish()
