"""Talking to coordinators, over the same libcurl loop that fetches pages: a Unix socket or HTTP(S), MessagePack bodies.

Any coordinator of a crawl will do. Calls go to one until it fails. The first repetition goes to the next one at once;
further ones wait longer and longer, with some chance in it, because a whole fleet should not come back at the same
moment. A call that failed on the way is repeated for as long as its sender wants, since every call is safe to repeat.
Only this file repeats calls: libcurl would by itself send a call again if a kept connection breaks, but with the same
signature, which looks like a replay attack.

There may be a proxy between a node and its coordinators that sends answers of its own: an HTML page with status 403,
404, 413 or even 200. A node must not end because of such an answer. It writes a line about it and repeats the call.

If access is controlled, a call carries the node's token, and results are signed anew each time they are sent. If the
token is not accepted any more, or the coordinators do not know the node, the node registers again and then repeats the
call. It registers with its own token, unless that is what was refused; then with the token with which it joined.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

import msgspec
import pycurl
import zstandard

from drumlin.access.signing import NONCE_BYTES, sign
from drumlin.clock import CLOCKS, Clocks
from drumlin.errors import EngineError
from drumlin.fetch import Fetcher, Transfer
from drumlin.logs import Event, event
from drumlin.model import FailureKind
from drumlin.node.calling.answers import (
    Refusal,
    TroubleLog,
    pause_asked_s,
    refusal_of,
    reply_of,
    tell_strange_answer,
    why_failed,
)
from drumlin.node.calling.coordinator_time import CoordinatorTime
from drumlin.node.calling.parties import Coordinators, Credentials
from drumlin.protocol import MEDIA_TYPE, Register, Registered, paths
from drumlin.protocol.refusals import LOST_ON_THE_WAY, NEEDS_REGISTERING, NEEDS_TOKEN, RefusalCode
from drumlin.tls import NO_CERTIFICATE_HINT, explained

Reply = TypeVar("Reply")

CALL_TIMEOUT_S = 10.0
PROBE_TIMEOUT_S = 5.0
UPLOAD_TIMEOUT_S = 600.0
CONNECT_TIMEOUT_S = 5.0
CALL_POLL_S = 0.05
RETRY_WAIT_MIN_S = 0.05
RETRY_WAIT_MAX_S = 5.0
PATIENCE_SHARE = 0.2
OUTAGE_TOLD_AFTER_S = 3.0
PACK_BYTES_MIN = 1024
PACK_LEVEL = 1
REJOINS_MAX = 6
REJOIN_WAIT_MIN_S = 0.25
"""The pause doubles with each registration that did not help. Coordinators learn of a revocation within some seconds,
and in between one of them may give out a token that another one refuses."""
NAME_WAIT_S = 90.0
"""How long a node waits for its name if the name is taken. The holder may be dead: coordinators notice that only after
three missed heartbeats, of 20 s each in the largest fleets."""
NAME_RETRY_S = 1.0
FOREVER = float("inf")

HUNG_UP = frozenset({FailureKind.RESET, FailureKind.TLS})
REPEATABLE = frozenset({408, 425, 429})
SERVER_ERRORS = 500

log = logging.getLogger("drumlin.node")
_encoder = msgspec.msgpack.Encoder()


class CoordinatorGone(EngineError):
    """No coordinator has answered for too long."""


class CoordinatorRefused(EngineError):
    """A coordinator has refused a call, and repeating it would not help."""


class _Call(msgspec.Struct):
    """One message on its way; it may be sent several times."""

    method: str
    path: str
    body: bytes
    headers: list[str]
    reply: Any
    on_reply: Callable[[Any], None]
    on_failure: Callable[[float], None] | None
    since: float
    repeat_s: float
    timeout_s: float
    signed: bool = False
    joins: bool = False
    upload: BinaryIO | None = None
    upload_bytes: int = 0
    on_refused: Callable[[Refusal], bool] | None = None
    failures: int = 0
    strange: bool = False
    """Whether a line was written that something other than a coordinator answers this call."""
    token: str = ""
    """The token with which it was last sent."""


class CoordinatorClient:
    """Sends messages and passes on the replies. `chance` is uniform in [0, 1). `store_authority` is the file of the
    authorities to trust where a bundle is sent elsewhere than to a coordinator."""

    def __init__(
        self,
        fetcher: Fetcher,
        coordinators: Coordinators,
        *,
        chance: Callable[[], float],
        access: Credentials | None = None,
        curl_options: dict[int, str | int] | None = None,
        store_authority: str = "",
        rejoin: Callable[[], Register] | None = None,
        clocks: Clocks = CLOCKS,
    ) -> None:
        self._fetcher = fetcher
        self._clocks = clocks
        self._coordinators = coordinators
        self._chance = chance
        self._access = access or Credentials()
        self._curl_options = curl_options or {}
        self._store_authority = store_authority
        self._rejoin = rejoin
        self._packs = not all(endpoint.startswith("unix:") for endpoint in coordinators.endpoints)
        self._compressor = zstandard.ZstdCompressor(level=PACK_LEVEL)
        self.time = CoordinatorTime(monotonic=clocks.boot, wall=clocks.wall)
        self._failures = 0
        self._failing_since = 0.0
        self._troubles = TroubleLog()
        self._heard = False
        self._answered_at = [-FOREVER for _ in coordinators.endpoints]
        """When each coordinator last answered."""
        self._rejoining = False
        self._rejoins = 0
        self._idle: dict[str, list[Any]] = {endpoint: [] for endpoint in coordinators.endpoints}
        self._repeat: list[tuple[float, _Call]] = []
        self.meanwhile: Callable[[float], None] = lambda now: None
        """Called again and again while `wait_for` waits."""

    def __repr__(self) -> str:
        standing = f"cut off for {self.cut_off_s:.0f} s" if self.cut_off else "answered"
        return f"<CoordinatorClient of {self._coordinators.endpoint}: {standing}, {len(self._repeat)} calls to repeat>"

    @property
    def among_strangers(self) -> bool:
        """Whether nodes have to prove who they are. If so, other nodes of this crawl may belong to other people."""
        return bool(self._access.key)

    @property
    def cut_off(self) -> bool:
        """Whether no coordinator answers: a call failed, and none has succeeded since."""
        return self._failures > 0

    @property
    def cut_off_s(self) -> float:
        return self._clocks.boot() - self._failing_since if self._failures else 0.0

    def due(self) -> float:
        """When `repeat_failed` next has something to do."""
        return min([at for at, _ in self._repeat]) if self._repeat else FOREVER

    def post(
        self,
        path: str,
        message: Any,
        reply: type[Reply],
        on_reply: Callable[[Reply], None],
        *,
        method: str = "POST",
        signed: bool = False,
        on_failure: Callable[[float], None] | None = None,
        on_refused: Callable[[Refusal], bool] | None = None,
        repeat_s: float = FOREVER,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Send `message`; `on_reply` is called from the fetcher's loop. A call that fails is repeated for `repeat_s`;
        then `on_failure` is called with how long to wait before the next call. Without one, CoordinatorGone is
        raised. `on_refused` is as in `upload`."""
        call = self._call(path, message, reply, on_reply)
        call.method, call.signed, call.on_failure, call.on_refused = method, signed, on_failure, on_refused
        call.repeat_s, call.timeout_s = repeat_s, timeout_s
        self._send(call)

    def _call(self, path: str, message: Any, reply: type[Reply], on_reply: Callable[[Reply], None]) -> _Call:
        body, headers = self._packed(_encoder.encode(message) if message is not None else b"")
        call = _Call("POST", path, body, headers, reply, on_reply, None, self._clocks.boot(), FOREVER, CALL_TIMEOUT_S)
        call.joins = isinstance(message, Register)
        return call

    def upload(
        self,
        path: str,
        file: BinaryIO,
        headers: list[str],
        reply: type[Reply],
        on_reply: Callable[[Reply], None],
        repeat_s: float = FOREVER,
        on_refused: Callable[[Refusal], bool] | None = None,
    ) -> None:
        """Send a file with PUT, as it is, without holding it in memory. If a coordinator refuses it, `on_refused` is
        called and returns whether it has dealt with that; otherwise the refusal is handled like any other."""
        now = self._clocks.boot()
        call = _Call("PUT", path, b"", headers, reply, on_reply, None, now, repeat_s, UPLOAD_TIMEOUT_S)
        call.upload, call.upload_bytes = file, os.fstat(file.fileno()).st_size
        call.on_refused = on_refused
        self._send(call)

    def put_elsewhere(self, url: str, file: BinaryIO, headers: list[str], on_done: Callable[[int], None]) -> None:
        """Send a file with PUT to an address that a coordinator gave; `on_done` is called with the status, or 0. It is
        not repeated: such an address is valid for a while only."""
        curl = pycurl.Curl()
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.URL, url)
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        if self._store_authority:
            curl.setopt(pycurl.CAINFO, self._store_authority)
        curl.setopt(pycurl.HTTPHEADER, [*headers, "Expect:"])
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, int(CONNECT_TIMEOUT_S * 1000))
        curl.setopt(pycurl.TIMEOUT_MS, int(UPLOAD_TIMEOUT_S * 1000))
        _set_upload(curl, file, os.fstat(file.fileno()).st_size)

        def done(transfer: Transfer) -> None:
            curl.setopt(pycurl.UPLOAD, 0)
            on_done(0 if transfer.failure else transfer.status)

        self._fetcher.start_handle(curl, done)

    def call(
        self,
        path: str,
        message: Any,
        reply: type[Reply],
        *,
        method: str = "POST",
        within_s: float,
        signed: bool = False,
    ) -> Reply:
        """Send `message` and wait for the reply; for calls before the node's loop begins and after it has ended."""
        replies: list[Reply] = []
        self.post(path, message, reply, replies.append, method=method, repeat_s=within_s, signed=signed)
        self.wait_for(lambda: bool(replies))
        return replies[0]

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Run calls until `done`; for the time in which the node's loop does not run."""
        while not done():
            self.meanwhile(self._clocks.boot())
            self._fetcher.run_once(min(CALL_POLL_S, max(0.0, self.due() - self._clocks.boot())))
            self.repeat_failed()

    def repeat_failed(self) -> None:
        """Send failed calls again whose pause is over."""
        if not self._repeat:
            return
        now = self._clocks.boot()
        due = [call for at, call in self._repeat if at <= now]
        self._repeat = [entry for entry in self._repeat if entry[0] > now]
        for call in due:
            self._send(call)

    # Sending

    def _packed(self, body: bytes) -> tuple[bytes, list[str]]:
        if not self._packs or len(body) < PACK_BYTES_MIN:
            return body, []
        return self._compressor.compress(body), ["Content-Encoding: zstd"]

    def _send(self, call: _Call) -> None:
        place = self._coordinators.current
        endpoint = self._coordinators.endpoints[place]
        curl = self._idle[endpoint].pop() if self._idle[endpoint] else self._new_handle(endpoint)
        base = "http://coordinator" if endpoint.startswith("unix:") else endpoint.rstrip("/")
        curl.setopt(pycurl.URL, base + call.path)
        curl.setopt(pycurl.HTTPHEADER, [*call.headers, *self._headers(call)])
        curl.setopt(pycurl.TIMEOUT_MS, int(call.timeout_s * 1000))
        _set_body(curl, call)

        def done(transfer: Transfer) -> None:
            if call.upload is not None:
                curl.setopt(pycurl.UPLOAD, 0)
            self._idle[endpoint].append(curl)
            self._ended(call, transfer, place)

        self._fetcher.start_handle(curl, done)

    def _headers(self, call: _Call) -> list[str]:
        access = self._access
        headers = [f"Content-Type: {MEDIA_TYPE}", f"Accept: {MEDIA_TYPE}", "Expect:"]
        call.token = access.token or (access.join_token if call.joins else "")
        if call.token:
            headers.append(f"Authorization: Bearer {call.token}")
        if call.signed and access.key:
            # Every time it is sent it needs a new signature: a second request with the same one counts as a replay.
            nonce = os.urandom(NONCE_BYTES)
            signature = sign(access.key, call.method, call.path, call.body, self.time.now(), nonce)
            headers.append(f"{paths.SIGNATURE_HEADER}: {signature}")
        return headers

    def _new_handle(self, endpoint: str) -> Any:
        curl = pycurl.Curl()
        options: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.PROXY: "",
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
            pycurl.CONNECTTIMEOUT_MS: int(CONNECT_TIMEOUT_S * 1000),
            **self._curl_options,
        }
        if endpoint.startswith("unix:"):
            options[pycurl.UNIX_SOCKET_PATH] = endpoint.removeprefix("unix:")
        for option, value in options.items():
            curl.setopt(option, value)
        return curl

    # What came back

    def _ended(self, call: _Call, transfer: Transfer, place: int) -> None:
        """A call has come back from the coordinator at `place`, or not."""
        self.time.hear(transfer.header_lines)
        reply = reply_of(transfer, call.reply)
        if reply is None:
            self._failed(call, transfer, place)
        else:
            self._answered(call, place)
            call.on_reply(reply)

    def _answered(self, call: _Call, place: int) -> None:
        self._troubles.answer(self.cut_off_s)
        self._failures = 0
        self._heard = True
        self._answered_at[place] = self._clocks.boot()
        if not call.joins:
            self._rejoins = 0
        if call.strange:
            log.warning("%s gets through again", call.path, extra=event(Event.COORDINATOR_BACK))

    def _failed(self, call: _Call, transfer: Transfer, place: int) -> None:
        """Plan to repeat a call that failed, or raise an error that says why it is not repeated."""
        self._note_hanging(transfer, place)
        refusal = refusal_of(transfer)
        strange = not transfer.failure and not refusal.code
        if not transfer.failure and call.on_refused is not None and call.on_refused(refusal):
            return
        endpoint = self._coordinators.endpoints[place]
        said = self._tls_trouble(call, transfer, place) or why_failed(transfer, refusal, endpoint)
        if strange and transfer.status < SERVER_ERRORS and transfer.status not in REPEATABLE:
            wait_s = self._answered_by_a_stranger(call, transfer, place, said)
        elif not transfer.failure and 400 <= transfer.status < 500:
            wait_s = self._refused(call, transfer, refusal, place, said)
        else:
            wait_s = self._pause_s(call, transfer, place, said)
        if self._clocks.boot() + wait_s - call.since <= call.repeat_s:
            self._repeat.append((self._clocks.boot() + wait_s, call))
        elif call.on_failure is not None:
            # After its first failure a call may not have to wait at all, so that another coordinator is asked at once.
            # Of a call that is not repeated every failure is the first.
            call.on_failure(max(wait_s, self.wait_s()))
        else:
            message = f"No coordinator answered {call.path} within {call.repeat_s:.0f} s ({endpoint}: {said})."
            raise CoordinatorGone(message, "Check --coordinator, and that it runs.")

    def _refused(self, call: _Call, transfer: Transfer, refusal: Refusal, place: int, said: str) -> float:
        """How long to wait before a refused call is repeated. Raises an error if repeating would not help."""
        if self._rejoin is not None and refusal.code in NEEDS_REGISTERING and not call.joins:
            return self._join_again(self._rejoin, call, refusal)
        if call.joins and refusal.code in NEEDS_TOKEN and self._drop_own_token(call):
            return RETRY_WAIT_MIN_S
        if transfer.status in REPEATABLE or refusal.code in LOST_ON_THE_WAY:
            self._troubles.refused(refusal)
            return self._pause_s(call, transfer, place, said)
        waits = call.joins and refusal.code == RefusalCode.NODE_ID_TAKEN
        if waits and self._clocks.boot() - call.since < min(NAME_WAIT_S, call.repeat_s - NAME_RETRY_S):
            if not call.failures:
                log.warning("waiting to join: %s", refusal.message, extra=refusal.event())
            call.failures += 1
            return NAME_RETRY_S
        if call.joins and refusal.code in NEEDS_TOKEN:
            hint = "Ask for another: `drumlin tokens create --role join` makes one."
            raise CoordinatorRefused(f"The coordinator does not let this node join: {refusal.message}", hint)
        raise CoordinatorRefused(f"The coordinator refused {call.path}: {refusal.message}", refusal.hint)

    def _answered_by_a_stranger(self, call: _Call, transfer: Transfer, place: int, said: str) -> float:
        """How long to wait after an answer that is not a coordinator's. Other calls may succeed meanwhile, for instance
        if a proxy only refuses large bodies. So the failures of this call are counted and reported by themselves."""
        endpoint = self._coordinators.endpoints[place]
        wait_s = self._pause_s(call, transfer, place, said)
        if self._clocks.boot() - call.since >= OUTAGE_TOLD_AFTER_S and not (call.strange or self._troubles.cut_off):
            call.strange = True
            tell_strange_answer(endpoint, call.path, transfer.status, call.upload_bytes or len(call.body))
        return max(wait_s, min(RETRY_WAIT_MAX_S, RETRY_WAIT_MIN_S * 2.0 ** min(call.failures - 1, 10)))

    def _tls_trouble(self, call: _Call, transfer: Transfer, place: int) -> str:
        """What is wrong with a certificate, or "" if that is not the reason. A node that has never joined ends with
        this error, because waiting does not repair a certificate."""
        said = explained(transfer.error) if transfer.failure else None
        if said is not None and call.joins and not self._heard and not self._coordinators.several:
            raise CoordinatorRefused(*said)
        secured = self._coordinators.endpoints[place].startswith("https:")
        if secured and transfer.failure in HUNG_UP and pycurl.SSLCERT not in self._curl_options and said is None:
            return f"{transfer.error}. {NO_CERTIFICATE_HINT}"
        return " ".join(said or ())

    def _pause_s(self, call: _Call, transfer: Transfer, place: int, said: str) -> float:
        """How long to wait before the next try. It goes to another coordinator, unless this one only asked to wait."""
        call.failures += 1
        asked_s = pause_asked_s(transfer, self._clocks.wall())
        if transfer.status == 429:
            return max(asked_s, RETRY_WAIT_MIN_S) * (1.0 + PATIENCE_SHARE * self._chance())
        self._note_outage(said)
        self._coordinators.avoid(place)
        if call.failures == 1 and self._coordinators.several:
            return 0.0
        return max(asked_s, self.wait_s())

    def wait_s(self) -> float:
        """A pause that grows with the number of failures in a row, and by chance differs from node to node."""
        longest_s = min(RETRY_WAIT_MAX_S, RETRY_WAIT_MIN_S * 2.0 ** min(self._failures, 10))
        return longest_s * (0.5 + 0.5 * self._chance())

    def _note_outage(self, said: str) -> None:
        if not self._failures:
            self._failing_since = self._clocks.boot()
        self._failures += 1
        if not self._troubles.cut_off and self.cut_off_s >= OUTAGE_TOLD_AFTER_S:
            self._troubles.no_answer(said, heard=self._heard)

    def _note_hanging(self, transfer: Transfer, place: int) -> None:
        """Write a line if some calls are answered while others are not. It is not an outage, so nothing else reports
        it."""
        now, endpoints = self._clocks.boot(), self._coordinators.endpoints
        answered = [at > transfer.started for at in self._answered_at]
        mixed = transfer.failure is FailureKind.TIMEOUT and any(answered)
        # If this process was busy meanwhile, for instance with a page, it could not notice the answer.
        if mixed and self._fetcher.absent_at < transfer.started:
            other = "" if answered[place] else endpoints[answered.index(True)]
            self._troubles.hanging(endpoints[place], other, now - transfer.started, now)

    def _join_again(self, registration: Callable[[], Register], call: _Call, refusal: Refusal) -> float:
        """Register again, because the token expired, was revoked or belongs to another secret, or because the
        coordinators have forgotten this node. Returns how long the refused call has to wait."""
        old = refusal.code in NEEDS_TOKEN and not self._drop_own_token(call)
        if not self._rejoining and not (old and self._access.token):
            self._begin_joining(registration, refusal)
        call.failures += 1
        return min(RETRY_WAIT_MAX_S, RETRY_WAIT_MIN_S * 2.0 ** min(call.failures - 1, 10))

    def _drop_own_token(self, call: _Call) -> bool:
        """Stop using the node's own token; False if the call was not sent with that token."""
        own = bool(call.token) and call.token == self._access.token
        if own:
            self._access.token = ""
        return own

    def _begin_joining(self, registration: Callable[[], Register], refusal: Refusal) -> None:
        self._rejoins += 1
        if self._rejoins > REJOINS_MAX:
            message = f"The coordinator refuses this node even after it registered again: {refusal.message}"
            raise CoordinatorRefused(message, refusal.hint)
        self._rejoining = True
        log.info("registering again: %s", refusal.message, extra=refusal.event())
        wait_s = REJOIN_WAIT_MIN_S * 2.0 ** (self._rejoins - 2) if self._rejoins > 1 else 0.0
        join = self._call(paths.REGISTER, registration(), Registered, self._joined_again)
        self._repeat.append((self._clocks.boot() + wait_s, join))

    def _joined_again(self, registered: Registered) -> None:
        self._rejoining = False
        self._access.granted(registered)
        log.info("joined again", extra=event(Event.JOINED_AGAIN))

    def renewed(self, token: str | None) -> None:
        """Use this token from now on, if there is one: coordinators give a new one before the old one expires."""
        if token:
            self._access.token = token


def _set_body(curl: Any, call: _Call) -> None:
    if call.upload is not None:
        _set_upload(curl, call.upload, call.upload_bytes)
    else:
        curl.setopt(pycurl.POSTFIELDS, call.body)
    curl.setopt(pycurl.CUSTOMREQUEST, call.method)


def _set_upload(curl: Any, file: BinaryIO, size: int) -> None:
    file.seek(0)
    curl.setopt(pycurl.UPLOAD, 1)
    curl.setopt(pycurl.READFUNCTION, file.read)
    curl.setopt(pycurl.INFILESIZE_LARGE, size)
