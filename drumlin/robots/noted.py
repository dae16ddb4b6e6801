"""Decisions about robots.txt in a host's note: one node writes them there for the next node, and for people."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from drumlin.protocol import HostNote
from drumlin.robots.policy import Decision
from drumlin.robots.rules import Rules, parse
from drumlin.urls import canonical

SITEMAPS_NAMED_MAX = 50
"""How many sitemaps of one robots.txt are followed."""

_decode = msgspec.msgpack.Decoder(Decision).decode
_encode = msgspec.msgpack.Encoder().encode


def decisions_in(note: HostNote) -> dict[str, Decision]:
    """What is known of a host's robots.txt, by scheme. Raises one of `protocol.UNREADABLE` if the note makes no sense:
    any node may have written it."""
    return {scheme: _decode(kept) for scheme, kept in note.robots.items()}


def as_noted(decisions: Mapping[str, Decision]) -> dict[str, bytes]:
    """The same in the form in which a note keeps it, without rules that it has no room for."""
    return {scheme: _encode(one) for scheme, one in decisions.items() if not one.too_long_to_note}


def sitemaps_in(note: HostNote, host: str) -> list[str]:
    """The sitemaps that a host's robots.txt names, in canonical form. Raises what `decisions_in` raises."""
    found: list[str] = []
    for scheme, decision in decisions_in(note).items():
        found += named_sitemaps(parse(decision.rules), f"{scheme}://{host}/robots.txt")
    return found


def named_sitemaps(rules: Rules, url: str) -> list[str]:
    """The sitemaps that the robots.txt at `url` names, in canonical form."""
    found = (canonical(href, url) for href in rules.sitemaps[:SITEMAPS_NAMED_MAX])
    return [sitemap for sitemap in found if sitemap]
