"""Finds the call that a request means: a table of routes, looked up by method and path in a few dictionaries.

A `Route` says everything about one call: who may make it, what it takes and gives, and which refusals only it has. The
OpenAPI document is made from the same table (`openapi.py`), so it is true by construction.

Guarantees: an unknown path is answered with 404, and so is one that would be known only if an escaped slash in it were
read as a slash. A wrong method is answered with 405 and the methods that exist. HEAD is answered like GET without the
body, unless the GET would take something away from others. A query string may have `QUERY_FIELDS_MAX` fields, each name
once, and is read into the type that the route declares.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from drumlin.access.entry_code import EntryCode
from drumlin.access.tokens import AccessControl, Identity, Permission, Role
from drumlin.api.bodies import JSON, MSGPACK, Format, Receive, Send, encode, read_arrived, read_body
from drumlin.api.plainly import plainly
from drumlin.coordinator.calendar import Calendar
from drumlin.http.refusal import Refused
from drumlin.protocol import paths

QUERY_FIELDS_MAX = 16
TARGET_BYTES_MAX = 40 * 1024
"""For path and query together: enough for the longest URL as a parameter with every character escaped."""
HEADER_BYTES_MAX = 32 * 1024
MESSAGE_BYTES_MAX = 64 * 1024
"""The largest body of a call, unless its route allows a larger one."""
PATH_SHOWN_CHARS = 200
NO_ROUTE = "none"
GONE = "drumlin.gone"
"""The key in a request's ASGI scope whose value says whether its sender has closed the connection."""

ARRIVED = "drumlin.arrived"
"""The key whose value says whether the whole body of a request is here."""

STREAMS = "drumlin.streams"
"""The key whose value is a function to call before a stream is sent. It bounds how much may wait for a slow reader."""

CUT = "drumlin.cut"
"""The key whose value is a function that cuts the connection at once, whatever still waits to be sent."""

GET, HEAD = "GET", "HEAD"
ESCAPED_SLASH = b"%2f"

# No part of a path contains a slash, so these keys of the tree never clash with one.
PARAMETER = "/*"
HERE = "/"

NOBODY = Identity(Role.VIEWER, "")
"""The sender of a request that needs no permission or has not been checked yet."""


NODE_PERMISSIONS = frozenset({Permission.JOIN, Permission.NODE})
"""What drumlin's own nodes ask for and nobody else."""

PLAIN = Calendar()
"""A calendar without gaps, for calls that need no engine."""


def _nothing() -> None:
    pass


def _never() -> bool:
    return False


class Call:
    """One request on its way: what it is, who sent it, and when it came."""

    __slots__ = (
        "address",
        "answer_headers",
        "arrived",
        "body_unread",
        "calendar",
        "credential",
        "cut",
        "door",
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
        "secure",
        "streams",
    )

    def __init__(
        self, scope: dict[str, Any], headers: dict[bytes, bytes], receive: Receive, media_type: str, now: float
    ) -> None:
        client = scope.get("client")
        self.secure = scope.get("scheme") == "https"
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.raw_path: bytes = scope["raw_path"]
        self.query: bytes = scope["query_string"]
        self.headers = headers
        self.receive = receive
        self.media_type = media_type
        """The media type of the answer."""
        self.now = now
        """Engine time."""
        self.calendar = PLAIN
        """Converts engine time to calendar time."""
        self.address: str = client[0] if client else ""
        self.gone: Callable[[], bool] = scope.get(GONE, _never)
        """Whether the sender has stopped waiting for the answer."""
        self.arrived: Callable[[], bool] = scope.get(ARRIVED, _never)
        """Whether the whole body is here."""
        self.streams: Callable[[], None] = scope.get(STREAMS, _nothing)
        """To be called before a stream is sent."""
        self.cut: Callable[[], None] = scope.get(CUT, _nothing)
        """Cuts the connection at once."""
        self.body_unread = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
        self.identity = NOBODY
        self.parameters: dict[str, str] = {}
        self.note = ""
        """What the audit log says about this call instead of its message."""
        self.credential = self.authorization
        """What proves who sent it: its Authorization header, or its cookie as one. None if it has neither."""
        self.answer_headers: list[tuple[bytes, bytes]] = []
        """Headers of the answer besides those that every answer has."""
        self.route: Route
        self.door: Door
        """Where the request came in."""

    async def check_awaited(self) -> None:
        """Refuse a request whose sender has given up. While a coordinator is frozen or starved, requests pile up in its
        sockets. Leases given to such a sender would reach nobody, and their hosts would be idle until they run out."""
        # In this turn of the event loop a connection that ended right after the request is noticed.
        await asyncio.sleep(0)
        self.refuse_given_up()

    def refuse_given_up(self) -> None:
        if self.gone():
            raise Refused(499, "given_up", "The sender did not wait for the answer.")

    @property
    def name(self) -> str:
        """The route's name, for metrics. Requests without a route share one name, since strangers choose their paths,
        and so do the files of the page."""
        route = getattr(self, "route", None)
        if route is None:
            return NO_ROUTE
        is_file = route.path.startswith(f"{paths.PAGE_FILES}/")
        return f"{route.method} {paths.PAGE_FILES if is_file else route.path}"

    @property
    def is_of_nodes(self) -> bool:
        """Whether this is a call that only nodes make."""
        route = getattr(self, "route", None)
        return route is not None and route.permission in NODE_PERMISSIONS

    @property
    def today(self) -> float:
        """When it came, in calendar time: tokens and robots rules expire by it, and logs show it."""
        return self.calendar.shown(self.now)

    @property
    def node_id(self) -> str:
        """The node that the path names."""
        return self.parameters["node_id"]

    @property
    def target(self) -> str:
        """Path and query exactly as they were sent, because the signature covers them."""
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
        if self.arrived():
            body = await read_arrived(self.header(b"content-length"), self.receive, bytes_max=bytes_max)
        else:
            body = await read_body(self.headers.items(), self.receive, bytes_max=bytes_max)
        self.body_unread = False
        return body


Answer = Callable[[Call, Any], Awaitable[Any]]
"""Makes the answer to a call from the call and its message."""


class Text(msgspec.Struct, frozen=True):
    """An answer that is not a message: a page of metrics."""

    body: bytes
    media_type: str


class Stream(msgspec.Struct, frozen=True):
    """An answer in pieces: each is sent as it comes, until there are no more or the client is gone."""

    pieces: AsyncGenerator[bytes, None]
    media_type: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One call of the API.

    `takes` is the type of the message in the body, or in the query string of a GET or DELETE. `gives` is the type of
    the answer; with `may_be_empty` it can also be 204 without one. `refusals` are the statuses that only this call has,
    with their meaning.
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
    """Finds the node in the message, if the path does not name it; the permission is checked when it is known."""
    reads: Format[Any] | None = None
    """How the body is decoded, if it needs more than decoding what the route `takes`."""
    without_engine: bool = False
    """Whether the call is answered even while the engine cannot be used."""
    gives_out: bool = False
    """Whether a GET takes something away from others, such as a lease. Then HEAD is not offered."""
    writes: str = ""
    """The name of this change in the audit log, or of this way to take data away; empty if the call does nothing that a
    person would ask about."""

    @property
    def parameter_names(self) -> list[str]:
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def in_query(self) -> bool:
        return self.method in (GET, "DELETE")


class PreparedRoute(msgspec.Struct, frozen=True):
    """A route as the router keeps it, with its decoder made ready."""

    route: Route
    names: tuple[str, ...]
    format: Format[Any] | None


class Router:
    """Finds routes. Paths without parameters are one look-up; others are walked part by part."""

    def __init__(self, routes: list[Route]) -> None:
        self.routes = routes
        self._plain: dict[str, dict[str, PreparedRoute]] = {}
        self._tree: dict[str, Any] = {}
        for route in routes:
            prepared = self._methods(route)[route.method] = _prepared(route)
            if route.method == GET and not route.gives_out:
                self._methods(route)[HEAD] = prepared

    def _methods(self, route: Route) -> dict[str, PreparedRoute]:
        if "{" not in route.path:
            return self._plain.setdefault(route.path, {})
        place = self._tree
        for part in route.path.split("/"):
            place = place.setdefault(PARAMETER if part.startswith("{") else part, {})
        methods: dict[str, PreparedRoute] = place.setdefault(HERE, {})
        return methods

    def find(self, call: Call) -> PreparedRoute:
        """Find the route of a request and put the parameters of the path into the call; `Refused` if there is none."""
        path, values = call.path, list[str]()
        escaped_slash = ESCAPED_SLASH in call.raw_path.lower()
        methods = None if escaped_slash else self._plain.get(path) or self._walk(path, values)
        if not methods:
            hint = f"GET {paths.OPENAPI} lists all there is."
            raise Refused(404, "not_found", f"There is nothing at {path[:PATH_SHOWN_CHARS]}.", hint)
        prepared = methods.get(call.method)
        if prepared is None:
            raise WrongMethod(call.method, methods)
        call.route, call.parameters = prepared.route, dict(zip(prepared.names, values, strict=True))
        return prepared

    def _walk(self, path: str, values: list[str]) -> dict[str, PreparedRoute] | None:
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


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """One way into a coordinator: the calls that it offers, and how it knows who asks.

    `names` are the names under which browsers may come here. `addresses` says whether they may also use any numeric
    address. `code` opens the page once, for whoever can read the terminal; without it a token does. `running` says
    whether the crawl's processes run, or only its page."""

    access: AccessControl
    router: Router
    names: frozenset[str]
    addresses: bool = True
    code: EntryCode | None = None
    running: bool = True


class WrongMethod(Refused):
    """405, with the methods that exist."""

    def __init__(self, method: str, methods: Iterable[str]) -> None:
        allowed = ", ".join(sorted(methods))
        super().__init__(405, "wrong_method", f"{method} is not possible here.", f"Use {allowed}.")
        self.headers.append((b"allow", allowed.encode()))


def check_head(call: Call) -> None:
    if len(call.path) + len(call.query) > TARGET_BYTES_MAX:
        raise Refused(414, "target_too_long", f"Path and query may have at most {TARGET_BYTES_MAX} bytes.")
    if sum(map(len, call.headers)) + sum(map(len, call.headers.values())) > HEADER_BYTES_MAX:
        raise Refused(431, "headers_too_large", f"Headers may have at most {HEADER_BYTES_MAX} bytes.")


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
        raise Refused(422, "invalid", f"The query string does not fit this call: {plainly(wrong)}.") from wrong


def written(answer: Any, media_type: str) -> Text | Stream | None:
    """An answer as it is sent. Only this is kept while a slow reader takes it, not the message that it was made of."""
    if answer is None or isinstance(answer, Text | Stream):
        return answer
    return Text(encode(answer, media_type), media_type)


async def send_stream(send: Send, call: Call, stream: Stream, is_allowed: Callable[[], bool]) -> None:
    """Send the pieces until there are no more, or until the client hangs up or may not have them any longer. One that
    reads nothing is cut off (`wire.py`), or it would keep its place for ever. Empty pieces are not sent: they only give
    the chance to see that the client is gone."""
    headers = [(b"content-type", stream.media_type.encode()), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if call.method == HEAD:
        await stream.pieces.aclose()
        await send({"type": "http.response.body", "body": b""})
        return
    call.streams()
    gone = asyncio.ensure_future(_until_gone(call.receive))
    try:
        async with aclosing(stream.pieces) as pieces:
            async for piece in pieces:
                if gone.done() or not is_allowed():
                    break
                if piece:
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _prepared(route: Route) -> PreparedRoute:
    reads_body = route.takes is not None and not route.in_query
    reads = (route.reads or Format(route.takes)) if reads_body and route.takes else None
    return PreparedRoute(route, tuple(route.parameter_names), reads)
