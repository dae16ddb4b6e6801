"""Which characters the bytes mean: byte-order mark, header, declaration in the page, validity, and at last a guess.

Labels mean what the WHATWG Encoding Standard says, so iso-8859-1 is windows-1252 and gb2312 is GBK.
"""

from __future__ import annotations

import functools
import re

from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

PRESCAN_BYTES = 1024
DETECT_BYTES_MAX = 64 * 1024
UTF8 = "UTF-8"

_UTF8_BOM = b"\xef\xbb\xbf"
_HEADER_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?\s*([^\s\"';,]{1,64})", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[\s/][^>]{0,500}?charset\s*=\s*[\"']?\s*([\w.:-]{1,64})", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"\s*<\?xml[^>]{0,200}?encoding\s*=\s*[\"']\s*([\w.:-]{1,64})", re.IGNORECASE)

# resiliparse names an encoding by a Python codec. This is the standard's own name of each, and the codec that comes
# nearest to what the standard means by it, which is often a larger one.
_NAME_AND_CODEC = {
    "utf-8": (UTF8, "utf-8"),
    "utf-16-le": ("UTF-16LE", "utf-16-le"),
    "utf-16-be": ("UTF-16BE", "utf-16-be"),
    "gbk": ("GBK", "gb18030"),
    "gb18030": ("gb18030", "gb18030"),
    "big5": ("Big5", "big5hkscs"),
    "euc_jp": ("EUC-JP", "euc_jp"),
    "iso2022_jp": ("ISO-2022-JP", "iso2022_jp"),
    "shift_jis": ("Shift_JIS", "cp932"),
    "euc_kr": ("EUC-KR", "cp949"),
    "koi8-r": ("KOI8-R", "koi8-r"),
    "koi8-u": ("KOI8-U", "koi8-u"),
    "mac-roman": ("macintosh", "mac-roman"),
    "iso8859-11": ("windows-874", "cp874"),
    "cp866": ("IBM866", "cp866"),
}


def to_utf8(body: bytes, content_type: str) -> tuple[str, bytes]:
    """The name of a body's encoding, and the body in UTF-8: the same object when it is UTF-8 without a mark."""
    if body.startswith(_UTF8_BOM):
        return UTF8, body[3:]
    if body.startswith((b"\xff\xfe", b"\xfe\xff")):
        little = body.startswith(b"\xff")
        return _decoded(body[2:], ("UTF-16LE", "utf-16-le") if little else ("UTF-16BE", "utf-16-be"))
    declared = _from_header(content_type) or _from_prescan(body[:PRESCAN_BYTES])
    return _decoded(body, declared or _detected(body))


def _decoded(body: bytes, encoding: tuple[str, str]) -> tuple[str, bytes]:
    name, codec = encoding
    if name == UTF8:
        return name, body
    return name, body.decode(codec, "replace").encode("utf-8", "replace")


@functools.lru_cache(maxsize=1024)
def _from_header(content_type: str) -> tuple[str, str] | None:
    found = _HEADER_CHARSET.search(content_type)
    return _encoding_of(found[1]) if found else None


def _from_prescan(start: bytes) -> tuple[str, str] | None:
    found = _META_CHARSET.search(start) or _XML_ENCODING.match(start)
    if found is None:
        return None
    encoding = _encoding_of(found[1].decode("ascii", "replace"))
    # The declaration was read as ASCII, so it cannot be right about UTF-16: the standard says to take UTF-8 then.
    return (UTF8, "utf-8") if encoding and encoding[0].startswith("UTF-16") else encoding


@functools.lru_cache(maxsize=1024)
def _encoding_of(label: str) -> tuple[str, str] | None:
    codec = map_encoding_to_html5(label, False)
    if codec is None:
        return None
    return _NAME_AND_CODEC.get(codec) or (_standard_name(codec), codec)


def _standard_name(codec: str) -> str:
    if codec.startswith("cp125"):
        return "windows-" + codec[2:]
    return codec.upper().replace("ISO8859", "ISO-8859").replace("_", "-")


def _detected(body: bytes) -> tuple[str, str]:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError as error:
        # A page cut short at a limit may end inside a character; that alone does not make it something else.
        if error.start < len(body) - 3:
            guess = _encoding_of(detect_encoding(body, DETECT_BYTES_MAX) or "")
            return guess if guess and guess[0] != UTF8 else ("windows-1252", "cp1252")
    return UTF8, "utf-8"
