"""Which server has which slot, as far as this process knows, and how Redis's errors are to be understood."""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from typing import Any

from drumlin.engines.redis.address import RedisAddress, Server
from drumlin.errors import Cause, EngineError

SLOTS = 16_384

NOT_FOUND = "ERR Function not found"
_PASSING = ("MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "UNBLOCKED", "BUSY")
_ELSEWHERE = ("CLUSTERDOWN", "LOADING", "READONLY", "MASTERDOWN", "MOVED", "UNBLOCKED")


class Unanswered(Exception):
    """The connection ended, or could not be made, before the answer came: the command may or may not have run."""


class Unconfirmed(Exception):
    """Fewer replicas than asked for have confirmed a write."""


def slot_of(tag: str) -> int:
    """The slot of all keys with this hash tag."""
    return crc_hqx(tag.encode(), 0) % SLOTS


class SlotMap:
    """The masters of all slots. A server that is not part of a cluster has all of them."""

    def __init__(self, seeds: Sequence[Server]) -> None:
        self._seeds = list(seeds)
        self._known: list[Server] = []
        self.masters_of: list[Server] = [seeds[0]] * SLOTS

    @property
    def masters(self) -> list[Server]:
        return sorted(set(self.masters_of))

    @property
    def servers(self) -> list[Server]:
        """All servers that can be asked for the slots: first those the cluster named, then those of the address."""
        return list(dict.fromkeys((*self._known, *self._seeds)))

    def take_alone(self, server: Server) -> None:
        """Note that the server is not part of a cluster."""
        self.masters_of = [server] * SLOTS

    def take(self, asked: Server, ranges: Sequence[Any]) -> bool:
        """Note a server's answer to CLUSTER SLOTS. Returns False and changes nothing if it does not cover all slots."""
        masters_of, known, covered = list(self.masters_of), [], 0
        for first, last, *members in ranges:
            servers = [Server((member[0] or b"").decode() or asked.host, int(member[1])) for member in members]
            known += servers
            masters_of[first : last + 1] = [servers[0]] * (last + 1 - first)
            covered += last + 1 - first
        if covered < SLOTS:
            return False
        self.masters_of, self._known = masters_of, known
        return True

    def named_by(self, error: str) -> tuple[int, Server]:
        """The slot and the server in `MOVED 3999 127.0.0.1:6381` or `ASK …`."""
        _, slot, place = error.split(" ")
        host, _, port = place.rpartition(":")
        return int(slot), Server(host.strip("[]") or self.masters_of[int(slot)].host, int(port))

    def follow(self, error: str) -> None:
        """Note the new place of a slot, from a MOVED error."""
        slot, server = self.named_by(error)
        self.masters_of[slot] = server


def suggests_another_master(problem: Exception) -> bool:
    """Whether the error may mean that slots have another master than we think."""
    return isinstance(problem, Unanswered) or str(problem).startswith(_ELSEWHERE)


def raise_unless_passing(problem: Exception, address: RedisAddress) -> None:
    """Raise an `EngineError` for errors that will not pass by themselves within seconds."""
    text = str(problem)
    if isinstance(problem, Unanswered | Unconfirmed) or text.startswith((*_PASSING, NOT_FOUND)):
        return
    if text.startswith(("NOAUTH", "WRONGPASS", "NOPERM", "ERR AUTH")):
        raise EngineError(
            f"{address} refuses this user.", "Check the user, the password and its rights.", code=Cause.REFUSED
        )
    if text.startswith("ERR unknown command"):
        raise EngineError(f"{address} is too old.", "Use Redis 7.0 or later, or Valkey.", code=Cause.REFUSED)
    if text.startswith("OOM"):
        hint = "Raise `maxmemory`, or add servers to the cluster."
        raise EngineError(f"{address} is out of memory.", hint, code=Cause.OUT_OF_MEMORY)
    if text.startswith("MISCONF"):
        hint = "Free some space where it keeps its files; it goes on by itself."
        raise EngineError(
            f"{address} cannot write to its disk: {text.removeprefix('MISCONF ')}", hint, code=Cause.DISK_FULL
        )
    raise EngineError(f"{address} answered: {text}")


def gave_up(problem: Exception, address: RedisAddress, patience_s: float) -> EngineError:
    """The error for a caller whose command failed until its patience ended."""
    text = str(problem)
    if isinstance(problem, Unconfirmed):
        return EngineError(
            f"Fewer than {address.replicas} replicas of {address} confirm what is written.",
            "Bring replicas back, or ask for fewer with `replicas`.",
            code=Cause.UNCONFIRMED,
        )
    if text.startswith("READONLY"):
        hint = "Name its master, or make it one with `REPLICAOF NO ONE`."
        return EngineError(f"{address} is a replica and takes no writes.", hint, code=Cause.READ_ONLY)
    if text.startswith(("LOADING", "MASTERDOWN")):
        return EngineError(f"{address} is reading its data after a start.", "Wait for it.", code=Cause.LOADING)
    code = Cause.WITHOUT_MASTER if text.startswith("CLUSTERDOWN") else Cause.UNREACHABLE
    return EngineError(
        f"{address} gave no usable answer for {patience_s:.0f} s ({problem}).",
        "Check that its servers run and that every slot has a master.",
        code=code,
    )
