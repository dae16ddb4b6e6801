"""Asks a coordinator, for the command line: plain requests, and one sentence for every failure."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from drumlin.errors import ConfigError, DrumlinError
from drumlin.lines import tell
from drumlin.protocol import paths
from drumlin.protocol.refusals import NOBODY_BEHIND, RefusalCode
from drumlin.tls import NO_CERTIFICATE_HINT, check_endpoint, client_context, explained

EXIT_COORDINATOR = 7
ANSWER_S_MAX = 15.0
ALIVE_S_MAX = 3.0
"""If several coordinators are named, one that does not say within this time that it is alive is left out."""
SLOW_S = 2.0
"""After so long, a line says what is being waited for."""
ANSWER_BYTES_MAX = 64 * 1024 * 1024
ADDRESS_HINT = "Write https://HOST:PORT, http://127.0.0.1:PORT or unix:PATH."
# The coordinator's own hints are for programs and speak of headers; people at a command line need the option's name.
TOKEN_HINTS: dict[str, str] = {
    RefusalCode.NO_TOKEN: "Give --token-file FILE; `drumlin tokens create` makes tokens.",
    RefusalCode.INVALID_TOKEN: "Check --token-file; `drumlin tokens create` makes tokens.",
}
UNIX_PREFIX = "unix:"


class CoordinatorError(DrumlinError):
    """No coordinator answers, or it refuses. `status` and `code` are those of its answer, 0 and "" without one."""

    exit_code = EXIT_COORDINATOR

    def __init__(self, message: str, hint: str = "", *, status: int = 0, code: str = "") -> None:
        super().__init__(message, hint)
        self.status = status
        self.code = code


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Remote:
    """The coordinators of one fleet: `https://HOST:PORT`, `http://HOST:PORT` or `unix:PATH`, asked in this order until
    one answers. One that did not answer, or could not (503), is asked last from then on.

    If several are named, each is first asked whether it is alive, which a coordinator answers at once. So a silent one
    is left soon although other answers may take long, and no call is made at two of them because the first is slow."""

    standing = False
    """Whether no process of the crawl runs, and this object answers in its place (`drumlin.local.standing`)."""
    of_one_machine = False
    """Whether the coordinator is known to be a `drumlin crawl`, which ends when its crawl ends."""
    folder: Path | None = None
    """The directory of the crawl or the fleet, if it is on this machine and was found by it."""
    tells_waiting = True
    """Whether a line on stderr says what is being waited for. Whoever draws on the whole screen says so there."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        token: str = "",
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        insecure: bool = False,
        timeout_s: float = ANSWER_S_MAX,
    ) -> None:
        self.endpoints = list(endpoints)
        self._token = token
        self._timeout_s = timeout_s
        self._alive: dict[str, bool] = {}
        """Whether a coordinator answered when it was last asked."""
        self._context = client_context(ca, cert, key) if any(e.startswith("https:") for e in endpoints) else None
        for endpoint in endpoints:
            _check_address(endpoint)
            check_endpoint(endpoint, insecure=insecure or not token)

    def close(self) -> None:
        """Does nothing: each request has a connection of its own. Subclasses may have something to close."""

    def get(self, path: str, **query: object) -> Any:
        asked = f"{path}?{urlencode(query)}" if query else path
        return self._ask("GET", asked, None)

    def post(self, path: str, body: object = None) -> Any:
        return self._ask("POST", path, b"" if body is None else msgspec.json.encode(body))

    def patch(self, path: str, body: object) -> Any:
        return self._ask("PATCH", path, msgspec.json.encode(body))

    def _ask(self, method: str, path: str, body: bytes | None) -> Any:
        failure: CoordinatorError | None = None
        for endpoint in sorted(self.endpoints, key=lambda endpoint: not self._alive.get(endpoint, True)):
            try:
                self._check_alive(endpoint)
                return read_answer(endpoint, *self._ask_one(endpoint, method, path, body, self._timeout_s))
            except (OSError, http.client.HTTPException) as cause:
                self._alive[endpoint] = False
                failure = failure or _unreachable(endpoint, cause)
            except CoordinatorError as refused:
                if refused.status not in NOBODY_BEHIND:
                    raise
                # It is cut off from the engine, for example, and another one may not be.
                self._alive[endpoint] = False
                failure = failure or refused
        raise failure or CoordinatorError("No coordinator was named.")

    def _check_alive(self, endpoint: str) -> None:
        """Raise what keeps a coordinator from answering. One that refuses is alive."""
        if len(self.endpoints) > 1 and not self._alive.get(endpoint):
            self._ask_one(endpoint, "GET", paths.HEALTH, None, min(ALIVE_S_MAX, self._timeout_s))
            self._alive[endpoint] = True

    def _ask_one(
        self, endpoint: str, method: str, path: str, body: bytes | None, timeout_s: float
    ) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        connection = self._connection(endpoint, timeout_s)
        headers = {"Accept": "application/json"}
        if body:
            headers["Content-Type"] = "application/json"
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        slow = threading.Timer(SLOW_S, tell, [f"Waiting for the coordinator at {endpoint}, up to {timeout_s:g} s."])
        slow.daemon = True
        if self.tells_waiting:
            slow.start()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read(ANSWER_BYTES_MAX)
        finally:
            slow.cancel()
            connection.close()

    def _connection(self, endpoint: str, timeout_s: float) -> http.client.HTTPConnection:
        if endpoint.startswith(UNIX_PREFIX):
            return _UnixConnection(endpoint.removeprefix(UNIX_PREFIX), timeout_s)
        parts = urlsplit(endpoint)
        host = parts.hostname or ""
        if parts.scheme == "https":
            return http.client.HTTPSConnection(host, parts.port, timeout=timeout_s, context=self._context)
        return http.client.HTTPConnection(host, parts.port, timeout=timeout_s)


def _check_address(endpoint: str) -> None:
    """ConfigError unless this can be the address of a coordinator."""
    if endpoint.startswith(UNIX_PREFIX):
        return
    try:
        parts = urlsplit(endpoint)
        named = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        named = False
    if not named or parts.path not in ("", "/") or parts.query or parts.username:
        raise ConfigError(f"{endpoint!r} is not the address of a coordinator.", ADDRESS_HINT)


def _unreachable(endpoint: str, cause: Exception) -> CoordinatorError:
    if isinstance(cause, ssl.SSLError) and (said := explained(str(cause))) is not None:
        return CoordinatorError(f"{endpoint}: {said[0]}", said[1])
    hung_up = isinstance(cause, ConnectionResetError | BrokenPipeError | ssl.SSLEOFError)
    if hung_up and endpoint.startswith("https:"):
        return CoordinatorError(f"{endpoint} hangs up without an answer.", NO_CERTIFICATE_HINT)
    if isinstance(cause, ssl.SSLCertVerificationError):
        message = f"The certificate of {endpoint} is not trusted: {cause.verify_message}."
        return CoordinatorError(message, "Name the authority that signed it with --ca.")
    if isinstance(cause, TimeoutError):
        return CoordinatorError(f"The coordinator at {endpoint} does not answer.", "Is it overloaded, or cut off?")
    if isinstance(cause, ConnectionRefusedError | FileNotFoundError):
        return CoordinatorError(f"No coordinator listens at {endpoint}.", "Start it, or check the address.")
    if isinstance(cause, ssl.SSLError):
        return CoordinatorError(f"{endpoint} does not speak TLS as expected: {cause.reason}.", "Is it http:// there?")
    if isinstance(cause, http.client.HTTPException):
        return CoordinatorError(f"The server at {endpoint} is not a coordinator.", "Check the address.")
    reason = getattr(cause, "strerror", None) or str(cause)
    return CoordinatorError(f"Cannot reach the coordinator at {endpoint}: {reason}.", "Check the address.")


def read_answer(endpoint: str, status: int, body: bytes) -> Any:
    """The document of an answer. CoordinatorError if it is a refusal, or is not from a coordinator."""
    try:
        document = msgspec.json.decode(body) if body else {}
    except msgspec.DecodeError as cause:
        if status in NOBODY_BEHIND:
            message = f"The server at {endpoint} reaches no coordinator (status {status})."
            raise CoordinatorError(message, "Start one, or look at the balancer.", status=status) from cause
        message = f"The server at {endpoint} is not a coordinator (status {status})."
        raise CoordinatorError(message, "Check the address.", status=status) from cause
    if status < 400:
        return document
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        raise CoordinatorError(f"The coordinator at {endpoint} answered with status {status}.", status=status)
    message = str(error.get("message", "")) or f"The coordinator refused with status {status}."
    code = str(error.get("code", ""))
    hint = TOKEN_HINTS.get(code, str(error.get("hint", "")))
    raise CoordinatorError(message, hint, status=status, code=code)
