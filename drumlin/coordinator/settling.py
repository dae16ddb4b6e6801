"""Taking results in: whose they are, which of them count, what they repeat, and what becomes of their URLs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from msgspec.structs import replace

from drumlin.coordinator.engine_time import agreed_s
from drumlin.coordinator.host_reports import NEXT_CONTACT_MAX_S, bounded, needs_before
from drumlin.coordinator.seals import Seals, token_of
from drumlin.coordinator.steering import Steering
from drumlin.engines.base import Engine
from drumlin.frontier import REFUSALS, next_step
from drumlin.model import Content, Duplicate, FailureKind, HostState, Outcome, Settled, Settlement, TaskState, Verdict
from drumlin.protocol import (
    Accepted,
    AssignmentKey,
    HostReport,
    KnownPage,
    Rejected,
    Result,
    Results,
    read_assignment_id,
)
from drumlin.urls import Scope, canonical, domain_of

MALFORMED, NOT_YOURS, STALE = "malformed", "not_yours", "stale"
MADE_UP, FOREIGN_LINKS = "made_up", "foreign_links"
DIGEST_HEX_DIGITS = 64
OUTCOMES = frozenset(Outcome)
KINDS = frozenset(FailureKind)
LINKS_REFUSED_MAX = 1_000_000
"""Links of one page that a node says it left out for one reason; no page has so many."""


class Kept(NamedTuple):
    """A result that is considered: where it stands in its batch, its assignment, its host, and the name of its fetch,
    by which the engine knows it when it comes again."""

    place: int
    result: Result
    key: AssignmentKey
    host: str
    capture: bytes


class Batch(NamedTuple):
    """Results and reports that are considered, and why others were refused. The reports name their leases as the engine
    does. `made_up` counts results and reports on what no coordinator gave out."""

    kept: list[Kept]
    reports: list[HostReport]
    rejected: dict[int, Rejected]
    made_up: int

    @property
    def nodes(self) -> set[str]:
        """The nodes whose leases these are of."""
        return {one.key.node for one in self.kept} | {_node_of(report) for report in self.reports}


class Prospects(NamedTuple):
    """What a batch will come to: for each result kept that could add something the verdict that it will get (for
    others None, since nothing depends on it), and the reports that are on live leases."""

    verdicts: list[Verdict | None]
    live: list[HostReport]
    leases: dict[tuple[str, str], list[int]]
    """The places of results by host and lease, as the engine names it."""


class _Question(NamedTuple):
    """What is asked beforehand: of results by their places, or of a report."""

    settlement: Settlement
    places: list[int]
    report: HostReport | None


class Taken(NamedTuple):
    """What became of a batch: the answer, and the places of results that had counted before. The sender need not know
    the latter: the same batch gives the same answer."""

    accepted: Accepted
    repeated: frozenset[int]


def host_or_nothing(url: str) -> str:
    """The host of a URL that may be anything; empty when it is no web address with a path."""
    start = 8 if url.startswith("https://") else 7 if url.startswith("http://") else 0
    end = url.find("/", start) if start else -1
    return url[start:end] if end > 0 else ""


def by_host(urls: Iterable[str]) -> dict[str, list[str]]:
    """The web addresses among URLs, by their host."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        if host := host_or_nothing(url):
            hosts[host].append(url)
    return hosts


def canonical_links(hrefs: list[str], base: str, scope: Scope) -> list[str]:
    """The links of a node that sends them as it found them: canonical, and in scope."""
    urls = dict.fromkeys(canonical(href, base) for href in hrefs)
    return [url for url in urls if url is not None and scope.allows(url)]


def read_results(results: Results, seals: Seals) -> Batch:
    """Keep what is genuine: results and reports under ids that some coordinator gave out for their URLs and hosts."""
    kept: list[Kept] = []
    rejected: dict[int, Rejected] = {}
    assignment = seals.assignment
    for index, result in enumerate(results.results):
        url = result.url
        key, host = assignment(result.assignment_id, url), host_or_nothing(url)
        if key is not None and host:
            kept.append(Kept(index, result, key, host, _capture_of(result, key)))
        else:
            readable = host and read_assignment_id(result.assignment_id) is not None
            rejected[index] = Rejected(result.assignment_id, MADE_UP if readable else MALFORMED)
    tokens = [seals.token(report.lease_id, report.host) for report in results.hosts]
    reports = [replace(one, lease_id=token) for one, token in zip(results.hosts, tokens, strict=True) if token]
    return Batch(kept, reports, rejected, len(rejected) + len(tokens) - len(reports))


def of_owners(batch: Batch, owners: Collection[str] | None) -> Batch:
    """Leave what is of leases of `owners`; None stands for everybody."""
    if owners is None or batch.nodes.issubset(owners):
        return batch
    others = [one for one in batch.kept if one.key.node not in owners]
    rejected = {one.place: Rejected(one.result.assignment_id, NOT_YOURS) for one in others}
    kept = [one for one in batch.kept if one.key.node in owners]
    reports = [report for report in batch.reports if _node_of(report) in owners]
    return Batch(kept, reports, batch.rejected | rejected, batch.made_up)


def _node_of(report: HostReport) -> str:
    return report.lease_id.partition(":")[0]


def refused(results: Results, reason: str) -> Accepted:
    """The answer to a batch of which nothing counts."""
    places = list(range(len(results.results)))
    rejected = [Rejected(result.assignment_id, reason) for result in results.results]
    return Accepted(0, len(places), rejected, rejected_at=places)


class Settler:
    """Says which results of a batch will count, records their contents and settles them."""

    def __init__(self, engine: Engine, steering: Steering, chance: random.Random) -> None:
        self._engine = engine
        self._steering = steering
        self._chance = chance
        self._margin_s = agreed_s(engine)
        """A next contact that is written here is read by another coordinator, whose time may be ahead."""

    # Beforehand

    async def foresee(self, batch: Batch) -> Prospects:
        """What each result will come to that could add links or contents, and which reports are on live leases."""
        asked: dict[int, list[_Question]] = defaultdict(list)
        leases = _by_lease(batch.kept)
        for (host, token), members in leases.items():
            places = [place for place in members if _adds_something(batch.kept[place].result)]
            if places:
                settlement = Settlement(host, token, [_as_done(batch.kept[place]) for place in places])
                asked[self._engine.shard_of(host)].append(_Question(settlement, places, None))
        for report in batch.reports:
            if report.sitemaps:
                settlement = Settlement(report.host, report.lease_id, [])
                asked[self._engine.shard_of(report.host)].append(_Question(settlement, [], report))
        prospects = await self._prospects(asked, Prospects([None] * len(batch.kept), [], leases))
        _leave_one_capture(batch.kept, prospects.verdicts)
        return prospects

    async def _prospects(self, asked: dict[int, list[_Question]], prospects: Prospects) -> Prospects:
        batches = {shard: [question.settlement for question in questions] for shard, questions in asked.items()}
        answers = await self._engine.preview_all(batches) if batches else {}
        for shard, questions in asked.items():
            for question, preview in zip(questions, answers[shard], strict=True):
                for place, verdict in zip(question.places, preview.verdicts, strict=True):
                    prospects.verdicts[place] = verdict
                if question.report is not None and preview.live:
                    prospects.live.append(question.report)
        return prospects

    # Settling

    async def settle(self, batch: Batch, prospects: Prospects, now: float) -> Taken:
        duplicates = await self._record_contents(batch.kept, prospects.verdicts)
        verdicts = await self._settle(batch, prospects.leases, duplicates, now)
        rejected = dict(batch.rejected)
        known: list[KnownPage] = []
        repeated: list[int] = []
        for kept, duplicate, verdict in zip(batch.kept, duplicates, verdicts, strict=True):
            if verdict is Verdict.STALE:
                rejected[kept.place] = Rejected(kept.result.assignment_id, STALE)
                continue
            if verdict is Verdict.REPEATED:
                repeated.append(kept.place)
            if duplicate is not None:
                known.append(KnownPage(kept.place, duplicate))
        places = sorted(rejected)
        accepted = Accepted(
            accepted_count=len(batch.kept) + len(batch.rejected) - len(places),
            rejected_count=len(places),
            rejected=[rejected[place] for place in places],
            rejected_at=places,
            duplicates=known,
        )
        return Taken(accepted, frozenset(repeated))

    async def _record_contents(self, kept: list[Kept], verdicts: list[Verdict | None]) -> list[Duplicate | None]:
        """Remember the content of each page that counts; for each result the earlier page it repeats.

        A result that repeats an earlier one is answered as that was, which recording does where the content is known,
        without a change. Where it is not, the two are not the same, and nothing is recorded.
        """
        answers: list[Duplicate | None] = [None] * len(kept)
        with_content = [place for place, one in enumerate(kept) if verdicts[place] and _has_content(one.result)]
        repeated = [place for place in with_content if verdicts[place] is Verdict.REPEATED]
        contents = {place: _content(kept[place]) for place in with_content if verdicts[place] is not Verdict.STALE}
        if repeated:
            asked = [(contents[place].domain, contents[place].digest) for place in repeated]
            for place, known in zip(repeated, await self._engine.contents.known(asked), strict=True):
                if known is None:
                    del contents[place]
        if contents:
            overlap_min = self._steering.config.near_overlap_percent / 100
            told = await self._engine.contents.record(list(contents.values()), overlap_min)
            for place, duplicate in zip(contents, told, strict=True):
                answers[place] = duplicate
        return answers

    async def _settle(
        self,
        batch: Batch,
        leases: dict[tuple[str, str], list[int]],
        duplicates: list[Duplicate | None],
        now: float,
    ) -> list[Verdict]:
        releases = {(report.host, report.lease_id): report for report in batch.reports if report.release}
        before = await self._before(batch.reports)
        shards: dict[int, list[tuple[Settlement, list[int]]]] = defaultdict(list)
        for report in batch.reports:
            if not report.release:
                shards[self._engine.shard_of(report.host)].append((self._settlement(report, [], now, before), []))
        for host, token in leases | dict.fromkeys(releases):
            members = leases.get((host, token), [])
            settled = [self._settled(batch.kept[place], duplicates[place], now) for place in members]
            report = releases.get((host, token)) or HostReport(token, host)
            shards[self._engine.shard_of(host)].append((self._settlement(report, settled, now, before), members))
        return await self._verdicts(shards, len(batch.kept), now)

    async def _before(self, reports: list[HostReport]) -> dict[str, HostState]:
        """The hosts that are in back-off, or begin to be, as they are before these reports."""
        states: dict[str, HostState] = {}
        for host in {report.host for report in reports if needs_before(report)}:
            state = await self._engine.host_state(self._engine.shard_of(host), host)
            if state is not None:
                states[host] = state
        return states

    def _settlement(
        self, report: HostReport, settled: list[Settled], now: float, before: dict[str, HostState]
    ) -> Settlement:
        return bounded(
            Settlement(
                report.host,
                report.lease_id,
                settled,
                report.release,
                now + report.next_contact_s + self._margin_s if report.next_contact_s > 0 else 0.0,
                report.delay_s,
                report.note,
            ),
            self._steering.config,
            now,
            before.get(report.host),
        )

    async def _verdicts(
        self, shards: dict[int, list[tuple[Settlement, list[int]]]], count: int, now: float
    ) -> list[Verdict]:
        verdicts = [Verdict.STALE] * count
        batches = {shard: [settlement for settlement, _ in entries] for shard, entries in shards.items()}
        answers = await self._engine.settle_all(batches, now) if batches else {}
        for shard, entries in shards.items():
            for (_, members), answer in zip(entries, answers[shard], strict=True):
                for place, verdict in zip(members, answer, strict=True):
                    verdicts[place] = verdict
        return verdicts

    def _settled(self, one: Kept, duplicate: Duplicate | None, now: float) -> Settled:
        result, key = one.result, one.key
        config = self._steering.config
        outcome, size = outcome_of(result), min(result.size, config.body_bytes_max)
        kind = result.kind
        if outcome == Outcome.FAILED:
            kind = kind if kind in KINDS else kind_of_status(result.status_code)
            if result.put_off_s > 0:
                return _put_off(one, kind, now)
        counts = _counts(result, outcome, size, duplicate)
        state, retry_at = TaskState.DONE, 0.0
        if outcome == Outcome.FAILED:
            wait_s = self._wait_s(result, kind, key.attempts + 1)
            state = TaskState.DEAD if wait_s is None else TaskState.SCHEDULED
            retry_at = now + (wait_s or 0.0)
            counts["dead." + kind if wait_s is None else "retried." + kind] = 1
        page_bytes = _page_bytes(size, outcome)
        return Settled(key.task_id, result.url, state, one.capture, retry_at, kind, result.error, page_bytes, counts)

    def _wait_s(self, result: Result, kind: str, attempts: int) -> float | None:
        """How long a URL that has failed so many times waits for its next try; None: it is dead."""
        if result.gave_up:
            return None
        config = self._steering.config
        return next_step(
            kind,
            attempts,
            retries_max=config.retries_max,
            base_s=config.backoff_base_s,
            max_s=config.backoff_max_s,
            retry_after_s=result.retry_after_s,
            chance=self._chance.random(),
        )


def _put_off(one: Kept, kind: str, now: float) -> Settled:
    """A URL of a host in back-off that was not tried, and so has nothing held against it."""
    result, retry_at = one.result, now + min(one.result.put_off_s, NEXT_CONTACT_MAX_S)
    return Settled(
        one.key.task_id,
        result.url,
        TaskState.SCHEDULED,
        one.capture,
        retry_at,
        kind,
        result.error,
        counts={"put_off." + kind: 1},
        attempted=False,
    )


def _by_lease(kept: list[Kept]) -> dict[tuple[str, str], list[int]]:
    """The places of results by host and lease, as the engine names it."""
    leases: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, one in enumerate(kept):
        leases[one.host, one.key.lease_id].append(place)
    return {(host, token_of(lease_id)): places for (host, lease_id), places in leases.items()}


def _adds_something(result: Result) -> bool:
    return bool(result.links or result.redirect_to) or _has_content(result)


def _capture_of(result: Result, key: AssignmentKey) -> bytes:
    return (result.capture_id or f"{key.lease_id}/{key.task_id}").encode()


def _as_done(one: Kept) -> Settled:
    return Settled(one.key.task_id, one.result.url, TaskState.DONE, one.capture)


def _leave_one_capture(kept: list[Kept], verdicts: list[Verdict | None]) -> None:
    """Of several results of one URL in a batch only one counts: the first, and those that belong to it, since the links
    of a large sitemap come in several."""
    if len({one.result.url for one in kept}) == len(kept):
        return
    captures: dict[tuple[str, int], bytes] = {}
    for place, one in enumerate(kept):
        settled = verdicts[place] is Verdict.SETTLED
        if settled and captures.setdefault((one.host, one.key.task_id), one.capture) != one.capture:
            verdicts[place] = Verdict.STALE


def outcome_of(result: Result) -> str:
    """What the node says, or what the status code means."""
    if result.outcome in OUTCOMES:
        return result.outcome
    if result.status_code == 304:
        return Outcome.NOT_MODIFIED
    if 300 <= result.status_code < 400:
        return Outcome.REDIRECTED
    failed = result.status_code == 0 or result.status_code == 429 or result.status_code >= 500
    return Outcome.FAILED if failed else Outcome.FETCHED


def kind_of_status(status: int) -> str:
    if status == 429:
        return FailureKind.RATE_LIMITED
    return FailureKind.HTTP_5XX if status >= 500 else FailureKind.CONNECT


def _page_bytes(size: int, outcome: str) -> int:
    """How large a page was, for its host: what is not a page has no bytes, and a page has one at least, since engines
    know pages by that. It may be empty, or fetched by somebody who does not tell."""
    return max(1, size) if outcome == Outcome.FETCHED else 0


def _has_content(result: Result) -> bool:
    fetched = outcome_of(result) == Outcome.FETCHED and 200 <= result.status_code < 300
    return fetched and result.size > 0 and len(result.content_hash) == DIGEST_HEX_DIGITS


def _content(one: Kept) -> Content:
    result = one.result
    digest = bytes.fromhex(result.content_hash)
    return Content(domain_of(one.host), result.url, digest, result.sketch, result.crawl_time, result.record_id)


def _counts(result: Result, outcome: str, size: int, duplicate: Duplicate | None) -> dict[str, int]:
    """What this result adds to the crawl's counters once it counts. The names of counters are ours, and what one result
    adds is bounded: every look at the crawl reads them all, and the engine's numbers have an end."""
    counts = {"outcome." + outcome: 1}
    if result.status_code and outcome != Outcome.DENIED:
        counts[f"status.{result.status_code}"] = 1
    if outcome == Outcome.FETCHED:
        counts["pages"] = 1
        counts["bytes"] = size
    if duplicate is not None:
        counts["duplicates.exact" if duplicate.exact else "duplicates.near"] = 1
    for reason, count in result.traps.items():
        if reason in REFUSALS:
            counts["refused." + reason] = min(count, LINKS_REFUSED_MAX)
    return counts
