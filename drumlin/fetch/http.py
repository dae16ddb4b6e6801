"""libcurl's multi interface on our own epoll loop: the cheapest way we measured to fetch over HTTP/1.1 and 2.

libcurl's handles are pooled: each keeps its options and callbacks for life, and a request only sets its URL. An option
that one request changes is set back before the handle is used again (`_recycle`). Bodies are taken raw, still in their
Content-Encoding, because the archive keeps what the server sent and our own decoders are faster.

libcurl tells which sockets to watch (`_on_socket`) and when it next wants to be called (`_on_timer`); `run_once` waits
for either. Sockets of idle connections stay in the epoll set, although libcurl has no more use for them: so we notice
when their server closes them (`drumlin.fetch.kept`).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import Counter, deque
from collections.abc import Callable
from math import inf
from typing import Any

import msgspec
import pycurl

from drumlin.clock import monotonic
from drumlin.fetch.budget import BODIES_BYTES_MAX, PIECE_BYTES_MAX, BodyBudget
from drumlin.fetch.failures import E_HTTP2_STREAM, error_text, failure_kind
from drumlin.fetch.guard import Guard
from drumlin.fetch.kept import ORIGINS_MAX, SURE_S, KeptConnections, origin_of
from drumlin.fetch.transfer import FOREVER, UNWANTED, Transfer, header_taker
from drumlin.http.headers import header_fields
from drumlin.http.type_limits import TypeLimits
from drumlin.model import FailureKind

EVENTS_MAX = 256
CONNECTION_AGE_MAX_S = 120
POLL_MAX_S = 1.0
ABSENT_S = 2.0
"""If `run_once` was not called for so long, the process was busy or frozen; see `Fetcher.absent_at`."""
FINISHING_S_MAX = 0.25
"""How long `run_once` may report transfers that ended. Reading them may be slow, and the caller has leases to renew."""
# libcurl itself cuts off a response head at 300 KiB, so more than that is never held.
HEADER_BYTES_MAX = 256 * 1024

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)

IDLE_UNNOTICED_S = 0.1
"""After a pause of more than this, the idle time of a connection is corrected; see `_end_contact`."""
GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
"""Events that mean that the other side has closed a connection."""

HTTP_2 = "h2"
_PROTOCOLS = {
    pycurl.CURL_HTTP_VERSION_1_0: "http/1.0",
    pycurl.CURL_HTTP_VERSION_1_1: "http/1.1",
    pycurl.CURL_HTTP_VERSION_2_0: HTTP_2,
    getattr(pycurl, "CURL_HTTP_VERSION_3", 30): "h3",
}


class FetchLimits(msgspec.Struct, frozen=True):
    """What a transfer may cost before it is cut off."""

    connect_timeout_s: float
    fetch_timeout_s: float
    body_bytes_max: int
    speed_min_bytes_s: int
    speed_window_s: int
    header_bytes_max: int = HEADER_BYTES_MAX


class _LentSocket:
    """A new socket for libcurl. pycurl duplicates the file descriptor for libcurl; ours is closed with this object."""

    def __init__(self, number: int) -> None:
        self._number = number

    def fileno(self) -> int:
        return self._number

    def __del__(self) -> None:
        os.close(self._number)


class Fetcher:
    """Runs transfers. Call `start` any time and `run_once` in a loop; `on_done` is called from `run_once`."""

    def __init__(
        self,
        limits: FetchLimits,
        *,
        user_agent: str,
        guard: Guard,
        accept_encoding: str = "gzip, deflate",
        ca_file: str = "",
        connections_max: int = 1024,
        bodies_bytes_max: int = BODIES_BYTES_MAX,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._limits = limits
        self._user_agent = user_agent
        self._accept_encoding = accept_encoding
        self._guard = guard
        self._ca_file = ca_file or default_ca_file()
        self._clock = clock
        self._budget = BodyBudget(bodies_bytes_max, limits.fetch_timeout_s)
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        self._timer_at: float | None = None
        self._turn_ended = clock()
        self.absent_at = -inf
        """When the caller last called `run_once` after `ABSENT_S` or more. Transfers that took long until then waited
        for this process, not for their servers."""
        self._idle: list[Transfer] = []
        self._active: dict[Any, Transfer] = {}
        self._ended: deque[tuple[Any, int, str]] = deque()
        """Transfers that libcurl has finished, each with its error code and message, that are not yet reported."""
        self._limited: set[Transfer] = set()
        """Transfers in flight whose type limits the size of their bodies."""
        self._kept = KeptConnections(self._unwatch)
        self._multiplexed: set[str] = set()
        """Origins that speak HTTP/2, so several requests may share one connection."""
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections_max)
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)

    @property
    def in_flight(self) -> int:
        return len(self._active)

    def count_beside(self, held_bytes: Callable[[], int]) -> None:
        """Count bodies that have arrived and wait elsewhere against the same budget as bodies under way."""
        self._budget.held_beside = held_bytes

    @property
    def request_headers(self) -> bytes:
        """The header lines of every request after its Host line, as libcurl sends them."""
        return (
            f"User-Agent: {self._user_agent}\r\nAccept: {ACCEPT}\r\nAccept-Encoding: {self._accept_encoding}\r\n\r\n"
        ).encode("latin-1", "replace")

    def start(
        self,
        url: str,
        on_done: Callable[[Transfer], None],
        context: Any = None,
        *,
        body_bytes_max: int = 0,
        send_by: float = FOREVER,
        cookie: str = "",
        types: TypeLimits | None = None,
    ) -> None:
        """Begin to fetch `url`. `on_done` is called with the transfer when it has ended, whether it succeeded or not.
        `body_bytes_max` replaces the crawl's limit for this body (robots.txt has another). Nothing is sent if the
        connection is established only after `send_by`. `cookie` is the value of the Cookie header. `types` says which
        bodies are wanted. A transfer without a `context` is the caller's to keep; others are used again."""
        transfer = self._idle.pop() if self._idle else self._new_transfer()
        transfer.url = url
        transfer.on_done = on_done
        transfer.context = context
        transfer.pooled = context is not None
        transfer.send_by = send_by
        transfer.types = types
        transfer.started = self._clock()
        transfer.curl.setopt(pycurl.URL, url)
        if "%" in url or transfer.own_target:
            # libcurl would write escapes in upper case, but a server may insist on its own spelling. Once this option
            # was set it cannot be removed, so it must be set again for every later request of the handle.
            transfer.curl.setopt(pycurl.REQUEST_TARGET, request_target(url))
            transfer.own_target = True
        if cookie:
            transfer.curl.setopt(pycurl.COOKIE, cookie.encode("latin-1", "replace"))
            transfer.cookie = cookie
        if body_bytes_max:
            transfer.curl.setopt(pycurl.MAXFILESIZE_LARGE, body_bytes_max)
            transfer.own_limit = True
        self._choose_connection(transfer)
        self._active[transfer.curl] = transfer
        self._multi.add_handle(transfer.curl)

    def _choose_connection(self, transfer: Transfer) -> None:
        """Let libcurl use an idle connection only if its server has not closed it and is not about to close it."""
        transfer.origin = origin_of(transfer.url)
        choice = self._kept.choose(transfer.origin, transfer.started)
        if choice != transfer.choice:
            transfer.choice = choice
            transfer.curl.setopt(pycurl.FRESH_CONNECT, int(choice.fresh))
            transfer.curl.setopt(pycurl.FORBID_REUSE, int(not choice.keep))

    def start_handle(self, curl: Any, on_done: Callable[[Transfer], None]) -> Transfer:
        """Run a handle that the caller made and configured, as a node's calls to its coordinator are. Its request is
        sent at most once."""
        transfer = Transfer(curl)
        transfer.on_done = on_done
        transfer.started = self._clock()
        if not self._active:
            self._turn_ended = transfer.started
        curl.setopt(pycurl.HEADERFUNCTION, transfer.header_lines.append)
        curl.setopt(pycurl.WRITEFUNCTION, transfer.body.write)
        curl.setopt(pycurl.PREREQFUNCTION, transfer.before_send)
        curl.setopt(pycurl.SOCKOPTFUNCTION, self._opened_by_caller)
        self._active[curl] = transfer
        self._multi.add_handle(curl)
        return transfer

    def run_once(self, timeout_s: float) -> int:
        """Wait for network events for at most `timeout_s`, act on them, and report transfers that ended. Returns how
        many were reported."""
        now = self._clock()
        if now - self._turn_ended >= ABSENT_S:
            self.absent_at = now
        if self._timer_at is not None:
            timeout_s = min(timeout_s, self._timer_at - now)
        if self._ended:
            timeout_s = 0.0
        events = self._epoll.poll(max(0.0, min(timeout_s, POLL_MAX_S)), EVENTS_MAX)
        self._turn_ended = self._clock()
        if self._turn_ended - now >= ABSENT_S:
            # Frozen while it waited for events, which takes `POLL_MAX_S` at most.
            self.absent_at = self._turn_ended
        action = self._multi.socket_action
        for fd, mask in events:
            if not (mask & GONE and self._kept.closed(fd, self._clock())):
                action(fd, _curl_events(mask))
        if self._timer_at is not None and self._clock() >= self._timer_at:
            self._timer_at = None
            action(pycurl.SOCKET_TIMEOUT, 0)
        if self._limited:
            self._stop_outgrown()
        finished = self._finish_transfers()
        self._budget.step(self._clock())
        return finished

    def _stop_outgrown(self) -> None:
        """End transfers whose bodies have become too large for their types. Those that libcurl has just finished are
        left alone: `_finish` notices it when they are reported."""
        self._take_ended()
        ended = {curl for curl, _, _ in self._ended}
        for transfer in [one for one in self._limited if one.outgrown and one.curl not in ended]:
            self._finish(transfer.curl, pycurl.E_WRITE_ERROR, "")

    def close(self) -> None:
        for curl in list(self._active):
            self._multi.remove_handle(curl)
            curl.close()
        for transfer in self._idle:
            transfer.curl.close()
        self._active.clear()
        self._idle.clear()
        self._multi.close()
        self._epoll.close()

    def _finish_transfers(self) -> int:
        """Report transfers that ended: all handles of the caller, then transfers from sites for `FINISHING_S_MAX`. The
        others are reported by the next call."""
        finished = self._take_ended()
        until = self._clock() + FINISHING_S_MAX
        while self._ended:
            self._finish(*self._ended.popleft())
            finished += 1
            if self._clock() > until:
                break
        return finished

    def _take_ended(self) -> int:
        """Ask libcurl what has ended. Handles of the caller are its calls to coordinators, on whose answers leases
        depend, so they are reported at once. Returns how many of these there were."""
        ended: list[tuple[Any, int, str]] = []
        queued = 1
        while queued:
            queued, succeeded, failed = self._multi.info_read(EVENTS_MAX)
            ended += [(curl, 0, "") for curl in succeeded]
            ended += failed
            if failed:
                self._note_crowds([self._active[curl] for curl, _, _ in failed])
        own = [one for one in ended if not self._active[one[0]].pooled]
        self._ended += [one for one in ended if self._active[one[0]].pooled] if own else ended
        for one in own:
            self._finish(*one)
        return len(own)

    def _note_crowds(self, failed: list[Transfer]) -> None:
        """If a transfer failed while others of its origin were in flight, mark all of them as `crowded`: they may share
        a connection, and then the others fail a little later for the same reason."""
        origins = Counter(transfer.origin for transfer in self._active.values())
        crowds = {transfer.origin for transfer in failed if origins[transfer.origin] > 1}
        for transfer in self._active.values() if crowds else ():
            transfer.crowded = transfer.crowded or transfer.origin in crowds

    def _finish(self, curl: Any, code: int, message: str) -> None:
        transfer = self._active.pop(curl)
        self._limited.discard(transfer)
        transfer.finished = self._clock()
        if transfer.origin:
            self._end_contact(transfer)
        self._multi.remove_handle(curl)
        self._budget.ended(transfer)
        getinfo = curl.getinfo
        transfer.status = getinfo(pycurl.RESPONSE_CODE)
        transfer.ip = getinfo(pycurl.PRIMARY_IP)
        transfer.protocol = _PROTOCOLS.get(getinfo(pycurl.INFO_HTTP_VERSION), "")
        if transfer.protocol == HTTP_2 and transfer.origin not in self._multiplexed:
            self._remember_multiplexed(transfer.origin)
        if code or not transfer.header_lines:
            transfer.first_byte = transfer.finished
        if code:
            transfer.failure = failure_kind(code, transfer.refused)
            transfer.error = error_text(code, transfer.refused, message)
            if transfer.failure == FailureKind.RESET and not transfer.header_lines and transfer.origin:
                transfer.stale = self._is_stale(transfer, code)
        if transfer.outgrown and not transfer.unwanted:
            headers = header_fields(transfer.response_headers())
            transfer.say_unwanted(headers.get("content-type", "").encode("latin-1", "replace"), -1)
        if transfer.unwanted:
            transfer.failure, transfer.error = UNWANTED, transfer.unwanted
        if sum(map(len, transfer.header_lines)) > self._limits.header_bytes_max:
            transfer.failure = FailureKind.TOO_LARGE
            transfer.error = f"a response head of more than {self._limits.header_bytes_max} bytes"
        try:
            transfer.on_done(transfer)
        finally:
            # The callback may refer to a whole batch of pages. A pooled handle would keep them all in memory.
            transfer.on_done = _nobody
            if transfer.pooled:
                self._recycle(transfer)

    def _remember_multiplexed(self, origin: str) -> None:
        if len(self._multiplexed) >= ORIGINS_MAX:
            self._multiplexed.clear()
        self._multiplexed.add(origin)

    def _end_contact(self, transfer: Transfer) -> None:
        origin, now = transfer.origin, transfer.finished
        transfer.idle_s = self._kept.gap_s(origin, transfer.started)
        if transfer.idle_s > IDLE_UNNOTICED_S and not transfer.choice.fresh:
            # If the answer comes quickly, libcurl does not report that it used the socket: it would still count as idle
            # since the request before.
            self._kept.rested(transfer.curl.getinfo(pycurl.LASTSOCKET), now)
        self._kept.ended(origin, now)

    def _is_stale(self, transfer: Transfer, code: int) -> bool:
        """Whether the fault is probably the connection's and not this request's. Either the connection had been idle,
        so its server may have closed it just then; or other requests were on it too, and any may have broken it."""
        reused = transfer.sends > 1 or not transfer.curl.getinfo(pycurl.NUM_CONNECTS)
        if reused and transfer.idle_s >= SURE_S:
            self._kept.broke(transfer.origin, transfer.idle_s)
            return True
        return code != E_HTTP2_STREAM and transfer.crowded and transfer.origin in self._multiplexed

    def _recycle(self, transfer: Transfer) -> None:
        transfer.header_lines.clear()
        transfer.body.seek(0)
        transfer.body.truncate()
        transfer.context = None
        transfer.failure = transfer.error = transfer.truncated = ""
        transfer.refused = transfer.too_late = transfer.stale = transfer.crowded = False
        transfer.types = transfer.type_limit = None
        transfer.unwanted = ""
        transfer.sends = 0
        if transfer.cookie:
            transfer.curl.unsetopt(pycurl.COOKIE)
            transfer.cookie = ""
        if transfer.own_limit:
            transfer.curl.setopt(pycurl.MAXFILESIZE_LARGE, self._limits.body_bytes_max)
            transfer.own_limit = False
        if transfer.own_timeout:
            transfer.curl.setopt(pycurl.TIMEOUT_MS, int(self._limits.fetch_timeout_s * 1000))
            transfer.own_timeout = False
        self._idle.append(transfer)

    def _new_transfer(self) -> Transfer:
        curl = pycurl.Curl()
        transfer = Transfer(curl)
        transfer.is_shut, transfer.clock = self._kept.is_shut, self._clock
        limits = self._limits
        options: dict[int, Any] = {
            pycurl.NOSIGNAL: 1,
            pycurl.FOLLOWLOCATION: 0,
            pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_2TLS,
            pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
            pycurl.PROXY: "",
            pycurl.USERAGENT: self._user_agent,
            pycurl.HTTPHEADER: [f"Accept: {ACCEPT}", f"Accept-Encoding: {self._accept_encoding}"],
            pycurl.CONNECTTIMEOUT_MS: int(limits.connect_timeout_s * 1000),
            pycurl.TIMEOUT_MS: int(limits.fetch_timeout_s * 1000),
            pycurl.LOW_SPEED_LIMIT: limits.speed_min_bytes_s,
            pycurl.LOW_SPEED_TIME: limits.speed_window_s,
            pycurl.MAXFILESIZE_LARGE: limits.body_bytes_max,
            pycurl.BUFFERSIZE: PIECE_BYTES_MAX,
            pycurl.TCP_NODELAY: 1,
            pycurl.PATH_AS_IS: 1,
            pycurl.MAXAGE_CONN: CONNECTION_AGE_MAX_S,
            pycurl.HEADERFUNCTION: header_taker(transfer, self._clock, self._limited),
            pycurl.WRITEFUNCTION: self._budget.taker(transfer),
            pycurl.PREREQFUNCTION: transfer.before_send,
            pycurl.SOCKOPTFUNCTION: lambda fd, purpose: self._opened(transfer, fd),
        }
        if self._ca_file:
            options[pycurl.CAINFO] = self._ca_file
        if not self._guard.allow_private:
            options[pycurl.OPENSOCKETFUNCTION] = lambda purpose, address: self._open_socket(transfer, address)
        for option, value in options.items():
            curl.setopt(option, value)
        return transfer

    def _opened(self, transfer: Transfer, number: int) -> int:
        self._kept.opened(number, origin_of(transfer.url))
        return int(pycurl.SOCKOPT_OK)

    def _opened_by_caller(self, number: int, purpose: int) -> int:
        self._kept.forget(number)
        return int(pycurl.SOCKOPT_OK)

    def _open_socket(self, transfer: Transfer, address: Any) -> _LentSocket | int:
        """Refuse forbidden addresses. libcurl calls this with the address that it is about to connect to, so no other
        resolution of the name can come in between."""
        family, kind, protocol, target = address
        if self._guard.refuses(target[0] if isinstance(target, tuple) else ""):
            transfer.refused = True
            return int(pycurl.SOCKET_BAD)
        return _LentSocket(socket.socket(family, kind, protocol).detach())

    def _on_socket(self, what: int, fd: int, multi: Any, data: Any) -> None:
        if what == pycurl.POLL_REMOVE:
            if fd in self._watched and not self._watch_idle(fd):
                self._unwatch(fd)
            return
        self._kept.used(fd)
        mask = (select.EPOLLIN if what & pycurl.POLL_IN else 0) | (select.EPOLLOUT if what & pycurl.POLL_OUT else 0)
        if fd in self._watched:
            try:
                self._epoll.modify(fd, mask)
                return
            except FileNotFoundError:
                # The old socket was closed and a new one got its number, without a POLL_REMOVE in between.
                pass
        self._watched.add(fd)
        self._epoll.register(fd, mask)

    def _watch_idle(self, fd: int) -> bool:
        """Watch an idle connection, to notice when its server closes it. False if it is closed already, or is not a
        connection to a site."""
        if not self._kept.rests(fd, self._clock()):
            return False
        try:
            self._epoll.modify(fd, select.EPOLLRDHUP)
        except (OSError, ValueError):
            self._kept.used(fd)
            return False
        return True

    def _unwatch(self, fd: int) -> None:
        self._watched.discard(fd)
        # The socket may be closed by now, which has already taken it out of the epoll set.
        with contextlib.suppress(OSError, ValueError):
            self._epoll.unregister(fd)

    def _on_timer(self, timeout_ms: int) -> None:
        self._timer_at = None if timeout_ms < 0 else self._clock() + timeout_ms / 1000


def _nobody(transfer: Transfer) -> None:
    """The callback of a transfer that has been reported: does nothing."""


def request_target(url: str) -> str:
    """The request target of a URL, which stands in the first line of a request: its path and query."""
    return url[url.index("/", len("https://")) :]


def default_ca_file() -> str:
    """The file of certificate authorities that the operating system trusts; if it is empty, libcurl decides."""
    named = os.environ.get("SSL_CERT_FILE", "")
    return next((path for path in (named, *CA_FILES) if path and os.path.exists(path)), "")


def _curl_events(mask: int) -> int:
    events = 0
    if mask & select.EPOLLIN:
        events |= pycurl.CSELECT_IN
    if mask & select.EPOLLOUT:
        events |= pycurl.CSELECT_OUT
    if mask & (select.EPOLLERR | select.EPOLLHUP):
        events |= pycurl.CSELECT_ERR
    return events
