"""Bounds for what a node may say about a host that it holds, so one wrong report does no lasting harm.

What a site really asks for is within these bounds. Delays and next contacts beyond them are cut. A note beyond them is
dropped, and the next holder of the host fetches its robots.txt again.
"""

from __future__ import annotations

from math import inf, isfinite

import msgspec

from drumlin.config import CrawlConfig
from drumlin.coordinator.giving.visiting import STRANGER_NOTE_BYTES_MAX, is_strangers
from drumlin.frontier import ASKED_MAX_S
from drumlin.model import HostState, Settlement
from drumlin.protocol import UNREADABLE, BackOff, HostNote, HostReport, read_strangers_note, write_note
from drumlin.robots import NOTED_BYTES_MAX, Decision, decisions_in

DELAY_MAX_S = 86_400.0
"""The longest delay between two contacts of a host that a node can set; the same as people can."""
NEXT_CONTACT_MAX_S = 86_400.0
"""The longest time for which a node can put off a host."""
NOTE_SCHEMES = frozenset({"http", "https"})
NOTE_AHEAD_MAX_S = 30 * 86_400.0
"""How far ahead robots rules may expire. They last a day; the rest allows for clocks that differ."""
NOTE_KEPT_BYTES_MAX = len(NOTE_SCHEMES) * NOTED_BYTES_MAX + 16 * 1024
"""How long a note may be: the robots rules of both schemes, and room for the rest. The engine keeps one for each host,
and sends hundreds at a time."""
TEXT_CHARS_MAX = 1_000
HSTS_AHEAD_MAX_S = 2 * 365 * 86_400.0
PAUSE_MAX_S = ASKED_MAX_S + 3600.0
"""How far ahead the end of a back-off may lie: what a site may ask for, and an hour for clocks that differ."""
SLOW_MAX_S = 3600.0


def bounded(settlement: Settlement, config: CrawlConfig, now: float, before: HostState | None = None) -> Settlement:
    """The settlement within bounds. `before` is the host as it was, for reports that need it (`needs_before`)."""
    delay_s, note = settlement.delay_s, settlement.note
    in_backoff: bool | None = None
    slow_s: float | None = None
    if delay_s is None and note is None and settlement.next_contact <= now:
        return settlement
    if delay_s is not None:
        delay_s = min(delay_s, max(DELAY_MAX_S, config.delay_s))
    longest = STRANGER_NOTE_BYTES_MAX if is_strangers(settlement.lease_id) else NOTE_KEPT_BYTES_MAX
    if note is not None and len(note) > longest:
        note = None
    if note is not None:
        note, in_backoff, slow_s = _bounded_note(note, config, now, before)
    latest = now + max(NEXT_CONTACT_MAX_S, config.delay_s)
    return msgspec.structs.replace(
        settlement,
        delay_s=delay_s,
        note=note,
        next_contact=min(settlement.next_contact, latest),
        in_backoff=in_backoff,
        slow_s=slow_s,
    )


def needs_before(report: HostReport) -> bool:
    """Whether the host's earlier state is needed to judge a report: since when a host is in back-off is taken from
    there, never from a node."""
    read = read_strangers_note(report.note or b"")
    return read is not None and bool(read.backoff)


def backoffs_of(note: bytes) -> dict[str, BackOff]:
    """Why a host is in back-off, by scheme; empty if the note cannot be read."""
    read = read_strangers_note(note)
    return read.backoff if read is not None else {}


def slow_s_of(note: bytes) -> float:
    """The longer delay that the host has since it answered 429; 0 when it has none."""
    read = read_strangers_note(note)
    return read.slow_s if read is not None else 0.0


def _bounded_note(
    note: bytes, config: CrawlConfig, now: float, before: HostState | None
) -> tuple[bytes | None, bool | None, float | None]:
    """The note, whether it says that the host is in back-off (no longer, once its URLs are given up), and the longer
    delay after a 429."""
    read = read_strangers_note(note)
    if read is None or not _is_sane(read, now):
        return None, None, None
    if not read.backoff:
        return note, False, read.slow_s
    known = backoffs_of(before.note) if before is not None else {}
    read.backoff = {scheme: _own_times(one, known.get(scheme), now) for scheme, one in read.backoff.items()}
    waits = any(now - one.since < config.host_patience_s for one in read.backoff.values())
    return write_note(read), waits, read.slow_s


def _own_times(told: BackOff, before: BackOff | None, now: float) -> BackOff:
    """The back-off with its start and tries as we know them. If a node could say that it began long ago, the next node
    would give up the host's URLs at once."""
    since, tries = (before.since, before.tries) if before is not None else (now, 0)
    return msgspec.structs.replace(told, since=since, tries=min(told.tries, tries + 1))


def _is_sane(read: HostNote, now: float) -> bool:
    try:
        decisions = decisions_in(read)
    except UNREADABLE:
        return False
    return (
        NOTE_SCHEMES.issuperset(read.robots)
        and NOTE_SCHEMES.issuperset(read.backoff)
        and all(_is_sane_decision(one, now) for one in decisions.values())
        and all(_is_sane_backoff(one, now) for one in read.backoff.values())
        and 0 <= read.hsts_until <= now + HSTS_AHEAD_MAX_S
        and 0 <= read.slow_s <= SLOW_MAX_S
    )


def _is_sane_decision(one: Decision, now: float) -> bool:
    # Judge by engine time if the decision has it: the calendar may be far ahead of engine time.
    ends = one.expires_shared or one.expires
    return (
        isfinite(one.expires)
        and 0 <= ends <= now + NOTE_AHEAD_MAX_S
        and len(one.reason) + len(one.agent) <= TEXT_CHARS_MAX
        and (one.asked_delay is None or 0 <= one.asked_delay[1] < inf)
    )


def _is_sane_backoff(one: BackOff, now: float) -> bool:
    return (
        all(map(isfinite, (one.since, one.tried, one.until, one.until_wall)))
        and one.until <= now + PAUSE_MAX_S
        and one.tries >= 0
        and len(one.kind) + len(one.error) <= TEXT_CHARS_MAX
    )
