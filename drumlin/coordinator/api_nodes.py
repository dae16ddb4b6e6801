"""The fleet's face: what `drumlin node` and other nodes that work in batches say, on the dispatcher.

Every call may be sent again: leases are guarded by tokens and results by capture ids. A node's token serves for that
node alone, and its results are signed; both are checked before anything here is called.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from drumlin.coordinator.auth import Access, Identity, Permission, Role
from drumlin.coordinator.bodies import Refused
from drumlin.coordinator.bundles import Bundles, BundleStored, check_bundle_id
from drumlin.coordinator.conduct import Gate
from drumlin.coordinator.dispatch import Dispatcher, Proof, SupersededError
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.fair_line import FairLine
from drumlin.coordinator.intake import Intake
from drumlin.coordinator.messages import LeaveQuery, NodeView, node_view
from drumlin.coordinator.receipts import bind_to_segment, give_receipts
from drumlin.coordinator.routing import Call, Route
from drumlin.coordinator.settling import STALE
from drumlin.coordinator.telling import ResultsFormat, ToldResults, as_stored
from drumlin.errors import BusyError
from drumlin.protocol import (
    BODY_BYTES_MAX,
    LINKS_BATCH_MAX,
    Accepted,
    CrawlState,
    Done,
    Failure,
    Heartbeat,
    HeartbeatReply,
    Known,
    KnownRequest,
    NodeStatus,
    Register,
    Registered,
    Results,
    Work,
    WorkRequest,
)
from drumlin.store.bundles import BUNDLE_BYTES_MAX

LONG_POLL_S = 0.25
LONG_POLLERS_MAX = 64
"""Requests that wait for work at once: those woken ask the engine again."""
WOKEN_BY_RESULTS = 4
"""Of these, how many a batch of results wakes: it brings work for some, not for thousands of idle nodes."""
SETTLING_AT_ONCE = 5
"""Batches of results under way at once, enough to keep an engine busy. Others wait in line: if all were begun at once,
each would take as long as all of them, and requests for work, which are small and urgent, as long again."""
SETTLING_EACH = 3
SETTLING_WAITING_EACH = 32
"""Of these, and of those in line, how many may be of one node; a node of drumlin sends four at a time."""
SETTLING_WAITING_MAX = 500
"""Batches in line: about ten seconds of work. Further ones are sent back, or their senders would give up before they
are settled."""
SETTLING_RETRY_S = 15.0
BEHIND_WAITING = 64
"""With so many in line, more than a second of work, nothing further is given out: it would come back when the line is
longer than its leases last."""
BEHIND_RETRY_S = 2.0
REQUEST_BYTES_MAX = 4 * 1024 * 1024
NODE = "/api/v1/nodes/{node_id}"
RESERVED_IDS = frozenset({"register"})
"""Names that the API's own paths take."""
NOT_REGISTERED = {404: "The node has not registered, or is long forgotten."}
_PROOFS = {Role.JOIN: Proof.JOIN_TOKEN, Role.NODE: Proof.OWN_TOKEN}


class NodeFace:
    """The calls of nodes. `on_failure` hears when a node cannot go on."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        access: Access,
        gate: Gate,
        intake: Intake,
        *,
        engine_time: EngineTime,
        on_failure: Callable[[Failure], None],
        store: Path | None,
        endpoint: str,
        bundle_quota_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self._access = access
        self._gate = gate
        self._intake = intake
        self._time = engine_time
        self._on_failure = on_failure
        self._bundles = Bundles(dispatcher, store, bundle_quota_bytes)
        self._endpoint = endpoint
        self.drained = asyncio.Event()
        """Set when the crawl may have nothing left, for whoever ticks."""
        self._waiting: deque[asyncio.Event] = deque()
        self._settling = FairLine(
            at_once=SETTLING_AT_ONCE,
            each=SETTLING_EACH,
            most=SETTLING_WAITING_MAX,
            each_most=SETTLING_WAITING_EACH,
            retry_after_s=SETTLING_RETRY_S,
        )

    def work_may_have_come(self, nodes: int = LONG_POLLERS_MAX) -> None:
        """Wake nodes that wait for work, those first that have waited longest."""
        for _ in range(min(nodes, len(self._waiting))):
            self._waiting.popleft().set()

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path="/api/v1/nodes/register",
                summary="A node joins the fleet",
                answer=self.register,
                permission=Permission.JOIN,
                node_of=lambda message: message.node_id,
                takes=Register,
                gives=Registered,
                refusals={409: "Another node of this name is at work, or the name cannot be had."},
            ),
            Route(
                method="POST",
                path=f"{NODE}/work/request",
                summary="Lease hosts, renew leases",
                answer=self.work,
                permission=Permission.NODE,
                takes=WorkRequest,
                gives=Work,
                body_bytes_max=REQUEST_BYTES_MAX,
                refusals=NOT_REGISTERED,
            ),
            Route(
                method="POST",
                path=f"{NODE}/known",
                summary="Ask which contents were stored before",
                answer=self.known,
                permission=Permission.NODE,
                takes=KnownRequest,
                gives=Known,
                body_bytes_max=REQUEST_BYTES_MAX,
            ),
            Route(
                method="POST",
                path=f"{NODE}/results",
                summary="Settle leased URLs",
                answer=self.results,
                permission=Permission.NODE,
                takes=ToldResults,
                reads=ResultsFormat(),
                gives=Accepted,
                body_bytes_max=BODY_BYTES_MAX,
                signed=True,
                refusals=NOT_REGISTERED,
            ),
            Route(
                method="POST",
                path=f"{NODE}/heartbeat",
                summary="Say that the node lives, and how it does",
                answer=self.heartbeat,
                permission=Permission.NODE,
                takes=Heartbeat,
                gives=HeartbeatReply,
                body_bytes_max=REQUEST_BYTES_MAX,
                refusals=NOT_REGISTERED,
            ),
            *self._rarer_routes(),
        ]

    def _rarer_routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path=f"{NODE}/failed",
                summary="Say that the node cannot go on",
                answer=self.failed,
                permission=Permission.NODE,
                takes=Failure,
                gives=Done,
            ),
            Route(
                method="GET",
                path=f"{NODE}/status",
                summary="How a node does",
                answer=self.status,
                permission=Permission.WATCH_NODE,
                gives=NodeView,
                refusals={404: "There is no such node, or it has left."},
            ),
            Route(
                method="PUT",
                path=f"{NODE}/bundles/{{bundle_id}}",
                summary="Store captures of a node that cannot write to the store itself",
                answer=self.bundle,
                permission=Permission.NODE,
                gives=BundleStored,
                body_bytes_max=BUNDLE_BYTES_MAX,
                streams_body=True,
                refusals={409: "What arrived is not what was sent, not a bundle, or not to be stored here."},
            ),
            Route(
                method="DELETE",
                path=NODE,
                summary="A node leaves cleanly; its leases return at once",
                answer=self.leave,
                permission=Permission.NODE,
                takes=LeaveQuery,
                gives=Done,
            ),
        ]

    async def register(self, call: Call, message: Register) -> Registered:
        if message.node_id in RESERVED_IDS:
            raise Refused(409, "bad_node_id", f"A node cannot be called {message.node_id}.", "Choose another name.")
        try:
            proof = _PROOFS.get(call.identity.role, Proof.NONE) if self._access.signed else Proof.NONE
            record = await self._dispatcher.register(message, call.now, address=call.address, proof=proof)
        except SupersededError as late:
            raise Refused(409, "superseded", late.message, late.hint) from late
        except BusyError as taken:
            raise Refused(409, "node_id_taken", taken.message, taken.hint) from taken
        self.work_may_have_come()
        node, controlled = record.node_id, self._access.signed
        return Registered(
            node,
            "registered",
            self._dispatcher.nodes.heartbeat_s,
            self._endpoint,
            msgspec.to_builtins(self._dispatcher.config),
            self._dispatcher.config.config_hash(),
            self._dispatcher.scope_of_seeds(),
            self._dispatcher.scope_seeds,
            token=self._access.node_token(node, call.today, _joined_by(call.identity)) if controlled else None,
            key=self._access.node_key(node).hex() if controlled else None,
            keeps_results=self._intake.keeps,
            config_version=self._dispatcher.steering.version,
        )

    async def _check_registered(self, call: Call) -> None:
        """A node of which no coordinator knows anything, say because Redis lost its last second, begins again."""
        if not await self._dispatcher.has_registered(call.node_id):
            message = f"No node called {call.node_id} has registered."
            raise Refused(404, "not_registered", message, "POST /api/v1/nodes/register first.")

    async def work(self, call: Call, request: WorkRequest) -> Work:
        """Answer at once when there is work, else wait a little for some to come."""
        node = call.node_id
        await self._check_registered(call)
        await call.check_awaited()
        if len(self._settling) >= BEHIND_WAITING:
            return await self._renew_only(node, request, call.now)
        work = await self._dispatcher.work(node, request, call.now)
        content = bool(work.leases or work.lost or request.max_hosts == 0 or not request.max_tasks)
        if content or work.state is not CrawlState.RUNNING or len(self._waiting) >= LONG_POLLERS_MAX:
            return work
        woken = asyncio.Event()
        self._waiting.append(woken)
        try:
            async with asyncio.timeout(LONG_POLL_S):
                await woken.wait()
        except TimeoutError:
            pass
        finally:
            if woken in self._waiting:
                self._waiting.remove(woken)
        return await self._dispatcher.work(node, request, await self._time.now())

    async def _renew_only(self, node: str, request: WorkRequest, now: float) -> Work:
        renewals = msgspec.structs.replace(request, max_tasks=0, max_hosts=0, preferred_domains=[])
        work = await self._dispatcher.work(node, renewals, now)
        work.retry_after_s = max(work.retry_after_s, BEHIND_RETRY_S)
        return work

    async def known(self, call: Call, request: KnownRequest) -> Known:
        return await self._dispatcher.known(request)

    async def results(self, call: Call, results: Results | ToldResults) -> Accepted:
        await self._check_registered(call)
        _check_links(results)
        settle = await self._prepare(call.node_id, results)
        async with self._settling.turn(call.node_id):
            accepted = await settle()
        self.work_may_have_come(WOKEN_BY_RESULTS)
        if self._dispatcher.may_be_finished:
            self.drained.set()
        if accepted.rejected_count:
            await self._judge(call, accepted)
        else:
            self._gate.counted(call.identity, accepted.accepted_count, call.now)
        return accepted

    async def _prepare(self, node: str, results: Results | ToldResults) -> Callable[[], Awaitable[Accepted]]:
        """What settles a batch; what its sender has not stored is read first, and stored with it."""
        if isinstance(results, Results):
            return lambda: self._settle_stored(node, results)
        if results.stored:
            stored = as_stored(results, self._time.today())
            return lambda: self._settle_stored(node, stored)
        tellings = await self._intake.read(node, results.results)

        async def take() -> Accepted:
            return (await self._intake.take(node, tellings, results.hosts)).accepted

        return take

    async def _settle_stored(self, node: str, results: Results) -> Accepted:
        if results.segment:
            bind_to_segment(results)
        accepted = await self._dispatcher.results(node, results, await self._time.now())
        if results.segment:
            give_receipts(self._dispatcher.seals, results, accepted)
        return accepted

    async def _judge(self, call: Call, accepted: Accepted) -> None:
        reasons = [rejected.reason for rejected in accepted.rejected]
        # What was made up is judged apart. A node that recovers what a dead one left may be told "not yours" until that
        # one is known to be dead, which is held against nobody.
        await self._gate.judge(call.identity, call.now, settled=accepted.accepted_count, late=reasons.count(STALE))

    async def heartbeat(self, call: Call, beat: Heartbeat) -> HeartbeatReply:
        await self._check_registered(call)
        reply = await self._dispatcher.heartbeat(call.node_id, beat, call.now)
        reply.token = self._access.renewed(call.authorization, call.today)
        return reply

    async def failed(self, call: Call, failure: Failure) -> Done:
        self._on_failure(msgspec.structs.replace(failure, node_id=call.node_id))
        sentence = f"{failure.message} {failure.hint}".strip()
        await self._dispatcher.nodes.note_failure(self._dispatcher.engine, call.node_id, sentence)
        return Done()

    async def status(self, call: Call, message: None) -> NodeView:
        """A node that has left is no longer there; people still find it in the list of all."""
        record = await self._dispatcher.node(call.node_id)
        if record is None or record.status is NodeStatus.INACTIVE:
            raise Refused(404, "no_such_node", f"No node called {call.node_id} is at work.", "See GET /api/v1/nodes.")
        return node_view(record)

    async def bundle(self, call: Call, message: None) -> BundleStored:
        check_bundle_id(call.parameters["bundle_id"])
        return await self._bundles.take(call)

    async def leave(self, call: Call, query: LeaveQuery) -> Done:
        await self._dispatcher.leave(call.node_id, call.now, boot=query.boot)
        self.work_may_have_come()
        return Done()


def _joined_by(who: Identity) -> str:
    """The token that brought a node: the one it registers with or, if that is its own, the one it first came with."""
    return who.joined_by if who.role is Role.NODE else who.id


def _check_links(results: Results | ToldResults) -> None:
    """Each result has its bound; a batch of many that all reach it would be worked on for minutes."""
    if sum(len(result.links or ()) for result in results.results) > LINKS_BATCH_MAX:
        message = f"A batch may have at most {LINKS_BATCH_MAX:,} links."
        raise Refused(413, "too_many_links", message, "Send smaller batches.")
