"""A thin asyncio client for Redis and Valkey, single or clustered, on hiredis.

One connection per server, shared by all calls. Commands given in the same turn of the event loop are written in one
go and answered in order; a call may name many commands, which all travel at once and wake their caller once.

What it takes care of, within `patience_s`: a command is sent again when its slot has moved or is moving, when a server
is loading, electing or gone, and, where replicas must confirm, when too few of them did. So every command must be safe
to send twice. A call that fails all the same ends in one `EngineError`. A server that does not answer is given up after
`ANSWER_S`. Passwords appear in no error.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from binascii import crc_hqx
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import hiredis

from drumlin.engines.redis_address import RedisAddress, Server
from drumlin.errors import EngineError

SLOTS = 16_384
PATIENCE_S = 20.0
CONNECT_S = 2.0
ANSWER_S = 5.0
BACKOFF_MIN_S = 0.01
BACKOFF_MAX_S = 0.5
WAIT_MS = 1_000
"""How long replicas have to confirm, before the call is made again."""
UNANSWERED_MAX = 20_000
"""Commands on one connection that wait for an answer; further calls wait until there are fewer."""
TOUCH_S = 60

_PASSING = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "UNBLOCKED", "BUSY")
_NOT_FOUND = "ERR Function not found"
_NOTHING = object()


class Unanswered(Exception):
    """The connection ended, or could not be made, before the answer came: the command may or may not have run."""


class Unconfirmed(Exception):
    """Fewer replicas than asked for have confirmed a write."""


class Command(NamedTuple):
    """What to send where; `key` is any key of its slot."""

    slot: int
    payload: bytes
    key: str = ""
    writes: bool = False


class _Target(Protocol):
    """What an answer is for."""

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
    """Writes whose answers count only once enough replicas have them: those before one WAIT on the connection."""

    def __init__(self, replicas: int) -> None:
        self._replicas = replicas
        self._held: list[tuple[_Target, int, Any]] = []
        self._targets: list[tuple[_Target, int]] = []
        self._ended = False

    def add(self, target: _Target, place: int) -> int:
        self._targets.append((target, place))
        return len(self._targets) - 1

    def take(self, place: int, reply: Any) -> None:
        if place >= 0:
            self._held.append((*self._targets[place], reply))
            if not self._ended:
                return
        self._ended = True
        confirmed = place < 0 and isinstance(reply, int) and reply >= self._replicas
        held, self._held = self._held, []
        for target, position, answer in held:
            passed = confirmed or isinstance(answer, Exception)
            target.take(position, answer if passed else Unconfirmed("too few replicas confirmed"))


class _Ignored:
    """Where answers go that nobody waits for."""

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
        self._heard = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._relief: asyncio.Future[None] | None = None
        self.alive = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in everything but the class.
        self._transport = cast("asyncio.Transport", transport)
        self.alive = True

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
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

    def send(self, payload: bytes, target: _Target, place: int, *, confirm: bool = False) -> None:
        """Write a command with the others of this turn of the loop; its answer goes to `target`."""
        if not self.alive:
            target.take(place, Unanswered("the connection ended"))
            return
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(payload)
        if confirm and self._replicas:
            self._confirmation = self._confirmation or _Confirmation(self._replicas)
            target, place = self._confirmation, self._confirmation.add(target, place)
        self._waiting.append((target, place))

    def _flush(self) -> None:
        out, self._out = self._out, []
        confirmation, self._confirmation = self._confirmation, None
        if not self.alive or self._transport is None:
            if confirmation is not None:
                confirmation.take(-1, Unanswered("the connection ended"))
            return
        if confirmation is not None:
            out.append(packed("WAIT", self._replicas, WAIT_MS))
            self._waiting.append((confirmation, -1))
        self._transport.write(b"".join(out))
        if self._watch is None:
            self._heard = self._loop.time()
            self._watch = self._loop.call_later(ANSWER_S, self._look)

    def _look(self) -> None:
        """Give up a server that has long owed an answer; otherwise look again when that may be."""
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


def packed(*words: str | bytes | int | float) -> bytes:
    """A command as it goes over the wire."""
    command: bytes = hiredis.pack_command(words)
    return command


def slot_of(tag: str) -> int:
    """The slot of all keys with this hash tag."""
    return crc_hqx(tag.encode(), 0) % SLOTS


class RedisClient:
    """Runs commands where their slots are. One event loop; any number of calls at a time."""

    def __init__(self, address: RedisAddress, library: str = "", *, patience_s: float = PATIENCE_S) -> None:
        self._address = address
        self._library = library
        self._patience_s = patience_s
        self._connections: dict[Server, Connection] = {}
        self._connecting: dict[Server, asyncio.Task[Connection]] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._servers: list[Server] = list(address.servers)
        self._slots: list[Server] = [address.servers[0]] * SLOTS
        self._tls = _tls_context(address) if address.tls else None
        self._closed = False
        self.clustered = False

    async def open(self) -> None:
        """Find the servers; an `EngineError` says why none answers."""
        await self._within_patience(self._refresh)

    @property
    def masters(self) -> list[Server]:
        return sorted(set(self._slots))

    async def run(self, commands: Sequence[Command]) -> list[Any]:
        """The answers to commands that travel at once; any that cannot be had now are asked for again."""
        replies = await self._attempt(commands)
        for reply in replies:
            if isinstance(reply, Exception):
                await self._run_again(commands, replies)
                break
        return replies

    async def on_masters(self, payload: bytes) -> list[Any]:
        """The answers of every master, without trying again."""
        connections = await asyncio.gather(*map(self._connection, self.masters))
        call = _Call(len(connections), asyncio.get_running_loop().create_future())
        for place, connection in enumerate(connections):
            connection.send(payload, call, place)
        await call.done
        return call.replies

    async def clock_offset(self, samples: int) -> float:
        """Seconds to add to this machine's clock to get the first server's: the median of some samples."""
        offsets = []
        for _ in range(samples):
            before = time.time()
            ((seconds, microseconds),) = await self.run([Command(0, packed("TIME"))])
            offsets.append(int(seconds) + int(microseconds) / 1e6 - (before + time.time()) / 2)
        return sorted(offsets)[samples // 2]

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

    async def _attempt(self, commands: Sequence[Command], again: bool = False) -> list[Any]:
        call = _Call(len(commands), asyncio.get_running_loop().create_future())
        if not commands:
            return []
        for server in {self._slots[command.slot] for command in commands}:
            connection = self._connections.get(server)
            if connection is None or not connection.alive:
                await self._try_connecting(server)
            else:
                await connection.room()
        for place, command in enumerate(commands):
            connection = self._connections.get(self._slots[command.slot])
            if connection is None:
                call.take(place, Unanswered("no connection"))
                continue
            if again and command.writes and self._address.replicas:
                # WAIT covers what this connection wrote: make sure that it has written something.
                connection.send(packed("SET", f"{command.key}+", 1, "EX", TOUCH_S), _IGNORED, 0)
            connection.send(command.payload, call, place, confirm=command.writes)
        await call.done
        return call.replies

    async def _run_again(self, commands: Sequence[Command], replies: list[Any]) -> None:
        """Put answers in the place of passing errors, or raise what does not pass."""
        loop = asyncio.get_running_loop()
        end, backoff_s = loop.time() + self._patience_s, BACKOFF_MIN_S
        while failed := [place for place, reply in enumerate(replies) if isinstance(reply, Exception)]:
            problem = replies[failed[0]]
            for place in failed:
                self._raise_unless_passing(replies[place])
            if loop.time() >= end:
                raise self._gave_up(problem)
            await self._amend(commands, replies, failed)
            await asyncio.sleep(backoff_s)
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
            asked, others = self._asked(replies, failed)
            for place, server in asked.items():
                replies[place] = await self._ask(commands[place], server)
            answers = await self._attempt([commands[place] for place in others], again=True)
            for place, answer in zip(others, answers, strict=True):
                replies[place] = answer

    def _raise_unless_passing(self, problem: Exception) -> None:
        """Errors that time does not heal end the call."""
        text = str(problem)
        passing = isinstance(problem, Unanswered | Unconfirmed) or text.startswith(_PASSING)
        if passing or (self._library and text.startswith(_NOT_FOUND)):
            return
        if text.startswith(("NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH")):
            raise EngineError(f"{self._address} refuses this user.", "Check the user, the password and its rights.")
        if text.startswith("OOM"):
            raise EngineError(f"{self._address} is out of memory.", "Raise `maxmemory`, or add servers to the cluster.")
        raise EngineError(f"{self._address} answered: {text}")

    def _gave_up(self, problem: Exception) -> EngineError:
        if isinstance(problem, Unconfirmed):
            return EngineError(
                f"Fewer than {self._address.replicas} replicas of {self._address} confirm what is written.",
                "Bring replicas back, or ask for fewer with `replicas`.",
            )
        return EngineError(
            f"{self._address} gave no usable answer for {self._patience_s:.0f} s ({problem}).",
            "Check that its servers run and that every slot has a master.",
        )

    async def _amend(self, commands: Sequence[Command], replies: list[Any], failed: list[int]) -> None:
        """Learn from errors what can be learnt: where slots are, which servers lack the functions."""
        texts = {str(replies[place]) for place in failed}
        for text in texts:
            if text.startswith("MOVED"):
                _, slot, place = text.split(" ")
                self._slots[int(slot)] = self._server_at(place, int(slot))
        if any(text.startswith(_NOT_FOUND) for text in texts):
            places = [place for place in failed if str(replies[place]).startswith(_NOT_FOUND)]
            servers = {self._slots[commands[place].slot] for place in places}
            await asyncio.gather(*map(self._load, servers))
        if any(not text.startswith((*("ASK", "TRYAGAIN"), _NOT_FOUND)) for text in texts):
            await self._refresh_quietly()

    def _server_at(self, place: str, slot: int) -> Server:
        host, _, port = place.rpartition(":")
        return Server(host.strip("[]") or self._slots[slot].host, int(port))

    def _asked(self, replies: list[Any], failed: list[int]) -> tuple[dict[int, Server], list[int]]:
        """Commands that another server must be asked for just once, and the rest."""
        asked: dict[int, Server] = {}
        for place in failed:
            text = str(replies[place])
            if text.startswith("ASK "):
                _, slot, where = text.split(" ")
                asked[place] = self._server_at(where, int(slot))
        return asked, [place for place in failed if place not in asked]

    async def _ask(self, command: Command, server: Server) -> Any:
        await self._try_connecting(server)
        connection = self._connections.get(server)
        if connection is None:
            return Unanswered("no connection")
        call = _Call(1, asyncio.get_running_loop().create_future())
        connection.send(packed("ASKING"), _IGNORED, 0)
        connection.send(command.payload, call, 0, confirm=command.writes)
        await call.done
        return call.replies[0]

    # Servers

    async def load_everywhere(self) -> None:
        """Give every master the library of functions, so that no call has to."""
        await asyncio.gather(*map(self._load, self.masters))

    async def _load(self, server: Server) -> None:
        try:
            connection = await self._connection(server)
        except (OSError, TimeoutError, EngineError):
            return
        call = _Call(1, asyncio.get_running_loop().create_future())
        connection.send(packed("FUNCTION", "LOAD", self._library), call, 0)
        await call.done
        reply = call.replies[0]
        if isinstance(reply, hiredis.ReplyError) and "already exists" not in str(reply):
            self._raise_unless_passing(reply)

    async def _try_connecting(self, server: Server) -> None:
        try:
            await self._connection(server)
        except (OSError, TimeoutError):
            self._connections.pop(server, None)

    async def _connection(self, server: Server) -> Connection:
        """The live connection to a server, made if there is none; all who want it wait for the same attempt."""
        connection = self._connections.get(server)
        if connection is not None and connection.alive:
            return connection
        task = self._connecting.get(server)
        if task is None:
            task = self._connecting[server] = asyncio.ensure_future(self._connect(server))
            task.add_done_callback(lambda _: self._connecting.pop(server, None))
        return await asyncio.shield(task)

    async def _connect(self, server: Server) -> Connection:
        loop = asyncio.get_running_loop()
        if self._closed:
            raise EngineError("The engine is closed.")
        _, connection = await asyncio.wait_for(
            loop.create_connection(
                lambda: Connection(self._address.replicas), server.host, server.port, ssl=self._tls or None
            ),
            CONNECT_S,
        )
        self._connections[server] = connection
        if self._address.password:
            call = _Call(1, loop.create_future())
            user = [self._address.user] if self._address.user else []
            connection.send(packed("AUTH", *user, self._address.password), call, 0)
            await call.done
            if isinstance(call.replies[0], hiredis.ReplyError):
                connection.abort()
                raise EngineError(f"{self._address} refuses this user.", "Check the user and the password.")
        return connection

    # Topology

    async def _refresh_quietly(self) -> None:
        """Learn again where slots are; whoever asks meanwhile waits for the same answer."""
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
        for server in _distinct([*self._servers, *self._address.servers]):
            try:
                reply = await asyncio.wait_for(self._ask_topology(server), CONNECT_S)
            except (OSError, TimeoutError) as error:
                problem = error if str(error) else Unanswered(f"{server} does not answer")
                continue
            if isinstance(reply, hiredis.ReplyError) and "cluster support disabled" in str(reply):
                self._slots, self.clustered = [server] * SLOTS, False
                return
            if isinstance(reply, Exception):
                problem = reply
                if not isinstance(reply, Unanswered):
                    self._raise_unless_passing(reply)
            elif self._take_topology(server, reply):
                return
        raise Unanswered(str(problem))

    async def _ask_topology(self, server: Server) -> Any:
        connection = await self._connection(server)
        call = _Call(1, asyncio.get_running_loop().create_future())
        connection.send(packed("CLUSTER", "SLOTS"), call, 0)
        await call.done
        return call.replies[0]

    def _take_topology(self, asked: Server, ranges: list[Any]) -> bool:
        slots, servers, covered = list(self._slots), [], 0
        for first, last, master, *replicas in ranges:
            members = [
                Server((member[0] or b"").decode() or asked.host, int(member[1])) for member in (master, *replicas)
            ]
            servers += members
            slots[first : last + 1] = [members[0]] * (last + 1 - first)
            covered += last + 1 - first
        if covered < SLOTS:
            return False
        self._slots, self._servers, self.clustered = slots, _distinct(servers), True
        for server in set(self._connections) - set(self._servers):
            if not self._connections[server].alive:
                del self._connections[server]
        return True

    async def _within_patience(self, action: Any) -> None:
        loop = asyncio.get_running_loop()
        end, backoff_s = loop.time() + self._patience_s, BACKOFF_MIN_S
        while True:
            try:
                await action()
            except Unanswered as problem:
                if loop.time() >= end:
                    raise self._gave_up(problem) from None
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
            else:
                return


def _distinct(servers: Iterable[Server]) -> list[Server]:
    return list(dict.fromkeys(servers))


def _tls_context(address: RedisAddress) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=address.ca or None)
    except OSError as error:
        raise EngineError(f"The certificates in {address.ca} cannot be read: {error}.", "Check `ca`.") from None
