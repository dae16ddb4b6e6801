"""An agent of a node, and everything around it: what it asks for is noted, and answered when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec.structs import replace

from drumlin.clock import monotonic
from drumlin.fetch import Transfer
from drumlin.node.agent import Agent, NodeSettings
from drumlin.node.coordinator_time import CoordinatorTime
from drumlin.protocol import Assignment, HostReport, Work, WorkLease, WorkRequest
from drumlin.robots import Decision

ALLOWED = Decision(None, True, False, 1e12, False, "all allowed")
NODE = NodeSettings("n0", "drumlin", 0.0, 1, 100, 5, 1e9, False, 100.0)


class Around:
    """Everything around an agent: a fetcher that only notes what is begun, a client that only notes what is said."""

    request_headers = b""
    cut_off = False
    cut_off_s = 0.0
    scope_version = 0

    def __init__(self) -> None:
        self.begun: list[tuple[str, Callable[[], bool], Callable[[Transfer], None], Any]] = []
        self.said: list[tuple[Any, Callable[[Any], None]]] = []
        self.time = CoordinatorTime()
        self.tokens: list[str | None] = []

    @property
    def in_flight(self) -> int:
        return len(self.begun)

    def start(self, url: str, on_done: Callable[[Transfer], None], context: Any, **more: Any) -> None:
        self.begun.append((url, more["may_send"], on_done, context))

    def post(self, path: str, message: Any, reply: type, on_reply: Callable[[Any], None], **more: Any) -> None:
        self.said.append((message, on_reply))

    def renewed(self, token: str | None) -> None:
        self.tokens.append(token)

    def tell_urls_again(self, urls: Sequence[str]) -> None: ...

    def of(self, kind: type) -> list[Any]:
        return [message for message, _ in self.said if isinstance(message, kind)]


class Web(Around):
    """Answers what the agent asks for, when the test says so."""

    def widen_scope(self, seeds: list[str], version: int) -> None: ...

    def answer(self, status: int, location: str = "", body: bytes = b"") -> str:
        """Answer the oldest request; what it was for."""
        url, _, on_done, context = self.begun.pop(0)
        transfer = Transfer(None)
        transfer.context, transfer.status = context, status
        transfer.body.write(body)
        transfer.first_byte = transfer.finished = monotonic()
        transfer.header_lines = [b"HTTP/1.1 %d X\r\n" % status, b"Location: %b\r\n" % location.encode()]
        on_done(transfer)
        return url

    def grant_visit(self, *leases: WorkLease, **more: Any) -> list[str]:
        """Answer the oldest request for a visit; the hosts that it names."""
        place = next(place for place, (message, _) in enumerate(self.said) if isinstance(message, WorkRequest))
        message, on_reply = self.said.pop(place)
        on_reply(Work(list(leases), [], 0.0, **more))
        return cast(WorkRequest, message).visits


def agent_in(around: Around, **settings: Any) -> Agent:
    anything = cast(Any, around)
    return Agent(replace(NODE, **settings), anything, anything, anything, anything, anything)


def lease_of(name: str, *paths: str, note: bytes = b"") -> WorkLease:
    lease_id = f"n0:{name}"
    assignments = [
        Assignment(f"{lease_id}/{n}.0.0", f"http://{name}{path}", 5, 0.0, name, 0.0) for n, path in enumerate(paths)
    ]
    return WorkLease(lease_id, name, 100.0, 0.0, assignments, note=note)


def reports(agent: Agent) -> list[HostReport]:
    return agent._settling._reports
