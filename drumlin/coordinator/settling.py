"""Taking results in: whose they are, what they found, what they repeat, and what becomes of their URLs."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import NamedTuple

from drumlin.config import CrawlConfig
from drumlin.engines.base import Engine
from drumlin.frontier import next_step
from drumlin.model import Content, Duplicate, FailureKind, Outcome, Settled, Settlement, TaskState, Verdict
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
DIGEST_HEX_DIGITS = 64
OUTCOMES = frozenset(Outcome)


class Kept(NamedTuple):
    """A result that is considered: where it stands in its batch, its assignment and its host."""

    place: int
    result: Result
    key: AssignmentKey
    host: str


class Batch(NamedTuple):
    """Results and reports of the sender's own leases, and why others were refused."""

    kept: list[Kept]
    reports: list[HostReport]
    rejected: dict[int, Rejected]


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


def canonical_links(result: Result, scope: Scope) -> list[str]:
    """The links of a node that sends them as it found them: canonical, and in scope."""
    urls = dict.fromkeys(canonical(href, result.url) for href in result.links)
    return [url for url in urls if url is not None and scope.allows(url)]


def read_results(results: Results, owners: Collection[str] | None) -> Batch:
    """Sort results and reports: those of leases of `owners` (None: of anybody's) are considered."""
    kept: list[Kept] = []
    rejected: dict[int, Rejected] = {}
    for index, result in enumerate(results.results):
        key = read_assignment_id(result.assignment_id)
        host = host_or_nothing(result.url)
        if key is None or not host:
            rejected[index] = Rejected(result.assignment_id, MALFORMED)
        elif owners is not None and key.node not in owners:
            rejected[index] = Rejected(result.assignment_id, NOT_YOURS)
        else:
            kept.append(Kept(index, result, key, host))
    mine = [one for one in results.hosts if owners is None or one.lease_id.partition(":")[0] in owners]
    return Batch(kept, mine, rejected)


class Settler:
    """Records contents and settles, for batches whose links are in the frontier already."""

    def __init__(self, engine: Engine, config: CrawlConfig, chance: random.Random) -> None:
        self._engine = engine
        self._config = config
        self._chance = chance

    async def settle(self, batch: Batch, now: float) -> Taken:
        duplicates = await self._record_contents(batch.kept)
        verdicts = await self._settle(batch, duplicates, now)
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

    async def _record_contents(self, kept: list[Kept]) -> list[Duplicate | None]:
        """Remember the content of each page; for each result the earlier page it repeats."""
        pages = [place for place, one in enumerate(kept) if _has_content(one.result)]
        answers: list[Duplicate | None] = [None] * len(kept)
        if pages:
            contents = [_content(kept[place]) for place in pages]
            for place, duplicate in zip(pages, await self._engine.contents.record(contents), strict=True):
                answers[place] = duplicate
        return answers

    async def _settle(self, batch: Batch, duplicates: list[Duplicate | None], now: float) -> list[Verdict]:
        by_lease: dict[tuple[str, str], list[int]] = defaultdict(list)
        for place, one in enumerate(batch.kept):
            by_lease[one.host, one.key.lease_id].append(place)
        releases = {(report.host, report.lease_id): report for report in batch.reports if report.release}
        for lease in releases:
            by_lease.setdefault(lease, [])
        shards: dict[int, list[tuple[Settlement, list[int]]]] = defaultdict(list)
        for report in batch.reports:
            if not report.release:
                shards[self._engine.shard_of(report.host)].append((_settlement(report, [], now), []))
        for (host, lease_id), members in by_lease.items():
            settled = [self._settled(batch.kept[place], duplicates[place], now) for place in members]
            report = releases.get((host, lease_id)) or HostReport(lease_id, host)
            shards[self._engine.shard_of(host)].append((_settlement(report, settled, now), members))
        return await self._verdicts(shards, len(batch.kept), now)

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
        outcome = outcome_of(result)
        counts = _counts(result, outcome, duplicate)
        state, retry_at, kind = TaskState.DONE, 0.0, result.kind
        if outcome == Outcome.FAILED:
            kind = kind or _kind_of_status(result.status_code)
            wait_s = next_step(
                kind,
                key.attempts + 1,
                retries_max=self._config.retries_max,
                base_s=self._config.backoff_base_s,
                max_s=self._config.backoff_max_s,
                retry_after_s=result.retry_after_s,
                chance=self._chance.random(),
            )
            state = TaskState.DEAD if wait_s is None else TaskState.SCHEDULED
            retry_at = now + (wait_s or 0.0)
            counts["dead." + kind if wait_s is None else "retried." + kind] = 1
        capture_id = result.capture_id or f"{key.lease_id}/{key.task_id}"
        size = _page_bytes(result, outcome)
        return Settled(key.task_id, result.url, state, capture_id.encode(), retry_at, kind, result.error, size, counts)


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


def _kind_of_status(status: int) -> str:
    if status == 429:
        return FailureKind.RATE_LIMITED
    return FailureKind.HTTP_5XX if status >= 500 else FailureKind.CONNECT


def _settlement(report: HostReport, settled: list[Settled], now: float) -> Settlement:
    return Settlement(
        report.host,
        report.lease_id,
        settled,
        report.release,
        now + report.next_contact_s if report.next_contact_s > 0 else 0.0,
        report.delay_s,
        report.note,
    )


def _page_bytes(result: Result, outcome: str) -> int:
    """How large a page was, for its host: what is not a page has no bytes, and a page has one at least, since engines
    know pages by that. It may be empty, or fetched by somebody who does not tell."""
    return max(1, result.size) if outcome == Outcome.FETCHED else 0


def _has_content(result: Result) -> bool:
    fetched = outcome_of(result) == Outcome.FETCHED and 200 <= result.status_code < 300
    return fetched and result.size > 0 and len(result.content_hash) == DIGEST_HEX_DIGITS


def _content(one: Kept) -> Content:
    result = one.result
    digest = bytes.fromhex(result.content_hash)
    return Content(domain_of(one.host), result.url, digest, result.simhash, result.crawl_time, result.record_id)


def _counts(result: Result, outcome: str, duplicate: Duplicate | None) -> dict[str, int]:
    """What this result adds to the crawl's counters once it counts."""
    counts = {"outcome." + outcome: 1}
    if result.status_code and outcome != Outcome.DENIED:
        counts[f"status.{result.status_code}"] = 1
    if outcome == Outcome.FETCHED:
        counts["pages"] = 1
        counts["bytes"] = result.size
    if duplicate is not None:
        counts["duplicates.exact" if duplicate.distance is None else "duplicates.near"] = 1
    for reason, count in result.traps.items():
        counts["refused." + reason] = count
    return counts
