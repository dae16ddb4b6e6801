"""Seals make the ids of leases and assignments unforgeable: each is a short code that only the crawl's secret can make.

A coordinator does not remember the leases that it gave out. So an id that comes back must prove itself: a lease's id,
that it was made for this node and this host; an assignment's id, that it was made for this lease, URL, depth and number
of attempts. A receipt proves in the same way that some coordinator counted a result.

The keys are derived from the crawl's secret, so every coordinator makes and accepts the same seals. All keys that were
ever used are in a small table of the engine: if the secret is replaced, ids that were given out before still count, and
no honest node is taken for a liar. 64 bits are enough, because a guess can only be tried on a coordinator, which
punishes wrong ones.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Collection
from hashlib import blake2b
from hmac import compare_digest

from drumlin.access.tokens import SECRET_BYTES, crawl_secret
from drumlin.engines.base import Engine
from drumlin.model import Task
from drumlin.protocol import AssignmentKey, read_assignment_id

KEYS_TABLE = "seal_keys"
PURPOSE = b"drumlin seals v1"
SEAL_BYTES = 8
READ_EVERY_S = 0.25
_LEASE, _ASSIGNMENT, _RECEIPT = b"lease", b"assignment", b"receipt"

_Seal = Callable[[str], str]


def _begun(key: bytes, kind: bytes) -> blake2b:
    # Copying a hash state that already contains the key costs less than starting with the key again.
    return blake2b(key=key, digest_size=SEAL_BYTES, person=kind)


def _sealer(key: bytes, kind: bytes) -> _Seal:
    begun = _begun(key, kind)

    def seal(text: str) -> str:
        code = begun.copy()
        code.update(text.encode())
        return code.hexdigest()

    return seal


class Seals:
    """Makes ids and checks them. Until `refresh` has read the crawl's key it uses a random one."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._read = 0.0
        self._candidate = secrets.token_bytes(SECRET_BYTES)
        self._use([_derived(self._candidate)])

    def _use(self, keys: list[bytes]) -> None:
        """The first key makes new seals; seals by any of the keys are accepted."""
        if keys != self._keys:
            self._keys = keys
            self._lease, self._begun = _sealer(keys[0], _LEASE), _begun(keys[0], _ASSIGNMENT)
            self._receipts = [_sealer(key, _RECEIPT) for key in keys]
            self._leases = [self._lease, *(_sealer(key, _LEASE) for key in keys[1:])]
            self._earlier_assignments = [_sealer(key, _ASSIGNMENT) for key in keys[1:]]

    async def refresh(self, engine: Engine) -> None:
        """Learn the crawl's key, and the keys that were in use before."""
        key = _derived(await crawl_secret(engine, self._candidate))
        known = await engine.get_entries(KEYS_TABLE)
        if _name(key) not in known:
            await engine.put_entries(KEYS_TABLE, {_name(key): key})
        self._use([key, *(other for other in known.values() if other != key)])

    async def read_again(self, engine: Engine, now: float) -> bool:
        """`refresh`, unless this was called a moment ago: another coordinator may use a key that is new to this one."""
        if now - self._read < READ_EVERY_S:
            return False
        self._read = now
        await self.refresh(engine)
        return True

    async def gave_out(self, engine: Engine, assignment_id: str, url: str, now: float) -> bool:
        """Whether some coordinator gave out this URL under this id."""
        if self.assignment(assignment_id, url) is not None:
            return True
        return await self.read_again(engine, now) and self.assignment(assignment_id, url) is not None

    # Making

    def sealed(self, lease_id: str, host: str) -> str:
        """A lease's id as nodes are given it: with a seal that binds it to its host."""
        return f"{lease_id}.{self._lease(_bound(lease_id, host))}"

    def assignment_id(self, sealed_id: str, task: Task) -> str:
        text = f"{sealed_id}/{task.id}.{task.depth}.{task.failures}"
        return f"{text}.{self._assignment(text, task.url)}"

    def _assignment(self, text: str, url: str) -> str:
        """The seal of an assignment. It is made twice for each page, so it has no further functions in it."""
        code = self._begun.copy()
        code.update(f"{text}\n{url}".encode())
        return code.hexdigest()

    def receipt(self, text: str) -> str:
        return self._receipts[0](text)

    # Checking

    def has_receipt(self, text: str, receipts: Collection[str]) -> bool:
        return any(seal(text) in receipts for seal in self._receipts)

    def unsealed(self, sealed_id: str, host: str) -> str:
        """A lease's id as the engine knows it; empty when no coordinator gave out this host under this id."""
        lease_id, _, seal = sealed_id.rpartition(".")
        return lease_id if _fits(seal, _bound(lease_id, host), self._leases) else ""

    def assignment(self, text: str, url: str) -> AssignmentKey | None:
        """What an assignment's id says; None when no coordinator gave this URL out under this id."""
        body, _, seal = text.rpartition(".")
        try:
            genuine = compare_digest(seal, self._assignment(body, url))
        except (TypeError, UnicodeEncodeError):
            return None
        if not genuine and not _fits(seal, _bound(body, url), self._earlier_assignments):
            return None
        return read_assignment_id(text)


def without_seal(sealed_id: str) -> str:
    """The same for an id whose seal has been checked."""
    return sealed_id.rpartition(".")[0]


def _bound(text: str, place: str) -> str:
    # Our ids, canonical URLs and hosts contain no line feed, so two different pairs never give the same text.
    return f"{text}\n{place}"


def _fits(seal: str, told: str, makers: list[_Seal]) -> bool:
    """Whether one of these made the seal."""
    try:
        return any(compare_digest(seal, make(told)) for make in makers)
    except (TypeError, UnicodeEncodeError):
        # The seal is not ASCII, or the text has half a surrogate pair: neither is anything that we gave out.
        return False


def _derived(secret: bytes) -> bytes:
    return hmac.digest(secret, PURPOSE, "sha256")


def _name(key: bytes) -> str:
    """A name for a key that reveals nothing about it."""
    return blake2b(key, digest_size=SEAL_BYTES).hexdigest()
