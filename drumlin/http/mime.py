"""The type that a Content-Type header names: "extract a MIME type" of the Fetch standard, which uses "parse a MIME
type" of the MIME Sniffing standard. Repeated headers, joined by commas, are one list of types. The last valid one
counts; if it has no charset, it keeps that of the same type before it."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

HEADERS_REMEMBERED: Final = 1024
"""How many headers are cached: sites repeat a few of them on all their pages."""
HEADER_CHARS_MAX: Final = 4096
"""Honest headers are shorter; the rest of a longer one is not read."""

_WHITE: Final = " \t\r\n"
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# Everything up to the next comma outside of quotes; a quote that is never closed goes on to the end.
_LISTED: Final = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*(?:"|\\?$))*', re.DOTALL)
_QUOTED: Final = re.compile(r'"((?:[^"\\]|\\.)*)(?:"|(\\)?$)', re.DOTALL)
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class MimeType(NamedTuple):
    """A type without its parameters in lower case, and the charset among them; either may be empty."""

    essence: str
    charset: str = ""


NO_TYPE: Final = MimeType("")


@lru_cache(maxsize=HEADERS_REMEMBERED)
def extract_mime_type(content_type: str) -> MimeType:
    """The type that a Content-Type header (repeated ones joined by commas) means; `NO_TYPE` if none is valid."""
    found = NO_TYPE
    for value in _listed(content_type[:HEADER_CHARS_MAX]):
        mime = parse_mime_type(value)
        if mime is None or mime.essence == "*/*":
            continue
        same = mime.essence == found.essence
        found = MimeType(mime.essence, mime.charset or (found.charset if same else ""))
    return found


def parse_mime_type(text: str) -> MimeType | None:
    """One type with its parameters, as the MIME Sniffing standard reads it; None if it is not valid."""
    kind, slash, rest = text.strip(_WHITE).partition("/")
    subtype, _, parameters = rest.partition(";")
    subtype = subtype.rstrip(_WHITE)
    if not slash or not _TOKEN.fullmatch(kind) or not _TOKEN.fullmatch(subtype):
        return None
    return MimeType(f"{kind}/{subtype}".lower(), _charset(parameters))


def _listed(text: str) -> list[str]:
    values, start = [], 0
    while start <= len(text):
        found = _LISTED.match(text, start)
        end = found.end() if found else len(text)
        values.append(text[start:end].strip(" \t"))
        start = end + 1
    return values


def _charset(parameters: str) -> str:
    """The first usable `charset` among parameters. A quoted value may contain the semicolon that separates them."""
    place = 0
    while place < len(parameters):
        name_end = _end(parameters, place, ";=")
        name = parameters[place:name_end].lstrip(_WHITE).lower()
        place = name_end + 1
        if parameters[name_end : name_end + 1] != "=":
            continue
        quoted = _QUOTED.match(parameters, place)
        if quoted:
            value = _ESCAPE.sub(r"\1", quoted[1]) + (quoted[2] or "")
            place = _end(parameters, quoted.end(), ";") + 1
        else:
            value_end = _end(parameters, place, ";")
            value = parameters[place:value_end].rstrip(_WHITE)
            place = value_end + 1
            if not value:
                continue
        if name == "charset" and _VALUE.fullmatch(value):
            return value
    return ""


def _end(text: str, start: int, ends: str) -> int:
    """The place of the next of the characters `ends`, or the end of the text."""
    return min((found for one in ends if (found := text.find(one, start)) >= 0), default=len(text))
