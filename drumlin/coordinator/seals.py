"""What makes the ids of leases and assignments unforgeable: a short code by the crawl's secret.

A coordinator remembers no lease that it gave. What it gets back must prove itself: a lease's id that it is of this node
and this host, an assignment's that it is of this lease, this URL, at this depth and after so many attempts. A receipt
likewise proves to any coordinator that one of them counted a result.

Keys are derived from the crawl's secret, so that every coordinator makes and reads the same ones. Those in use are in a
small table of the engine: should the secret ever be replaced, what was given out before still counts, and nobody is
taken for a liar. 64 bits suffice: there is nothing to try a guess on but a coordinator, and wrong guesses are punished.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Collection
from hashlib import blake2b
from hmac import compare_digest

from drumlin.coordinator.auth import SECRET_BYTES, crawl_secret
from drumlin.engines.base import Engine
from drumlin.model import Task
from drumlin.protocol import AssignmentKey, read_assignment_id

KEYS_TABLE = "seal_keys"
PURPOSE = b"drumlin seals v1"
SEAL_BYTES = 8
READ_EVERY_S = 0.25
_LEASE, _ASSIGNMENT, _RECEIPT = b"lease", b"assignment", b"receipt"

_Seal = Callable[[str], str]


def _sealer(key: bytes, kind: bytes) -> _Seal:
    # Copying a state that has taken the key in already costs half as much as beginning anew.
    begun = blake2b(key=key, digest_size=SEAL_BYTES, person=kind)

    def seal(text: str) -> str:
        code = begun.copy()
        code.update(text.encode())
        return code.hexdigest()

    return seal


class Seals:
    """Makes ids and checks them. Until `refresh` has read the crawl's key it uses one of its own."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._read = 0.0
        self._candidate = secrets.token_bytes(SECRET_BYTES)
        self._use([_derived(self._candidate)])

    def _use(self, keys: list[bytes]) -> None:
        """The first key makes seals; all of them are good."""
        if keys != self._keys:
            self._keys = keys
            self._lease, self._assignment = _sealer(keys[0], _LEASE), _sealer(keys[0], _ASSIGNMENT)
            self._receipts = [_sealer(key, _RECEIPT) for key in keys]
            self._earlier_leases = [_sealer(key, _LEASE) for key in keys[1:]]
            self._earlier_assignments = [_sealer(key, _ASSIGNMENT) for key in keys[1:]]

    async def refresh(self, engine: Engine) -> None:
        """Learn the crawl's key, and those that were in use before."""
        key = _derived(await crawl_secret(engine, self._candidate))
        known = await engine.get_entries(KEYS_TABLE)
        if _name(key) not in known:
            await engine.put_entries(KEYS_TABLE, {_name(key): key})
        self._use([key, *(other for other in known.values() if other != key)])

    async def read_again(self, engine: Engine, now: float) -> bool:
        """`refresh`, unless that was done a moment ago: another coordinator may use a key that is new to this one."""
        if now - self._read < READ_EVERY_S:
            return False
        self._read = now
        await self.refresh(engine)
        return True

    # Making

    def lease_id(self, token: str, host: str) -> str:
        """How a node knows the lease of `host` that the engine knows by `token`."""
        return f"{token}.{self._lease(_bound(token, host))}"

    def assignment_id(self, lease_id: str, task: Task) -> str:
        text = f"{lease_id}/{task.id}.{task.depth}.{task.attempts}"
        return f"{text}.{self._assignment(_bound(text, task.url))}"

    def receipt(self, text: str) -> str:
        return self._receipts[0](text)

    # Checking

    def has_receipt(self, text: str, receipts: Collection[str]) -> bool:
        return any(seal(text) in receipts for seal in self._receipts)

    def token(self, lease_id: str, host: str) -> str:
        """The engine's token of a lease; empty when no coordinator gave this host under this id."""
        token, _, seal = lease_id.rpartition(".")
        return token if _fits(seal, _bound(token, host), self._lease, self._earlier_leases) else ""

    def assignment(self, text: str, url: str) -> AssignmentKey | None:
        """What an assignment's id says; None when no coordinator gave this URL out under this id."""
        body, _, seal = text.rpartition(".")
        if not _fits(seal, _bound(body, url), self._assignment, self._earlier_assignments):
            return None
        return read_assignment_id(text)


def token_of(lease_id: str) -> str:
    """The engine's token of a lease whose id is known to be genuine."""
    return lease_id.rpartition(".")[0]


def _bound(text: str, place: str) -> str:
    # Neither an id of ours nor a canonical URL nor a host has a line feed in it, so that this can be read in one way.
    return f"{text}\n{place}"


def _fits(seal: str, told: str, present: _Seal, earlier: list[_Seal]) -> bool:
    try:
        if compare_digest(seal, present(told)):
            return True
        return any(compare_digest(seal, make(told)) for make in earlier)
    except (TypeError, UnicodeEncodeError):
        # No seal has letters beyond ASCII, and nothing that we gave out has half a surrogate pair in it.
        return False


def _derived(secret: bytes) -> bytes:
    return hmac.digest(secret, PURPOSE, "sha256")


def _name(key: bytes) -> str:
    """A name for a key that tells nothing of it."""
    return blake2b(key, digest_size=SEAL_BYTES).hexdigest()
