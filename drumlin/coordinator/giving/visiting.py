"""Visits: a node leases a host without wanting its URLs, since the robots.txt of a host that it holds redirects there.

Any node may visit a host that the frontier knows; the visit is a lease like any other and keeps the host's pace. A host
that the frontier does not know is a **stranger**. There is only the node's word that a robots.txt redirected there, so
a dishonest node could send visits anywhere and fill the engine with hosts. Therefore a node must name the lease for
whose sake it visits a stranger (the sponsor), and must hold it. Only so many strangers are remembered, per sponsor, per
node and in all, with short notes and not for long. A stranger is never forgotten before its next contact is due: it
could otherwise be visited again too soon.

A small table of the engine says which node brought which stranger. It is read again at every tick, so coordinators
agree within a second.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import msgspec

from drumlin.access.misdeeds import Misdeed, Misdeeds
from drumlin.access.seals import Seals
from drumlin.engines.base import Engine
from drumlin.model import HostState, Lease, Visit
from drumlin.protocol import Sponsor
from drumlin.robots import REDIRECTS_MAX

STRANGERS_TABLE = "strangers"
STRANGERS_PER_SPONSOR = REDIRECTS_MAX
"""One robots.txt may be followed through this many redirects."""
STRANGERS_PER_NODE = 2_048
"""A fast node may start dozens of hosts a second whose robots.txt redirects, for instance to the name with `www.`."""
STRANGERS_MAX = 16_384
STRANGERS_KEPT_S = 60.0
"""Long enough for the frontier to learn of the host, if a page redirects there as its robots.txt does."""
STRANGER_BEGINS_S = 5.0
"""A stranger is in the table before the engine knows the host; the engine learns of it within this time."""
STRANGER_NOTE_BYTES_MAX = 8 * 1024
"""A longer note about a stranger is not kept. So all of them take at most 128 MiB."""
_LOOK_ONLY = float("-inf")
"""As a `due_by`: no next contact is that early, so nothing is forgotten."""
STRANGER_MARK = ".s"
"""How the ids of strangers' leases end. The seal covers it, so a node cannot remove it."""


class Stranger(msgspec.Struct, array_like=True, frozen=True):
    """A host that the frontier does not know: which node asked to visit it, when, and for which host that it held."""

    node: str
    sponsor: str
    at: float


_decode = msgspec.msgpack.Decoder(Stranger).decode
_encode = msgspec.msgpack.Encoder().encode


class Visiting:
    """Which hosts may be visited, and what is remembered of them."""

    def __init__(self, engine: Engine, seals: Seals, misdeeds: Misdeeds) -> None:
        self._engine = engine
        self._seals = seals
        self._misdeeds = misdeeds
        self._strangers: dict[str, Stranger] = {}
        self._of_nodes: Counter[str] = Counter()
        self._of_sponsors: Counter[str] = Counter()

    async def lease(self, visit: Visit, sponsor: Sponsor | None, now: float) -> Lease | None:
        """Lease the host without URLs, if no node holds it and it may be visited."""
        shard = self._engine.shard_of(visit.host)
        if await self._engine.host_state(shard, visit.host) is None:
            if not await self._introduce(visit, sponsor, now):
                return None
            visit = msgspec.structs.replace(visit, lease_id=visit.lease_id + STRANGER_MARK)
        return await self._engine.visit(shard, visit, now)

    async def _introduce(self, visit: Visit, sponsor: Sponsor | None, now: float) -> bool:
        """Whether a stranger may be visited. If so, it is in the table before the engine learns of it."""
        if sponsor is None or not await self._holds(visit.node, sponsor):
            return False
        known = self._strangers.get(visit.host)
        if known is not None and now - known.at < STRANGERS_KEPT_S / 2:
            return True
        stranger = Stranger(visit.node, sponsor[1], now)
        if known is None and not self._has_room(stranger):
            return False
        # It counts before the engine has it: other requests that come meanwhile must not take the same place.
        self._note(visit.host, stranger)
        await self._engine.put_entries(STRANGERS_TABLE, {visit.host: _encode(stranger)})
        return True

    def _has_room(self, stranger: Stranger) -> bool:
        return (
            self._of_sponsors[stranger.sponsor] < STRANGERS_PER_SPONSOR
            and self._of_nodes[stranger.node] < STRANGERS_PER_NODE
            and len(self._strangers) < STRANGERS_MAX
        )

    async def _holds(self, node: str, sponsor: Sponsor) -> bool:
        """Whether the node holds the lease for whose sake it wants the visit."""
        sealed_id, host = sponsor
        lease_id = self._seals.unsealed(sealed_id, host)
        if not lease_id:
            self._misdeeds.note(node, Misdeed.MADE_UP)
            return False
        state: HostState | None = await self._engine.host_state(self._engine.shard_of(host), host)
        return state is not None and state.lease_id == lease_id and state.node == node

    async def follow(self, now: float, *, leads: bool) -> None:
        """Learn of strangers that other coordinators let in. The leader forgets those whose time is over, and removes
        from the table those that the frontier has come to know."""
        strangers = {host: _decode(raw) for host, raw in (await self._engine.get_entries(STRANGERS_TABLE)).items()}
        if leads and strangers:
            over = [host for host, one in strangers.items() if now - one.at >= STRANGERS_KEPT_S]
            older = [host for host, one in strangers.items() if STRANGER_BEGINS_S <= now - one.at < STRANGERS_KEPT_S]
            left = {host for host, one in strangers.items() if now - one.at < STRANGER_BEGINS_S}
            left |= await self._forget(over, now) | await self._forget(older, _LOOK_ONLY)
            await self._engine.delete_entries(STRANGERS_TABLE, [host for host in strangers if host not in left])
            strangers = {host: stranger for host, stranger in strangers.items() if host in left}
        self._count(strangers)

    async def _forget(self, hosts: Sequence[str], due_by: float) -> set[str]:
        """Let the engine forget those of the hosts that no node holds and that are due by `due_by`. Returns those that
        remain strangers."""
        shards: dict[int, list[str]] = defaultdict(list)
        for host in hosts:
            shards[self._engine.shard_of(host)].append(host)
        left: set[str] = set()
        for shard, names in shards.items():
            left.update(await self._engine.forget(shard, names, due_by))
        return left

    def _note(self, host: str, stranger: Stranger) -> None:
        if host not in self._strangers:
            self._of_nodes[stranger.node] += 1
            self._of_sponsors[stranger.sponsor] += 1
        self._strangers[host] = stranger

    def _count(self, strangers: dict[str, Stranger]) -> None:
        self._strangers = strangers
        self._of_nodes = Counter(stranger.node for stranger in strangers.values())
        self._of_sponsors = Counter(stranger.sponsor for stranger in strangers.values())


def is_strangers(lease_id: str) -> bool:
    """Whether this is the lease of a host that the frontier did not know."""
    return lease_id.endswith(STRANGER_MARK)
