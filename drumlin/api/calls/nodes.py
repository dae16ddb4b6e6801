"""The calls of nodes that work in batches: `drumlin node`, and nodes that others wrote.

Every call may be sent again without harm: the ids of leases and captures show what was seen before. A node's token is
good for that node alone, and its results are signed; both are checked before anything here is called.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from drumlin.access.tokens import AccessControl, Identity, Permission, Role
from drumlin.api.gate import Gate
from drumlin.api.intake.bundles import Bundles, check_bundle_id
from drumlin.api.intake.telling import ResultsFormat, ToldResults, as_stored
from drumlin.api.intake.workers import Intake
from drumlin.api.messages.people import LeaveQuery, NodeView, node_view
from drumlin.api.routing import Call, Route
from drumlin.api.traces import CoordinatorTraces
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.engine_time import EngineTime
from drumlin.coordinator.nodes import Proof, SupersededError
from drumlin.coordinator.taking.backlog import Backlog, put_off, renewals_of
from drumlin.coordinator.taking.receipts import bind_to_segment, give_receipts
from drumlin.coordinator.taking.settling import Taken
from drumlin.errors import BusyError
from drumlin.events.kafka import Kafka
from drumlin.http.refusal import Refused
from drumlin.protocol import (
    BODY_BYTES_MAX,
    LINKS_BATCH_MAX,
    Accepted,
    BundleOffer,
    BundlePlace,
    BundleStored,
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
    Rejection,
    Results,
    Work,
    WorkRequest,
    is_hexadecimal,
    paths,
)
from drumlin.protocol.refusals import RefusalCode
from drumlin.store.bundles import BUNDLE_BYTES_MAX
from drumlin.store.files import StoreFiles

LONG_POLL_S = 0.25
LONG_POLLERS_MAX = 64
"""How many requests may wait for work at once. Each that is woken asks the engine again, so this bounds the load."""
WOKEN_BY_RESULTS = 4
"""How many of them a batch of results wakes: it brings work for some, not for thousands of idle nodes."""
REQUEST_BYTES_MAX = 4 * 1024 * 1024
RESERVED_IDS = frozenset({"register"})
RESERVED_BEGINNINGS = ("compacted.", "coordinator-")
"""Names in a store that begin so are those of files that coordinators make."""
"""Names that a node cannot have, because the API's own paths use them."""
NOT_REGISTERED = {404: "The node has not registered, or is long forgotten."}
_PROOFS = {Role.JOIN: Proof.JOIN_TOKEN, Role.NODE: Proof.OWN_TOKEN}


class NodeCalls:
    """The calls of nodes. `on_failure` is called when a node cannot go on."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        access: AccessControl,
        gate: Gate,
        intake: Intake,
        *,
        engine_time: EngineTime,
        on_failure: Callable[[Failure], None],
        store: Path | None,
        files: StoreFiles | None,
        endpoint: str,
        bundle_quota_bytes: int,
    ) -> None:
        self._dispatcher = dispatcher
        self.traces: CoordinatorTraces | None = None
        """Whom to tell of URLs that are given out and settled."""
        self._kafka: Kafka | None = None
        self._access = access
        self._gate = gate
        self._intake = intake
        self._time = engine_time
        self._on_failure = on_failure
        self._bundles = Bundles(dispatcher, store, files, bundle_quota_bytes)
        self._endpoint = endpoint
        self.drained = asyncio.Event()
        """Set when the crawl may have nothing left, so a tick should look."""
        self._waiting: deque[asyncio.Event] = deque()
        self._backlog = Backlog()

    def use_kafka(self, kafka: Kafka) -> None:
        """Tell Kafka of leases that are given, and of bundles that are stored."""
        self._kafka = kafka
        self._bundles.owe, self._bundles.owe_no_more = kafka.owe, kafka.owe_no_more

    def work_may_have_come(self, nodes: int = LONG_POLLERS_MAX) -> None:
        """Wake nodes that wait for work, beginning with those that have waited longest."""
        for _ in range(min(nodes, len(self._waiting))):
            self._waiting.popleft().set()

    def routes(self) -> list[Route]:
        return [
            Route(
                method="POST",
                path=paths.REGISTER,
                summary="A node joins the fleet",
                answer=self.register,
                permission=Permission.JOIN,
                node_of=lambda message: message.node_id,
                takes=Register,
                gives=Registered,
                refusals={409: "Another node has this name, it is not allowed, or the node stores elsewhere."},
            ),
            Route(
                method="POST",
                path=paths.WORK,
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
                path=paths.KNOWN,
                summary="Ask which contents were stored before",
                answer=self.known,
                permission=Permission.NODE,
                takes=KnownRequest,
                gives=Known,
                body_bytes_max=REQUEST_BYTES_MAX,
            ),
            Route(
                method="POST",
                path=paths.RESULTS,
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
                path=paths.HEARTBEAT,
                summary="Say that the node is alive, and how it is doing",
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
                path=paths.FAILED,
                summary="Say that the node cannot go on",
                answer=self.failed,
                permission=Permission.NODE,
                takes=Failure,
                gives=Done,
            ),
            Route(
                method="GET",
                path=paths.STATUS,
                summary="How a node is doing",
                answer=self.status,
                permission=Permission.WATCH_NODE,
                gives=NodeView,
                refusals={404: "There is no such node, or it has left."},
            ),
            Route(
                method="DELETE",
                path=paths.NODE,
                summary="A node leaves cleanly; its leases return at once",
                answer=self.leave,
                permission=Permission.NODE,
                takes=LeaveQuery,
                gives=Done,
            ),
            *self._bundle_routes(),
        ]

    def _bundle_routes(self) -> list[Route]:
        return [
            Route(
                method="PUT",
                path=paths.BUNDLE,
                summary="Store captures of a node that cannot write to the store itself",
                answer=self.bundle,
                permission=Permission.NODE,
                gives=BundleStored,
                body_bytes_max=BUNDLE_BYTES_MAX,
                streams_body=True,
                refusals={409: "The body was damaged, is not a valid bundle, or cannot be stored here."},
            ),
            Route(
                method="POST",
                path=paths.BUNDLE_PLACE,
                summary="Ask where to put a bundle: a place in the store's inbox, or this coordinator",
                answer=self.bundle_place,
                permission=Permission.NODE,
                takes=BundleOffer,
                gives=BundlePlace,
                refusals={409: "This coordinator keeps no store, or the bundle is too large."},
            ),
            Route(
                method="POST",
                path=paths.BUNDLE_ARRIVED,
                summary="Have a bundle checked and stored that is in the place it was given",
                answer=self.bundle_arrived,
                permission=Permission.NODE,
                takes=BundleOffer,
                gives=BundleStored,
                refusals={409: "It was damaged, is not a valid bundle, or cannot be stored here."},
            ),
        ]

    async def register(self, call: Call, message: Register) -> Registered:
        wanted = message.node_id or ""
        if wanted in RESERVED_IDS or wanted.startswith(RESERVED_BEGINNINGS):
            raise Refused(409, "bad_node_id", f"A node cannot be called {message.node_id}.", "Choose another name.")
        self._bundles.check_store(message.metadata)
        try:
            proof = _PROOFS.get(call.identity.role, Proof.NONE) if self._access.signed else Proof.NONE
            record = await self._dispatcher.register(message, call.now, address=call.address, proof=proof)
        except SupersededError as late:
            raise Refused(409, "superseded", late.message, late.hint) from late
        except BusyError as taken:
            raise Refused(409, RefusalCode.NODE_ID_TAKEN, taken.message, taken.hint) from taken
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
            crawl_id=self._dispatcher.crawl_id,
        )

    async def _check_registered(self, call: Call) -> None:
        """Make a node that no coordinator knows register again; Redis may have lost its last second of data."""
        if not await self._dispatcher.has_registered(call.node_id):
            message = f"No node called {call.node_id} has registered."
            raise Refused(404, RefusalCode.NOT_REGISTERED, message, f"POST {paths.REGISTER} first.")

    async def work(self, call: Call, request: WorkRequest) -> Work:
        begun_s = self.traces.wall() if self.traces is not None else 0.0
        work = await self._work(call, request)
        if self.traces is not None:
            self.traces.given(work, call.node_id, begun_s)
        if self._kafka is not None:
            self._kafka.given(work, call.node_id)
        return work

    async def _work(self, call: Call, request: WorkRequest) -> Work:
        """Answer at once if there is work, otherwise wait a little for some to come."""
        node = call.node_id
        await self._check_registered(call)
        await call.check_awaited()
        if self._backlog.too_long or (self._kafka is not None and self._kafka.full):
            return put_off(await self._dispatcher.work(node, renewals_of(request), call.now))
        work = await self._dispatcher.work(node, request, call.now)
        content = bool(work.leases or work.lost or request.max_hosts == 0 or not request.max_tasks)
        if content or work.state is not CrawlState.RUNNING or len(self._waiting) >= LONG_POLLERS_MAX:
            return work
        woken = asyncio.Event()
        self._waiting.append(woken)
        # Not by `asyncio.timeout`, which works in a task only: the simulator begins calls without one.
        patience = asyncio.get_running_loop().call_later(LONG_POLL_S, woken.set)
        try:
            await woken.wait()
        finally:
            patience.cancel()
            if woken in self._waiting:
                self._waiting.remove(woken)
        await call.check_awaited()
        if await self._dispatcher.nodes.has_left(self._dispatcher.engine, node):
            # To answer it as before would make it present again, and give it hosts that it will not contact.
            return Work([], [], 0.0, CrawlState.DRAINING)
        return await self._dispatcher.work(node, request, await self._time.now())

    async def known(self, call: Call, request: KnownRequest) -> Known:
        if not is_hexadecimal(one for _, one in request.contents):
            message = "A content hash must be a SHA-256 in hexadecimal, in lower case."
            raise Refused(422, "invalid", message)
        return await self._dispatcher.known(request)

    async def results(self, call: Call, results: Results | ToldResults) -> Accepted:
        await self._check_registered(call)
        _check_links(results)
        begun_s = self.traces.wall() if self.traces is not None else 0.0
        settle = await self._prepare(call.node_id, results)
        async with self._backlog.turn_of(call.node_id, len(results.results)):
            taken = await settle()
        accepted = taken.accepted
        if self.traces is not None and isinstance(results, Results):
            self.traces.settled(results, taken, call.node_id, begun_s)
        self.work_may_have_come(WOKEN_BY_RESULTS)
        if self._dispatcher.may_be_finished:
            self.drained.set()
        if accepted.rejected_count:
            await self._judge(call, accepted)
        else:
            self._gate.counted(call.identity, accepted.accepted_count, call.now)
        return accepted

    async def _prepare(self, node: str, results: Results | ToldResults) -> Callable[[], Awaitable[Taken]]:
        """Return the function that settles a batch. Pages that the sender has not stored are parsed first; settling
        then stores them too."""
        if isinstance(results, Results):
            return lambda: self._settle_stored(node, results)
        if results.stored:
            stored = as_stored(results, self._time.today())
            return lambda: self._settle_stored(node, stored)
        tellings = await self._intake.read(node, results.results)
        return lambda: self._intake.take(node, tellings, results.hosts)

    async def _settle_stored(self, node: str, results: Results) -> Taken:
        if results.segment:
            bind_to_segment(results)
        taken = await self._dispatcher.take(node, results, await self._time.now())
        if results.segment:
            give_receipts(self._dispatcher.seals, results, taken.accepted)
        return taken

    async def _judge(self, call: Call, accepted: Accepted) -> None:
        reasons = [rejected.reason for rejected in accepted.rejected]
        self._gate.refused_results.update(reasons)
        # Made-up results are judged elsewhere (`Gate.account`). "Not yours" is not held against anybody: a node that
        # recovers what a dead one left gets that answer until the dead node is known to be dead.
        await self._gate.judge(
            call.identity, call.now, settled=accepted.accepted_count, late=reasons.count(Rejection.STALE)
        )

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
        """One node at work. People find nodes that have left in the list of all nodes."""
        record = await self._dispatcher.node(call.node_id)
        if record is None or record.status is NodeStatus.INACTIVE:
            raise Refused(404, "no_such_node", f"No node called {call.node_id} is at work.", f"See GET {paths.NODES}.")
        return node_view(record, self._dispatcher.orders.nodes.get(record.node_id))

    async def bundle(self, call: Call, message: None) -> BundleStored:
        check_bundle_id(call.parameters["bundle_id"])
        return await self._bundles.take(call)

    async def bundle_place(self, call: Call, offer: BundleOffer) -> BundlePlace:
        check_bundle_id(call.parameters["bundle_id"])
        return await self._bundles.place(call, offer)

    async def bundle_arrived(self, call: Call, offer: BundleOffer) -> BundleStored:
        check_bundle_id(call.parameters["bundle_id"])
        return await self._bundles.take_arrived(call, offer)

    async def leave(self, call: Call, query: LeaveQuery) -> Done:
        await self._dispatcher.leave(call.node_id, call.now, boot=query.boot)
        self.work_may_have_come()
        return Done()


def _joined_by(who: Identity) -> str:
    """The id of the token that a node joined with: the one it registers with now or, if that is the node's own token,
    the one it first joined with."""
    return who.joined_by if who.role is Role.NODE else who.id


def _check_links(results: Results | ToldResults) -> None:
    """Refuse a batch with too many links in all: a batch of results that are each just within bounds could take
    minutes."""
    if sum(len(result.links or ()) for result in results.results) > LINKS_BATCH_MAX:
        message = f"A batch may have at most {LINKS_BATCH_MAX:,} links."
        raise Refused(413, "too_many_links", message, "Send smaller batches.")
