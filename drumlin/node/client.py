"""Talking to coordinators, over the same libcurl loop that fetches pages: a Unix socket or HTTP(S), MessagePack bodies.

Any coordinator of a crawl will do. Calls go to one until it fails; the first repetition goes to the next at once, those
after it wait ever longer, by chance, so that a fleet does not come back all at once. A call that failed on the way is
repeated for as long as its sender wants: every call is safe to repeat. It is repeated here alone: libcurl would send it
again by itself when a kept connection dies under it, with the same signature, which looks like a replay.

Between a node and its coordinators there may be a proxy with answers of its own: a page of HTML that says 403, 404, 413
or even 200. Such an answer is no coordinator's word, so nobody ends by it: it is told of, and the call is repeated.

Where access is controlled a call carries the node's token, and results are signed each time they are sent. When the
token is not taken any more, or the coordinators do not know the node, it registers again and then repeats the call. It
registers with its own token if that is not the fault, else with the token it joined with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TypeVar

import msgspec
import pycurl
import zstandard

from drumlin.clock import monotonic
from drumlin.errors import EngineError
from drumlin.fetch import Fetcher, Transfer
from drumlin.lines import tell
from drumlin.model import FailureKind
from drumlin.node.answers import Refusal, hanging, refusal_of, reply_of, retry_after_s, strange_answer
from drumlin.node.coordinator_time import CoordinatorTime
from drumlin.protocol import MEDIA_TYPE, Register, Registered
from drumlin.signing import HEADER as SIGNATURE_HEADER
from drumlin.signing import NONCE_BYTES, sign
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
HANGING_TOLD_EVERY_S = 60.0
PACK_BYTES_MIN = 1024
PACK_LEVEL = 1
REJOINS_MAX = 6
REJOIN_WAIT_MIN_S = 0.25
"""Doubled with each registration that did not help. Coordinators hear of a revocation within seconds of each other, and
in between one of them may give a token that another does not take."""
NAME_WAIT_S = 90.0
"""How long a name may be taken before a node believes it: a dead node is at work to others until it has missed three
heartbeats, of 20 s in the largest fleets."""
NAME_RETRY_S = 1.0
FOREVER = float("inf")

HUNG_UP = frozenset({FailureKind.RESET, FailureKind.TLS})
REPEATABLE = frozenset({408, 425, 429})
SERVER_ERRORS = 500
# What went wrong on the way only: a bundle that was damaged, a signature that was sent before or too long ago.
REPEATABLE_CODES = frozenset({"damaged", "replayed", "signature_out_of_time"})
# The token is void: it takes another one.
TOKEN_CODES = frozenset({"token_expired", "token_revoked", "invalid_token", "no_token"})
# It takes a registration: for another token, for another key, or because nobody remembers the last one.
REGISTER_CODES = TOKEN_CODES | {"signature_wrong", "signature_missing", "not_registered"}
NAME_TAKEN = "node_id_taken"

_encoder = msgspec.msgpack.Encoder()


class CoordinatorGone(EngineError):
    """No coordinator has answered for too long."""


class CoordinatorRefused(EngineError):
    """A coordinator does not want what we said, and will not want it later."""


class Access(msgspec.Struct):
    """How a node shows who it is: the token to join with, and what it got when it registered."""

    join_token: str = ""
    token: str = ""
    key: bytes = b""

    def granted(self, registered: Registered) -> None:
        self.token = registered.token or ""
        self.key = bytes.fromhex(registered.key or "")


class Coordinators:
    """The coordinators that a node knows, and the one that it talks to until that one fails."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.endpoints = list(endpoints)
        self.current = 0

    @property
    def several(self) -> bool:
        return len(self.endpoints) > 1

    def avoid(self, place: int) -> None:
        """Talk to the next one, unless that has been decided already."""
        if place == self.current:
            self.current = (place + 1) % len(self.endpoints)


class _Call(msgspec.Struct):
    """One message on its way, however often it is sent."""

    method: str
    path: str
    body: bytes
    headers: list[str]
    reply: Any
    on_reply: Callable[[Any], None]
    on_failure: Callable[[], None] | None
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
    """Whether it was told that something else than a coordinator answers it."""
    token: str = ""
    """What it was last sent with."""


class CoordinatorClient:
    """Sends messages and hears the replies. `chance` is uniform in [0, 1)."""

    def __init__(
        self,
        fetcher: Fetcher,
        coordinators: Coordinators,
        *,
        chance: Callable[[], float],
        access: Access | None = None,
        curl_options: dict[int, str | int] | None = None,
        rejoin: Callable[[], Register] | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._coordinators = coordinators
        self._chance = chance
        self._access = access or Access()
        self._curl_options = curl_options or {}
        self._rejoin = rejoin
        self._packs = not all(endpoint.startswith("unix:") for endpoint in coordinators.endpoints)
        self._compressor = zstandard.ZstdCompressor(level=PACK_LEVEL)
        self.time = CoordinatorTime()
        self._failures = 0
        self._failing_since = 0.0
        self._outage_told = False
        self._heard = False
        self._answered_at = self._hanging_told_at = -FOREVER
        self._rejoining = False
        self._rejoins = 0
        self._idle: dict[str, list[Any]] = {endpoint: [] for endpoint in coordinators.endpoints}
        self._repeat: list[tuple[float, _Call]] = []
        self.meanwhile: Callable[[float], None] = lambda now: None
        """What else is to be done while `wait_for` waits."""

    @property
    def among_strangers(self) -> bool:
        """Nodes must show who they are, so that others of this crawl may be somebody else's."""
        return bool(self._access.key)

    @property
    def cut_off(self) -> bool:
        """No coordinator answers: the last call failed, and none since came through."""
        return self._failures > 0

    @property
    def cut_off_s(self) -> float:
        return monotonic() - self._failing_since if self._failures else 0.0

    def due(self) -> float:
        """When `repeat_failed` next has something to do."""
        return min((at for at, _ in self._repeat), default=FOREVER)

    def post(
        self,
        path: str,
        message: Any,
        reply: type[Reply],
        on_reply: Callable[[Reply], None],
        *,
        method: str = "POST",
        signed: bool = False,
        on_failure: Callable[[], None] | None = None,
        repeat_s: float = FOREVER,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None:
        """Send `message`; `on_reply` is called from the fetcher's loop. A call that fails is repeated for `repeat_s`;
        then `on_failure` is called or, without one, CoordinatorGone is raised."""
        call = self._call(path, message, reply, on_reply)
        call.method, call.signed, call.on_failure = method, signed, on_failure
        call.repeat_s, call.timeout_s = repeat_s, timeout_s
        self._send(call)

    def _call(self, path: str, message: Any, reply: type[Reply], on_reply: Callable[[Reply], None]) -> _Call:
        body, headers = self._packed(_encoder.encode(message) if message is not None else b"")
        call = _Call("POST", path, body, headers, reply, on_reply, None, monotonic(), FOREVER, CALL_TIMEOUT_S)
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
        """Send a file with PUT, as it is, without holding it in memory. When it is refused for good, `on_refused` says
        whether it has seen to that; otherwise it is an error."""
        now = monotonic()
        call = _Call("PUT", path, b"", headers, reply, on_reply, None, now, repeat_s, UPLOAD_TIMEOUT_S)
        call.upload, call.upload_bytes = file, os.fstat(file.fileno()).st_size
        call.on_refused = on_refused
        self._send(call)

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
        """Send `message` and wait for the reply; for the steps before the loop begins and after it has ended."""
        replies: list[Reply] = []
        self.post(path, message, reply, replies.append, method=method, repeat_s=within_s, signed=signed)
        self.wait_for(lambda: bool(replies))
        return replies[0]

    def wait_for(self, done: Callable[[], bool]) -> None:
        """Let calls run until `done`; for when no other loop turns."""
        while not done():
            self.meanwhile(monotonic())
            self._fetcher.run_once(min(CALL_POLL_S, max(0.0, self.due() - monotonic())))
            self.repeat_failed()

    def repeat_failed(self) -> None:
        """Send again what did not get through, once its pause is over."""
        if not self._repeat:
            return
        now = monotonic()
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
            self.time.hear(transfer.header_lines)
            reply = reply_of(transfer, call.reply)
            if reply is None:
                self._failed(call, transfer, place)
            else:
                self._answered(call)
                call.on_reply(reply)

        self._fetcher.start_handle(curl, done)

    def _headers(self, call: _Call) -> list[str]:
        access = self._access
        headers = [f"Content-Type: {MEDIA_TYPE}", f"Accept: {MEDIA_TYPE}", "Expect:"]
        call.token = access.token or (access.join_token if call.joins else "")
        if call.token:
            headers.append(f"Authorization: Bearer {call.token}")
        if call.signed and access.key:
            # Each sending is signed by itself: a second request with the same signature would be a replay.
            nonce = os.urandom(NONCE_BYTES)
            headers.append(
                f"{SIGNATURE_HEADER}: {sign(access.key, call.method, call.path, call.body, self.time.now(), nonce)}"
            )
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

    def _answered(self, call: _Call) -> None:
        if self._outage_told:
            _tell(f"a coordinator answers again, after {self.cut_off_s:.0f} s.")
        self._failures = 0
        self._outage_told = False
        self._heard = True
        self._answered_at = monotonic()
        if not call.joins:
            self._rejoins = 0
        if call.strange:
            _tell(f"{call.path} gets through again.")

    def _failed(self, call: _Call, transfer: Transfer, place: int) -> None:
        """Repeat a call that did not come through, or say why it is not repeated."""
        self._note_hanging(transfer, place)
        refusal = refusal_of(transfer)
        strange = not transfer.failure and not refusal.code
        if not transfer.failure and call.on_refused is not None and call.on_refused(refusal):
            return
        said = refusal.message or self._tls_trouble(call, transfer, place)
        said = said or transfer.error or f"status {transfer.status}"
        if strange and transfer.status < SERVER_ERRORS and transfer.status not in REPEATABLE:
            wait_s = self._answered_by_a_stranger(call, transfer, place)
        elif not transfer.failure and 400 <= transfer.status < 500:
            wait_s = self._refused(call, transfer, refusal, place)
        else:
            wait_s = self._pause_s(call, transfer, place, said)
        if monotonic() + wait_s - call.since <= call.repeat_s:
            self._repeat.append((monotonic() + wait_s, call))
        elif call.on_failure is not None:
            call.on_failure()
        else:
            endpoint = self._coordinators.endpoints[place]
            message = f"No coordinator answered {call.path} within {call.repeat_s:.0f} s ({endpoint}: {said})."
            raise CoordinatorGone(message, "Check --coordinator, and that it runs.")

    def _refused(self, call: _Call, transfer: Transfer, refusal: Refusal, place: int) -> float:
        """How long to wait before a call that was refused is repeated; an error if that would not help."""
        if self._rejoin is not None and refusal.code in REGISTER_CODES and not call.joins:
            return self._join_again(self._rejoin, call, refusal)
        if call.joins and refusal.code in TOKEN_CODES and self._drop_own_token(call):
            return RETRY_WAIT_MIN_S
        if transfer.status in REPEATABLE or refusal.code in REPEATABLE_CODES:
            return self._pause_s(call, transfer, place, refusal.message)
        waits = call.joins and refusal.code == NAME_TAKEN
        if waits and monotonic() - call.since < min(NAME_WAIT_S, call.repeat_s - NAME_RETRY_S):
            if not call.failures:
                _tell(f"waiting to join: {refusal.message}")
            call.failures += 1
            return NAME_RETRY_S
        if call.joins and refusal.code in TOKEN_CODES:
            hint = "Ask for another: `drumlin tokens create --role join` makes one."
            raise CoordinatorRefused(f"The coordinator does not let this node join: {refusal.message}", hint)
        raise CoordinatorRefused(f"The coordinator refused {call.path}: {refusal.message}", refusal.hint)

    def _answered_by_a_stranger(self, call: _Call, transfer: Transfer, place: int) -> float:
        """How long to wait after an answer that no coordinator gives. Other calls may come through meanwhile, as when a
        proxy refuses large bodies alone: so this call counts its own failures, and is told of by itself."""
        endpoint = self._coordinators.endpoints[place]
        wait_s = self._pause_s(
            call, transfer, place, f"{endpoint} gives answers of status {transfer.status} that are no coordinator's"
        )
        if monotonic() - call.since >= OUTAGE_TOLD_AFTER_S and not (call.strange or self._outage_told):
            call.strange = True
            _tell(strange_answer(endpoint, call.path, transfer.status, call.upload_bytes or len(call.body)))
        return max(wait_s, min(RETRY_WAIT_MAX_S, RETRY_WAIT_MIN_S * 2.0 ** min(call.failures - 1, 10)))

    def _tls_trouble(self, call: _Call, transfer: Transfer, place: int) -> str:
        """What is wrong with a certificate, if that is it. A node that was never let in ends with it: waiting does not
        mend a certificate."""
        said = explained(transfer.error) if transfer.failure else None
        if said is not None and call.joins and not self._heard and not self._coordinators.several:
            raise CoordinatorRefused(*said)
        secured = self._coordinators.endpoints[place].startswith("https:")
        if secured and transfer.failure in HUNG_UP and pycurl.SSLCERT not in self._curl_options and said is None:
            return f"{transfer.error}. {NO_CERTIFICATE_HINT}"
        return " ".join(said or ())

    def _pause_s(self, call: _Call, transfer: Transfer, place: int, said: str) -> float:
        """How long to wait before the next try, which goes to another coordinator if this one is the fault."""
        call.failures += 1
        asked_s = retry_after_s(transfer)
        if transfer.status == 429:
            return max(asked_s, RETRY_WAIT_MIN_S) * (1.0 + PATIENCE_SHARE * self._chance())
        self._note_outage(said)
        self._coordinators.avoid(place)
        if call.failures == 1 and self._coordinators.several:
            return 0.0
        return max(asked_s, self.wait_s())

    def wait_s(self) -> float:
        """A pause that grows with the failures in a row, and differs from node to node."""
        longest_s = min(RETRY_WAIT_MAX_S, RETRY_WAIT_MIN_S * 2.0 ** min(self._failures, 10))
        return longest_s * (0.5 + 0.5 * self._chance())

    def _note_outage(self, said: str) -> None:
        if not self._failures:
            self._failing_since = monotonic()
        self._failures += 1
        if not self._outage_told and self.cut_off_s >= OUTAGE_TOLD_AFTER_S:
            self._outage_told = True
            meanwhile = "going on with what is leased, and trying again" if self._heard else "trying again"
            _tell(f"no coordinator answers ({said}); {meanwhile}.")

    def _note_hanging(self, transfer: Transfer, place: int) -> None:
        """Tell when some calls are answered while others are not: it is no outage, and nobody else would say so."""
        now = monotonic()
        mixed = transfer.failure is FailureKind.TIMEOUT and self._answered_at > transfer.started
        if mixed and now - self._hanging_told_at >= HANGING_TOLD_EVERY_S:
            self._hanging_told_at = now
            _tell(hanging(self._coordinators.endpoints[place], now - transfer.started))

    def _join_again(self, registration: Callable[[], Register], call: _Call, refusal: Refusal) -> float:
        """Register: the token expired, was revoked or is of another secret, or the coordinators lost what they knew of
        this node. Returns how long the call that was refused has to wait at least."""
        old = refusal.code in TOKEN_CODES and not self._drop_own_token(call)
        if not self._rejoining and not (old and self._access.token):
            self._begin_joining(registration, refusal)
        call.failures += 1
        return min(RETRY_WAIT_MAX_S, RETRY_WAIT_MIN_S * 2.0 ** min(call.failures - 1, 10))

    def _drop_own_token(self, call: _Call) -> bool:
        """Do not use the node's own token any more; False if the call was not sent with it."""
        own = bool(call.token) and call.token == self._access.token
        if own:
            self._access.token = ""
        return own

    def _begin_joining(self, registration: Callable[[], Register], refusal: Refusal) -> None:
        self._rejoins += 1
        if self._rejoins > REJOINS_MAX:
            message = f"The coordinator does not take this node, however often it registers: {refusal.message}"
            raise CoordinatorRefused(message, refusal.hint)
        self._rejoining = True
        wait_s = REJOIN_WAIT_MIN_S * 2.0 ** (self._rejoins - 2) if self._rejoins > 1 else 0.0
        join = self._call("/api/v1/nodes/register", registration(), Registered, self._joined_again)
        self._repeat.append((monotonic() + wait_s, join))

    def _joined_again(self, registered: Registered) -> None:
        self._rejoining = False
        self._access.granted(registered)

    def renewed(self, token: str | None) -> None:
        """Use another token from now on, if a coordinator gave one before the old one ends."""
        if token:
            self._access.token = token


def _set_body(curl: Any, call: _Call) -> None:
    if call.upload is not None:
        call.upload.seek(0)
        curl.setopt(pycurl.UPLOAD, 1)
        curl.setopt(pycurl.READFUNCTION, call.upload.read)
        curl.setopt(pycurl.INFILESIZE_LARGE, call.upload_bytes)
    else:
        curl.setopt(pycurl.POSTFIELDS, call.body)
    curl.setopt(pycurl.CUSTOMREQUEST, call.method)


def _tell(sentence: str) -> None:
    tell(f"drumlin node: {sentence}")
