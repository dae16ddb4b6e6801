"""libcurl's multi interface on our own epoll loop: the cheapest way measured to fetch over HTTP/1.1 and 2.

Handles are pooled: each keeps its options and callbacks for life, and a request sets only its URL. Bodies are asked for
raw (still content-encoded), so that the archive holds what the server sent and decoding is done by faster codecs.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import msgspec
import pycurl

from drumlin.clock import monotonic
from drumlin.fetch.failures import E_HTTP2_STREAM, error_text, failure_kind
from drumlin.fetch.guard import Guard
from drumlin.fetch.kept import ORIGINS_MAX, SURE_S, KeptConnections, origin_of
from drumlin.fetch.transfer import Transfer, header_taker
from drumlin.model import FailureKind

EVENTS_MAX = 256
RECEIVE_BUFFER_BYTES = 64 * 1024
CONNECTION_AGE_MAX_S = 120
POLL_MAX_S = 1.0
FINISHING_S_MAX = 0.25
"""After so long the caller's loop gets its turn again: it has leases to renew, and what arrives may be slow to read."""
# libcurl itself cuts off a response head at 300 KiB, so that no more than this is ever held.
HEADER_BYTES_MAX = 256 * 1024

ACCEPT = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

CA_FILES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)

IDLE_UNNOTICED_S = 0.1
GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR

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
    """A new socket for libcurl, which makes a copy of its number for itself; this one closes with the object."""

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
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._limits = limits
        self._user_agent = user_agent
        self._accept_encoding = accept_encoding
        self._guard = guard
        self._ca_file = ca_file or default_ca_file()
        self._clock = clock
        self._epoll = select.epoll()
        self._watched: set[int] = set()
        self._timer_at: float | None = None
        self._idle: list[Transfer] = []
        self._active: dict[Any, Transfer] = {}
        self._ended: deque[tuple[Any, int, str]] = deque()
        """Transfers that libcurl is done with, with its error if there was one, still to be reported."""
        self._kept = KeptConnections(self._unwatch)
        self._multiplexed: set[str] = set()
        """Origins that speak HTTP/2, where several requests share a connection."""
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._on_socket)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._on_timer)
        self._multi.setopt(pycurl.M_MAXCONNECTS, connections_max)
        self._multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)

    @property
    def in_flight(self) -> int:
        return len(self._active)

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
        may_send: Callable[[], bool] | None = None,
        cookie: str = "",
    ) -> None:
        """Begin to fetch `url`; `on_done` gets the transfer when it has ended, well or not. `body_bytes_max` is for a
        body that the crawl's own limit is not about. `may_send` is asked once more when the connection stands.
        `cookie` is sent as that header."""
        transfer = self._idle.pop() if self._idle else self._new_transfer()
        transfer.url = url
        transfer.on_done = on_done
        transfer.context = context
        transfer.may_send = may_send
        transfer.started = self._clock()
        transfer.curl.setopt(pycurl.URL, url)
        if "%" in url or transfer.own_target:
            # libcurl writes escapes in upper case; a server may insist on its own spelling. A handle that has been told
            # what to ask for has to be told for ever: this cannot be undone.
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
        """Let libcurl use an idle connection only if its server has not closed it, and is not about to."""
        transfer.origin = origin_of(transfer.url)
        choice = self._kept.choose(transfer.origin, transfer.started)
        if choice != transfer.choice:
            transfer.choice = choice
            transfer.curl.setopt(pycurl.FRESH_CONNECT, int(choice.fresh))
            transfer.curl.setopt(pycurl.FORBID_REUSE, int(not choice.keep))

    def start_handle(self, curl: Any, on_done: Callable[[Transfer], None]) -> Transfer:
        """Run a handle that the caller made and configured (the coordinator's client does). It is sent once at most."""
        transfer = Transfer(curl)
        transfer.on_done = on_done
        transfer.started = self._clock()
        curl.setopt(pycurl.HEADERFUNCTION, transfer.header_lines.append)
        curl.setopt(pycurl.WRITEFUNCTION, transfer.body.write)
        curl.setopt(pycurl.PREREQFUNCTION, transfer.before_send)
        curl.setopt(pycurl.SOCKOPTFUNCTION, self._opened_by_caller)
        self._active[curl] = transfer
        self._multi.add_handle(curl)
        return transfer

    def run_once(self, timeout_s: float) -> int:
        """Wait for network events no longer than `timeout_s`, act on them, and report transfers that ended."""
        if self._timer_at is not None:
            timeout_s = min(timeout_s, self._timer_at - self._clock())
        if self._ended:
            timeout_s = 0.0
        events = self._epoll.poll(max(0.0, min(timeout_s, POLL_MAX_S)), EVENTS_MAX)
        action = self._multi.socket_action
        for fd, mask in events:
            if not (mask & GONE and self._kept.closed(fd, self._clock())):
                action(fd, _curl_events(mask))
        if self._timer_at is not None and self._clock() >= self._timer_at:
            self._timer_at = None
            action(pycurl.SOCKET_TIMEOUT, 0)
        return self._finish_transfers()

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
        """Report what ended: of callers' own handles at once, of sites for `FINISHING_S_MAX`, the rest next time."""
        finished = self._take_ended()
        until = self._clock() + FINISHING_S_MAX
        while self._ended:
            self._finish(*self._ended.popleft())
            finished += 1
            if self._clock() > until:
                break
        return finished

    def _take_ended(self) -> int:
        """Hear from libcurl what has ended. How many were callers' own handles, which are finished."""
        ended: list[tuple[Any, int, str]] = []
        queued = 1
        while queued:
            queued, succeeded, failed = self._multi.info_read(EVENTS_MAX)
            ended += [(curl, 0, "") for curl in succeeded]
            ended += failed
            if failed:
                self._note_crowds([self._active[curl] for curl, _, _ in failed])
        own = [one for one in ended if self._active[one[0]].context is None]
        self._ended += [one for one in ended if self._active[one[0]].context is not None] if own else ended
        for one in own:
            self._finish(*one)
        return len(own)

    def _note_crowds(self, failed: list[Transfer]) -> None:
        """Note who had others of the same origin beside it when one failed: the rest may fail with it, a bit later."""
        origins = Counter(transfer.origin for transfer in self._active.values())
        crowds = {transfer.origin for transfer in failed if origins[transfer.origin] > 1}
        for transfer in self._active.values() if crowds else ():
            transfer.crowded = transfer.crowded or transfer.origin in crowds

    def _finish(self, curl: Any, code: int, message: str) -> None:
        transfer = self._active.pop(curl)
        transfer.finished = self._clock()
        if transfer.origin:
            self._end_contact(transfer)
        self._multi.remove_handle(curl)
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
        if sum(map(len, transfer.header_lines)) > self._limits.header_bytes_max:
            transfer.failure = FailureKind.TOO_LARGE
            transfer.error = f"a response head of more than {self._limits.header_bytes_max} bytes"
        try:
            transfer.on_done(transfer)
        finally:
            if transfer.context is not None:
                self._recycle(transfer)

    def _remember_multiplexed(self, origin: str) -> None:
        if len(self._multiplexed) >= ORIGINS_MAX:
            self._multiplexed.clear()
        self._multiplexed.add(origin)

    def _end_contact(self, transfer: Transfer) -> None:
        origin, now = transfer.origin, transfer.finished
        transfer.idle_s = self._kept.gap_s(origin, transfer.started)
        if transfer.idle_s > IDLE_UNNOTICED_S and not transfer.choice.fresh:
            # A quick answer comes without a word from libcurl about the socket.
            self._kept.rested(transfer.curl.getinfo(pycurl.LASTSOCKET), now)
        self._kept.ended(origin, now)

    def _is_stale(self, transfer: Transfer, code: int) -> bool:
        """Whether a request was lost with its connection, and not for its own sake: one that had been idle, so that its
        server may just have closed it, or one that others were sent on too, of which any may have broken it."""
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
        transfer.may_send = None
        transfer.sends = 0
        if transfer.cookie:
            transfer.curl.unsetopt(pycurl.COOKIE)
            transfer.cookie = ""
        if transfer.own_limit:
            transfer.curl.setopt(pycurl.MAXFILESIZE_LARGE, self._limits.body_bytes_max)
            transfer.own_limit = False
        self._idle.append(transfer)

    def _new_transfer(self) -> Transfer:
        curl = pycurl.Curl()
        transfer = Transfer(curl)
        transfer.is_shut = self._kept.is_shut
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
            pycurl.BUFFERSIZE: RECEIVE_BUFFER_BYTES,
            pycurl.TCP_NODELAY: 1,
            pycurl.PATH_AS_IS: 1,
            pycurl.MAXAGE_CONN: CONNECTION_AGE_MAX_S,
            pycurl.HEADERFUNCTION: header_taker(transfer, self._clock),
            pycurl.WRITEFUNCTION: transfer.body.write,
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
        """Refuse forbidden addresses at the last moment, when no later resolution can change the address."""
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
                # The number was closed and given to a new socket without a POLL_REMOVE in between.
                pass
        self._watched.add(fd)
        self._epoll.register(fd, mask)

    def _watch_idle(self, fd: int) -> bool:
        """Watch a connection that has nothing to do for its server's farewell; False when it is closed or not a
        site's."""
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


def request_target(url: str) -> str:
    """What the first line of a request for a URL asks for."""
    return url[url.index("/", len("https://")) :]


def default_ca_file() -> str:
    """Where the operating system keeps the certificate authorities it trusts; empty leaves it to libcurl."""
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
