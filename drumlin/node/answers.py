"""What a coordinator answers, and how to tell that it was a coordinator who did.

A reply is a message of the expected kind, a refusal has a code. Whatever is neither came from something in between,
such as a proxy with pages of its own.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from drumlin.fetch import Transfer
from drumlin.http.headers import header_fields

Reply = TypeVar("Reply")

RETRY_AFTER_MAX_S = 600.0
SAID_CHARS_MAX = 500
TOO_LARGE = 413


class Refusal(msgspec.Struct):
    """Why a coordinator says no."""

    code: str = ""
    message: str = ""
    hint: str = ""


class _Error(msgspec.Struct):
    error: Refusal


def reply_of(transfer: Transfer, kind: type[Reply]) -> Reply | None:
    """What a coordinator says to a call that it took; None for a refusal and for what no coordinator says."""
    if transfer.failure or not 200 <= transfer.status < 300:
        return None
    try:
        return msgspec.msgpack.decode(transfer.body.getvalue(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def refusal_of(transfer: Transfer) -> Refusal:
    """What a coordinator says of its refusal, in its own form or any other; without a code it is no coordinator's."""
    body = transfer.body.getvalue()
    for decode in (msgspec.msgpack.decode, msgspec.json.decode):
        try:
            return decode(body, type=_Error).error
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    return Refusal(message=body[:SAID_CHARS_MAX].decode("utf-8", "replace"))


def strange_answer(endpoint: str, path: str, status: int, body_bytes: int) -> str:
    """A sentence that something else than a coordinator answers, and what to look for."""
    said = f"{endpoint} answers {path} with status {status}, in a way that no coordinator does; trying again. "
    if status == TOO_LARGE:
        return said + f"A proxy in between must let bodies of {body_bytes:,} bytes and more pass."
    return said + "Check --coordinator, and any proxy in between."


def hanging(endpoint: str, waited_s: float) -> str:
    """A sentence that a call was not answered while others were."""
    said = f"{endpoint} answers some calls, and others not within {waited_s:.0f} s, which slows the crawl down; "
    return said + "one of the coordinators behind it may hang. Its balancer must leave that one out."


def retry_after_s(transfer: Transfer) -> float:
    value = header_fields(transfer.response_headers()).get("retry-after", "")
    return min(float(value), RETRY_AFTER_MAX_S) if value.isascii() and value[:9].isdigit() else 0.0
