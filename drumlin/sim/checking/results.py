"""Checkers of what becomes of URLs and of what was acknowledged."""

from __future__ import annotations

from collections import Counter

from drumlin.engines.memory.shard import Shard
from drumlin.model import Outcome, Settled, TaskState
from drumlin.protocol import Accepted, Results
from drumlin.sim.checking.base import Checker, World
from drumlin.sim.checking.ledger import Ledger
from drumlin.urls import host_of, identity

OK = 200
ENDED = (TaskState.DONE, TaskState.DEAD)


class OneState(Checker):
    """Every accepted URL is in exactly one state, and in the queue, lease or schedule that its state says."""

    name = "one_state"

    def looked(self) -> None:
        for shard in self._world.memory._shards:
            self._check_totals(shard)
        known = sum([len(shard.entries) for shard in self._world.memory._shards])
        if known != self._ledger.accepted:
            raise self.broken(f"{self._ledger.accepted} URLs were accepted and {known} are known")

    def _check_totals(self, shard: Shard) -> None:
        queued = sum([len(host.queue) for host in shard.hosts.values()])
        leased = sum([len(host.grant.urls) for host in shard.leased.values() if host.grant is not None])
        found = {TaskState.QUEUED: queued, TaskState.LEASED: leased, TaskState.SCHEDULED: len(shard.scheduled)}
        for state, count in found.items():
            if shard.totals[state] != count:
                raise self.broken(f"{shard.totals[state]} URLs are said to be {state}, but {count} are")
        if sum(shard.totals.values()) != len(shard.entries):
            raise self.broken(f"{len(shard.entries)} URLs were accepted and {sum(shard.totals.values())} have a state")

    def ended(self) -> None:
        for shard in self._world.memory._shards:
            self._check_totals(shard)
            counts = Counter(entry.state for entry in shard.entries.values())
            for state, count in shard.totals.items():
                if counts[state] != count:
                    raise self.broken(f"{count} URLs are said to be {state}, but {counts[state]} are")
            self._check_places(shard)

    def _check_places(self, shard: Shard) -> None:
        """Each URL is where its state says, once, and nowhere else. (Those that have ended are nowhere.)"""
        places = {
            TaskState.QUEUED: Counter[str](),
            TaskState.LEASED: Counter[str](),
            TaskState.SCHEDULED: Counter[str](),
        }
        for host in shard.hosts.values():
            places[TaskState.QUEUED].update(url for _, _, url in host.queue)
        for host in shard.leased.values():
            places[TaskState.LEASED].update(host.grant.urls if host.grant is not None else ())
        places[TaskState.SCHEDULED].update(url for _, _, url in shard.scheduled)
        for entry in shard.entries.values():
            url = entry.task.url
            for state, found in places.items():
                if found[url] != (entry.state is state):
                    raise self.broken(f"{url} is {entry.state}, and {found[url]} times among those {state}")


class AcknowledgedSurvives(Checker):
    """What a coordinator said it took is taken, and stays so."""

    name = "acknowledged_survives"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._done: dict[str, None] = {}

    def accepted(self, node: str, results: Results, accepted: Accepted) -> None:
        rejected = set(accepted.rejected_at)
        memory = self._world.memory
        for place, result in enumerate(results.results):
            if place in rejected or result.outcome == Outcome.FAILED:
                continue
            shard = memory._shards[memory.shard_of(host_of(result.url))]
            entry = shard.entry(result.url)
            if entry is None or entry.state is not TaskState.DONE:
                state = "unknown" if entry is None else str(entry.state)
                raise self.broken(f"{node} is told that {result.url} counted, but it is {state}")
            self._done[result.url] = None

    def ended(self) -> None:
        memory = self._world.memory
        for url in self._done:
            entry = memory._shards[memory.shard_of(host_of(url))].entry(url)
            if entry is None or entry.state is not TaskState.DONE:
                raise self.broken(f"{url} was acknowledged and is {entry.state if entry else 'unknown'} now")


class LinksSurvive(Checker):
    """When a page is acknowledged, the frontier knows its links."""

    name = "links_survive"

    def accepted(self, node: str, results: Results, accepted: Accepted) -> None:
        rejected = set(accepted.rejected_at)
        memory = self._world.memory
        for place, result in enumerate(results.results):
            if place in rejected:
                continue
            # What the page leads to, not only what the node has told of it: a node leaves out what it told before.
            found = self._world.web.links(result.url) if result.status_code == OK else result.links
            if result.redirect_to:
                found = [*found, result.redirect_to]
            for url in found:
                if identity(url) not in memory._shards[memory.shard_of(host_of(url))].entries:
                    raise self.broken(f"{result.url} is acknowledged, but its link {url} is not known")


class SettlesOnce(Checker):
    """A URL that has ended is not settled again: settling twice changes nothing the second time."""

    name = "settles_once"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._ended_urls: set[str] = set()
        self._attempts: dict[str, bytes] = {}

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        if one.url in self._ended_urls:
            raise self.broken(f"{one.url} was settled again after it had ended")
        if self._attempts.get(one.url) == one.attempt_id:
            raise self.broken(f"the same attempt at {one.url} was settled twice")
        if one.state in ENDED:
            self._ended_urls.add(one.url)
            self._attempts.pop(one.url, None)
        else:
            self._attempts[one.url] = one.attempt_id


class SettlesUnderItsLease(Checker):
    """A result counts only while nobody else holds its URL."""

    name = "settles_under_its_lease"

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        held = self._ledger.leases.get(host)
        if held is not None and held.lease_id != lease_id and one.url in held.urls:
            raise self.broken(f"{one.url} was settled under {lease_id}, while {held.node} has it")


class RetriesAreCounted(Checker):
    """A URL is tried as often as the settings allow, and not once more."""

    name = "retries_are_counted"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._failures: Counter[str] = Counter()

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        if one.state is TaskState.SCHEDULED and one.attempted:
            self._failures[one.url] += 1
            if self._failures[one.url] > self._world.scenario.retries_max:
                raise self.broken(f"{one.url} has failed {self._failures[one.url]} times and is tried again")


class HostBudgetsHold(Checker):
    """Of a host with a budget no more pages are fetched than that. (Late results of lost leases count on top, as
    `coordinator.giving.host_budgets` says.)"""

    name = "host_budgets_hold"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._left = dict(world.budgets)

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        left = self._left.get(host)
        if left is None or one.state is not TaskState.DONE or one.size is None:
            return
        held = self._ledger.leases.get(host)
        if held is not None and held.lease_id == lease_id:
            if not left:
                raise self.broken(f"{one.url} is fetched, beyond the {self._world.budgets[host]} pages of its host")
            self._left[host] = left - 1


class BudgetsHold(Checker):
    """Pages are counted once each, and there are never more than the budget allows."""

    name = "budgets_hold"

    def looked(self) -> None:
        counted = sum(shard.counters.get("pages", 0) for shard in self._world.memory._shards)
        if counted != self._ledger.pages:
            raise self.broken(f"{counted} pages are counted, but {self._ledger.pages} were settled")
        most = self._world.scenario.pages_max
        if most is not None and counted > most:
            raise self.broken(f"{counted} pages were fetched, and the budget was {most}")
