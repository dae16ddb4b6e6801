"""The two wires of a node's loop, as far as the loop uses them: one to sites and one to coordinators.

`Fetcher` and `CoordinatorClient` are these in a crawl. Tests and simulations put others in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from drumlin.fetch import Transfer
from drumlin.http.type_limits import TypeLimits
from drumlin.node.calling.client import CALL_TIMEOUT_S, FOREVER
from drumlin.node.calling.coordinator_time import CoordinatorTime

Reply = TypeVar("Reply")


class SiteWire(Protocol):
    """Carries requests to sites. Everything is called back from `run_once`, also what coordinators answer."""

    @property
    def request_headers(self) -> bytes: ...

    def count_beside(self, held_bytes: Callable[[], int]) -> None: ...

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
    ) -> None: ...

    def run_once(self, timeout_s: float) -> int: ...


class CoordinatorWire(Protocol):
    """Carries messages to a coordinator, and knows whether one answers at all."""

    @property
    def time(self) -> CoordinatorTime: ...

    @property
    def cut_off(self) -> bool: ...

    @property
    def cut_off_s(self) -> float: ...

    @property
    def among_strangers(self) -> bool: ...

    def post(
        self,
        path: str,
        message: Any,
        reply: type[Reply],
        on_reply: Callable[[Reply], None],
        *,
        signed: bool = False,
        on_failure: Callable[[float], None] | None = None,
        repeat_s: float = FOREVER,
        timeout_s: float = CALL_TIMEOUT_S,
    ) -> None: ...

    def repeat_failed(self) -> None: ...

    def due(self) -> float: ...

    def renewed(self, token: str | None) -> None: ...
