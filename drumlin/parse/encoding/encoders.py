"""Encodes the queries of links as browsers do: in the encoding of the page that the link is on.

Only non-ASCII characters of a query depend on the page. The tables are the decoders' own, inverted when first needed,
with the Encoding Standard's choice where several sequences of bytes mean one character.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Iterator

from drumlin.parse.encoding.decoders import BAD, decode, single_byte_table

# The standard's special-query percent-encode set, without control characters and non-ASCII ones.
_ESCAPED = frozenset(b" \"#<>'")
_ASCII_MODE, _ROMAN_MODE, _JIS_MODE = b"\x1b(B", b"\x1b(J", b"\x1b$B"
# Shift_JIS has NEC's selection of IBM's characters twice; the standard's encoder does not use this copy.
_SHIFT_JIS_COPY_LEADS = (0xED, 0xEE)
_SHIFT_JIS_PRIVATE_LEADS = range(0xF0, 0xFA)
# Big5 has these characters twice, and the standard's encoder uses the later copy.
_BIG5_LATER = frozenset("═╞╡╪十卅")
_HALF_WIDTH = range(0xFF61, 0xFFA0)


def queries_in(encoding: str, hrefs: list[str]) -> list[str]:
    """The hrefs of a page in this encoding, with their queries percent-encoded. Where the encoding makes no difference,
    the same list is returned."""
    # For pages in UTF-16 browsers encode queries in UTF-8.
    if encoding in ("UTF-8", "UTF-16LE", "UTF-16BE", "replacement"):
        return hrefs
    return [href if href.isascii() else _query_in(encoding, href) for href in hrefs]


def _query_in(encoding: str, href: str) -> str:
    address, mark, fragment = href.partition("#")
    path, question, query = address.partition("?")
    if query.isascii():
        return href
    parts = _iso_2022_jp(query) if encoding == "ISO-2022-JP" else _encoded(encoding, query)
    return f"{path}{question}{''.join(parts)}{mark}{fragment}"


def _encoded(encoding: str, query: str) -> Iterator[str]:
    known = _sequences(encoding)
    for char in query:
        yield char if char.isascii() else _escaped(known.get(char) or _long(encoding, char), char)


def _long(encoding: str, char: str) -> bytes | None:
    """The bytes of a character that no table has: gb18030 has four bytes for any, GBK has two for those that were
    private before 2022."""
    if encoding not in ("GBK", "gb18030") or char == "\ue5e5":
        return None
    sequence = b"\x81\x35\xf4\x37" if char == "\ue7c7" else char.encode("gb18030", "ignore")
    return sequence if len(sequence) == 2 or (sequence and encoding == "gb18030") else None


def _escaped(sequence: bytes | None, char: str) -> str:
    """A character's bytes, percent-encoded. A character that the encoding lacks is sent as an HTML entity (`&#…;`)."""
    if sequence is None:
        return f"%26%23{ord(BAD) if 0xD800 <= ord(char) < 0xE000 else ord(char)}%3B"
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in _ESCAPED else f"%{byte:02X}" for byte in sequence)


def _iso_2022_jp(query: str) -> Iterator[str]:
    known = _sequences("EUC-JP")
    mode = _ASCII_MODE
    for char in query:
        wide = _full_width(char) if ord(char) in _HALF_WIDTH else char
        wanted, sequence = _jis(wide, known)
        if sequence is None:
            # The entity for a character that the encoding lacks is written in ASCII.
            wanted = mode if mode == _ROMAN_MODE else _ASCII_MODE
        elif mode == _ROMAN_MODE and char.isascii() and char not in "\\~":
            wanted = mode
        if wanted != mode:
            yield _escaped(wanted, "")
            mode = wanted
        yield char if char.isascii() else _escaped(sequence, char)
    if mode != _ASCII_MODE:
        yield _escaped(_ASCII_MODE, "")


def _jis(char: str, known: dict[str, bytes]) -> tuple[bytes, bytes | None]:
    """The mode that has a character, and its bytes there."""
    if char.isascii():
        return _ASCII_MODE, char.encode()
    if char in "¥‾":
        return _ROMAN_MODE, known[char]
    pair = known.get(char)
    return _JIS_MODE, bytes(byte & 0x7F for byte in pair) if pair else None


def _full_width(char: str) -> str:
    # The standard maps these two marks to characters that stand alone; NFKC would give the combining ones.
    return {"ﾞ": "゛", "ﾟ": "゜"}.get(char) or unicodedata.normalize("NFKC", char)


@functools.cache
def _sequences(encoding: str) -> dict[str, bytes]:
    """The bytes of each character that an encoding has."""
    if encoding in _PAIRS:
        return _pairs(encoding)
    table = single_byte_table(encoding)
    return {char: bytes([byte]) for byte, char in enumerate(table) if byte >= 0x80 and char != "\ufffe"}


_PAIRS: dict[str, Iterable[int]] = {
    "GBK": range(0x81, 0xFF),
    "gb18030": range(0x81, 0xFF),
    # The standard's encoder does not use the first rows, which are Hong Kong's.
    "Big5": range(0xA1, 0xFF),
    "EUC-JP": range(0xA1, 0xFF),
    "Shift_JIS": [
        lead
        for lead in range(0x81, 0xFD)
        if lead not in _SHIFT_JIS_COPY_LEADS and lead not in _SHIFT_JIS_PRIVATE_LEADS and not 0xA0 <= lead < 0xE0
    ],
    "EUC-KR": range(0x81, 0xFF),
}


def _pairs(encoding: str) -> dict[str, bytes]:
    """The bytes of each character of a two-byte encoding: of several pairs the first, with a few exceptions."""
    sequences: dict[str, bytes] = {}
    for lead in _PAIRS[encoding]:
        for trail in range(0x40 if encoding != "EUC-JP" else 0xA1, 0xFF):
            pair = bytes([lead, trail])
            text = decode(encoding, pair)
            if (
                len(text) == 1
                and text != BAD
                and (text not in sequences or (encoding == "Big5" and text in _BIG5_LATER))
            ):
                sequences[text] = pair
    return sequences | _more(encoding, sequences)


def _more(encoding: str, sequences: dict[str, bytes]) -> dict[str, bytes]:
    """The characters that the standard's encoders have beside the pairs."""
    if encoding == "GBK":
        return {"€": b"\x80"}
    if encoding not in ("EUC-JP", "Shift_JIS"):
        return {}
    half = (chr(code) for code in _HALF_WIDTH)
    prefix = b"\x8e" if encoding == "EUC-JP" else b""
    kana = {char: prefix + bytes([0xA1 + place]) for place, char in enumerate(half)}
    more = kana | {"¥": b"\\", "‾": b"~", "−": sequences["－"]}
    return more | {"\x80": b"\x80"} if encoding == "Shift_JIS" else more
