"""Why a fetch failed, in words for people: the same in the live display, in `status` and `why`, and at the end."""

from __future__ import annotations

from typing import Final

from drumlin.model import FailureKind

DETAIL_CHARS_MAX: Final = 80
ROBOTS_PREFIX: Final = "robots.txt: "
"""The start of an error about a robots.txt. It is left out where the sentence is about a host."""

_PHRASES: Final = {
    FailureKind.DNS: "no such host",
    FailureKind.CONNECT: "no connection could be made",
    FailureKind.TLS: "no secure connection could be made",
    FailureKind.TIMEOUT: "no answer came in time",
    FailureKind.RESET: "the connection broke",
    FailureKind.PROTOCOL: "the answer was not HTTP",
    FailureKind.HTTP_4XX: "the site refused it",
    FailureKind.RATE_LIMITED: "the site asks for fewer requests",
    FailureKind.HTTP_5XX: "the site reported an error of its own",
    FailureKind.ROBOTS_UNREACHABLE: "its robots.txt could not be fetched",
    FailureKind.TOO_LARGE: "it is too large",
    FailureKind.DECODE: "its compression is broken",
    FailureKind.REDIRECT_LOOP: "it redirects in a circle",
    FailureKind.REDIRECT_LIMIT: "it redirects too often",
    FailureKind.BAD_REDIRECT: "it redirects to something that is not a web address",
    FailureKind.FORBIDDEN_ADDRESS: "its address is private",
    FailureKind.TRAP: "its site seems to make up pages endlessly",
    FailureKind.CRASH: "parsing it ended the process",
    FailureKind.SCOPE_CHANGED: "the scope or depth was narrowed after it was queued",
}
# For these kinds the phrase alone does not say enough, so the error is added.
_DETAILED: Final = frozenset({FailureKind.TLS, FailureKind.ROBOTS_UNREACHABLE, FailureKind.PROTOCOL})


def cause(kind: str, error: str = "") -> str:
    """A kind of failure in a few words; `error` is the message that came with it."""
    phrase = _PHRASES.get(FailureKind(kind)) if kind in set(FailureKind) else None
    detail = error.removeprefix(ROBOTS_PREFIX).strip().rstrip(".")[:DETAIL_CHARS_MAX]
    if phrase is None:
        return detail or kind.replace("_", " ") or "no details"
    return f"{phrase} ({detail})" if detail and kind in _DETAILED else phrase
