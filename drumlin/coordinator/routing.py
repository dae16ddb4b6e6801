"""Which call a request is: a table of routes, found by method and path in a few dictionary look-ups.

A `Route` says everything about one call: who may make it, what it takes and gives, which refusals are its own. The
same table makes the OpenAPI document (`openapi.py`), so that the document is true by construction.

Guarantees: an unknown path is 404 and a wrong method is 405 with the methods that there are; a query string is read
within `QUERY_FIELDS_MAX`, with each name at most once, into the type that the route declares.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from drumlin.coordinator.auth import Identity, Permission, Role
from drumlin.coordinator.bodies import JSON, MSGPACK, Format, Receive, Refused, Send, read_body
from drumlin.coordinator.calendar import Calendar
from drumlin.coordinator.plainly import plainly

QUERY_FIELDS_MAX = 16
TARGET_BYTES_MAX = 40 * 1024
"""Path and query together: the longest URL in a query, each character of it escaped, fits."""
MESSAGE_BYTES_MAX = 64 * 1024
"""The largest body of a call that needs no larger one."""
PATH_SHOWN_CHARS = 200
NO_ROUTE = "none"
GONE = "drumlin.gone"
"""Where the scope of a request says whether its sender has closed the connection."""

# No part of a path can hold a slash, so neither of these is ever one.
PARAMETER = "/*"
HERE = "/"

NOBODY = Identity(Role.VIEWER, "")
"""Who sends a request that needs no permission, or has not been looked at yet."""


PLAIN = Calendar()
"""For calls that need no engine."""


def _never() -> bool:
    return False


class Call:
    """One request on its way: what it is, who sent it, and when it came."""

    __slots__ = (
        "address",
        "body_unread",
        "calendar",
        "gone",
        "headers",
        "identity",
        "media_type",
        "method",
        "note",
        "now",
        "parameters",
        "path",
        "query",
        "raw_path",
        "receive",
        "route",
    )

    def __init__(
        self, scope: dict[str, Any], headers: dict[bytes, bytes], receive: Receive, media_type: str, now: float
    ) -> None:
        client = scope.get("client")
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope["raw_path"]
        self.query: bytes = scope["query_string"]
        self.headers = headers
        self.receive = receive
        self.media_type = media_type
        """What the answer is written in."""
        self.now = now
        """Engine time."""
        self.calendar = PLAIN
        """What engine times are called by people."""
        self.address: str = client[0] if client else ""
        self.gone: Callable[[], bool] = scope.get(GONE, _never)
        """Whether the sender waits for the answer no more."""
        self.body_unread = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        self.identity = NOBODY
        self.parameters: dict[str, str] = {}
        self.note = ""
        """What the audit log says of this call in place of its message."""
        self.route: Route

    async def check_awaited(self) -> None:
        """Refuse a request whose sender has given it up. While a coordinator is frozen or starved, requests pile up in
        its sockets; what it gave for those would be heard by nobody, and be missing until its lease has run out."""
        # One turn of the loop, in which the end of a connection is noticed that came right after the request.
        await asyncio.sleep(0)
        if self.gone():
            raise Refused(499, "given_up", "The sender did not wait for the answer.")

    @property
    def name(self) -> str:
        """The route's, for metrics; requests without one share a name, since their paths are anybody's."""
        route = getattr(self, "route", None)
        return NO_ROUTE if route is None else f"{route.method} {route.path}"

    @property
    def today(self) -> float:
        """When it came, on the calendar: by which tokens and robots rules expire, and which logs show."""
        return self.calendar.shown(self.now)

    @property
    def node_id(self) -> str:
        """The node that the path names."""
        return self.parameters["node_id"]

    @property
    def target(self) -> str:
        """Path and query as they were sent, which is what a signature covers."""
        path = self.raw_path.decode("latin-1")
        return f"{path}?{self.query.decode('latin-1')}" if self.query else path

    @property
    def authorization(self) -> str | None:
        value = self.headers.get(b"authorization")
        return None if value is None else value.decode("latin-1")

    def header(self, name: bytes) -> str:
        """The value of a header, named in lower case; empty when there is none."""
        return self.headers.get(name, b"").decode("latin-1")

    async def read_body(self, bytes_max: int) -> bytes:
        body = await read_body(self.headers.items(), self.receive, bytes_max=bytes_max)
        self.body_unread = False
        return body


Answer = Callable[[Call, Any], Awaitable[Any]]
"""What makes the answer to a call: it gets the call and its message."""


class Text(msgspec.Struct, frozen=True):
    """An answer that is not a message: a page of metrics."""

    body: bytes
    media_type: str


class Stream(msgspec.Struct, frozen=True):
    """An answer that goes on: each piece is sent as it comes, until there are no more or the client is gone."""

    pieces: AsyncGenerator[bytes, None]
    media_type: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the API.

    `takes` is the message in the body, or in the query string of a GET or DELETE. `gives` is the answer; `may_be_empty`
    says that it can be 204 without one. `refusals` are the statuses, with their meaning, that only this call knows.
    """

    method: str
    path: str
    summary: str
    answer: Answer
    permission: Permission | None
    takes: type | None = None
    gives: type | None = None
    status: int = 200
    may_be_empty: bool = False
    gives_media_types: tuple[str, ...] = (JSON, MSGPACK)
    refusals: Mapping[int, str] = {}
    body_bytes_max: int = MESSAGE_BYTES_MAX
    signed: bool = False
    streams_body: bool = False
    node_of: Callable[[Any], str | None] | None = None
    """The node that the message names, where the path does not; the permission is checked when it is known."""
    reads: Format[Any] | None = None
    """How its body is read, where there is more to it than reading what it `takes`."""
    without_engine: bool = False
    """Whether there is an answer also while the engine cannot be used."""
    writes: str = ""
    """What the audit log calls this change; empty for what changes nothing that a person would ask about."""

    @property
    def parameter_names(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def in_query(self) -> bool:
        return self.method in ("GET", "DELETE")


class Found(msgspec.Struct, frozen=True):
    """A route as the router keeps it, with its decoder made ready."""

    route: Route
    names: tuple[str, ...]
    format: Format[Any] | None


class Router:
    """Finds routes. Paths without parameters are one look-up; others are walked part by part."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._plain: dict[str, dict[str, Found]] = {}
        self._tree: dict[str, Any] = {}
        for route in routes:
            self._methods(route)[route.method] = _found(route)

    def _methods(self, route: Route) -> dict[str, Found]:
        if "{" not in route.path:
            return self._plain.setdefault(route.path, {})
        place = self._tree
        for part in route.path.split("/"):
            place = place.setdefault(PARAMETER if part.startswith("{") else part, {})
        methods: dict[str, Found] = place.setdefault(HERE, {})
        return methods

    def find(self, call: Call) -> Found:
        """The route of a request, which is told the values of its path's parameters; `Refused` when there is none."""
        path, values = call.path, list[str]()
        methods = self._plain.get(path) or self._walk(path, values)
        if not methods:
            hint = "GET /api/v1/openapi.json lists all there is."
            raise Refused(404, "not_found", f"There is nothing at {path[:PATH_SHOWN_CHARS]}.", hint)
        found = methods.get(call.method)
        if found is None:
            raise WrongMethod(call.method, methods)
        call.route, call.parameters = found.route, dict(zip(found.names, values, strict=True))
        return found

    def _walk(self, path: str, values: list[str]) -> dict[str, Found] | None:
        place: dict[str, Any] = self._tree
        for part in path.split("/"):
            further = place.get(part)
            if further is None:
                further = place.get(PARAMETER) if part else None
                values.append(part)
            if further is None:
                return None
            place = further
        return place.get(HERE)


class WrongMethod(Refused):
    """405, with the methods that there are."""

    def __init__(self, method: str, methods: Iterable[str]) -> None:
        allowed = ", ".join(sorted(methods))
        super().__init__(405, "wrong_method", f"{method} is not possible here.", f"Use {allowed}.")
        self.headers.append((b"allow", allowed.encode()))


def read_query(query: bytes, takes: type[Any]) -> Any:
    """The message in a query string."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError:
        raise Refused(400, "bad_query", "The query string cannot be read.") from None
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Refused(400, "bad_query", "The query string names something twice.")
    try:
        return msgspec.convert(fields, takes, strict=False)
    except msgspec.ValidationError as wrong:
        raise Refused(422, "invalid", f"The query string is not what is taken here: {plainly(wrong)}.") from wrong


async def send_stream(send: Send, receive: Receive, stream: Stream) -> None:
    """Send the pieces until there are no more, or until the client hangs up."""
    headers = [(b"content-type", stream.media_type.encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    gone = asyncio.ensure_future(_until_gone(receive))
    try:
        async with aclosing(stream.pieces) as pieces:
            async for piece in pieces:
                if gone.done():
                    break
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _found(route: Route) -> Found:
    reads_body = route.takes is not None and not route.in_query
    reads = (route.reads or Format(route.takes)) if reads_body and route.takes else None
    return Found(route, tuple(route.parameter_names), reads)
