"""How much a node may say of a host that it holds: bounds, so that no word of one node outlasts it for long.

A site's own wishes stay within them: what is beyond is cut, or in the case of a note left out, and then the next holder
of the host asks for its robots.txt again.
"""

from __future__ import annotations

import msgspec

from drumlin.config import CrawlConfig
from drumlin.frontier import ASKED_MAX_S
from drumlin.model import HostState, Settlement
from drumlin.protocol import BackOff, HostNote, HostReport
from drumlin.robots import Decision

DELAY_MAX_S = 86_400.0
"""The longest delay between two contacts of a host that a node can bring about; as much as people may set."""
NEXT_CONTACT_MAX_S = 86_400.0
"""The longest that a node can put off a host."""
NOTE_SCHEMES = frozenset({"http", "https"})
NOTE_AHEAD_MAX_S = 30 * 86_400.0
"""How far ahead robots rules may expire. They last a day; the rest is for clocks that differ."""
TEXT_CHARS_MAX = 1_000
HSTS_AHEAD_MAX_S = 2 * 365 * 86_400.0
PAUSE_MAX_S = ASKED_MAX_S + 3600.0
"""How far ahead the end of a back-off may lie: what a site may ask for, and some for clocks that differ."""
SLOW_MAX_S = 3600.0

_decode_note = msgspec.msgpack.Decoder(HostNote).decode
_encode_note = msgspec.msgpack.Encoder().encode
_decode_decision = msgspec.msgpack.Decoder(Decision).decode


def bounded(settlement: Settlement, config: CrawlConfig, now: float, before: HostState | None = None) -> Settlement:
    """The same within bounds. `before` is the host as it was, for reports that need it (`needs_before`)."""
    delay_s, note, in_backoff = settlement.delay_s, settlement.note, None
    if delay_s is None and note is None and settlement.next_contact <= now:
        return settlement
    if delay_s is not None:
        delay_s = min(delay_s, max(DELAY_MAX_S, config.delay_s))
    if note is not None:
        note, in_backoff = _bounded_note(note, config, now, before)
    latest = now + max(NEXT_CONTACT_MAX_S, config.delay_s)
    return msgspec.structs.replace(
        settlement,
        delay_s=delay_s,
        note=note,
        next_contact=min(settlement.next_contact, latest),
        in_backoff=in_backoff,
    )


def needs_before(report: HostReport) -> bool:
    """Whether what is said of a host depends on what was known of it: since when it is in back-off, no node decides."""
    read = _read(report.note or b"")
    return read is not None and bool(read.backoff)


def backoffs_of(note: bytes) -> dict[str, BackOff]:
    """Why a host is left alone, by scheme; nothing, when whoever wrote the note wrote nonsense."""
    read = _read(note)
    return read.backoff if read is not None else {}


def _bounded_note(
    note: bytes, config: CrawlConfig, now: float, before: HostState | None
) -> tuple[bytes | None, bool | None]:
    """The note, and whether the host is in back-off by it: not any more when its URLs are given up."""
    read = _read(note)
    if read is None or not _is_sane(read, now):
        return None, None
    if not read.backoff:
        return note, False
    known = backoffs_of(before.note) if before is not None else {}
    read.backoff = {scheme: _own_times(one, known.get(scheme), now) for scheme, one in read.backoff.items()}
    waits = any(now - one.since < config.host_patience_s for one in read.backoff.values())
    return _encode_note(read), waits


def _own_times(told: BackOff, before: BackOff | None, now: float) -> BackOff:
    """A back-off that begins now, or goes on since it began: otherwise one node's word could have the next give up."""
    since, tries = (before.since, before.tries) if before is not None else (now, 0)
    return msgspec.structs.replace(told, since=since, tries=min(told.tries, tries + 1))


def is_sane(note: bytes, now: float) -> bool:
    """Whether this is a note as nodes write them."""
    read = _read(note)
    return read is not None and _is_sane(read, now)


def _read(note: bytes) -> HostNote | None:
    try:
        return _decode_note(note) if note else HostNote()
    except msgspec.DecodeError:
        return None


def _is_sane(read: HostNote, now: float) -> bool:
    try:
        decisions = [_decode_decision(raw) for raw in read.robots.values()]
    except msgspec.DecodeError:
        return False
    return (
        NOTE_SCHEMES.issuperset(read.robots)
        and NOTE_SCHEMES.issuperset(read.backoff)
        # By the time that is ours: a calendar may be far ahead of it.
        and all((one.expires_shared or one.expires) <= now + NOTE_AHEAD_MAX_S for one in decisions)
        and all(one.until <= now + PAUSE_MAX_S and one.tries >= 0 for one in read.backoff.values())
        and all(len(one.kind) + len(one.error) <= TEXT_CHARS_MAX for one in read.backoff.values())
        and read.hsts_until <= now + HSTS_AHEAD_MAX_S
        and 0 <= read.slow_s <= SLOW_MAX_S
    )
