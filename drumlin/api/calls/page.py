"""The dashboard: its files, and the sessions of the browsers that show it.

The page is the same for everybody and needs no token; whatever it shows comes from the calls of people, with the
session of whoever looks. `POST /session` makes a cookie of a token, or of the code that a terminal shows. The cookie
cannot be read by scripts, is sent by our own page only, and is named for its crawl, since cookies of different ports
mix.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Annotated

import msgspec

from drumlin.access.audit import LOG_IN_ACTION, AuditLog
from drumlin.access.entry_code import EntryCode
from drumlin.access.tokens import SESSION_SCHEME, Identity, Permission, Role, Session
from drumlin.api.bodies import JSON
from drumlin.api.browsers import check_name, check_own_page, comes_by_tls, sessions_of
from drumlin.api.gate import Gate, Origin
from drumlin.api.routing import Answer, Call, Route, Text
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.errors import DrumlinError
from drumlin.http.refusal import Refused
from drumlin.protocol import paths
from drumlin.ui import INDEX, PageFile, page_files
from drumlin.urls import host_of

LOCAL_SESSION_S = 30 * 86_400.0
"""How long a session that the code opened lasts; it ends with the process in any case."""
PEOPLE_PERMISSIONS = frozenset({Permission.READ, Permission.TAKE, Permission.OPERATE})
"""What a session may be used for."""
HOSTS_NAMED = 3
COOKIE_PREFIX = "drumlin_"
CREDENTIAL_CHARS_MAX = 200
LOG_IN_BYTES_MAX = 1024
"""For the body of a log-in. Strangers may send one, and room is reserved for it before it comes."""
LOG_IN_COST = 40.0
"""Each log-in and log-out counts as so many requests, since it writes to the engine and a log-in to the log too. So a
token may do ten of them a second, and fifty at once."""
NOTE_S = 0.5
"""How long the engine may take to note a log-in or a log-out."""

# Nothing from elsewhere, nothing inline, nothing that frames the page. The page itself frames stored copies, from here.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
PRIVATE: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
PAGE_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"x-frame-options", b"DENY"),
    # Asked for again each time: files of two versions would not fit each other.
    (b"cache-control", b"no-cache"),
)
OPENED_BY_CODE = (
    "This address was used before, or is another crawl's. In the browser that used it the page still opens."
)

Credential = Annotated[str, msgspec.Meta(max_length=CREDENTIAL_CHARS_MAX)]


class LogIn(msgspec.Struct, forbid_unknown_fields=True):
    """A viewer's, reader's or operator's token, or the code of the address that a terminal shows."""

    token: Credential = ""
    code: Credential = ""


class SessionView(msgspec.Struct):
    """Who looks: the `role` is null for a browser that has to log in first, by `token` or by `code`. `expires` is when
    the session ends by itself; it is null without one. `hosts` are some of those that the crawl began with, and `seeds`
    is how many there are. `running` says whether the crawl's processes run."""

    role: Role | None
    log_in: str
    expires: int | None = None
    crawl: str = ""
    hosts: list[str] = []
    seeds: int = 0
    running: bool = True


class PageAddress(msgspec.Struct):
    """An address that opens the page in one browser."""

    address: str


class PageCalls:
    """The page and its sessions. `endpoint` is the address at which clients reach this coordinator."""

    def __init__(self, dispatcher: Dispatcher, endpoint: str, gate: Gate, audit: AuditLog) -> None:
        self._dispatcher = dispatcher
        self._gate = gate
        self._audit = audit
        self._endpoint = endpoint
        self.own: EntryCode | None = None
        """Opens the page that this process has for its owner, if there is one."""

    @property
    def cookie(self) -> str:
        """The name of this crawl's cookie."""
        return COOKIE_PREFIX + self._dispatcher.crawl_id

    def routes(self) -> list[Route]:
        return [*map(self._route, page_files()), *self._session_routes()]

    def _route(self, file: PageFile) -> Route:
        async def answer(call: Call, message: None) -> Text:
            check_name(call.headers, call.door.names, addresses=call.door.addresses)
            call.answer_headers += PAGE_HEADERS
            return Text(file.content, file.media_type)

        path = paths.PAGE if file.name == INDEX else f"{paths.PAGE_FILES}/{file.name}"
        return Route(
            method="GET",
            path=path,
            summary="The dashboard",
            answer=answer,
            permission=None,
            gives=str,
            gives_media_types=(file.media_type,),
        )

    def _session_routes(self) -> list[Route]:
        def route(method: str, summary: str, answer: Answer, takes: type | None = None) -> Route:
            return Route(
                method=method,
                path=paths.SESSION,
                summary=summary,
                answer=answer,
                permission=None,
                takes=takes,
                gives=SessionView,
                gives_media_types=(JSON,),
                body_bytes_max=LOG_IN_BYTES_MAX,
            )

        return [
            route("GET", "Who looks at the dashboard", self.who),
            route("POST", "Log in to the dashboard with a token", self.log_in, LogIn),
            route("DELETE", "Log out of the dashboard", self.log_out),
        ]

    def described(self) -> list[Route]:
        """The call that programs make too, so the OpenAPI document describes it."""
        return [
            Route(
                method="POST",
                path=paths.PAGE_CODE,
                summary="Another address of the page of a crawl on one machine; it opens the page once",
                answer=self.address,
                permission=Permission.OPERATE,
                gives=PageAddress,
                refusals={409: "This process has no such page."},
                writes="page.open",
            )
        ]

    async def address(self, call: Call, message: None) -> PageAddress:
        if self.own is None:
            hint = "Coordinators show it at `/`, to whoever has a token; `drumlin crawl` with --ui."
            raise Refused(409, "no_page", "This crawl has no page at an address of its own.", hint)
        return PageAddress(self.own.address())

    # Requests with a cookie

    def credential(self, call: Call) -> str | None:
        """What proves who sent a call: its Authorization header, or else its cookie. A cookie is good for what people
        do, from our own page."""
        given = call.authorization
        if given is not None:
            # What stands in a cookie is no token: a browser's session must not be used past the checks below.
            return None if given.startswith(SESSION_SCHEME) else given
        if call.route.permission not in PEOPLE_PERMISSIONS:
            return None
        session = self._session(call)
        if session is not None:
            self._check_page(call)
            call.answer_headers += PRIVATE
        return session

    def _session(self, call: Call) -> str | None:
        """The session that a browser's cookies show: the first that is valid, or else the first."""
        shown = sessions_of(call.headers, self.cookie)
        return next((one for one in shown if self._identity(call, one)), shown[0] if shown else None)

    def _identity(self, call: Call, session: str) -> Identity | None:
        """Whose session this is; None if it is not valid."""
        try:
            return call.door.access.check(session, Permission.READ, None, call.today)
        except Refused:
            return None

    def _check_page(self, call: Call) -> None:
        check_name(call.headers, call.door.names, addresses=call.door.addresses)
        check_own_page(call.method, call.headers, self._endpoint)

    # Sessions

    async def who(self, call: Call, message: None) -> SessionView:
        check_name(call.headers, call.door.names, addresses=call.door.addresses)
        call.answer_headers += PRIVATE
        access, session = call.door.access, self._session(call)
        try:
            identity = access.check(session, Permission.READ, None, call.today)
        except Refused:
            return SessionView(None, self._way_in(call))
        return self._view(call, identity.role, access.session_expires(session))

    async def log_in(self, call: Call, message: LogIn) -> SessionView:
        self._check_page(call)
        call.answer_headers += PRIVATE
        session = self._opened(call, message)
        await self._admit(call, session.identity)
        await self._note_opened(call, session)
        self._set_cookie(call, session.text, session.expires - int(call.today))
        return self._view(call, session.identity.role, session.expires)

    def _opened(self, call: Call, message: LogIn) -> Session:
        access, code = call.door.access, call.door.code
        if message.code:
            if code is None or not code.take(message.code):
                hint = "Log in with a token." if code is None else "`drumlin open` gives another address."
                raise Refused(401, "code_used", OPENED_BY_CODE, hint)
            return access.session(code.identity, int(call.today + LOCAL_SESSION_S))
        return access.open_session(f"Bearer {message.token}", call.today)

    async def _admit(self, call: Call, who: Identity) -> None:
        await self._gate.admit(who, call.now, Origin(call.address, call.today), cost=LOG_IN_COST)

    async def _note_opened(self, call: Call, session: Session) -> None:
        """Note in the audit log who logs in. If the engine does not answer, only the process's log has it, and the page
        opens all the same."""
        if call.door.running:
            with contextlib.suppress(DrumlinError, TimeoutError):
                async with asyncio.timeout(NOTE_S):
                    await self._audit.record(
                        session.identity, LOG_IN_ACTION, paths.SESSION, "done", call.address, call.today
                    )

    async def log_out(self, call: Call, message: None) -> SessionView:
        self._check_page(call)
        for session in sessions_of(call.headers, self.cookie):
            if (identity := self._identity(call, session)) is not None:
                await self._admit(call, identity)
                await self._end(call, session)
        self._set_cookie(call, "", 0)
        return SessionView(None, self._way_in(call))

    async def _end(self, call: Call, session: str) -> None:
        """End a session, so its cookie is worth nothing to whoever has a copy. Sessions that a code opened are known to
        this process alone, so other coordinators are told only of those that a token opened."""
        access = call.door.access
        access.end_session(session, call.today)
        if call.door.code is None:
            with contextlib.suppress(DrumlinError, TimeoutError):
                async with asyncio.timeout(NOTE_S):
                    await access.share_ended(self._dispatcher.engine, call.today)

    def _set_cookie(self, call: Call, text: str, age_s: int) -> None:
        secure = "; Secure" if call.secure or comes_by_tls(call.headers, self._endpoint) else ""
        cookie = f"{self.cookie}={text}; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"
        call.answer_headers.append((b"set-cookie", cookie.encode()))

    def _way_in(self, call: Call) -> str:
        return "token" if call.door.code is None else "code"

    def _view(self, call: Call, role: Role, expires: int | None = None) -> SessionView:
        seeds = self._dispatcher.scope_of_seeds() or self._dispatcher.scope_seeds
        hosts = list(dict.fromkeys(map(host_of, seeds)))
        crawl = self._dispatcher.crawl_id
        return SessionView(role, self._way_in(call), expires, crawl, hosts[:HOSTS_NAMED], len(hosts), call.door.running)
