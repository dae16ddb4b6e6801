"""Reads the answers to a node's calls, tells those of a coordinator from others, and logs what is wrong with them.

A reply is a message of the expected type, and a refusal has a code. An answer that is neither came from something in
between, such as a proxy with error pages of its own.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, TypeVar, cast

import msgspec

from drumlin.fetch import Transfer
from drumlin.http.headers import header_fields
from drumlin.http.retry_after import retry_after_s
from drumlin.logs import Event, event
from drumlin.protocol import UNREADABLE
from drumlin.protocol.paths import REQUEST_HEADER
from drumlin.protocol.refusals import NOBODY_BEHIND, RefusalCode

Reply = TypeVar("Reply")

PAUSE_ASKED_MAX_S = 600.0
TOO_LARGE = 413
HANGING_TOLD_EVERY_S = 60.0

log = logging.getLogger("drumlin.node")


class Refusal(msgspec.Struct):
    """Why a coordinator refuses a call. Without a code, the answer is not from a coordinator. `request` is the id that
    the coordinator's log has for it."""

    code: str = ""
    message: str = ""
    hint: str = ""
    request: str = ""

    def event(self) -> dict[str, object]:
        """For a log entry about this refusal."""
        return event(Event.REFUSED, code=self.code, request=self.request)


class _Error(msgspec.Struct):
    error: Refusal


def reply_of(transfer: Transfer, kind: type[Reply]) -> Reply | None:
    """The reply to a call that a coordinator took; None for a refusal, and for an answer that is not a
    coordinator's."""
    if transfer.failure or not 200 <= transfer.status < 300:
        return None
    try:
        reply: Reply = _decoder(cast(Any, kind)).decode(transfer.body.getvalue())
        return reply
    except UNREADABLE:
        return None


@functools.cache
def _decoder(kind: type[Any]) -> msgspec.msgpack.Decoder[Any]:
    """Making one costs more than a short answer takes to decode."""
    return msgspec.msgpack.Decoder(kind)


def refusal_of(transfer: Transfer) -> Refusal:
    """The refusal in an answer, in MessagePack or JSON. If it is neither, it has no code, and nothing that a stranger
    wrote is repeated."""
    body = transfer.body.getvalue()
    for decode in (msgspec.msgpack.decode, msgspec.json.decode):
        try:
            refusal = decode(body, type=_Error).error
        except UNREADABLE:
            continue
        refusal.request = header_fields(transfer.response_headers()).get(REQUEST_HEADER.lower(), "")
        return refusal
    return Refusal()


def why_failed(transfer: Transfer, refusal: Refusal, endpoint: str) -> str:
    """Why a call to this endpoint failed, in a few words."""
    if transfer.failure:
        return transfer.error or str(transfer.failure)
    if refusal.code:
        return refusal.message.rstrip(".")
    if transfer.status in NOBODY_BEHIND:
        return f"the server at {endpoint} reaches no coordinator, status {transfer.status}"
    return f"{endpoint} answers with status {transfer.status}, but not as a coordinator would"


class TroubleLog:
    """Tells of a trouble with coordinators when it begins and when it ends, not with every call that it stops."""

    def __init__(self) -> None:
        self.cut_off = False
        """Whether it was told that no coordinator answers."""
        self._quarantined = False
        self._hanging_told_at = float("-inf")

    def no_answer(self, said: str, *, heard: bool) -> None:
        self.cut_off = True
        meanwhile = "going on with what it was given, and trying again" if heard else "trying again"
        log.warning("no coordinator gives or takes work (%s); %s", said, meanwhile, extra=event(Event.COORDINATOR_LOST))

    def answer(self, cut_off_s: float) -> None:
        """Any call came through."""
        if self.cut_off:
            said = f"a coordinator answers again, after {cut_off_s:.0f} s"
            log.warning("%s", said, extra=event(Event.COORDINATOR_BACK))
        self.cut_off = self._quarantined = False

    def refused(self, refusal: Refusal) -> None:
        """A call must wait."""
        if refusal.code == RefusalCode.QUARANTINED and not self._quarantined:
            self._quarantined = True
            extra = event(Event.QUARANTINED, request=refusal.request)
            log.warning("%s %s", refusal.message, refusal.hint, extra=extra)

    def hanging(self, endpoint: str, other: str, waited_s: float, now: float) -> None:
        """A call was not answered while others were: by the coordinator at `other`, or at the same address."""
        if now - self._hanging_told_at < HANGING_TOLD_EVERY_S:
            return
        self._hanging_told_at = now
        if other:
            said = f"{endpoint} has answered nothing for {waited_s:.0f} s, while {other} answers; calls go there."
            hint = "See whether that coordinator hangs, or is cut off."
        else:
            said = f"{endpoint} answers some calls, but not others within {waited_s:.0f} s, which slows the crawl down."
            hint = "One of the coordinators behind it may hang; then its load balancer must leave that one out."
        log.warning("%s %s", said, hint, extra=event(Event.COORDINATOR_STRANGE))


def tell_strange_answer(endpoint: str, path: str, status: int, body_bytes: int) -> None:
    """Tell that something other than a coordinator answers, and what to look for."""
    hint = "Check --coordinator, and any proxy in between."
    if status == TOO_LARGE:
        hint = f"A proxy in between must let bodies of {body_bytes:,} bytes and more pass."
    said = f"{endpoint} answers {path} with status {status}, but not as a coordinator would; trying again."
    log.warning("%s %s", said, hint, extra=event(Event.COORDINATOR_STRANGE))


def pause_asked_s(transfer: Transfer, wall: float) -> float:
    """How long a coordinator, or a proxy in front of it, asks to be left alone; a node waits no longer than a bound.
    `wall` is the time by the calendar."""
    return min(retry_after_s(header_fields(transfer.response_headers()), wall), PAUSE_ASKED_MAX_S)
