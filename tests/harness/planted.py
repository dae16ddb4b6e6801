"""Bugs that were planted to see whether the simulator's checkers find them: each replaces a function of the product by
one that is wrong in a way that somebody could have written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from drumlin.access.seals import Seals
from drumlin.api.calls.nodes import NodeCalls
from drumlin.contact import backing_off
from drumlin.contact.leases import Leases
from drumlin.contact.robots_asking import RobotsAsking
from drumlin.coordinator import dispatch
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.giving import host_budgets
from drumlin.coordinator.taking import backlog
from drumlin.coordinator.taking import settling as taking
from drumlin.coordinator.taking.backlog import Backlog
from drumlin.coordinator.taking.settling import Settler
from drumlin.engines.memory import engine as memory
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.engines.memory.shard import Host, Shard
from drumlin.errors import EngineError
from drumlin.http.refusal import Refused
from drumlin.model import TaskState, Verdict
from drumlin.node.agent import Agent
from drumlin.node.calling.client import CoordinatorClient
from drumlin.node.keeping.outbox import Outbox
from drumlin.node.leases import LeaseCalls
from drumlin.node.settling import Settling
from drumlin.protocol import Work
from drumlin.sim.faults import Fault
from drumlin.sim.scenario import FIRST_FAULT_S, Scenario, of_seed
from drumlin.urls import identity

Replace = Callable[[Any, str, Any], None]
"""Puts something else in the place of an attribute, until the bug is taken out again."""


class Bug(msgspec.Struct, frozen=True):
    """A bug, the checker that must find it, and scenarios in which it shows, by seed."""

    checker: str
    plant: Callable[[Replace], None]
    scenario: Callable[[int], Scenario]


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """Have the product contain the bug for as long as the context lasts."""
    before: list[tuple[Any, str, Any]] = []

    def replace(place: Any, name: str, wrong: Any) -> None:
        before.append((place, name, vars(place)[name]))
        setattr(place, name, wrong)

    bug.plant(replace)
    try:
        yield
    finally:
        for place, name, right in reversed(before):
            setattr(place, name, right)


# Scenarios


def _swarm(seed: int) -> Scenario:
    return of_seed(seed, short=True)


def _with(
    *kinds: str, times: int = 4, lasts_s: float = 20.0, share: float = 0.4, first_at: float = FIRST_FAULT_S, **more: Any
) -> Callable[[int], Scenario]:
    """Scenarios with faults of these kinds again and again, and other settings."""

    def scenario(seed: int) -> Scenario:
        plain = of_seed(seed, short=True)
        every_s = 200.0 / times
        faults = tuple(
            Fault(kind, first_at + number * every_s, lasts_s, share, seed * 100 + number)
            for number in range(times)
            for kind in kinds
        )
        return msgspec.structs.replace(plain, faults=faults, pages_max=None, **more)

    return scenario


# Bugs


def _lease_twice(replace: Replace) -> None:
    def refresh(self: Shard, host: Host) -> None:
        """It looks whether a host has something queued, and not whether it is leased."""
        if host.ready_at is not None:
            self.ready.remove((host.ready_at, host.name))
        host.ready_at = host.next_contact if host.queue else None
        if host.ready_at is not None:
            self.ready.append((host.ready_at, host.name))
            self.ready.sort()

    replace(Shard, "refresh", refresh)


def _forget_to_expire(replace: Replace) -> None:
    async def expire(self: MemoryEngine, shard: int, now: float, *, limit: int = 0) -> list[str]:
        return []

    replace(MemoryEngine, "expire", expire)


def _lose_a_settle(replace: Replace) -> None:
    right = Settler._verdicts

    async def verdicts(self: Settler, shards: Any, count: int, now: float) -> list[Verdict]:
        first = next(iter(shards.values()))[0][0].host if shards else ""
        return [Verdict.SETTLED] * count if first.endswith("7.example") else await right(self, shards, count, now)

    replace(Settler, "_verdicts", verdicts)


def _settle_without_a_lease(replace: Replace) -> None:
    right = vars(memory)["verdict_of"]

    def verdict_of(entry: Any, settled: Any, live: bool) -> Verdict:
        verdict = right(entry, settled, live)
        leased = entry is not None and entry.state is TaskState.LEASED and entry.task.id == settled.task_id
        return Verdict.SETTLED if leased and verdict is Verdict.STALE else verdict

    replace(memory, "verdict_of", verdict_of)


def _forget_the_pace(replace: Replace) -> None:
    def lose_lease(self: Shard, host: Host, ended: float) -> None:
        if host.grant:
            self.end_lease(host, host.grant, 0.0)

    replace(Shard, "lose_lease", lose_lease)


def _count_from_the_answer(replace: Replace) -> None:
    def post(
        self: LeaseCalls, request: Any, take: Callable[[Work, float], None], failed: Callable[[float], None]
    ) -> None:
        clock = self._clocks.boot
        self._client.post(self._path, request, Work, lambda work: take(work, clock()), on_failure=failed, repeat_s=0.0)

    replace(LeaseCalls, "_post", post)


def _go_by_the_calendar(replace: Replace) -> None:
    right = EngineTime.__init__

    def init(self: EngineTime, engine: Any, **clocks: Any) -> None:
        right(self, engine, **clocks)
        self.calendar_now = clocks["wall"]  # type: ignore[attr-defined]

    replace(EngineTime, "__init__", init)
    replace(EngineTime, "reading", lambda self: self.calendar_now())


def _never_be_full(replace: Replace) -> None:
    replace(Settling, "full", property(lambda self: False))
    replace(Settling, "_may_read", property(lambda self: True))


def _add_links_after_settling(replace: Replace) -> None:
    right_offer, right_settle = Dispatcher._offer, Settler.settle

    async def settle(self: Settler, *arguments: Any) -> Any:
        taken = await right_settle(self, *arguments)
        for dispatcher, offered in waiting:
            await right_offer(dispatcher, *offered)
        waiting.clear()
        return taken

    waiting: list[tuple[Dispatcher, tuple[Any, ...]]] = []

    async def offer(self: Dispatcher, *offered: Any) -> dict[int, list[Any]]:
        if any(new.depth for new in offered[0]):
            waiting.append((self, offered))
            return {}
        return await right_offer(self, *offered)

    replace(Dispatcher, "_offer", offer)
    replace(Settler, "settle", settle)


def _settle_although_links_failed(replace: Replace) -> None:
    right = Dispatcher._offer

    async def offer(self: Dispatcher, *offered: Any) -> dict[int, list[Any]]:
        try:
            return await right(self, *offered)
        except EngineError:
            return {}

    replace(Dispatcher, "_offer", offer)


def _count_pages_twice(replace: Replace) -> None:
    right = taking._counts

    def counts(result: Any, *more: Any) -> dict[str, int]:
        counted = right(result, *more)
        return {name: 2 * count for name, count in counted.items()} if result.url.endswith("7") else counted

    replace(taking, "_counts", counts)


def _forget_attempts(replace: Replace) -> None:
    def changed(task: Any, **fields: Any) -> Any:
        fields.pop("attempts", None)
        return msgspec.structs.replace(task, **fields)

    replace(memory, "replace", changed)


def _mistake_robots(replace: Replace) -> None:
    right = RobotsAsking._remember
    last: list[Any] = []

    def remember(self: RobotsAsking, host: Any, scheme: str, robots: Any, heard: float, now: Any) -> None:
        last.append(robots)
        right(self, host, scheme, last[-2] if len(last) > 1 else robots, heard, now)

    replace(RobotsAsking, "_remember", remember)


def _let_all_wait(replace: Replace) -> None:
    replace(backlog, "SETTLING_WAITING_MAX", 1_000_000)
    replace(backlog, "SETTLING_WAITING_EACH", 1_000_000)
    replace(Backlog, "too_long", property(lambda self: False))


def _keep_journals(replace: Replace) -> None:
    right = Outbox._answered

    def answered(self: Outbox, parcel: Any, accepted: Any) -> None:
        """What was refused need not be published, so it is forgotten that its segment waits for that."""
        if accepted.rejected_at:
            parcel.stored = None
        right(self, parcel, accepted)

    replace(Outbox, "_answered", answered)


def _never_spend(replace: Replace) -> None:
    replace(host_budgets, "pages_left", lambda state, budget: budget)


def _not_hear_retry_after(replace: Replace) -> None:
    replace(backing_off, "retry_after_s", lambda headers, now: 0.0)


def _believe_in_silence(replace: Replace) -> None:
    right = Settler._verdicts

    async def verdicts(self: Settler, shards: Any, count: int, now: float) -> list[Verdict]:
        try:
            return await right(self, shards, count, now)
        except EngineError:
            return [Verdict.SETTLED] * count

    replace(Settler, "_verdicts", verdicts)


def _settle_again(replace: Replace) -> None:
    right = vars(memory)["verdict_of"]

    def verdict_of(entry: Any, settled: Any, live: bool) -> Verdict:
        verdict = right(entry, settled, live)
        return Verdict.SETTLED if verdict is Verdict.REPEATED else verdict

    replace(memory, "verdict_of", verdict_of)


def _miscount(replace: Replace) -> None:
    def put(self: Shard, entry: Any, state: TaskState) -> None:
        entry.state = state
        self.totals[state] += state is not TaskState.SCHEDULED

    replace(Shard, "put", put)


def _never_repeat(replace: Replace) -> None:
    replace(CoordinatorClient, "repeat_failed", lambda self: self._repeat.clear())


def _forget_to_ask(replace: Replace) -> None:
    def asked(self: Leases, again_s: float, now: Any) -> None:
        """It takes a pause that was asked for, or the one after a failure, for a reason never to ask again."""
        self._asking = again_s > 0
        self._ask_at = now.boot

    replace(Leases, "asked", asked)


def _forget_refusals(replace: Replace) -> None:
    replace(memory, "refused_for_good", lambda entry, settled, live: False)


def _refuse_repetitions(replace: Replace) -> None:
    right = Settler._verdicts

    async def verdicts(self: Settler, shards: Any, count: int, now: float) -> list[Verdict]:
        found = await right(self, shards, count, now)
        return [Verdict.STALE if one is Verdict.REPEATED else one for one in found]

    replace(Settler, "_verdicts", verdicts)


def _drop_lost_urls(replace: Replace) -> None:
    right = Shard.lose_lease

    def lose_lease(self: Shard, host: Host, ended: float) -> None:
        for url in list(host.grant.urls)[:1] if host.grant else ():
            self.take(self.entries.pop(identity(url)))
        right(self, host, ended)

    replace(Shard, "lose_lease", lose_lease)


def _give_up_at_once(replace: Replace) -> None:
    replace(taking, "next_step", lambda *how, **more: None)


def _retry_at_once(replace: Replace) -> None:
    right = vars(taking)["next_step"]

    def next_step(*how: Any, **more: Any) -> float | None:
        return None if right(*how, **more) is None else 0.0

    replace(taking, "next_step", next_step)


def _forget_retries(replace: Replace) -> None:
    right = MemoryEngine.expire

    async def expire(self: MemoryEngine, shard: int, now: float, **more: Any) -> list[str]:
        """Every second shard loses its leases, but its retries never become due."""
        state, scheduled = self._shards[shard], self._shards[shard].scheduled
        if shard % 2:
            state.scheduled = []
        try:
            return await right(self, shard, now, **more)
        finally:
            state.scheduled = scheduled

    replace(MemoryEngine, "expire", expire)


def _put_lost_hosts_off(replace: Replace) -> None:
    right = Shard.lose_lease
    replace(Shard, "lose_lease", lambda self, host, ended: right(self, host, ended + 3600.0))


def _forget_budgeted_hosts(replace: Replace) -> None:
    async def lease(self: Any, take: Any, now: float) -> list[Any]:
        return []

    replace(host_budgets.HostBudgets, "lease", lease)


def _believe_anybody(replace: Replace) -> None:
    replace(dispatch, "of_owners", lambda batch, owners: batch)


def _keep_old_nodes_out(replace: Replace) -> None:
    right = NodeCalls.register

    async def register(self: NodeCalls, call: Any, message: Any) -> Any:
        if message.boot > 1:
            raise Refused(503, "busy", "Not now.", retry_after_s=5.0)
        return await right(self, call, message)

    replace(NodeCalls, "register", register)


def _doubt_retries(replace: Replace) -> None:
    right = Seals.assignment

    def assignment(self: Seals, text: str, url: str) -> Any:
        key = right(self, text, url)
        return None if key is not None and key.attempts else key

    replace(Seals, "assignment", assignment)


def _count_bytes_twice(replace: Replace) -> None:
    right = taking._counts

    def counts(*what: Any) -> dict[str, int]:
        counted = right(*what)
        return counted | {"bytes": 2 * counted["bytes"]} if "bytes" in counted else counted

    replace(taking, "_counts", counts)


def _brake_for_good(replace: Replace) -> None:
    right = vars(Agent)["_room"].fget
    braked: set[Agent] = set()

    def room(self: Agent) -> int:
        """A node whose results are settled late makes one request at a time, and never more again."""
        if self._settling.full:
            braked.add(self)
        free: int = right(self)
        return min(free, 1 - self._contacts.under_way) if self in braked else free

    replace(Agent, "_room", property(room))


_ALWAYS_LATE = _with("nodes_lagging", "nodes_cut_off", times=5, lasts_s=38.0, share=0.9, lease_s=20.0)
_BUSY = {"nodes": 2, "concurrency": 32, "page_s": 1.0, "hosts": 120, "urls_per_host": 900.0, "duration_s": 230.0}
_SEVERAL_AT_ONCE: dict[str, Any] = {"nodes": 12, "concurrency": 4, "hosts": 150, "page_s": 10.0}
_OUTAGE = _with("all_coordinators_killed", first_at=150.0, times=1, lasts_s=60.0, lease_s=200.0, delay_s=1.0, **_BUSY)

_MANY: dict[str, Any] = {
    "nodes": 300,
    "coordinators": 1,
    "hosts": 900,
    "page_s": 2.0,
    "duration_s": 130.0,
    "times": 1,
    "lasts_s": 60.0,
}
_FROZEN: dict[str, Any] = {"times": 3, "lasts_s": 30.0, "share": 0.5} | _BUSY | {"lease_s": 10.0, "delay_s": 1.0}

BUGS: dict[str, Bug] = {
    "a double lease": Bug("one_live_lease", _lease_twice, _swarm),
    "a forgotten expiry": Bug("leases_end", _forget_to_expire, _with("nodes_killed_with_disks", times=2, lasts_s=60.0)),
    "a lost settle": Bug("acknowledged_survives", _lose_a_settle, _swarm),
    "a settle that counts without a lease": Bug(
        "settles_under_its_lease",
        _settle_without_a_lease,
        _with("nodes_frozen", "nodes_cut_off", times=3, lasts_s=45.0, lease_s=20.0),
    ),
    "a politeness slip after a restart": Bug(
        "least_gap", _forget_the_pace, _with("nodes_killed", times=8, lasts_s=2.0, delay_s=10.0, share=0.8)
    ),
    "a lease counted from the answer on the node": Bug("one_live_lease", _count_from_the_answer, _ALWAYS_LATE),
    "a wall clock that decides": Bug(
        "engine_time_is_steady", _go_by_the_calendar, _with("coordinator_calendar_stepped", times=4)
    ),
    "an unbounded outbox": Bug("queues_are_bounded", _never_be_full, _OUTAGE),
    "links added after settling": Bug(
        "links_survive", _add_links_after_settling, _with("engine_fails_over", times=20, lasts_s=2.0, suspends=0.5)
    ),
    # Only one server fails: links to its shards are lost, while pages of the other shards are settled.
    "links that were not added, and nobody asks": Bug(
        "links_survive", _settle_although_links_failed, _with("engine_fails_over", times=8, lasts_s=10.0)
    ),
    "a budget counted twice": Bug("budgets_hold", _count_pages_twice, _swarm),
    "a retry that forgets its attempt": Bug("retries_are_counted", _forget_attempts, _swarm),
    # No host asks for a longer delay than this crawl's: one that is not heard of would be found first, by least_gap.
    "a robots answer taken for another host's": Bug("nothing_denied", _mistake_robots, _with(delay_s=10.0)),
    "a backlog without an end": Bug("queues_are_bounded", _let_all_wait, _with("engine_slow", **_MANY)),
    "a journal that is never deleted": Bug("queues_are_bounded", _keep_journals, _with("nodes_frozen", **_FROZEN)),
    "a host's budget that is never spent": Bug(
        "host_budgets_hold", _never_spend, _with("nodes_killed", hosts_budgeted=5, host_pages_max=4)
    ),
    "a Retry-After that nobody hears": Bug(
        "retry_after_is_honoured", _not_hear_retry_after, _with("nodes_drained", delay_s=1.0)
    ),
    "silence taken for consent": Bug(
        "acknowledged_survives", _believe_in_silence, _with("coordinator_mute", "coordinator_cut_off", times=8)
    ),
    "a settle that counts again": Bug("settles_once", _settle_again, _with("coordinator_deaf", times=8)),
    "a state that is not counted": Bug("one_state", _miscount, _swarm),
    "a result that is sent once": Bug(
        "lag_is_bounded", _never_repeat, _with("coordinator_killed", times=2, lasts_s=5.0)
    ),
    "a node that is slow for good once it was": Bug(
        "speed_returns", _brake_for_good, _with("nodes_lagging", times=1, lasts_s=60.0, share=0.6, **_SEVERAL_AT_ONCE)
    ),
    "a refusal that is forgotten": Bug(
        "pages_are_kept",
        _forget_refusals,
        _with(
            "messages_doubled", "nodes_cut_off", "coordinator_frozen", times=6, lasts_s=40.0, share=0.6, lease_s=20.0
        ),
    ),
    "a repetition that is called refused": Bug("acknowledged_survives", _refuse_repetitions, _with("messages_lost")),
    "URLs that vanish with a lease": Bug("one_state", _drop_lost_urls, _swarm),
    "no second try": Bug("retries_are_counted", _give_up_at_once, _with("messages_lost", retries_max=3)),
    "a second try at once": Bug("retries_are_counted", _retry_at_once, _with("messages_lost", retries_max=3)),
    "retries that are never due": Bug("nothing_waits_too_long", _forget_retries, _with("messages_lost", retries_max=3)),
    "hosts that wait for an hour": Bug("nothing_waits_too_long", _put_lost_hosts_off, _swarm),
    "hosts with a budget that are forgotten": Bug(
        "budgeted_hosts_are_given", _forget_budgeted_hosts, _with("nodes_killed", hosts_budgeted=5, host_pages_max=30)
    ),
    "a node that may speak for others": Bug("pages_were_fetched", _believe_anybody, _with("nodes_lie", share=0.1)),
    "nodes that cannot come back": Bug("nodes_come_back", _keep_old_nodes_out, _swarm),
    "a retry that is called made up": Bug("honest_are_believed", _doubt_retries, _with("messages_lost", retries_max=3)),
    "bytes that are counted twice": Bug("budgets_hold", _count_bytes_twice, _swarm),
    "a node that stops asking": Bug("never_idle", _forget_to_ask, _with("coordinator_killed", times=2, lasts_s=5.0)),
}
