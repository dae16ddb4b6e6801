"""Taking results in: whose they are, which of them count, what they repeat, and what becomes of their URLs.

A batch passes four steps. `read_results` keeps what carries a genuine seal, `of_owners` what its sender may settle.
`Settler.foresee` asks the engine which results will count, so that links and contents of the others are not recorded.
`Settler.settle` then settles them. The engine decides again in the last step, so it alone says what counts in the end.
"""

from __future__ import annotations

import logging
import random
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from xxhash import xxh3_128_hexdigest

from drumlin.access.seals import Seals, without_seal
from drumlin.coordinator.engine_time import agreed_s
from drumlin.coordinator.steering import Steering
from drumlin.coordinator.taking.host_reports import NEXT_CONTACT_MAX_S, bounded, needs_before
from drumlin.engines.base import Engine
from drumlin.frontier import REFUSALS, next_step
from drumlin.frontier.backoff import dead_counter
from drumlin.http.refusal import Refused
from drumlin.logs import Event, event
from drumlin.model import (
    KINDS,
    Content,
    Duplicate,
    FailureKind,
    HostState,
    Outcome,
    Settled,
    Settlement,
    TaskState,
    Verdict,
)
from drumlin.protocol import (
    Accepted,
    AssignmentKey,
    HostReport,
    KnownPage,
    Rejected,
    Rejection,
    Result,
    Results,
    kind_of_status,
    outcome_of_status,
    read_assignment_id,
    shown_lease,
)
from drumlin.urls import Scope, canonical, domain_of, host_or_nothing

DIGEST_HEX_DIGITS = 64
OUTCOMES: dict[str, Outcome] = {str(outcome): outcome for outcome in Outcome}
OUTCOME_COUNTERS = {outcome: f"outcome.{outcome}" for outcome in Outcome}
LINKS_REFUSED_MAX = 1_000_000
"""How many links of one page a node may say it left out for one reason; no page has so many."""

log = logging.getLogger("drumlin.coordinator")


class Kept(Struct, frozen=True, gc=False):
    """A result that is considered: its position in the batch, its assignment, its host, its outcome, and its attempt's
    id, by which the engine recognises it when it comes again."""

    place: int
    result: Result
    key: AssignmentKey
    host: str
    outcome: Outcome
    attempt_id: bytes


class ResultBatch(NamedTuple):
    """Results and reports that are considered, and why others were refused. The reports name their leases as the engine
    does. `made_up` counts results and reports about something that no coordinator gave out."""

    kept: list[Kept]
    reports: list[HostReport]
    rejected: dict[int, Rejected]
    made_up: int

    @property
    def nodes(self) -> set[str]:
        """The nodes whose leases these results and reports belong to."""
        return {one.key.node for one in self.kept} | {_node_of(report) for report in self.reports}


class Prospects(NamedTuple):
    """What will become of a batch: the verdict that each kept result will get if it could add links or contents (None
    for others, since nothing depends on it), and the reports on live leases."""

    verdicts: list[Verdict | None]
    live: list[HostReport]
    leases: dict[tuple[str, str], list[int]]
    """The positions of results by host and lease."""

    def that_count(self, kept: Sequence[Kept]) -> list[Kept]:
        """Those results that are said to be settled."""
        return [one for one, verdict in zip(kept, self.verdicts, strict=True) if verdict is Verdict.SETTLED]


class _Question(NamedTuple):
    """What the engine is asked beforehand, about the results at some positions or about a report."""

    settlement: Settlement
    places: list[int]
    report: HostReport | None


class Taken(NamedTuple):
    """What became of a batch: the answer, and the positions of results that had counted before. The latter are not in
    the answer, because the same batch must always get the same answer."""

    accepted: Accepted
    repeated: frozenset[int]


def canonical_links(hrefs: list[str], base: str, scope: Scope) -> list[str]:
    """Those of a page's hrefs that are in scope, in canonical form; for workers that send links as they found them."""
    urls = dict.fromkeys(canonical(href, base) for href in hrefs)
    return [url for url in urls if url is not None and scope.allows(url)]


def read_results(results: Results, seals: Seals) -> ResultBatch:
    """Keep what is genuine: results and reports under ids that some coordinator gave out for their URLs and hosts."""
    kept: list[Kept] = []
    rejected: dict[int, Rejected] = {}
    assignment = seals.assignment
    for index, result in enumerate(results.results):
        url = result.url
        key, host = assignment(result.assignment_id, url), host_or_nothing(url)
        if key is not None and host:
            attempt_id = (result.capture_id or f"{key.lease_id}/{key.task_id}").encode()
            kept.append(Kept(index, result, key, host, outcome_of(result), attempt_id))
        else:
            readable = host and read_assignment_id(result.assignment_id) is not None
            rejected[index] = Rejected(result.assignment_id, Rejection.MADE_UP if readable else Rejection.MALFORMED)
    _log_rejected(rejected)
    lease_ids = [seals.unsealed(report.lease_id, report.host) for report in results.hosts]
    reports = [replace(one, lease_id=known) for one, known in zip(results.hosts, lease_ids, strict=True) if known]
    return ResultBatch(kept, reports, rejected, len(rejected) + len(lease_ids) - len(reports))


def _log_rejected(rejected: dict[int, Rejected]) -> None:
    """For debugging: what the node hears too."""
    if rejected and log.isEnabledFor(logging.DEBUG):
        first = next(iter(rejected.values()))
        lease = shown_lease(first.assignment_id)
        said = event(Event.REFUSED, node=lease.partition(":")[0], lease=lease)
        log.debug("%d results do not count, the first because it is %s", len(rejected), first.reason, extra=said)


def of_owners(batch: ResultBatch, owners: Collection[str] | None) -> ResultBatch:
    """Keep only results and reports under leases of `owners`; None stands for all nodes."""
    if owners is None or batch.nodes.issubset(owners):
        return batch
    others = [one for one in batch.kept if one.key.node not in owners]
    rejected = {one.place: Rejected(one.result.assignment_id, Rejection.NOT_YOURS) for one in others}
    kept = [one for one in batch.kept if one.key.node in owners]
    reports = [report for report in batch.reports if _node_of(report) in owners]
    return ResultBatch(kept, reports, batch.rejected | rejected, batch.made_up)


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
        """Added to next contacts, because another coordinator whose time is ahead may read them."""

    # Before settling

    async def foresee(self, batch: ResultBatch, *, every: bool = False) -> Prospects:
        """Ask which results that could add links or contents will count, or of `every` result, and which reports are on
        live leases."""
        asked: dict[int, list[_Question]] = defaultdict(list)
        await self._check_pages(batch.kept)
        leases = _by_lease(batch.kept)
        for (host, lease_id), members in leases.items():
            places = [place for place in members if every or _adds_something(batch.kept[place])]
            if places:
                settlement = Settlement(host, lease_id, [_as_done(batch.kept[place]) for place in places])
                asked[self._engine.shard_of(host)].append(_Question(settlement, places, None))
        for report in batch.reports:
            if report.sitemaps:
                settlement = Settlement(report.host, report.lease_id, [])
                asked[self._engine.shard_of(report.host)].append(_Question(settlement, [], report))
        prospects = await self._prospects(asked, Prospects([None] * len(batch.kept), [], leases))
        _leave_one_capture(batch.kept, prospects.verdicts)
        return prospects

    async def _check_pages(self, kept: list[Kept]) -> None:
        """Clear `page_url` unless that URL is of the same host and had redirected to this one: a node may not return
        pages of other URLs. If the URL is settled, its redirects are not known any more; then this result adds nothing,
        and the attempt's id says whether it names the same page as before. Only a page that was found to be true is
        part of that id: a false one, sent again, would get a receipt otherwise."""
        for place, one in [(place, one) for place, one in enumerate(kept) if one.result.page_url]:
            page_url, one.result.page_url = one.result.page_url, ""
            if host_or_nothing(page_url) != one.host:
                continue
            story = await self._engine.story(self._engine.shard_of(one.host), one.result.url)
            if story is None or story.task is None or page_url in story.task.redirects:
                one.result.page_url = page_url
                kept[place] = replace(one, attempt_id=_id_with_page(one.attempt_id, page_url))

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

    async def settle(self, batch: ResultBatch, prospects: Prospects, now: float) -> Taken:
        duplicates = await self._record_contents(batch.kept, prospects.verdicts)
        verdicts = await self._settle(batch, prospects, duplicates, now)
        if Verdict.OPEN in verdicts:
            # The other results are settled now. When the batch comes again, they get the same answer.
            raise Refused(503, "judged_anew", "A result has to be judged again.", "Send it again.", retry_after_s=0.0)
        rejected = dict(batch.rejected)
        known: list[KnownPage] = []
        repeated: list[int] = []
        for kept, duplicate, verdict in zip(batch.kept, duplicates, verdicts, strict=True):
            if verdict is Verdict.STALE:
                rejected[kept.place] = Rejected(kept.result.assignment_id, Rejection.STALE)
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
        """Record the content of each page that counts; returns for each result the earlier page that it repeats.

        A result that counted before must get the same answer again. Recording a content that is already known changes
        nothing and gives that answer. If the content is not known, this is not the same page as before, and nothing is
        recorded.
        """
        answers: list[Duplicate | None] = [None] * len(kept)
        with_content = [place for place, one in enumerate(kept) if verdicts[place] and _has_content(one)]
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
        batch: ResultBatch,
        prospects: Prospects,
        duplicates: list[Duplicate | None],
        now: float,
    ) -> list[Verdict]:
        leases, expected = prospects.leases, prospects.verdicts
        releases = {(report.host, report.lease_id): report for report in batch.reports if report.release}
        before = await self._before(batch.reports)
        shards: dict[int, list[tuple[Settlement, list[int]]]] = defaultdict(list)
        for report in batch.reports:
            if not report.release:
                shards[self._engine.shard_of(report.host)].append((self._settlement(report, [], now, before), []))
        for host, lease_id in leases | dict.fromkeys(releases):
            members = leases.get((host, lease_id), [])
            settled = [self._settled(batch.kept[place], duplicates[place], now) for place in members]
            if any(expected[place] is Verdict.STALE for place in members):
                stale = [expected[place] is Verdict.STALE for place in members]
                settled = [replace(one, refused=refused) for one, refused in zip(settled, stale, strict=True)]
            report = releases.get((host, lease_id)) or HostReport(lease_id, host)
            report = _heeding(report, [batch.kept[place].result for place in members])
            shards[self._engine.shard_of(host)].append((self._settlement(report, settled, now, before), members))
        return await self._verdicts(shards, len(batch.kept), now)

    async def _before(self, reports: list[HostReport]) -> dict[str, HostState]:
        """The earlier states of hosts that are reported to be in back-off."""
        states: dict[str, HostState] = {}
        for host in dict.fromkeys(report.host for report in reports if needs_before(report)):
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
        outcome, size = one.outcome, min(result.size, config.body_bytes_max)
        kind = _kind_of(result) if outcome is Outcome.FAILED else None
        if kind is not None and result.put_off_s > 0:
            return _put_off(one, kind, now)
        counts = _counts(result, outcome, size, duplicate)
        state, retry_at = TaskState.DONE, 0.0
        if kind is not None:
            wait_s = self._wait_s(result, kind, key.attempts + 1)
            state = TaskState.DEAD if wait_s is None else TaskState.SCHEDULED
            retry_at = now + (wait_s or 0.0)
            counts[dead_counter(kind) if wait_s is None else "retried." + kind] = 1
        page_bytes = size if outcome is Outcome.FETCHED else None
        return Settled(key.task_id, result.url, state, one.attempt_id, retry_at, kind, result.error, page_bytes, counts)

    def _wait_s(self, result: Result, kind: FailureKind, attempts: int) -> float | None:
        """How long a URL that failed `attempts` times waits for its next try; None if it is dead."""
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


def _heeding(report: HostReport, results: list[Result]) -> HostReport:
    """The report, with its host put off for as long as any of the results asks. If a node was killed, its results may
    be all that is left of what the site said."""
    asked_s = max((result.retry_after_s for result in results if result.retry_after_s > 0), default=0.0)
    return replace(report, next_contact_s=asked_s) if asked_s > report.next_contact_s else report


def _kind_of(result: Result) -> FailureKind:
    """The kind of a failure that the node names; if that is not a kind of failure, the one that its status means."""
    return KINDS.get(result.kind) or kind_of_status(result.status_code)


def _put_off(one: Kept, kind: FailureKind, now: float) -> Settled:
    """Put off a URL of a host in back-off. It was not tried, so no attempt is counted."""
    result, retry_at = one.result, now + min(one.result.put_off_s, NEXT_CONTACT_MAX_S)
    return Settled(
        one.key.task_id,
        result.url,
        TaskState.SCHEDULED,
        one.attempt_id,
        retry_at,
        kind,
        result.error,
        counts={"put_off." + kind: 1},
        attempted=False,
    )


def _by_lease(kept: list[Kept]) -> dict[tuple[str, str], list[int]]:
    """The positions of results by host and lease."""
    leases: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, one in enumerate(kept):
        leases[one.host, one.key.lease_id].append(place)
    return {(host, without_seal(sealed_id)): places for (host, sealed_id), places in leases.items()}


def _adds_something(one: Kept) -> bool:
    return bool(one.result.links or one.result.redirect_to) or _has_content(one)


def _id_with_page(attempt_id: bytes, page_url: str) -> bytes:
    """The id of an attempt that returned another page than the URL's own. Whatever a node calls its attempts, no other
    id looks like this: no text contains the byte in the middle."""
    return attempt_id + b"\xff" + xxh3_128_hexdigest(page_url.encode()).encode()


def _as_done(one: Kept) -> Settled:
    return Settled(one.key.task_id, one.result.url, TaskState.DONE, one.attempt_id)


def _leave_one_capture(kept: list[Kept], verdicts: list[Verdict | None]) -> None:
    """Of several captures of one URL in a batch only the first counts. One capture may have several results, because
    the links of a large sitemap are spread over some."""
    # Two results of one URL have the same task's number. It is compared because that costs less than comparing URLs.
    if len({one.key.task_id for one in kept}) == len(kept):
        return
    captures: dict[tuple[str, int], bytes] = {}
    for place, one in enumerate(kept):
        settled = verdicts[place] is Verdict.SETTLED
        if settled and captures.setdefault((one.host, one.key.task_id), one.attempt_id) != one.attempt_id:
            verdicts[place] = Verdict.STALE


def outcome_of(result: Result) -> Outcome:
    """What the node says, or what the status code means."""
    return OUTCOMES.get(result.outcome) or outcome_of_status(result.status_code)


def _has_content(one: Kept) -> bool:
    result = one.result
    fetched = one.outcome is Outcome.FETCHED and 200 <= result.status_code < 300
    return fetched and result.size > 0 and len(result.content_hash) == DIGEST_HEX_DIGITS


def _content(one: Kept) -> Content:
    result = one.result
    digest = bytes.fromhex(result.content_hash)
    return Content(domain_of(one.host), result.page, digest, result.sketch, result.crawl_time, result.record_id)


def _counts(result: Result, outcome: Outcome, size: int, duplicate: Duplicate | None) -> dict[str, int]:
    """What this result adds to the crawl's counters if it counts. A node cannot invent counters, because every look at
    the crawl reads them all. What one result adds is bounded, because the engine's numbers are."""
    counts = {OUTCOME_COUNTERS[outcome]: 1}
    if result.status_code and outcome is not Outcome.DENIED:
        counts[f"status.{result.status_code}"] = 1
    if outcome is Outcome.FETCHED:
        counts["pages"] = 1
        counts["bytes"] = size
    if duplicate is not None:
        counts["duplicates.exact" if duplicate.exact else "duplicates.near"] = 1
    for reason, count in result.traps.items():
        if reason in REFUSALS:
            counts["refused." + reason] = min(count, LINKS_REFUSED_MAX)
    return counts
