"""Decodes text as the WHATWG Encoding Standard says, for every encoding but UTF-8.

Python's codecs do the work, because they are fast. But they lack characters of the web's encodings (circled digits in
EUC-JP, the euro in GBK), decode some differently, and continue at another place after an error. So where a codec finds
an error, a function of ours does what the standard says at that place; and characters that a codec decodes differently
are replaced afterwards. That needs a codec for which each character to be replaced comes from one sequence of bytes.
"""

from __future__ import annotations

import codecs
import functools
import re
from collections.abc import Callable
from typing import cast

from drumlin.parse.encoding.big5 import BIG5_MORE

BAD = "\ufffd"
# A body with more errors than this is not text in its encoding, and the rest of it is left out: each error costs a
# microsecond, and a hostile body has millions.
ERRORS_MAX = 200_000
# These cost as much without being errors: changes of the character set, and characters to be replaced.
SWITCHES_MAX = 1_000_000
REWRITES_MAX = 1_000_000

# What a charmap has for a byte without a meaning.
_NOTHING = "\ufffe"
_ASCII_END = 0x80
_C1_END = 0xA0

_SINGLE_BYTE_CODECS = {
    "IBM866": "cp866",
    "ISO-8859-8-I": "iso8859-8",
    "KOI8-R": "koi8-r",
    "KOI8-U": "koi8-u",
    "macintosh": "mac-roman",
    "windows-874": "cp874",
    "x-mac-cyrillic": "mac-cyrillic",
    "x-user-defined": "ascii",
}
_SINGLE_BYTE_MORE = {
    "KOI8-U": {0xAE: "ў", 0xBE: "Ў"},
    "windows-1255": {0xCA: "\u05ba"},
    "x-user-defined": {byte: chr(0xF700 + byte) for byte in range(0x80, 0x100)},
}

Step = Callable[[bytes, int], tuple[str, int]]


def decode(name: str, body: bytes) -> str:
    """The text of a body in the encoding of this name (the standard's spelling)."""
    if name in _MULTI_BYTE:
        return _MULTI_BYTE[name](body)
    if name.startswith("UTF-16"):
        return body.decode(name, "replace")
    if name == "replacement":
        # For encodings that are only useful for attacks (iso-2022-kr, hz-gb-2312), the standard decodes nothing.
        return BAD if body else ""
    return codecs.charmap_decode(body, "strict", _table_with_bad(name))[0]


@functools.cache
def single_byte_table(name: str) -> str:
    """The 256 characters of a single-byte encoding."""
    more = _SINGLE_BYTE_MORE.get(name, {})
    codec = _SINGLE_BYTE_CODECS.get(name, name)
    return "".join(more.get(byte) or _single(byte, codec, windows=name.startswith("windows")) for byte in range(256))


@functools.cache
def _table_with_bad(name: str) -> str:
    """The table for decoding: a byte without a meaning becomes `BAD` without the cost of an error."""
    return single_byte_table(name).replace(_NOTHING, BAD)


def _single(byte: int, codec: str, *, windows: bool) -> str:
    try:
        return bytes([byte]).decode(codec)
    except UnicodeDecodeError:
        # Microsoft's encodings leave some bytes of this range free; on the web those are control characters.
        return chr(byte) if windows and _ASCII_END <= byte < _C1_END else _NOTHING


def _two_bytes(leads: range, more: Callable[[bytes], str] | None = None) -> Step:
    """The step after an error, for encodings with one or two bytes a character. `more` gives the character of a pair
    that the codec does not know."""

    def step(body: bytes, place: int) -> tuple[str, int]:
        pair = body[place : place + 2]
        if len(pair) < 2 or pair[0] not in leads:
            return BAD, place + 1
        known = more(pair) if more is not None else ""
        if known:
            return known, place + 2
        # An ASCII character after a bad lead byte is kept: it may be the "<" of a tag.
        return BAD, place + (1 if pair[1] < _ASCII_END else 2)

    return step


def _gb18030_step(body: bytes, place: int) -> tuple[str, int]:
    first, second, third, fourth = (*body[place : place + 4], -1, -1, -1)[:4]
    if first == 0x80:
        return "€", place + 1
    if first == 0xFF or second < 0:
        return BAD, place + 1
    if not 0x30 <= second <= 0x39:
        return BAD, place + (1 if second < _ASCII_END else 2)
    if third < 0 or (0x81 <= third <= 0xFE and fourth < 0):
        return BAD, len(body)
    four = 0x81 <= third <= 0xFE and 0x30 <= fourth <= 0x39
    return BAD, place + (4 if four else 1)


def _euc_jp_step(body: bytes, place: int) -> tuple[str, int]:
    first, second, third = (*body[place : place + 3], -1, -1)[:3]
    if first not in (0x8E, 0x8F) and not 0xA1 <= first <= 0xFE:
        return BAD, place + 1
    if second < 0:
        return BAD, place + 1
    if 0xA1 <= second <= 0xFE and first == 0x8F:
        if body[place : place + 3] == _TILDE_STAND_IN:
            return "～", place + 3
        return BAD, place + (3 if third >= _ASCII_END else 2)
    if 0xA1 <= second <= 0xFE and first >= 0xA1:
        return jis0208(first, second), place + 2
    return BAD, place + (1 if second < _ASCII_END else 2)


@functools.lru_cache(maxsize=2048)
def jis0208(first: int, second: int) -> str:
    """The character of a pair in EUC-JP, by way of Shift_JIS: only there does Python know those of NEC and IBM."""
    row, cell = first - 0xA1, second - 0xA1
    lead = row // 2 + (0x81 if row < 62 else 0xC1)
    trail = cell + 0x9F if row % 2 else cell + (0x40 if cell < 63 else 0x41)
    return bytes([lead, trail]).decode("cp932", "replace")[0]


def _hkscs(pair: bytes) -> str:
    known = BIG5_MORE.get(pair)
    if known is None:
        known = pair.decode("big5hkscs", "ignore")
        # For a pair that it does not know, the codec returns the ASCII character alone.
        known = "" if known.isascii() else known
    return known


def _apart(char: str) -> str:
    """A private character that stands for one which must not be replaced afterwards."""
    return chr(0xF0000 + ord(char))


def _hkscs_apart(pair: bytes) -> str:
    """Hong Kong's character for a pair that cp950 lacks. Its kana are set apart: cp950 has the same kana for other
    pairs, and there they are to be replaced."""
    known = _hkscs(pair)
    return _apart(known) if known in _big5_rewritten() else known


class _Codec:
    """A codec of Python, made to follow the standard."""

    def __init__(self, codec: str, step: Step, rewritten: Callable[[], dict[str, str]] = dict) -> None:
        self._codec = codec
        self._step = step
        self._rewritten = rewritten
        self._errors = f"drumlin-{codec}"
        self.steps = 0
        """How many characters of the last body the codec did not know."""
        codecs.register_error(self._errors, self._at_error)

    def __call__(self, body: bytes) -> str:
        self.steps = 0
        text = body.decode(self._codec, self._errors)
        table, pattern = self._differences
        return text if pattern is None else pattern.sub(lambda found: table[found[0]], text, REWRITES_MAX)

    @functools.cached_property
    def _differences(self) -> tuple[dict[str, str], re.Pattern[str] | None]:
        table = self._rewritten()
        return table, re.compile(f"[{''.join(table)}]") if table else None

    def _at_error(self, error: UnicodeError) -> tuple[str, int]:
        failed = cast("UnicodeDecodeError", error)
        self.steps += 1
        if self.steps > ERRORS_MAX:
            return BAD, len(failed.object)
        return self._step(failed.object, failed.start)


@functools.cache
def _big5_rewritten() -> dict[str, str]:
    """In some rows Microsoft has kana and Cyrillic where the web has Hong Kong's characters."""
    leads, trails = (0xC6, 0xC7, 0xC8, 0xF9), (*range(0x40, 0x7F), *range(0xA1, 0xFF))
    pairs = [bytes([lead, trail]) for lead in leads for trail in trails]
    known = ((pair.decode("cp950", "ignore"), _hkscs(pair)) for pair in pairs)
    table = {there: here for there, here in known if there != here and not there.isascii()}
    return table | {_apart(char): char for char in table}


def _gb18030_rewritten() -> dict[str, str]:
    """The edition of 2022 has characters where Python's codec has private ones; at A3 A0 the web has a space."""
    private = (
        "\ue78d\ue78e\ue78f\ue790\ue791\ue792\ue793\ue794\ue795\ue796\ue81e\ue826\ue82b\ue82c\ue832\ue843\ue854\ue864"
    )
    public = "︐︒︑︓︔︕︖︗︘︙龴龵龶龷龸龹龺龻"
    return dict(zip(private, public, strict=True)) | {"\ue5e5": "\u3000", "\ue7c7": "ḿ", "ḿ": "\ue7c7"}


_gb18030 = _Codec("gb18030", _gb18030_step, _gb18030_rewritten)
_euc_jp_codec = _Codec("euc_jp", _euc_jp_step, lambda: dict(zip("〜‖−¢£¬", "～∥－￠￡￢", strict=True)))

# Python decodes the wide tilde of JIS X 0212 as the narrow one, which could not be told from ASCII afterwards. So its
# bytes are replaced beforehand by a sequence that no table has, and the step after that error gives the wide tilde.
_TILDE, _TILDE_STAND_IN, _UNKNOWN = b"\x8f\xa2\xb7", b"\x8f\xa2\xc5", b"\x8f\xa2\xc6"


def euc_jp(body: bytes) -> str:
    if _TILDE in body or _TILDE_STAND_IN in body:
        body = body.replace(_TILDE_STAND_IN, _UNKNOWN).replace(_TILDE, _TILDE_STAND_IN)
    return _euc_jp_codec(body)


# The escape sequences of ISO-2022-JP (without the ESC), and the mode that each begins.
_ESCAPES = {b"(B": "ascii", b"(J": "roman", b"(I": "katakana", b"$@": "jis0208", b"$B": "jis0208"}
_ESCAPE = 0x1B
_RUNS = {
    "ascii": re.compile(rb"[\x00-\x0d\x10-\x1a\x1c-\x7f]++").match,
    "roman": re.compile(rb"[\x00-\x0d\x10-\x1a\x1c-\x7f]++").match,
    "katakana": re.compile(rb"[\x21-\x5f]++").match,
    # Possessive quantifiers: to backtrack, the regular expression would keep 64 bytes for each character.
    "jis0208": re.compile(rb"(?:[\x21-\x7e]{2})++").match,
}
_HIGH = bytes(byte | 0x80 for byte in range(256))


def iso_2022_jp(body: bytes) -> str:
    """Decode ISO-2022-JP, in which escape sequences switch between character sets, run by run."""
    parts: list[str] = []
    mode, switched, place, errors, switches = "ascii", False, 0, 0, 0
    while place < len(body) and errors <= ERRORS_MAX and switches <= SWITCHES_MAX:
        if run := _RUNS[mode](body, place):
            parts.append(_run(mode, run[0]))
            place, switched = run.end(), False
            errors += _euc_jp_codec.steps if mode == "jis0208" else 0
        elif body[place] == _ESCAPE and (into := _ESCAPES.get(body[place + 1 : place + 3])):
            # Two escapes with no character in between are an error by the standard: they could hide something.
            parts.append(BAD if switched else "")
            mode, place, switched, switches = into, place + 3, True, switches + 1
        else:
            parts.append(BAD)
            place, switched, errors = place + _lost(mode, body, place), False, errors + 1
    return "".join(parts)


def _lost(mode: str, body: bytes, place: int) -> int:
    """How many bytes an error skips: a lead byte and the byte that cannot follow it, unless that is an escape."""
    pair = body[place : place + 2]
    leads = mode == "jis0208" and 0x21 <= pair[0] <= 0x7E
    return 2 if leads and len(pair) == 2 and pair[1] != _ESCAPE else 1


def _run(mode: str, run: bytes) -> str:
    if mode == "jis0208":
        return euc_jp(run.translate(_HIGH))
    text = run.decode("ascii")
    if mode == "roman":
        return text.replace("\\", "¥").replace("~", "‾")
    return text if mode == "ascii" else "".join(chr(ord(char) + 0xFF61 - 0x21) for char in text)


_MULTI_BYTE: dict[str, Callable[[bytes], str]] = {
    "GBK": _gb18030,
    "gb18030": _gb18030,
    "Big5": _Codec("cp950", _two_bytes(range(0x81, 0xFF), _hkscs_apart), _big5_rewritten),
    "EUC-JP": euc_jp,
    "ISO-2022-JP": iso_2022_jp,
    "Shift_JIS": _Codec(
        "cp932",
        _two_bytes(range(0x81, 0xFD)),
        lambda: dict.fromkeys("\uf8f0\uf8f1\uf8f2\uf8f3", BAD),
    ),
    "EUC-KR": _Codec("cp949", _two_bytes(range(0x81, 0xFF))),
}
