"""Where the lists of the redis engine begin and end: hosts by name, dead letters and groups of them by place.

Names and places are compared as bytes, in Redis as here. `lua/layout.lua` explains the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

from drumlin.model import DeadGroup, FailureKind, GroupPlace, LetterPlace

AFTER_ALL = b"\xff"
"""Stands behind everything in UTF-8."""
TASK_ID_BYTES = 6
KINDS_IN_ORDER = sorted(FailureKind, key=str)


def host_range(prefix: str, after: str) -> tuple[bytes, bytes]:
    """The names that begin with `prefix` and come after `after`, as ZRANGEBYLEX takes it."""
    begin, passed = prefix.encode(), after.encode()
    return b"(" + passed if passed >= begin else b"[" + begin, b"(" + begin + AFTER_ALL


def letter_ranges(kind: FailureKind | None, host: str, after: LetterPlace | None) -> list[tuple[bytes, bytes]]:
    """The dead letters of a kind or of all, of a host or of all, after a place: the parts of a shard's list."""
    if kind is None and not host:
        begins = [b""]
    else:
        kinds = KINDS_IN_ORDER if kind is None else [kind]
        begins = [(f"{one}\0{host}\0" if host else f"{one}\0").encode() for one in kinds]
    # Behind the id stands the URL: what comes after the place comes after all that could stand there.
    passed = _place_key(after) + AFTER_ALL if after is not None else b""
    return [(b"(" + passed if passed > begin else b"[" + begin, b"(" + begin + AFTER_ALL) for begin in begins]


def _place_key(place: LetterPlace) -> bytes:
    kind, host, task_id = place
    return f"{kind}\0{host}\0".encode() + task_id.to_bytes(TASK_ID_BYTES, "big")


def group_start(kind: FailureKind, after: GroupPlace | None) -> tuple[int | str | bytes, ...]:
    """Where the groups of a kind begin after a place: a score and a name, nothing for the very beginning."""
    if after is None:
        return ()
    score, passed, host = after
    # Of groups as large as that one, those of an earlier kind were told, and those of a later one were not.
    return score, host if kind == passed else AFTER_ALL if kind < passed else ""


def read_groups(kind: FailureKind, reply: Sequence[bytes]) -> list[DeadGroup]:
    """Decode the answer of `dead_groups`."""
    pairs = zip(reply[::2], reply[1::2], strict=True)
    return [DeadGroup(kind, host.decode(), -int(float(score))) for host, score in pairs]
