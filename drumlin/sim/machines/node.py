"""A simulated node: the real agent, client and journal on a made-up machine.

What a process does from its start to its end is what `drumlin.node.main` does: it registers, sends what an earlier
process left in the journal, registers again, works, and leaves. The machine can be killed, frozen, cut off and slowed
down, and can lose its disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, cast

import msgspec

from drumlin.config import CrawlConfig
from drumlin.contact.actions import FetchPage, FetchRobots
from drumlin.contact.hosts import HostWork
from drumlin.errors import DrumlinError
from drumlin.model import Capture, LinkSet, Outcome
from drumlin.node.agent import Agent, NodeSettings
from drumlin.node.calling.client import FOREVER
from drumlin.node.calling.parties import Coordinators
from drumlin.node.keeping.journal import Journal, answer_of, read_journal
from drumlin.node.keeping.outbox import results_message
from drumlin.node.main import (
    LEAVE_WAIT_S,
    RECOVER_WAIT_S,
    START_WAIT_S,
    contact_settings,
    scope_maker,
    told_config,
)
from drumlin.pipeline import Pipeline
from drumlin.protocol import Accepted, Done, Failure, HostReport, Register, Registered, Result, paths
from drumlin.reading import Reading
from drumlin.sim.machines.calling import ENDPOINT, Network, SimClient
from drumlin.sim.machines.clocks import DRIFT_MAX, MachineClock
from drumlin.sim.machines.disk import NoBlackBox, NodeDisk, SimArchive, that_count
from drumlin.sim.machines.fetching import SimFetcher
from drumlin.sim.machines.loop import VirtualLoop
from drumlin.sim.web import Web
from drumlin.store import record_id_of

YEAR = 2027
TURN_S_MIN = 0.001
RETRY_START_S = 5.0
HTML = "text/html"
STOLEN_MAX = 3
"""How many results of each host of another node a liar claims."""


class SimPipeline(Pipeline):
    """The pipeline without a parser: what a page links to, its web knows. Which links are told is decided as ever."""

    def __init__(self, config: CrawlConfig, seeds: list[str], web: Web) -> None:
        super().__init__(Reading.of(config), scope_maker(config, seeds), year=YEAR, before_parse=lambda url: None)
        self._web = web

    def read(self, captures: Any) -> None:
        for capture in captures:
            self._fill(capture)

    def _fill(self, capture: Capture) -> None:
        capture.digest = sha256(capture.url.encode()).digest()
        capture.record_id = record_id_of(capture)
        capture.mime = HTML
        if capture.status < 300:
            urls = self._web.links(capture.url)
            capture.links = LinkSet(list[str | None](urls), ["a"] * len(urls), [""] * len(urls), [""] * len(urls))


class NodeKind(msgspec.Struct, frozen=True):
    """What a node's machine can do: how many requests at a time, and how long a page takes on its link."""

    concurrency: int
    page_s: float


class Doing(NamedTuple):
    """How a node does at a moment: whether it takes work (one that was told to leave only finishes what it has), how
    many requests it can have under way, and how long a page has waited to be settled."""

    works: bool
    connections: int
    lag_s: float


class Surroundings(msgspec.Struct):
    """What all simulated nodes have in common."""

    loop: VirtualLoop
    network: Network
    web: Web
    coordinators: int
    timeout_s: float
    on_send: Callable[[SimNode, FetchPage | FetchRobots], None]
    """Hears of a request that leaves a node."""
    on_end: Callable[[FetchPage | FetchRobots, float, int], None]
    """Hears of a request that has ended for its node: after how many seconds, and with which status."""
    on_wait: Callable[[float], None]
    """Hears for how long pages have waited to be settled, when they are."""
    on_publish: Callable[[Sequence[str]], None]
    """Hears of which URLs a node keeps pages, since it has heard that they count."""
    on_disk_lost: Callable[[Sequence[str]], None]
    """Hears of which URLs pages are lost with a disk, before anybody could know whether they count."""
    liars: set[str] = set()


class SimNode:
    """One machine with a node on it."""

    def __init__(self, around: Surroundings, name: str, kind: NodeKind, seed: str) -> None:
        self.around = around
        self.name = name
        self.kind = kind
        self.chance = random.Random(seed)
        self.clock = MachineClock(
            around.loop, self.chance.uniform(1e3, 1e6), 1.0 + self.chance.uniform(-1.0, 1.0) * DRIFT_MAX
        )
        self.disk = NodeDisk(self._unique(8).hex())
        self.first: int | None = None
        """The coordinator that it tries first; None: any."""
        self.incarnation = 0
        self.alive = self.frozen = False
        self.lag_s = 0.0
        self.mute: frozenset[int] = frozenset()
        self.deaf: frozenset[int] = frozenset()
        self.agent: Agent | None = None
        self.timeout_s = around.timeout_s
        self._client: SimClient | None = None
        self._deferred: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._woken_at = FOREVER
        self.leaving = False
        self._failed = False
        """Whether it leaves because it cannot go on."""
        self._idle_from: float | None = None

    def _unique(self, count: int) -> bytes:
        return self.chance.randbytes(count)

    # The machine

    def start(self) -> None:
        """A process begins."""
        if self.alive:
            return
        self.incarnation += 1
        self.alive, self.frozen, self.leaving, self._failed = True, False, False, False
        self._deferred.clear()
        self._woken_at, self._idle_from = FOREVER, None
        self.disk.boots += 1
        self._fetcher = SimFetcher(self, self.around.web, self.around.loop, self.clock, self.kind.page_s)
        first = self.chance.randrange(self.around.coordinators) if self.first is None else self.first
        places = [(first + n) % self.around.coordinators for n in range(self.around.coordinators)]
        self._client = SimClient(
            self,
            self.around.network,
            fetcher=cast(Any, self._fetcher),
            coordinators=Coordinators([f"{ENDPOINT}{place}" for place in places]),
            chance=self.chance.random,
            rejoin=lambda: self._registration(recovering=True),
            clocks=self.clock.both,
        )
        self._register(recovering=True)
        self._wake_at(self._client.due())

    def kill(self, *, disk_lost: bool = False) -> None:
        """The process ends without a word, as by kill -9 or a power cut."""
        self.alive = False
        self.incarnation += 1
        if self.agent is not None:
            _take_apart(self.agent)
        self.agent = self._client = None
        self._deferred.clear()
        if disk_lost:
            self.around.on_disk_lost([result.url for _, _, results in self._found() for result in results])
            self.disk = NodeDisk(self._unique(8).hex())

    def freeze(self) -> None:
        self.frozen = self.alive

    def thaw(self) -> None:
        """The process goes on: first comes what has happened meanwhile."""
        if self.frozen:
            self.frozen = False
            deferred, self._deferred = self._deferred, []
            for act, arguments in deferred:
                if self.alive:
                    self._perform(act, arguments)
            if self.alive:
                self._turn()

    def deliver(self, incarnation: int, act: Callable[..., object], *arguments: Any) -> None:
        """Something reaches the process that began it, if that one still runs."""
        if incarnation != self.incarnation:
            return
        if self.frozen:
            self._deferred.append((act, arguments))
            return
        self._perform(act, arguments)
        if self.alive:
            self._turn()

    def deliver_quietly(self, incarnation: int, act: Callable[..., object], *arguments: Any) -> None:
        """The same for what rarely concerns the node's loop, which then need not turn at once."""
        if incarnation == self.incarnation and not self.frozen:
            self._perform(act, arguments)
        else:
            self.deliver(incarnation, act, *arguments)

    def _perform(self, act: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        try:
            act(*arguments)
        except DrumlinError as broken:
            self._give_up(broken)

    # The loop

    def _turn(self) -> None:
        """See to what is due, and plan the next turn."""
        client, agent = self._client, self.agent
        if client is None:
            return
        due = None
        try:
            if agent is None or self.leaving:
                client.repeat_failed()
            else:
                now = self.clock.boot()
                if agent.must_leave(now) or agent.done:
                    self._leave()
                else:
                    due = agent.turn_if_due(now)
        except DrumlinError as broken:
            self._give_up(broken)
        if self.alive:
            self._wake_at(client.due() if due is None else due)

    def _wake_at(self, due: float) -> None:
        """Plan the next turn, unless an earlier one is planned."""
        loop = self.around.loop
        when = max(self.clock.when(due), loop.now + TURN_S_MIN)
        if when < self._woken_at:
            self._woken_at = when
            loop.at(when, self._ring, self.incarnation, when)

    def _ring(self, incarnation: int, when: float) -> None:
        if incarnation == self.incarnation and when == self._woken_at:
            self._woken_at = FOREVER
            self.deliver(incarnation, _nothing)

    def restart(self) -> None:
        """Whoever keeps the node running starts it again; one that still runs is ended first."""
        self.kill()
        self.start()

    def drain(self) -> None:
        """The node is told to finish and leave, as by SIGTERM."""
        if self.agent is not None and self.alive:
            self.agent.drain()
            self.deliver(self.incarnation, _nothing)

    def lie(self, other: SimNode | None, every_s: float) -> None:
        """Again and again, send results that no coordinator gave out, and results of an honest node's URLs under their
        true ids, which this node has come to know somehow."""
        client = self._client
        if client is None or not self.alive or self.leaving:
            return
        self.around.liars.add(self.name)
        url = self.around.web.url(self.around.web.hosts[0], 0)
        names = (self.name, other.name if other is not None else "n")
        ids = [f"{name}:0-0.0.0.5ea15ea15ea15ea1/1.0.0.5ea15ea15ea15ea1" for name in names]
        claimed = [(one, url) for one in ids] + (other.assigned if other is not None else [])
        results = [
            Result(one, url, 200, "", [], self.clock.wall(), outcome=Outcome.FETCHED, size=1) for one, url in claimed
        ]
        reports = [HostReport(ids[1].partition("/")[0], self.around.web.hosts[0].name, True)]
        reports += [HostReport(lease_id, host, True) for host, lease_id in (other.held if other is not None else ())]
        path = paths.RESULTS.format(node_id=self.name)
        more = {"signed": True, "repeat_s": 0.0, "on_failure": lambda again_s: None}
        client.post(path, results_message(results, reports), Accepted, lambda accepted: None, **cast(Any, more))
        loop, incarnation = self.around.loop, self.incarnation
        loop.at(loop.now + every_s, self.deliver, incarnation, self.lie, other, every_s)

    @property
    def held(self) -> list[tuple[str, str]]:
        """The hosts that it holds, if it is at work, with the ids of their leases."""
        return [(host.host, host.lease_id) for host in self._hosts]

    @property
    def assigned(self) -> list[tuple[str, str]]:
        """The ids and URLs that it was given and has not begun, a few of each host."""
        return [(task.assignment_id, task.url) for host in self._hosts for task in list(host.tasks)[:STOLEN_MAX]]

    @property
    def _hosts(self) -> list[HostWork]:
        """The hosts that it holds. One that may be taken for gone tells none: then others may speak for it."""
        if self.agent is None or self.frozen or self.leaving or self.mute or self.deaf:
            return []
        return list(self.agent._contacts.hosts.by_name.values())

    def replace(self) -> None:
        """Another node takes this one's place, with an empty disk and a name of its own."""
        self.kill(disk_lost=True)
        self.name += "b"
        self.start()

    def sent(self, fetch: FetchPage | FetchRobots) -> None:
        self.around.on_send(self, fetch)

    def ended(self, fetch: FetchPage | FetchRobots, seconds: float, status: int) -> None:
        self.around.on_end(fetch, seconds, status)

    # How it does, for checkers

    @property
    def doing(self) -> Doing | None:
        """How it does, all at once: to look at thousands of nodes again and again takes time. None if no node runs here
        or it is frozen. One that has not joined yet could work: that it does not is a loss."""
        agent = self.agent
        if not self.alive or self.frozen:
            return None
        if agent is None:
            return Doing(False, self.kind.concurrency, 0.0)
        settling = agent._settling
        lag_s = settling.lag_s(self.clock.boot()) if settling.unanswered else 0.0
        if self.leaving:
            return Doing(False, 0, lag_s)
        if agent.is_leaving:
            return Doing(False, agent._contacts.under_way, lag_s)
        return Doing(True, self.kind.concurrency, lag_s)

    @property
    def unsettled(self) -> tuple[int, int]:
        """How many pages wait to be settled, and how many bytes they have."""
        settling = self.agent._settling if self.agent is not None else None
        return (settling.unanswered, settling.held_bytes) if settling is not None else (0, 0)

    def forgotten_leases(self, seconds: float) -> bool:
        """Whether it still remembers leases that it gave back and that ended so long ago."""
        over = self.clock.boot() - seconds
        given_back = self.agent._contacts._desk.given_back if self.agent is not None and not self.frozen else {}
        return any(expires < over for expires in given_back.values())

    @property
    def parcels(self) -> int:
        """How many parcels of results are not answered."""
        return len(self.agent._settling._outbox._parcels) if self.agent is not None else 0

    def idle_since(self, seconds: float) -> bool:
        """Whether it held no host each time that this was asked for so long."""
        if self.agent is None or self.agent._contacts.hosts.by_name:
            self._idle_from = None
            return False
        now = self.around.loop.now
        if self._idle_from is None:
            self._idle_from = now
        return now - self._idle_from >= seconds

    # From start to end

    def _registration(self, *, recovering: bool) -> Register:
        return Register(0.0, self.name, recovering=recovering, instance=self.disk.instance, boot=self.disk.boots)

    def _register(self, *, recovering: bool) -> None:
        client = self._client
        assert client is not None
        message = self._registration(recovering=recovering)
        on_reply = self._registered if recovering else self._joined
        client.post(paths.REGISTER, message, Registered, on_reply, repeat_s=START_WAIT_S, on_failure=self._try_later)

    def _registered(self, registered: Registered) -> None:
        self._told = registered
        self._unsent = self._found()
        self._recover()

    def _found(self) -> list[tuple[int, int, list[Result]]]:
        """What an earlier process has left without an answer: the journal, the number of the batch, its results."""
        found: list[tuple[int, int, list[Result]]] = []
        for place, file in enumerate(self.disk.journals):
            batches, answers, _ = read_journal(bytes(file.content))
            for number, batch in enumerate(batches):
                if number not in answers and batch.entries:
                    found.append((place, number, [entry.result for entry in batch.entries]))
        return found

    def _recover(self) -> None:
        """Send the next batch that an earlier process has left; when there is none, begin to work."""
        client = self._client
        assert client is not None
        if not self._unsent:
            self.disk.journals.clear()
            self._register(recovering=False)
            return
        place, number, results = self._unsent.pop(0)

        def answered(accepted: Accepted) -> None:
            answer = answer_of(number, accepted)
            if answer is None:
                # They may count later. The journal stays, and the node tries again, as the real one does.
                self._try_later(0.0)
                return
            Journal(self.disk.journals[place]).answered(answer)
            self.around.on_publish(that_count(results, answer))
            self._recover()

        path, message = paths.RESULTS.format(node_id=self.name), results_message(results, [])
        more = {"signed": True, "repeat_s": RECOVER_WAIT_S, "on_failure": self._try_later}
        client.post(path, message, Accepted, answered, **cast(Any, more))

    def _joined(self, registered: Registered) -> None:
        config = told_config(registered.config)
        client = self._client
        assert client is not None
        settings = NodeSettings(
            self.name,
            contact_settings(config),
            self.kind.concurrency,
            config.lease_s,
            config.retries_max,
            config_version=registered.config_version,
            fills_parcels=True,
        )
        pipeline = SimPipeline(config, registered.seeds, self.around.web)
        pipeline.widen_scope(registered.scope_seeds, len(registered.scope_seeds))
        self.agent = Agent(
            settings,
            self._fetcher,
            client,
            pipeline,
            SimArchive(self.disk, self.around.loop, self.around.on_wait, self.around.on_publish),
            NoBlackBox(),
            clocks=self.clock.both,
            chance=self.chance.random,
            unique=self._unique,
        )

    def _try_later(self, again_s: float) -> None:
        """No coordinator has answered for long: the process ends, and whoever keeps it running starts it again."""
        self.kill()
        self._start_again()

    def _start_again(self) -> None:
        """Whoever keeps the node running starts it again after a while."""
        self.around.loop.at(self.around.loop.now + RETRY_START_S, self._start_if_still, self.incarnation)

    def _start_if_still(self, incarnation: int) -> None:
        if incarnation == self.incarnation:
            self.start()

    def _leave(self) -> None:
        client = self._client
        assert client is not None
        self.leaving = True
        path = f"{paths.NODE.format(node_id=self.name)}?boot={self.disk.boots}"
        client.post(path, None, Done, self._left, method="DELETE", repeat_s=LEAVE_WAIT_S, on_failure=self._gone)

    def _left(self, done: Done) -> None:
        self._end()

    def _gone(self, again_s: float) -> None:
        """No coordinator heard that this node leaves."""
        self._end()

    def _end(self) -> None:
        self.kill()
        if self._failed:
            self._start_again()

    def _give_up(self, broken: DrumlinError) -> None:
        """The node cannot go on: it says so and leaves, as the real one does."""
        client = self._client
        if client is None or self.leaving:
            return
        failure = Failure(broken.message[:500], broken.hint[:500], broken.exit_code)
        path = paths.FAILED.format(node_id=self.name)
        self.leaving = self._failed = True
        try:
            client.post(path, failure, Done, lambda done: self._leave(), repeat_s=LEAVE_WAIT_S, on_failure=self._gone)
        except DrumlinError:
            self._end()


def _take_apart(agent: Agent) -> None:
    """Let go of what a process held. Its parts refer to each other in circles, which only a full garbage collection
    finds. In a large simulation that comes so seldom that dead processes would fill the memory."""
    for part in (agent._contacts, agent):
        vars(part).clear()


def _nothing() -> None:
    """An event that only makes the loop turn."""
