"""Talking to a coordinator, over the same libcurl loop that fetches pages: a Unix socket or HTTP(S), MessagePack
bodies.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pycurl

from drumlin.errors import EngineError
from drumlin.fetch import Fetcher, Transfer
from drumlin.protocol import MEDIA_TYPE

Reply = TypeVar("Reply")

CALL_TIMEOUT_S = 60.0
CONNECT_TIMEOUT_S = 5.0
RETRY_WAIT_S = 0.05
GIVE_UP_AFTER_S = 30.0

_encoder = msgspec.msgpack.Encoder()


class CoordinatorGone(EngineError):
    """The coordinator has not answered for too long, or refused what we said."""


class CoordinatorClient:
    """Sends one message, gets one reply. A call that fails on the way is repeated: every call is safe to repeat."""

    def __init__(self, fetcher: Fetcher, endpoint: str) -> None:
        self._fetcher = fetcher
        self._endpoint = endpoint
        self._idle: list[Any] = []
        self._repeat: list[tuple[float, Callable[[], None]]] = []

    def post(
        self, path: str, message: Any, reply: type[Reply], on_reply: Callable[[Reply], None], method: str = "POST"
    ) -> None:
        """Send `message`; `on_reply` is called from the fetcher's loop."""
        self._send(method, path, _encoder.encode(message), reply, on_reply, time.monotonic())

    def call(self, path: str, message: Any, reply: type[Reply], method: str = "POST") -> Reply:
        """Send `message` and wait for the reply; for the steps before the loop begins and after it has ended."""
        replies: list[Reply] = []
        self.post(path, message, reply, replies.append, method)
        while not replies:
            self._fetcher.run_once(RETRY_WAIT_S)
            self.repeat_failed()
        return replies[0]

    def repeat_failed(self) -> None:
        """Send again what did not get through, once its pause is over."""
        now = time.monotonic()
        due = [again for at, again in self._repeat if at <= now]
        self._repeat = [entry for entry in self._repeat if entry[0] > now]
        for again in due:
            again()

    def _send(
        self, method: str, path: str, body: bytes, reply: type[Reply], on_reply: Callable[[Reply], None], since: float
    ) -> None:
        curl = self._idle.pop() if self._idle else self._new_handle()
        curl.setopt(pycurl.URL, self._url(path))
        curl.setopt(pycurl.POSTFIELDS, body)
        curl.setopt(pycurl.CUSTOMREQUEST, method)

        def done(transfer: Transfer) -> None:
            self._idle.append(curl)
            if not transfer.failure and transfer.status == 200:
                on_reply(msgspec.msgpack.decode(b"".join(transfer.body), type=reply))
                return
            self._failed(path, transfer, since)
            again_at = time.monotonic() + RETRY_WAIT_S
            self._repeat.append((again_at, lambda: self._send(method, path, body, reply, on_reply, since)))

        self._fetcher.start_handle(curl, done)

    def _failed(self, path: str, transfer: Transfer, since: float) -> None:
        """Decide whether a failed call may be repeated; raise when it may not."""
        said = b"".join(transfer.body)[:500].decode("utf-8", "replace") or transfer.error
        if 400 <= transfer.status < 500:
            raise CoordinatorGone(f"The coordinator refused {path}: {said}")
        if time.monotonic() - since > GIVE_UP_AFTER_S:
            raise CoordinatorGone(f"The coordinator has not answered {path} for {GIVE_UP_AFTER_S:.0f} s: {said}")

    def _url(self, path: str) -> str:
        return f"http://coordinator{path}" if self._endpoint.startswith("unix:") else self._endpoint + path

    def _new_handle(self) -> Any:
        curl = pycurl.Curl()
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.PROXY, "")
        curl.setopt(pycurl.HTTPHEADER, [f"Content-Type: {MEDIA_TYPE}", f"Accept: {MEDIA_TYPE}", "Expect:"])
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, int(CONNECT_TIMEOUT_S * 1000))
        curl.setopt(pycurl.TIMEOUT_MS, int(CALL_TIMEOUT_S * 1000))
        if self._endpoint.startswith("unix:"):
            curl.setopt(pycurl.UNIX_SOCKET_PATH, self._endpoint.removeprefix("unix:"))
        return curl
