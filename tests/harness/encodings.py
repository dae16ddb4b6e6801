"""Every sequence of bytes that may be a character in one of the web's legacy encodings, and a digest of their
meanings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from itertools import product

from drumlin.parse.encoding.labels import LABELS

UTF = frozenset({"UTF-8", "UTF-16LE", "UTF-16BE"})
LEGACY = [name for name in dict.fromkeys(LABELS.values()) if name not in UTF and name != "replacement"]
TWO_BYTE = frozenset({"GBK", "gb18030", "Big5", "EUC-JP", "Shift_JIS", "EUC-KR"})
ESCAPES = (b"\x1b(B", b"\x1b(J", b"\x1b(I", b"\x1b$@", b"\x1b$B")
_BYTES = range(256)
_DIGITS = range(0x30, 0x3A)
_LEADS = range(0x81, 0xFF)


def sequences(name: str) -> Iterator[bytes]:
    """Each byte; each pair whose first byte is not ASCII; in EUC-JP all pairs after 8F, and in ISO-2022-JP all pairs in
    each mode."""
    yield from (bytes([byte]) for byte in _BYTES)
    if name in TWO_BYTE:
        yield from (bytes(pair) for pair in product(range(0x80, 0x100), _BYTES))
    if name == "EUC-JP":
        yield from (b"\x8f" + bytes(pair) for pair in product(_BYTES, _BYTES))
    if name == "ISO-2022-JP":
        yield from (escape + bytes(pair) for escape in ESCAPES for pair in product(_BYTES, _BYTES))


def four_bytes() -> Iterator[bytes]:
    """All sequences of four bytes in gb18030, 1,260 at a time, since each is complete in itself."""
    for first, second in product(_LEADS, _DIGITS):
        yield b"".join(bytes([first, second, third, fourth]) for third, fourth in product(_LEADS, _DIGITS))


def digest(texts: Iterable[str]) -> str:
    # A lone surrogate can only come from an implementation that is wrong; it must not raise here.
    return hashlib.sha256("\x1f".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


def digest_of(name: str, decode: Callable[[str, bytes], str]) -> str:
    """A digest of what an implementation decodes all sequences of an encoding to."""
    texts = [decode(name, sequence) for sequence in sequences(name)]
    if name in ("GBK", "gb18030"):
        texts += [decode(name, row) for row in four_bytes()]
    return digest(texts)
