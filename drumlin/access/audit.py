"""The audit log: every change that a person makes, every log-in to the dashboard (`session.open`), and whoever took
stored data away (`data.…`): with who, what, when, from where and how it ended.

An entry goes into the engine's table `audit`, shared by all coordinators, and with all its fields to the logger
`drumlin.audit`. The table keeps the newest of each share: `CHANGES_MAX` changes by people, `LOG_INS_EACH_MAX` log-ins
of each token, `DATA_EACH_MAX` times that each token took data, and `NODES_MAX` entries that nodes caused, each by being
put into quarantine. So whoever may only log in, take data or bring nodes cannot push out what others have done. Each
coordinator trims the table after every `TRIM_EVERY` entries that it wrote, so it has at most `TRIM_EVERY` entries too
many for each coordinator. No entry holds a secret.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from drumlin.access.tokens import TOKENS_TABLE, Identity, Role, TokenRecord
from drumlin.engines.base import Engine
from drumlin.lines import one_line
from drumlin.logs import Event, event

AUDIT_TABLE = "audit"
LOG_IN_ACTION = "session.open"
CHANGES_MAX = 10_000
LOG_INS_EACH_MAX = 20
DATA_ACTIONS = "data."
"""How the names of actions begin by which stored data is taken away."""
DATA_EACH_MAX = 1_000
NODES_MAX = 1_000
TRIM_EVERY = 256
READ_MAX = 1_000
TEXT_CHARS_MAX = 2_048

_log = logging.getLogger("drumlin.audit")
_MICROSECONDS = 1_000_000
_TIME_DIGITS = 20
# The shares of the table. A share stands in the keys of its entries; that of changes is the empty one.
_CHANGES, _NODES, _DATA = "", "nodes", "data of "


class AuditEntry(msgspec.Struct, frozen=True):
    """One change or log-in. `outcome` is `done`, or the code of the error; `address` is where the request came from."""

    time: float
    token_id: str
    name: str
    role: Role
    action: str
    target: str
    outcome: str
    address: str


class AuditLog:
    """Writes and reads the audit log of a crawl."""

    def __init__(self, engine: Engine, elsewhere: Callable[[], list[AuditEntry]] | None = None) -> None:
        """`elsewhere` tells what is noted in another place; it may block."""
        self._engine = engine
        self._elsewhere = elsewhere
        self._until_trim = 0

    async def record(
        self, who: Identity, action: str, target: str, outcome: str, address: str, now: float, *, name: str = ""
    ) -> AuditEntry:
        """Note one change, or the attempt at one. The process's log has it even if the engine cannot store it. `name`
        is for people without a token, who are at work on the engine itself."""
        said = one_line(target[:TEXT_CHARS_MAX])[:TEXT_CHARS_MAX]
        entry = AuditEntry(now, who.id, "", who.role, action, said, outcome, one_line(address))
        try:
            entry = msgspec.structs.replace(entry, name=one_line(name or await self._name(who.id)))
        finally:
            _log_entry(entry)
        await self._engine.put_entries(AUDIT_TABLE, {_key(now, _share(entry)): msgspec.msgpack.encode(entry)})
        self._until_trim -= 1
        if self._until_trim < 0:
            self._until_trim = TRIM_EVERY
            await self._trim()
        return entry

    async def read(self, *, limit: int = READ_MAX, before: float | None = None) -> list[AuditEntry]:
        """The newest entries before a time, newest first; at most `READ_MAX` at once."""
        end, most = "" if before is None else _time_key(before), max(0, min(limit, READ_MAX))
        entries = await self._engine.last_entries(AUDIT_TABLE, limit=most, before=end)
        found = [msgspec.msgpack.decode(entry, type=AuditEntry) for entry in entries.values()]
        if self._elsewhere is not None:
            others = await asyncio.to_thread(self._elsewhere)
            found += [entry for entry in others if before is None or entry.time < before]
            found.sort(key=lambda entry: entry.time, reverse=True)
        return found[:most]

    async def _name(self, token_id: str) -> str:
        stored = await self._engine.get_entry(TOKENS_TABLE, token_id)
        return "" if stored is None else msgspec.msgpack.decode(stored, type=TokenRecord).name

    async def _trim(self) -> None:
        await self._engine.delete_entries(AUDIT_TABLE, list(_beyond(await self._engine.get_entries(AUDIT_TABLE))))


def _log_entry(entry: AuditEntry) -> None:
    who = f"{entry.role} {entry.name or entry.token_id}"
    fields = {name: value for name, value in msgspec.structs.asdict(entry).items() if name != "time"}
    extra = event(Event.AUDIT, **fields)
    _log.info(
        "%s from %s: %s %s: %s", who, entry.address or "here", entry.action, entry.target, entry.outcome, extra=extra
    )


def _share(entry: AuditEntry) -> str:
    if entry.role is Role.NODE:
        return _NODES
    if entry.action.startswith(DATA_ACTIONS):
        return f"{_DATA}{entry.token_id}"
    return f"log-ins of {entry.token_id}" if entry.action == LOG_IN_ACTION else _CHANGES


def _beyond(keys: Iterable[str]) -> Iterator[str]:
    """The keys of entries beyond the newest of their shares."""
    seen: Counter[str] = Counter()
    for key in sorted(keys, reverse=True):
        share = key[_TIME_DIGITS:].rpartition("-")[0]
        seen[share] += 1
        if seen[share] > _most(share):
            yield key


def _most(share: str) -> int:
    """How many entries of a share are kept."""
    if share.startswith(_DATA):
        return DATA_EACH_MAX
    return {_CHANGES: CHANGES_MAX, _NODES: NODES_MAX}.get(share, LOG_INS_EACH_MAX)


def _key(now: float, share: str) -> str:
    """A key that sorts by time. Its random part keeps two entries of the same microsecond apart."""
    return f"{_time_key(now)}{share}-{secrets.token_hex(4)}"


def _time_key(time: float) -> str:
    return f"{max(0, int(time * _MICROSECONDS)):0{_TIME_DIGITS}d}"
