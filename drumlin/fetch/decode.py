"""Undoing Content-Encoding, with a limit on the decoded size.

Bodies come from strangers, and a few kilobytes can decode to gigabytes. So every decoder is asked for at most one byte
more than is allowed. A stream that ends too early is kept as far as it could be decoded, as browsers do: many servers
cut off the last bytes, and what arrived is the page. A stream that is damaged, or decodes to nothing, is an error.
Garbage after the end of a gzip or deflate stream is ignored; gzip members and zstd frames may follow one another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import brotli
import zstandard
from isal import isal_zlib

from drumlin.errors import SiteError
from drumlin.model import FailureKind

GZIP = "gzip"
ENCODINGS_MAX = 3
"""How many encodings one body may have; honest servers use one."""

EXPANSION_MAX = 1_100
"""How many times larger a body may become, unless it stays below `EXPANSION_BYTES_FREE`. Gzip cannot exceed 1,032
times. Brotli, zstd and several encodings on top of one another can turn 100 bytes into 64 MiB, which take longer to
read than hundreds of pages."""
EXPANSION_BYTES_FREE = 4 << 20
"""A body may become this large, however small it was."""

ZSTD_WINDOW_BYTES_MAX = 8 << 20
"""The window that RFC 9659 allows for zstd on the web."""

ZSTD_READ_BYTES = 131_072
"""Decoded bytes asked for at a time."""

ZSTD_AT_ONCE_BYTES_MAX = 1 << 20
"""Up to this size room is made for what a body says that it will be, before any of it is decoded."""

GZIP_MEMBERS_MAX = 256
"""How many members one gzip body may have. For each, the rest of the body is copied, so without a limit a body of many
tiny members could take hours."""

# The stubs of isal declare its exception as an instance, not as a class.
_InflateError: type[Exception] = isal_zlib.error  # type: ignore[assignment]
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_NAMES = frozenset({"gzip", "x-gzip"})
_COMPRESSED_STARTS = (_GZIP_MAGIC, b"\x1f\x9d", b"\x28\xb5\x2f\xfd", b"BZh", b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18")
# Servers say these of bodies that are not encoded at all. A compressed file with such a header is meant as it is.
_MEANS_NOTHING = frozenset({"identity", "none", "binary", "utf-8", "utf8", "8bit", "7bit", "aws-chunked", "null"})
# Encodings that exist (most are registered with IANA), that no browser and no crawler asks for, and that cannot be told
# from text by their first bytes. Those that can, such as `compress` and `bzip2`, count only where the bytes are theirs.
_NOT_UNDONE = frozenset({"aes128gcm", "dcb", "dcz", "exi", "sdch", "lzma"})
_GZIP_BITS = 31
_ZLIB_BITS = 15
_RAW_BITS = -15
_ZLIB_METHOD = 8


class Decoded(NamedTuple):
    """A body without its encodings. `complete` is False if the encoded stream was cut off before its end."""

    body: bytes
    complete: bool = True


def decoded_bytes_max(body: bytes, bytes_max: int) -> int:
    """How large this body of a site may become when decoded; `bytes_max` is the limit for every body."""
    return min(bytes_max, max(EXPANSION_BYTES_FREE, EXPANSION_MAX * len(body)))


def decode(body: bytes, encoding: str, bytes_max: int) -> bytes:
    """The body of `decode_body`, complete or not."""
    return decode_body(body, encoding, bytes_max).body


def decode_body(body: bytes, encoding: str, bytes_max: int) -> Decoded:
    """The body as it was before the encodings that `encoding`, a Content-Encoding header, names; the same object if it
    names none.

    Raises `SiteError`: TOO_LARGE if the decoded body has more than `bytes_max`, DECODE if the body is damaged or its
    encoding cannot be undone. Names that are not encodings are ignored, as in browsers: servers write `none`, `binary`,
    `UTF-8` or `compress` although the body is not encoded.
    """
    names = [name for name in map(_coding_name, encoding.split(",")) if name and name not in _MEANS_NOTHING]
    if len(names) > ENCODINGS_MAX:
        raise SiteError(FailureKind.DECODE, f"The body is encoded {len(names)} times; the limit is {ENCODINGS_MAX}.")
    undone, complete = "", True
    # The header names encodings in the order in which they were applied, so they are undone from the last to the first.
    for name in reversed(names):
        # An empty body has no encoding to undo: answers to HEAD, 304 and 204 name the encoding that a body would have
        # had. And if gzip is named twice, by a server and by the proxy before it, it may have been applied only once.
        if body and (name != undone or name not in _GZIP_NAMES or body.startswith(_GZIP_MAGIC)):
            body, whole = _undo(name, body, bytes_max)
            undone, complete = name, complete and whole
    if len(body) > bytes_max:
        raise _too_large(bytes_max)
    return Decoded(body, complete)


def looks_compressed(body: bytes) -> bool:
    """Whether the first bytes of a body are those of a compressed format, whatever its header says."""
    return body.startswith(_COMPRESSED_STARTS)


def _coding_name(said: str) -> str:
    """The name of one encoding, without parameters and quotes."""
    return said.partition(";")[0].strip(" \t\"'").lower()


def _undo(name: str, body: bytes, bytes_max: int) -> Decoded:
    decoder = _DECODERS.get(name)
    if decoder is not None:
        return decoder(body, bytes_max)
    if name in _NOT_UNDONE or looks_compressed(body):
        raise SiteError(FailureKind.DECODE, f"The Content-Encoding {name[:40]!r} cannot be undone.")
    return Decoded(body)


def _gunzip(body: bytes, bytes_max: int) -> Decoded:
    parts: list[bytes] = []
    rest, complete = body, True
    # If the bytes after a member do not begin another one, they are padding or garbage.
    while not parts or rest.startswith(_GZIP_MAGIC):
        if len(parts) == GZIP_MEMBERS_MAX:
            raise SiteError(FailureKind.DECODE, f"The gzip body has more than {GZIP_MEMBERS_MAX} members.")
        part, complete, rest = _inflate(rest, _GZIP_BITS, bytes_max - sum(map(len, parts)))
        parts.append(part)
    return Decoded(b"".join(parts), complete)


def _inflate_either(body: bytes, bytes_max: int) -> Decoded:
    """`deflate` means a zlib stream, but some servers send a bare deflate stream. The check in the first two bytes of a
    zlib stream tells them apart."""
    is_zlib = body[0] & 0x0F == _ZLIB_METHOD and int.from_bytes(body[:2], "big") % 31 == 0
    return Decoded(*_inflate(body, _ZLIB_BITS if is_zlib else _RAW_BITS, bytes_max)[:2])


def _inflate(body: bytes, bits: int, bytes_max: int) -> tuple[bytes, bool, bytes]:
    """The decoded content of one stream, whether its end was found, and the bytes that follow it."""
    inflater = isal_zlib.decompressobj(bits)
    try:
        part = inflater.decompress(body, bytes_max + 1)
    except _InflateError as error:
        raise _damaged(error) from error
    return *_checked(part, bytes_max, complete=inflater.eof), inflater.unused_data


def _unbrotli(body: bytes, bytes_max: int) -> Decoded:
    decompressor = brotli.Decompressor()
    try:
        part = decompressor.process(body, output_buffer_limit=bytes_max + 1)
    except brotli.error as error:
        raise _damaged(error) from error
    return _checked(part, bytes_max, complete=decompressor.is_finished())


def _unzstd(body: bytes, bytes_max: int) -> Decoded:
    decompressor = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_BYTES_MAX)
    try:
        # A single frame that says how long its content is, as most are, is decoded in one go.
        if 0 < zstandard.frame_content_size(body) <= min(bytes_max, ZSTD_AT_ONCE_BYTES_MAX):
            return Decoded(decompressor.decompress(body, allow_extra_data=False))
    except zstandard.ZstdError:
        pass  # It is cut off, damaged or has further frames, which the reader below handles.
    parts: list[bytes] = []
    room = bytes_max + 1
    try:
        with decompressor.stream_reader(body, read_across_frames=True) as reader:
            while room and (part := reader.read(min(room, ZSTD_READ_BYTES))):
                parts.append(part)
                room -= len(part)
    except zstandard.ZstdError as error:
        raise _damaged(error) from error
    # The reader does not say whether the stream was cut off, so the result always counts as complete. Nor does it tell
    # a stream that was cut before its first byte from one with empty content; the latter does not occur in practice,
    # so `complete=False` makes both an error.
    return Decoded(_checked(b"".join(parts), bytes_max, complete=False).body)


def _checked(decoded: bytes, bytes_max: int, complete: bool) -> Decoded:
    if len(decoded) > bytes_max:
        raise _too_large(bytes_max)
    if not decoded and not complete:
        raise SiteError(FailureKind.DECODE, "The encoded body ends before its first byte.")
    return Decoded(decoded, complete)


def _too_large(bytes_max: int) -> SiteError:
    return SiteError(FailureKind.TOO_LARGE, f"The decoded body is larger than {bytes_max} bytes.")


def _damaged(error: Exception) -> SiteError:
    return SiteError(FailureKind.DECODE, f"The encoded body is damaged: {error}.")


_DECODERS: dict[str, Callable[[bytes, int], Decoded]] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _inflate_either,
    "br": _unbrotli,
    "zstd": _unzstd,
}
