"""Checkers of what becomes of URLs and of what was acknowledged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from drumlin.engines.memory.shard import Shard
from drumlin.frontier.backoff import JITTER_SHARE, RETRY_RULES
from drumlin.model import Outcome, Settled, TaskState
from drumlin.protocol import Accepted, Rejection, Results
from drumlin.protocol.states import GONE, NodeStatus
from drumlin.sim.checking.base import Checker, World
from drumlin.sim.checking.ledger import Ledger
from drumlin.sim.web import WebHost
from drumlin.urls import host_of, identity

OK = 200
KEPT_WITHIN_S = 60.0
LATE_S_MAX = 5.0
"""A result may be judged by a time that is so old: its coordinator was frozen meanwhile, or waited for the engine."""
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
    """What a coordinator said it took is taken, and stays so. What it took, it does not call refused."""

    name = "acknowledged_survives"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._done: dict[str, None] = {}
        self._attempts: dict[str, bytes] = {}
        """The attempt by which each URL was settled."""

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        self._attempts[one.url] = one.attempt_id

    def accepted(self, node: str, results: Results, accepted: Accepted) -> None:
        rejected = set(accepted.rejected_at)
        memory = self._world.memory
        for place, result in enumerate(results.results):
            if place in rejected:
                attempt = self._attempts.get(result.url, b"")
                if result.capture_id and attempt.startswith(result.capture_id.encode()):
                    raise self.broken(f"{node} is told that {result.url} did not count, but it did")
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


class PagesAreKept(Checker):
    """Of every page that counts, its node has heard so and keeps it, unless it was lost with its node's disk."""

    name = "pages_are_kept"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._owed: dict[str, float] = {}
        self._kept: set[str] = set()

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        if one.state is TaskState.DONE and one.size is not None and one.url not in self._kept:
            self._owed[one.url] = self._world.now

    def published(self, urls: Sequence[str]) -> None:
        self._kept.update(urls)
        for url in urls:
            self._owed.pop(url, None)

    def disk_lost(self, urls: Sequence[str]) -> None:
        self.published(urls)

    def ended(self) -> None:
        if self._world.scenario.churn or self._world.quiet_s < KEPT_WITHIN_S:
            # Nodes that are away come back with what they have.
            return
        for url, since in self._owed.items():
            if self._world.now - since > KEPT_WITHIN_S:
                raise self.broken(f"{url} has counted since {since:.3f} s, but no node keeps its page")


class PagesWereFetched(Checker):
    """A page counts only if somebody has asked its site for it."""

    name = "pages_were_fetched"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._asked: set[str] = set()

    def contacted(self, host: WebHost, url: str, now: float) -> None:
        self._asked.add(url)

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        if one.state is not TaskState.DONE or one.size is None or one.url in self._asked:
            return
        if not self._is_gone(lease_id.partition(":")[0]):
            raise self.broken(f"{one.url} counts as a page, but nobody has asked for it")

    def _is_gone(self, node: str) -> bool:
        """Whether a coordinator takes the node for gone. Then others may speak for it, and some of them lie."""
        dispatchers = [one.dispatcher for one in self._world.coordinators if one.dispatcher is not None]
        records = [dispatcher.nodes.get(node) for dispatcher in dispatchers]
        return any(record is not None and record.status in GONE for record in records)


class HonestAreBelieved(Checker):
    """What an honest node says is not called made up or malformed, and it is never put into quarantine."""

    name = "honest_are_believed"

    def accepted(self, node: str, results: Results, accepted: Accepted) -> None:
        if accepted.rejected_at and node not in self._world.liars:
            for one in accepted.rejected:
                if one.reason in (Rejection.MALFORMED, Rejection.MADE_UP, Rejection.FOREIGN_LINKS):
                    raise self.broken(f"a result of {node} for {one.assignment_id} is called {one.reason}")

    def looked(self) -> None:
        liars = self._world.liars
        for coordinator in self._world.coordinators:
            orders = coordinator.dispatcher.orders.nodes if coordinator.dispatcher is not None else {}
            for node, status in orders.items():
                if status is NodeStatus.QUARANTINED and node not in liars:
                    raise self.broken(f"{node} is in quarantine and has never lied")


class LinksSurvive(Checker):
    """When a page is acknowledged, the frontier knows the links that were told with it. What its node left out, because
    it had told that with another page, is known as well, or will be: that other page is not settled yet."""

    name = "links_survive"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._pages: dict[str, None] = {}

    def accepted(self, node: str, results: Results, accepted: Accepted) -> None:
        rejected = set(accepted.rejected_at)
        for place, result in enumerate(results.results):
            if place in rejected:
                continue
            if result.status_code == OK and result.outcome == Outcome.FETCHED and node not in self._world.liars:
                self._pages[result.url] = None
            for url in [*result.links, result.redirect_to] if result.redirect_to else result.links:
                if not self._is_known(url):
                    raise self.broken(f"{result.url} is acknowledged, but its link {url} is not known")

    def _is_known(self, url: str) -> bool:
        memory = self._world.memory
        return identity(url) in memory._shards[memory.shard_of(host_of(url))].entries

    def ended(self) -> None:
        links = self._world.web.links
        missing = {url: page for page in self._pages for url in links(page) if not self._is_known(url)}
        if missing:
            shards = self._world.memory._shards
            waiting = [
                entry.task.url for shard in shards for entry in shard.entries.values() if entry.state not in ENDED
            ]
            for page in waiting:
                for url in links(page):
                    missing.pop(url, None)
        for url, page in missing.items():
            raise self.broken(f"{page} was acknowledged, but its link {url} is not known")


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
    """A URL that fails is tried as often as the settings allow, not once more or less, and not too soon. Then it is a
    dead letter."""

    name = "retries_are_counted"

    def __init__(self, world: World, ledger: Ledger) -> None:
        super().__init__(world, ledger)
        self._failures: Counter[str] = Counter()
        self._config = world.scenario.config()

    def settled(self, host: str, lease_id: str, one: Settled) -> None:
        if one.kind is None or not one.attempted:
            return
        if one.state is TaskState.DONE:
            raise self.broken(f"{one.url} has failed ({one.kind}) and is done")
        self._failures[one.url] += 1
        failures, most = self._failures[one.url], self._world.scenario.retries_max
        if one.state is TaskState.SCHEDULED:
            if failures > most:
                raise self.broken(f"{one.url} has failed {failures} times and is tried again")
            self._check_wait(one, failures)
        elif failures <= most and RETRY_RULES[one.kind].retries:
            raise self.broken(f"{one.url} has failed {failures} times and is dead, but {most + 1} tries are its due")

    def _check_wait(self, one: Settled, failures: int) -> None:
        rule, config = RETRY_RULES[one.kind or ""], self._config
        grown_s = min(config.backoff_base_s * rule.wait_factor * 2.0 ** (failures - 1), config.backoff_max_s)
        wait_s = one.retry_at - self._ledger.engine_now
        if wait_s < (1.0 - JITTER_SHARE) * grown_s - LATE_S_MAX:
            raise self.broken(f"{one.url} is tried again after {wait_s:.3f} s, of about {grown_s:g} s")

    def ended(self) -> None:
        for shard in self._world.memory._shards:
            for entry in shard.entries.values():
                if entry.state is TaskState.DEAD and entry.letter is None:
                    raise self.broken(f"{entry.task.url} is dead, and no letter says why")


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
        counted_bytes = sum(shard.counters.get("bytes", 0) for shard in self._world.memory._shards)
        if counted_bytes != self._ledger.bytes:
            raise self.broken(f"{counted_bytes} bytes are counted, but {self._ledger.bytes} were settled")
        most = self._world.scenario.pages_max
        if most is not None and counted > most:
            raise self.broken(f"{counted} pages were fetched, and the budget was {most}")
