"""The W3C `traceparent` that travels with a URL, and how much of the URL a span shows."""

from __future__ import annotations

import re
from typing import NamedTuple

SAMPLED = 1
HIDDEN = "REDACTED"
"""What the conventions of OpenTelemetry put in place of a secret."""

_FORM = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")


class SpanId(NamedTuple):
    """A span and its trace."""

    trace_id: int
    span_id: int

    @property
    def trace(self) -> str:
        """The id of the trace as logs and receivers show it."""
        return f"{self.trace_id:032x}"

    @property
    def span(self) -> str:
        return f"{self.span_id:016x}"


def traceparent(one: SpanId) -> str:
    return f"00-{one.trace}-{one.span}-{SAMPLED:02x}"


def read_traceparent(text: str) -> SpanId | None:
    """The span that a `traceparent` names; None unless it is one of a trace that is recorded."""
    found = _FORM.fullmatch(text)
    if found is None:
        return None
    one = SpanId(int(found[1], 16), int(found[2], 16))
    return one if one.trace_id and one.span_id and int(found[3], 16) & SAMPLED else None


def shown_url(url: str) -> str:
    """The URL without its query, which may hold keys and names of people, and without a user. Any text has such a form:
    a node may send what is no URL."""
    place, _, query = url.partition("#")[0].partition("?")
    scheme, colon, rest = place.partition("://")
    authority, slash, path = rest.partition("/")
    hidden = f"?{HIDDEN}" if query else ""
    return f"{scheme}{colon}{authority.rpartition('@')[2]}{slash}{path}{hidden}"
