"""Reads the many forms in which others write hashes, URLs, times and texts into the one form that drumlin uses.

The pattern of a form says what is accepted, and it is in the OpenAPI document, so the document stays true.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from typing import Annotated, NamedTuple
from urllib.parse import unquote_to_bytes

import msgspec

EPOCH_S_MAX = 1e10
"""A larger number is a time in milliseconds: in seconds it would be in the year 2286 or later."""
EPOCH_MS_MAX = 1e14
EPOCH = datetime.fromtimestamp(0, UTC)
MOMENT_MAX = datetime.fromtimestamp(EPOCH_S_MAX, UTC)
HEX_DIGITS = 64
DATA_URL = "data:"
MEDIA_TYPE_DEFAULT = "text/plain;charset=utf-8"
"""RFC 2397 says US-ASCII, which is a part of UTF-8."""

_FROM_URL_SAFE = bytes.maketrans(b"-_", b"+/")
_HASH = "(?:[Ss][Hh][Aa]-?256[:=-])?([0-9a-fA-F]{64}|[A-Za-z0-9+/_-]{43}=?)"
HASH_PATTERN = rf"^(?:{_HASH})?\Z"
HashText = Annotated[str, msgspec.Meta(pattern=HASH_PATTERN)]
"""A SHA-256 in hexadecimal or base64, alone or after `sha256:`, `sha256-` (Subresource Integrity) or `sha-256=`."""
BASE64_PATTERN = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?\Z"
# A URL as RFC 3986 has it: absolute, ASCII, without credentials. Whatever has this form is accepted.
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NAME = rf"(?:{_LABEL}\.){{0,30}}[A-Za-z](?:[A-Za-z0-9-]{{0,61}}[A-Za-z0-9])?\.?"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_GROUP = "[0-9A-Fa-f]{1,4}"
_IPV6 = rf"\[(?:(?:{_GROUP}:){{7}}{_GROUP}|(?:{_GROUP}(?::{_GROUP}){{0,3}})?::(?:{_GROUP}(?::{_GROUP}){{0,2}})?)\]"
_PORT = "(?::(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4}))?"
_REST = r"(?:[/?#][A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*)?"
WEB_URL_PATTERN = rf"^[Hh][Tt][Tt][Pp][Ss]?://(?:{_NAME}|{_BYTE}(?:\.{_BYTE}){{3}}|{_IPV6}){_PORT}{_REST}\Z"
# The OpenAPI document promises less than what is accepted.
Moment = Annotated[
    datetime,
    msgspec.Meta(
        extra_json_schema={
            "pattern": r"^20[0-9]{2}-0[1-9]-[12][0-8]T[01][0-9]:[0-5][0-9]:[0-5][0-9]Z$",
        }
    ),
]
EpochOrMs = Annotated[float, msgspec.Meta(ge=0, le=EPOCH_MS_MAX)]
Epoch = Annotated[float, msgspec.Meta(ge=0, le=EPOCH_S_MAX)]


class DataURL(NamedTuple):
    """The content of a `data:` URL and its media type."""

    content: bytes
    media_type: str


def read_hash(text: str | None) -> str:
    """A SHA-256 in lower-case hexadecimal; empty if it is unknown."""
    found = re.fullmatch(_HASH, text) if text else None
    if found is None:
        return ""
    if len(found[1]) == HEX_DIGITS:
        return found[1].lower()
    return base64.b64decode(found[1].rstrip("=").encode().translate(_FROM_URL_SAFE) + b"=").hex()


def read_moment(moment: float | datetime | None, unknown: float) -> float:
    """Seconds since the epoch. A time without a zone is UTC; milliseconds are recognised by their size."""
    if moment is None:
        return unknown
    if isinstance(moment, datetime):
        return _aware(moment).timestamp()
    return moment / 1000 if moment > EPOCH_S_MAX else moment


def check_moment(moment: float | datetime | None) -> None:
    """Raise a ValueError for a date at which no page can have been fetched; numbers have their own bounds."""
    if isinstance(moment, datetime) and not EPOCH <= _aware(moment) <= MOMENT_MAX:
        raise ValueError("a page is fetched between 1970 and 2286")


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def is_data_url(url: str) -> bool:
    return url[: len(DATA_URL)].lower() == DATA_URL


def read_data_url(url: str) -> DataURL:
    """The content of a `data:` URL, in base64 or percent-encoded. ValueError when it cannot be read."""
    head, comma, content = url[len(DATA_URL) :].partition(",")
    if not comma:
        raise ValueError("a data: URL has a comma before its content")
    media_type, semicolon, last = head.rpartition(";")
    if not semicolon or last.strip().lower() != "base64":
        return DataURL(unquote_to_bytes(content), _complete(head))
    try:
        # Spaces, line ends, escapes and missing padding are all accepted.
        bare = b"".join(unquote_to_bytes(content).split()).rstrip(b"=").translate(_FROM_URL_SAFE)
        return DataURL(base64.b64decode(bare + b"=" * (-len(bare) % 4), validate=True), _complete(media_type))
    except binascii.Error as wrong:
        raise ValueError(f"its base64 cannot be read: {wrong}") from wrong


def _complete(media_type: str) -> str:
    if not media_type:
        return MEDIA_TYPE_DEFAULT
    media_type = f"text/plain{media_type}" if media_type.startswith(";") else media_type
    return media_type if "charset" in media_type.lower() else f"{media_type};charset=utf-8"
