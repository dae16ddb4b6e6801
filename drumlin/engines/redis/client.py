"""A thin asyncio client for Redis and Valkey, single or clustered, on hiredis.

One connection per server, shared by all calls. Commands given in the same turn of the event loop are written in one
go and answered in order; a call may name many commands, which all travel at once and wake their caller once.

For up to `patience_s` the client repeats a command when its slot has moved or is moving, when a server is loading,
electing a master or gone, and, where replicas must confirm, when too few of them did. So every command must be safe to
send twice. A call that still fails ends in one `EngineError`. The connection to a server that owes an answer for
`ANSWER_S` is closed. Passwords appear in no error.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, cast

import hiredis

from drumlin.engines.redis.address import RedisAddress, Server
from drumlin.engines.redis.commands import Command, packed
from drumlin.engines.redis.topology import (
    NOT_FOUND,
    SlotMap,
    Unanswered,
    Unconfirmed,
    gave_up,
    raise_unless_passing,
    suggests_another_master,
)
from drumlin.errors import EngineError
from drumlin.logs import Event, event

PATIENCE_S = 20.0
CONNECT_S = 2.0
ANSWER_S = 5.0
TOLD_AFTER_S = 1.0
BACKOFF_MIN_S = 0.01
BACKOFF_MAX_S = 0.5
WAIT_MS = 1_000
"""How long replicas have to confirm a write before it is sent again."""
UNANSWERED_MAX = 20_000
"""How many commands may wait for an answer on one connection; further calls wait until there are fewer."""

log = logging.getLogger("drumlin.engine")

_NOTHING = object()


class _Target(Protocol):
    """Where an answer goes."""

    def take(self, place: int, reply: Any) -> None: ...


class _Call:
    """Commands that were sent together, and their caller."""

    __slots__ = ("done", "left", "replies")

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.replies: list[Any] = [None] * count
        self.left = count
        self.done = done

    def take(self, place: int, reply: Any) -> None:
        self.replies[place] = reply
        self.left -= 1
        if not self.left and not self.done.done():
            self.done.set_result(None)


class _Confirmation:
    """Holds back the answers to writes until enough replicas have confirmed the WAIT that follows them.

    WAIT covers only what its own connection wrote. A small write before it makes it cover everything that was written
    earlier, also what other connections wrote and these calls have seen.
    """

    WAITED, TOUCHED = -1, -2

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._targets: list[tuple[_Target, int]] = []
        self._held: list[tuple[_Target, int, Any]] = []
        self._touched = True
        self._ended = False

    def add(self, target: _Target, place: int) -> int:
        self._targets.append((target, place))
        return len(self._targets) - 1

    def take(self, place: int, reply: Any) -> None:
        if place == self.TOUCHED:
            self._touched = not isinstance(reply, Exception)
        elif place == self.WAITED:
            self._ended = True
            self._release(confirmed=self._touched and isinstance(reply, int) and reply >= self._replicas)
        else:
            self._held.append((*self._targets[place], reply))
            if self._ended:
                self._release(confirmed=False)

    def _release(self, *, confirmed: bool) -> None:
        held, self._held = self._held, []
        for target, place, reply in held:
            passed = confirmed or isinstance(reply, Exception)
            target.take(place, reply if passed else Unconfirmed("too few replicas confirmed"))


class _Ignored:
    """A target for answers that nobody waits for."""

    def take(self, place: int, reply: Any) -> None:
        pass


_IGNORED = _Ignored()


class Connection(asyncio.Protocol):
    """One server: commands out in batches, answers in, in order."""

    def __init__(self, replicas: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._replicas = replicas
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[_Target, int]] = deque()
        self._out: list[bytes] = []
        self._confirmation: _Confirmation | None = None
        self._touch = b""
        self._heard = 0.0
        self.heard_at = 0.0
        """When anything last came from the server, by the loop's clock."""
        self._watch: asyncio.TimerHandle | None = None
        self._relief: asyncio.Future[None] | None = None
        self.alive = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in everything but the class.
        self._transport = cast("asyncio.Transport", transport)
        self.alive = True

    def data_received(self, data: bytes) -> None:
        self.heard_at = self._heard = self._loop.time()
        reader, waiting = self._reader, self._waiting
        try:
            reader.feed(data)
            while (reply := reader.gets()) is not _NOTHING:
                target, place = waiting.popleft()
                target.take(place, reply)
        except (hiredis.ProtocolError, IndexError):
            self.abort()
        if self._relief is not None and len(waiting) < UNANSWERED_MAX:
            self._relief.set_result(None)
            self._relief = None

    def connection_lost(self, exc: Exception | None) -> None:
        self.alive = False
        if self._watch is not None:
            self._watch.cancel()
        waiting, self._waiting = self._waiting, deque()
        for target, place in waiting:
            target.take(place, Unanswered("the connection ended"))
        if self._relief is not None:
            self._relief.set_result(None)
            self._relief = None

    async def room(self) -> None:
        """Wait until the server has caught up with what it was sent."""
        while self.alive and len(self._waiting) >= UNANSWERED_MAX:
            if self._relief is None:
                self._relief = self._loop.create_future()
            await asyncio.shield(self._relief)

    def send(self, payload: bytes, target: _Target, place: int, *, confirm: str = "") -> None:
        """Write a command with the others of this turn of the loop; its answer goes to `target`.

        `confirm` is a key of its slot if the command writes: where replicas must confirm, the answer waits for them.
        """
        if not self.alive:
            target.take(place, Unanswered("the connection ended"))
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        if not self._waiting:
            # The server owes an answer from now on; the idle time before does not count as silence.
            self._heard = self._loop.time()
        self._out.append(payload)
        if confirm and self._replicas:
            self._confirmation = self._confirmation or _Confirmation(self._replicas)
            self._touch = packed("SET", confirm + "+", 1)
            target, place = self._confirmation, self._confirmation.add(target, place)
        self._waiting.append((target, place))

    def _flush(self) -> None:
        out, self._out = self._out, []
        confirmation, self._confirmation = self._confirmation, None
        if not self.alive or self._transport is None:
            if confirmation is not None:
                confirmation.take(confirmation.WAITED, Unanswered("the connection ended"))
            return
        if confirmation is not None:
            out += (self._touch, packed("WAIT", self._replicas, WAIT_MS))
            self._waiting += ((confirmation, confirmation.TOUCHED), (confirmation, confirmation.WAITED))
        self._transport.write(b"".join(out))
        if self._watch is None:
            self._watch = self._loop.call_later(ANSWER_S, self._look)

    def _look(self) -> None:
        """Close the connection to a server that has owed an answer for `ANSWER_S`, or look again when that is due."""
        self._watch = None
        silent_s = self._loop.time() - self._heard
        if not self._waiting or not self.alive:
            return
        if silent_s >= ANSWER_S:
            self.abort()
        else:
            self._watch = self._loop.call_later(ANSWER_S - silent_s, self._look)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self.alive = False


class RedisClient:
    """Runs commands where their slots are. One event loop; any number of calls at a time."""

    def __init__(self, address: RedisAddress, library: str, *, patience_s: float = PATIENCE_S) -> None:
        self._address = address
        self._library = library
        self._patience_s = patience_s
        self._map = SlotMap(address.servers)
        self._connections: dict[Server, Connection] = {}
        self._connecting: dict[Server, asyncio.Task[Connection]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._tls = _tls_context(address) if address.tls else None
        self._closed = False
        self.connects = 0
        """How many connections were made so far."""

    async def open(self) -> None:
        """Find the servers and give them the functions; an `EngineError` says why that cannot be."""
        await self._within_patience(self._refresh)
        masters = self._map.masters
        await asyncio.gather(*map(self._load, masters), *map(self._refuse_eviction, masters))

    @property
    def masters_count(self) -> int:
        return len(self._map.masters)

    async def run(self, commands: Sequence[Command], *, patience_s: float | None = None) -> list[Any]:
        """Send the commands at once and return their answers; those that fail in passing are sent again."""
        replies = await self._attempt(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                await self._run_again(commands, replies, self._patience_s if patience_s is None else patience_s)
                break
        return replies

    def master_of(self, slot: int) -> Server:
        return self._map.masters_of[slot]

    def slots_of_masters(self) -> list[int]:
        """One slot of each master, to ask every one of them."""
        return list({server: slot for slot, server in enumerate(self._map.masters_of)}.values())

    def connection_to(self, server: Server) -> Connection | None:
        """The connection to a server, if there is a live one."""
        connection = self._connections.get(server)
        return connection if connection is not None and connection.alive else None

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._connecting.values(), *([self._refreshing] if self._refreshing else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections.values():
            connection.abort()
        # The transports close in the loop's next turn.
        await asyncio.sleep(0)

    # One attempt

    async def _attempt(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        call = _Call(len(commands), asyncio.get_running_loop().create_future())
        masters_of, connections = self._map.masters_of, self._connections
        for server in {masters_of[command.slot] for command in commands}:
            connection = connections.get(server)
            if connection is None or not connection.alive:
                await self._try_connecting(server)
            else:
                await connection.room()
        for place, command in enumerate(commands):
            connection = connections.get(masters_of[command.slot])
            if connection is None:
                call.take(place, Unanswered("no connection"))
            else:
                connection.send(command.payload, call, place, confirm=command.writes)
        await call.done
        return call.replies

    async def _run_again(self, commands: Sequence[Command], replies: list[Any], patience_s: float) -> None:
        """Repeat the commands that failed in passing, until `replies` holds answers only; raise any other error."""
        loop = asyncio.get_running_loop()
        end, backoff_s = loop.time() + patience_s, BACKOFF_MIN_S
        while failed := [place for place, reply in enumerate(replies) if isinstance(reply, Exception)]:
            for place in failed:
                raise_unless_passing(replies[place], self._address)
            if loop.time() >= end:
                raise gave_up(replies[failed[0]], self._address, patience_s)
            await self._learn({place: replies[place] for place in failed}, commands)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
            asked = [place for place in failed if str(replies[place]).startswith("ASK ")]
            for place in asked:
                replies[place] = await self._ask(commands[place], self._map.named_by(str(replies[place]))[1])
            others = [place for place in failed if place not in asked]
            answers = await self._attempt([commands[place] for place in others])
            for place, answer in zip(others, answers, strict=True):
                replies[place] = answer

    async def _learn(self, problems: dict[int, Exception], commands: Sequence[Command]) -> None:
        """Act on what errors say: note where slots have moved, and load the functions where they are missing."""
        for text in {str(problem) for problem in problems.values()}:
            if text.startswith("MOVED "):
                self._map.follow(text)
        lacking = [place for place, problem in problems.items() if str(problem).startswith(NOT_FOUND)]
        await asyncio.gather(*map(self._load, {self._map.masters_of[commands[place].slot] for place in lacking}))
        if any(map(suggests_another_master, problems.values())):
            await self._refresh_quietly()

    async def _ask(self, command: Command, server: Server) -> Any:
        """Ask the server that a slot is moving to, when its keys are there already (Redis answered ASK)."""
        await self._try_connecting(server)
        connection = self._connections.get(server)
        if connection is None:
            return Unanswered("no connection")
        connection.send(packed("ASKING"), _IGNORED, 0)
        return await self._single(connection, command.payload, confirm=command.writes)

    @staticmethod
    async def _single(connection: Connection, payload: bytes, *, confirm: str = "") -> Any:
        call = _Call(1, asyncio.get_running_loop().create_future())
        connection.send(payload, call, 0, confirm=confirm)
        await call.done
        return call.replies[0]

    # Servers

    async def _load(self, server: Server) -> None:
        """Give a master the library of functions, which its replicas get from it."""
        try:
            connection = await self._connection(server)
        except (OSError, TimeoutError):
            return
        reply = await self._single(connection, packed("FUNCTION", "LOAD", self._library))
        if isinstance(reply, hiredis.ReplyError) and "already exists" not in str(reply):
            raise_unless_passing(reply, self._address)

    async def _refuse_eviction(self, server: Server) -> None:
        """Raise if a server would delete keys when its memory is full: it would lose URLs silently."""
        try:
            connection = await self._connection(server)
        except (OSError, TimeoutError):
            return
        reply = await self._single(connection, packed("INFO", "memory"))
        if (
            isinstance(reply, bytes)
            and b"\r\nmaxmemory_policy:allkeys" in reply
            and b"\r\nmaxmemory:0\r\n" not in reply
        ):
            raise EngineError(
                f"Redis at {server} may throw away any key when its memory is full, and so lose URLs.",
                "Set its `maxmemory-policy` to `noeviction`.",
            )

    async def _try_connecting(self, server: Server) -> None:
        try:
            await self._connection(server)
        except (OSError, TimeoutError):
            self._connections.pop(server, None)

    async def _connection(self, server: Server) -> Connection:
        """The live connection to a server. If there is none, all callers wait for one attempt to make it."""
        connection = self._connections.get(server)
        if connection is not None and connection.alive:
            return connection
        task = self._connecting.get(server)
        if task is None:
            task = self._connecting[server] = asyncio.ensure_future(self._connect(server))
            task.add_done_callback(lambda made: self._connected(server, made))
        return await asyncio.shield(task)

    def _connected(self, server: Server, task: asyncio.Task[Connection]) -> None:
        self._connecting.pop(server, None)
        if not task.cancelled():
            # Reading the exception keeps asyncio from logging it when nobody waits for the task any more.
            task.exception()

    async def _connect(self, server: Server) -> Connection:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise EngineError("The engine is closed.")
        making = loop.create_connection(
            lambda: Connection(self._address.replicas), server.host, server.port, ssl=self._tls
        )
        try:
            _, connection = await asyncio.wait_for(making, CONNECT_S)
        except ssl.SSLCertVerificationError as error:
            raise EngineError(
                f"The certificate of {server} is not trusted: {error.verify_message}.",
                "Name the file of its authority with `?ca=FILE`.",
            ) from None
        self._connections[server] = connection
        self.connects += 1
        if self._address.password:
            user = [self._address.user] if self._address.user else []
            reply = await self._single(connection, packed("AUTH", *user, self._address.password))
            if isinstance(reply, hiredis.ReplyError):
                connection.abort()
                raise EngineError(f"{self._address} refuses this user.", "Check the user and the password.")
        return connection

    # Topology

    async def _refresh_quietly(self) -> None:
        """Learn again where slots are; all callers meanwhile wait for one answer."""
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._refresh())
            self._refreshing.add_done_callback(self._refreshed)
        try:
            await asyncio.shield(self._refreshing)
        except (OSError, Unanswered):
            return

    def _refreshed(self, task: asyncio.Task[None]) -> None:
        self._refreshing = None
        if not task.cancelled():
            task.exception()

    async def _refresh(self) -> None:
        """Ask the servers in turn which slots are where, until one knows."""
        problem: Exception = Unanswered("no server")
        for server in self._map.servers:
            try:
                reply = await asyncio.wait_for(self._slots_by(server), CONNECT_S)
            except (OSError, TimeoutError) as error:
                reason = os.strerror(error.errno).lower() if error.errno else "no answer"
                problem = Unanswered(f"{server}: {reason}")
                continue
            if isinstance(reply, hiredis.ReplyError) and "cluster support disabled" in str(reply):
                self._map.take_alone(server)
                return
            if isinstance(reply, Exception):
                raise_unless_passing(reply, self._address)
                problem = reply
            elif self._map.take(server, reply):
                return
        raise Unanswered(str(problem))

    async def _slots_by(self, server: Server) -> Any:
        return await self._single(await self._connection(server), packed("CLUSTER", "SLOTS"))

    async def _within_patience(self, action: Callable[[], Awaitable[None]]) -> None:
        loop = asyncio.get_running_loop()
        start, backoff_s, told = loop.time(), BACKOFF_MIN_S, False
        while True:
            try:
                await action()
            except Unanswered as problem:
                waited_s = loop.time() - start
                if waited_s >= self._patience_s:
                    raise gave_up(problem, self._address, self._patience_s) from None
                if waited_s >= TOLD_AFTER_S and not told:
                    # The servers may be starting. Say so, or the program would seem to hang.
                    told = True
                    said = f"{self._address} cannot be reached ({problem}); trying for {self._patience_s:.0f} s."
                    log.warning("%s", said, extra=event(Event.ENGINE_LOST))
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
            else:
                return


def _tls_context(address: RedisAddress) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=address.ca or None)
    except OSError as error:
        raise EngineError(f"The certificates in {address.ca} cannot be read: {error}.", "Check `ca`.") from None
