"""How much a node may say of a host that it holds: bounds, so that no word of one node outlasts it for long.

A site's own wishes stay within them: what is beyond is cut, or in the case of a note left out, and then the next holder
of the host asks for its robots.txt again.
"""

from __future__ import annotations

import msgspec

from drumlin.config import CrawlConfig
from drumlin.model import Settlement
from drumlin.protocol import HostNote
from drumlin.robots import Decision

DELAY_MAX_S = 86_400.0
"""The longest delay between two contacts of a host that a node can bring about; as much as people may set."""
NEXT_CONTACT_MAX_S = 86_400.0
"""The longest that a node can put off a host."""
NOTE_SCHEMES = frozenset({"http", "https"})
NOTE_AHEAD_MAX_S = 30 * 86_400.0
"""How far ahead robots rules may expire. They last a day; the rest is for clocks that differ."""
HSTS_AHEAD_MAX_S = 2 * 365 * 86_400.0
ROBOTS_FAILURES_MAX = 1_000_000

_decode_note = msgspec.msgpack.Decoder(HostNote).decode
_decode_decision = msgspec.msgpack.Decoder(Decision).decode


def bounded(settlement: Settlement, config: CrawlConfig, now: float) -> Settlement:
    """The same within bounds."""
    delay_s, note = settlement.delay_s, settlement.note
    if delay_s is None and note is None and settlement.next_contact <= now:
        return settlement
    if delay_s is not None:
        delay_s = min(delay_s, max(DELAY_MAX_S, config.delay_s))
    if note is not None and not is_sane(note, now):
        note = None
    latest = now + max(NEXT_CONTACT_MAX_S, config.delay_s)
    return msgspec.structs.replace(
        settlement, delay_s=delay_s, note=note, next_contact=min(settlement.next_contact, latest)
    )


def is_sane(note: bytes, now: float) -> bool:
    """Whether this is a note as nodes write them."""
    if not note:
        return True
    try:
        read = _decode_note(note)
        decisions = [_decode_decision(raw) for raw in read.robots.values()]
    except msgspec.DecodeError:
        return False
    return (
        NOTE_SCHEMES.issuperset(read.robots)
        # By the time that is ours: a calendar may be far ahead of it.
        and all((one.expires_shared or one.expires) <= now + NOTE_AHEAD_MAX_S for one in decisions)
        and read.hsts_until <= now + HSTS_AHEAD_MAX_S
        and 0 <= read.robots_failures <= ROBOTS_FAILURES_MAX
    )
