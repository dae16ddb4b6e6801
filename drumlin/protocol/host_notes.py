"""A host's note: what nodes have learnt of a host, for whoever holds its next lease.

A node writes it and the next node reads it. In between it lies in the engine as opaque bytes, and a coordinator looks
into it to bound what one node can make others believe, and to show it to people. The robots rules in it are bytes of
their own, which `drumlin.robots` reads.
"""

from __future__ import annotations

import msgspec

AS_ASKED = 1.01
"""Tolerance for rounding when two durations are compared."""


class BackOff(msgspec.Struct):
    """Why a host is left alone for longer than politeness requires: the kind of failure and its message, since when,
    how often it was tried in vain, when last, and until when. Times are engine time, except that `until_wall` is by the
    node's wall clock; the back-off ends at whichever of the two comes first. `asked` says that the site itself asked
    for a pause, `asked_s` for how long; our own pause may be longer."""

    kind: str
    error: str
    since: float
    tries: int
    tried: float
    until: float
    until_wall: float
    asked: bool = False
    asked_s: float = 0.0

    @property
    def as_asked(self) -> bool:
        """Whether the pause is as long as the site asked for, rather than a longer one of our own."""
        return self.asked and self.until - self.tried <= max(self.asked_s, 1.0) * AS_ASKED


class HostNote(msgspec.Struct):
    """What is remembered about a host between leases; the engine keeps it as opaque bytes. `robots` and `backoff` are
    by scheme. `slow_s` is what remains of the longer delay that a 429 caused: each later answer shortens it."""

    robots: dict[str, bytes] = {}
    hsts_until: float = 0.0
    backoff: dict[str, BackOff] = {}
    slow_s: float = 0.0


UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading a stranger's message may raise: it is not a message, has text that is not text, or nests without end."""

_decode = msgspec.msgpack.Decoder(HostNote).decode
_encode = msgspec.msgpack.Encoder().encode


def read_note(note: bytes) -> HostNote:
    """The note that a coordinator sends with a lease: it has looked at it, so it can be read."""
    return _decode(note) if note else HostNote()


def read_strangers_note(note: bytes) -> HostNote | None:
    """A note as some node sent it; None when it is not a note."""
    try:
        return read_note(note)
    except UNREADABLE:
        return None


def write_note(note: HostNote) -> bytes:
    return _encode(note)
