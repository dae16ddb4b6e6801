"""The calls of workers that take one URL at a time, written in any language, even with curl.

A worker's lease is a lease of a host like any other, with a single URL: no other node contacts the host meanwhile. The
worker must not fetch before `allowedAfterEpochMs`, and must obey robots.txt. If the rules are known here, a URL that
they deny is never handed out. If not, `robots` is null and the worker must fetch robots.txt first.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from drumlin.access.misdeeds import Misdeed
from drumlin.access.tokens import Identity, Permission, Role
from drumlin.api.calls.hosts import host_named
from drumlin.api.explaining.host_views import robots_of, robots_rules
from drumlin.api.gate import Gate
from drumlin.api.intake.forms import read_hash, read_moment
from drumlin.api.intake.telling import ToldResult, asked_pause_s
from drumlin.api.intake.workers import Intake
from drumlin.api.messages.people import (
    Enqueue,
    Enqueued,
    FetchResult,
    HeadersPolicy,
    NextQuery,
    NextURL,
    Reprioritize,
    Reprioritized,
    RobotsQuery,
    RobotsRules,
)
from drumlin.api.routing import Call, Route
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.taking.host_reports import slow_s_of
from drumlin.engines.base import Added
from drumlin.http.refusal import Refused
from drumlin.model import HostState, NewURLs, Outcome, Task, TaskState
from drumlin.protocol import (
    Assignment,
    HostNote,
    HostReport,
    Rejection,
    WorkLease,
    WorkRequest,
    paths,
    read_strangers_note,
    write_note,
)
from drumlin.robots import Decision, PreparedFiles, Rules, as_noted, decide
from drumlin.urls import canonical, host_of

DENIED_PASSED_OVER_MAX = 20
"""How many URLs that robots.txt denies are settled within one request for the next URL."""
ROBOTS_AGAIN_S = 600.0
"""How long a host is left alone if a worker could not get its robots.txt. It does not grow with each try, because
workers do not say how often they tried."""
RESULT_BYTES_MAX = 32 * 1024 * 1024
GIVEN_MAX = 20_000
REQUEST_PREFIX = "one-"
"""How the ids of these requests begin. It distinguishes leases of simple workers from those of nodes."""
SCHEMES_BY_TRUST = ("https", "http")


class SingleCalls:
    """The calls of simple workers. `work_may_have_come` wakes nodes that wait for work."""

    def __init__(
        self, dispatcher: Dispatcher, gate: Gate, intake: Intake, work_may_have_come: Callable[[], None]
    ) -> None:
        self._dispatcher = dispatcher
        self._engine = dispatcher.engine
        self._gate = gate
        self._intake = intake
        self._given: OrderedDict[tuple[str, str], str] = OrderedDict()
        """The assignments that workers were given here lately, so a late result can be recognised."""
        self._files = PreparedFiles()
        """Parsing a long robots.txt takes long, and all other requests wait meanwhile."""
        self._work_may_have_come = work_may_have_come

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path=paths.ENQUEUE,
                summary="Put one URL into the frontier",
                answer=self.enqueue,
                permission=Permission.WORK,
                node_of=lambda _: None,
                takes=Enqueue,
                gives=Enqueued,
                status=202,
                refusals={
                    403: "A node may not widen the scope.",
                    409: "The URL is known already, or its host has as many as it may have.",
                },
                writes="url.enqueue",
            ),
            Route(
                method="GET",
                path=paths.FETCH_NEXT,
                summary="Lease one URL",
                answer=self.next,
                permission=Permission.WORK,
                node_of=lambda query: query.worker_id,
                takes=NextQuery,
                gives=NextURL,
                may_be_empty=True,
                gives_out=True,
            ),
            *self._further_routes(),
        ]

    def _further_routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path=paths.FETCH_RESULT,
                summary="Return what became of a leased URL",
                answer=self.result,
                permission=Permission.WORK,
                node_of=lambda message: message.worker_id,
                takes=FetchResult,
                status=204,
                body_bytes_max=RESULT_BYTES_MAX,
                refusals={
                    409: "This URL was never this worker's.",
                    410: "It was, and its time is up or somebody else has returned it.",
                },
            ),
            Route(
                method="GET",
                path=paths.ROBOTS_CACHE,
                summary="The robots rules of a host, as they are known",
                answer=self.robots,
                permission=Permission.LOOK_UP,
                takes=RobotsQuery,
                gives=RobotsRules,
                refusals={404: "The host's rules are not known."},
            ),
            Route(
                method="POST",
                path=paths.REPRIORITIZE,
                summary="Give a queued URL another priority",
                answer=self.reprioritize,
                permission=Permission.OPERATE,
                takes=Reprioritize,
                gives=Reprioritized,
                refusals={404: "The URL is not known.", 409: "The URL is not queued any more."},
                writes="url.reprioritize",
            ),
        ]

    async def enqueue(self, call: Call, message: Enqueue) -> Enqueued:
        url = _web_url(message.url)
        host = host_of(url)
        of_node = call.identity.role is Role.NODE
        if of_node and not self._dispatcher.in_scope(url):
            self._dispatcher.misdeeds.note(call.identity.id, Misdeed.FOREIGN_URL)
            hint = "An operator may enqueue it, and so widen the scope."
            raise Refused(403, "out_of_scope", "This URL is out of the crawl's scope.", hint)
        if self._dispatcher.findings.removed.covers(url):
            raise Refused(409, "removed", "This URL was removed from the crawl on request.", "It is not fetched again.")
        # A URL of depth 0 is a seed, and its redirects widen the scope. A node must not do that.
        depth = 1 if of_node else 0
        new = NewURLs(host, [url], message.priority, depth, canonical(message.discovered_from) or "")
        (answer,) = await self._dispatcher.enqueue([new], call.now)
        if answer is Added.SEEN:
            raise Refused(409, "duplicate", "This URL is known already.", f"GET {paths.URLS}?url= tells its story.")
        if answer is Added.CAPPED:
            raise Refused(409, "host_full", f"{host} has as many URLs as the crawl permits.", "See host_urls_max.")
        self._work_may_have_come()
        return Enqueued(self._engine.shard_of(host))

    # Taking

    async def next(self, call: Call, query: NextQuery) -> NextURL | None:
        for _ in range(DENIED_PASSED_OVER_MAX):
            request = WorkRequest(1, max_hosts=1, request_id=REQUEST_PREFIX + secrets.token_hex(8), flat=False)
            work = await self._dispatcher.work(query.worker_id, request, call.now)
            lease = next((one for one in work.leases if one.assignments), None)
            if lease is None:
                return None
            decision = _known_robots(lease, call)
            if decision is None or self._allows(decision, lease.assignments[0].url):
                self._remember(query.worker_id, lease.assignments[0])
                return self._next_url(lease, decision)
            await self._deny(query.worker_id, lease, call.today)
        return None

    def _allows(self, decision: Decision, url: str) -> bool:
        if decision.deny_all or decision.allow_all:
            return decision.allow_all
        return self._rules(decision).allowed(self._dispatcher.config.product_token, url)

    def _rules(self, decision: Decision) -> Rules:
        return self._files.of(decision.rules_body or b"", decision.packed_from)

    def _next_url(self, lease: WorkLease, decision: Decision | None) -> NextURL:
        config, assignment = self._dispatcher.config, lease.assignments[0]
        scheme = assignment.url.partition(":")[0]
        return NextURL(
            url=assignment.url,
            allowed_after_epoch_ms=_ms(assignment.not_before),
            headers_policy=HeadersPolicy(config.sent_user_agent, config.accept_encoding),
            lease_ends_epoch_ms=_ms(assignment.deadline),
            min_delay_ms=_ms(max(lease.min_delay_s, slow_s_of(lease.note))),
            robots=robots_rules(decision, config.product_token) if decision else None,
            robots_url=f"{scheme}://{lease.host}/robots.txt",
            depth=assignment.depth,
            attempts=assignment.attempts,
            assignment_id=assignment.assignment_id,
            keeps_results=self._intake.keeps,
        )

    async def _deny(self, worker: str, lease: WorkLease, now: float) -> None:
        """Settle a URL that robots.txt denies. There was no contact, so the host is free again at once."""
        one = lease.assignments[0]
        denied = ToldResult(assignment_id=one.assignment_id, url=one.url, crawl_time=now, outcome=Outcome.DENIED)
        tellings = await self._intake.read(worker, [denied])
        await self._intake.take(worker, tellings, [HostReport(lease.lease_id, lease.host, True)])

    def _remember(self, worker: str, given: Assignment) -> None:
        self._given[worker, given.url] = given.assignment_id
        self._given.move_to_end((worker, given.url))
        if len(self._given) > GIVEN_MAX:
            self._given.popitem(last=False)

    # Returning

    async def result(self, call: Call, message: FetchResult) -> None:
        url = _web_url(message.url)
        host = host_of(url)
        shard = self._engine.shard_of(host)
        story, state = await self._engine.story(shard, url), await self._engine.host_state(shard, host)
        capture_id = _capture_id(url, message)
        if story is not None and story.attempt_id == capture_id.encode():
            return
        task = story.task if story is not None and story.state is TaskState.LEASED else None
        if task is not None and state is not None and _holds(call.identity, message.worker_id, state):
            seals = self._dispatcher.seals
            assignment = seals.assignment_id(seals.sealed(state.lease_id, state.host), task)
            told = _told(message, url, assignment, capture_id, list(task.redirects))
            reports = [self._report(message, asked_pause_s(told, call.today), task, state, call)]
            await self._take(call, state.node, message, told, reports)
        else:
            await self._take_late(call, message, url, capture_id, done=story is not None and story.task is None)

    async def _take_late(self, call: Call, message: FetchResult, url: str, capture_id: str, *, done: bool) -> None:
        """Take a result of a URL that the worker does not hold now. It counts if the worker had the URL before and no
        other node has it now."""
        worker = message.worker_id or (call.identity.id if call.identity.role is Role.NODE else "")
        given = message.assignment_id or self._given.get((worker, url))
        if given is None:
            # If the URL is done, this may be a repetition of the worker's own result: the engine does not remember for
            # ever who settled a URL.
            await self._gate.judge(call.identity, call.now, late=int(done), foreign=int(not done))
            raise Refused(409, "not_leased", "This URL is not given to this worker.", "Ask /v1/fetch/next for one.")
        told = _told(message, url, given, capture_id, [])
        await self._take(call, worker or given.partition(":")[0], message, told, [])

    async def _take(
        self, call: Call, worker: str, said: FetchResult, told: ToldResult, reports: list[HostReport]
    ) -> None:
        tellings = await self._intake.read(worker, [told], decoded=said.body is not None)
        accepted = (await self._intake.take(worker, tellings, reports)).accepted
        self._work_may_have_come()
        if not accepted.rejected:
            self._gate.counted(call.identity, 1, call.now)
            return
        if accepted.rejected[0].reason != Rejection.STALE:
            await self._gate.judge(call.identity, call.now, foreign=1)
            raise Refused(409, "not_leased", "This URL was never given to this worker.")
        await self._gate.judge(call.identity, call.now, late=1)
        message = "The assignment is over: its time was up, or somebody else has returned it."
        raise Refused(410, "over", message, "Ask /v1/fetch/next for another.")

    def _report(self, message: FetchResult, pause_s: float, task: Task, state: HostState, call: Call) -> HostReport:
        """A report that ends the lease. The next contact is a whole delay from now, because only the worker knows when
        it made this one, and not before the end of a pause that the site asked for."""
        config = self._dispatcher.config
        delay_s, wait_s, note = state.delay_s, max(config.delay_s, pause_s, slow_s_of(state.note)), None
        if message.robots is not None:
            body = message.robots.body.encode("utf-8", "replace")
            decision = decide(message.robots.status_code, body, 0, "", call.today, agent=config.product_token)
            if decision.retry:
                # Unknown rules are not a permission: the host is left alone until robots.txt may be asked for again.
                wait_s = max(wait_s, ROBOTS_AGAIN_S)
            else:
                lasting = msgspec.structs.replace(decision, expires_shared=call.now + decision.expires - call.today)
                note = _with_robots(state.note, task.url.partition(":")[0], lasting)
            asked_s = self._rules(decision).crawl_delay(config.product_token)
            delay_s = max(delay_s or 0.0, asked_s) if asked_s else delay_s
        wait_s = max(delay_s or 0.0, wait_s)
        lease_id = self._dispatcher.seals.sealed(state.lease_id, state.host)
        return HostReport(lease_id, state.host, True, next_contact_s=wait_s, delay_s=delay_s, note=note)

    # Robots and priorities

    async def robots(self, call: Call, query: RobotsQuery) -> RobotsRules:
        host = host_named(query.host)
        note = await self._engine.host_note(self._engine.shard_of(host), host) if host else b""
        known = {scheme: one for scheme, one in robots_of(note).items() if not one.expired(call.today, call.now)}
        for scheme in SCHEMES_BY_TRUST:
            if scheme in known:
                return robots_rules(known[scheme], self._dispatcher.config.product_token)
        raise Refused(404, "robots_unknown", "The robots rules of this host are not known.", "Ask the host itself.")

    async def reprioritize(self, call: Call, message: Reprioritize) -> Reprioritized:
        url = canonical(message.url)
        shard = self._engine.shard_of(host_of(url)) if url else 0
        story = await self._engine.story(shard, url) if url else None
        if url is None or story is None:
            raise Refused(404, "no_such_url", "Nothing is known of this URL.", "Enqueue it first.")
        if story.state is not TaskState.QUEUED:
            raise Refused(409, "not_queued", f"This URL is {story.state}: only a queued one can be moved.")
        await self._engine.reprioritise(shard, [(story.task.url if story.task else url, message.new_priority)])
        return Reprioritized(accepted=True)


def _web_url(text: str) -> str:
    url = canonical(text)
    if url is None:
        raise Refused(422, "bad_url", "This is not a web address.", "One looks like https://example.com/page.")
    return url


def _known_robots(lease: WorkLease, call: Call) -> Decision | None:
    decision = robots_of(lease.note).get(lease.assignments[0].url.partition(":")[0])
    return None if decision is None or decision.expired(call.today, call.now) else decision


def _with_robots(note: bytes, scheme: str, decision: Decision) -> bytes:
    """The host's note with these rules. Whatever else it says stays: how slow the host is, its back-off, its HSTS."""
    known = robots_of(note) | {scheme: decision}
    before = read_strangers_note(note) or HostNote()
    return write_note(msgspec.structs.replace(before, robots=as_noted(known)))


def _holds(who: Identity, worker: str | None, state: HostState) -> bool:
    """Whether the host's lease is the worker's. A person who names no worker may return what any simple worker has."""
    if not state.lease_id:
        return False
    if worker is not None or who.role is Role.NODE:
        return state.node == (worker or who.id)
    return state.lease_id.startswith(f"{state.node}:{REQUEST_PREFIX}")


def _capture_id(url: str, message: FetchResult) -> str:
    """An id that is the same when the same result is sent again, and differs for every other result."""
    moment = read_moment(message.fetched_at, 0.0)
    said = f"{url}\n{message.status_code or 0}\n{read_hash(message.content_sha256)}\n{moment}"
    return "one-" + hashlib.sha256(said.encode()).hexdigest()[:32]


def _told(message: FetchResult, url: str, assignment: str, capture_id: str, redirects: list[str]) -> ToldResult:
    """A simple worker's result in the form in which nodes send theirs."""
    if message.body is not None and message.body_base64 is not None:
        raise Refused(422, "invalid", "A page has one body.", "Give body or bodyBase64.")
    body = message.body.encode() if message.body is not None else None
    return ToldResult(
        assignment_id=assignment,
        url=url,
        status_code=message.status_code,
        content_hash=message.content_sha256,
        links=message.links,
        crawl_time=read_moment(message.fetched_at, 0.0) if message.fetched_at is not None else None,
        outcome=message.outcome,
        text_data_url=message.text_data_url,
        redirect_chain=redirects,
        size=message.size,
        error=message.error,
        etag=message.etag,
        last_modified=message.last_modified,
        body=b64decode(message.body_base64) if message.body_base64 is not None else body,
        response_head=message.response_head,
        content_type=message.content_type,
        redirect_to=canonical(message.redirect_to, url) if message.redirect_to else None,
        retry_after_s=message.retry_after_s,
        capture_id=capture_id,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
