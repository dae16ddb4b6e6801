"""The bytes of WARC 1.1 records: ids, dates, digests and header fields.

A record's payload is the body in its content encoding, as the WARC standard defines it. Its digest is sha256, which the
capture already has if the body came unencoded. Block digests are left out: they would hash every page a second time,
and the checksum of the gzip member already protects the same bytes.

A record id is made from the record's content (UUID version 8), so writing a capture again gives the same id. The last
group of the id is a hash of the payload's exact bytes. Two captures with equal decoded bodies may still differ on the
wire; only one with the same bytes may become a `revisit`, because its headers are replayed with the other's payload.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final

from xxhash import xxh3_64_intdigest, xxh3_128_intdigest

from drumlin.model import Capture
from drumlin.store.warc.block import is_cut, request_block, stored_block

WARC_VERSION: Final = b"WARC/1.1\r\n"
RECORD_END: Final = b"\r\n\r\n"
SURPLUS_MARK: Final = b"drumlin-status: surplus\r\n"
"""The beginning of the block of a record that marks a response as surplus."""
REVISIT_PROFILE: Final = b"http://netpreserve.org/warc/1.1/revisit/identical-payload-digest"
UNSPECIFIED: Final = "unspecified"
LENGTH: Final = "length"
TRUNCATED_REASONS: Final = frozenset({LENGTH, "time", "disconnect", UNSPECIFIED})

_ID_PREFIX: Final = "urn:uuid:"
_PAYLOAD_MASK: Final = 0xFFFF_FFFF_FFFF
_PROTOCOLS: Final = {"h2": b"h2", "h3": b"h3", "http/1.0": b"http/1.0", "http/1.1": b"http/1.1"}

_REQUEST: Final = (
    WARC_VERSION + b"WARC-Type: request\r\n"
    b"WARC-Record-ID: <%b>\r\n"
    b"WARC-Date: %b\r\n"
    b"WARC-Target-URI: %b\r\n"
    b"WARC-Concurrent-To: <%b>\r\n"
    b"WARC-Warcinfo-ID: <%b>\r\n%b"
    b"Content-Type: application/http;msgtype=request\r\n"
    b"Content-Length: %d\r\n\r\n"
)
_RESPONSE: Final = (
    WARC_VERSION + b"WARC-Type: %b\r\n"
    b"WARC-Record-ID: <%b>\r\n"
    b"WARC-Date: %b\r\n"
    b"WARC-Target-URI: %b\r\n"
    b"WARC-Warcinfo-ID: <%b>\r\n%b"
    b"WARC-Payload-Digest: %b\r\n"
    b"Content-Type: application/http;msgtype=response\r\n"
    b"Content-Length: %d\r\n\r\n"
)
_SURPLUS: Final = (
    WARC_VERSION + b"WARC-Type: metadata\r\n"
    b"WARC-Record-ID: <%b>\r\n"
    b"WARC-Date: %b\r\n"
    b"WARC-Target-URI: %b\r\n"
    b"WARC-Refers-To: <%b>\r\n"
    b"WARC-Warcinfo-ID: <%b>\r\n"
    b"Content-Type: application/warc-fields\r\n"
    b"Content-Length: %d\r\n\r\n"
)
_SURPLUS_BLOCK: Final = (
    SURPLUS_MARK + b"drumlin-reason: the crawl did not count this response, because another attempt at its URL did "
    b"or may count; it is neither in the index nor in the tables\r\n"
)


def record_id_of(capture: Capture) -> str:
    """The id of the capture's response record. It depends on the capture only."""
    key = b"%b %r %b" % (capture.url.encode(), capture.fetched, capture.digest)
    number = xxh3_128_intdigest(key) & ~_PAYLOAD_MASK | _payload_mark(capture)
    return uuid_urn(number)


def _payload_mark(capture: Capture) -> int:
    if capture.body_raw == capture.body and capture.digest:
        return int.from_bytes(capture.digest[:6], "big")
    return xxh3_64_intdigest(capture.body_raw) & _PAYLOAD_MASK


def uuid_urn(number: int) -> str:
    """128 bits as text, marked as version 8 (defined by its maker) of the standard variant."""
    text = f"{number & ~(0xF << 76) & ~(0xC << 60) | 8 << 76 | 8 << 60:032x}"
    return f"{_ID_PREFIX}{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def _request_id(record_id: str) -> bytes:
    return uuid_urn(xxh3_128_intdigest(record_id.encode() + b" request")).encode()


def surplus_record(record_id: str, url: str, date: str, warcinfo_id: str) -> bytes:
    """The record that marks a response (or revisit) record as surplus. It depends on that record only."""
    mark_id = uuid_urn(xxh3_128_intdigest(record_id.encode() + b" surplus")).encode()
    fields = (mark_id, date.encode(), _field(url), record_id.encode(), warcinfo_id.encode(), len(_SURPLUS_BLOCK))
    return b"".join((_SURPLUS % fields, _SURPLUS_BLOCK, RECORD_END))


@lru_cache(maxsize=64)
def _second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def warc_date(when: float) -> str:
    """A WARC-Date with microseconds."""
    seconds, micros = divmod(round(when * 1_000_000), 1_000_000)
    return f"{_second(seconds)}.{micros:06d}Z"


def payload_digest(capture: Capture) -> str:
    """The sha256 of the payload, as WARC and CDXJ write it."""
    if capture.body_raw == capture.body and capture.digest:
        return "sha256:" + capture.digest.hex()
    return "sha256:" + sha256(capture.body_raw).hexdigest()


def is_revisit(capture: Capture) -> bool:
    """Whether the payload is stored already, byte for byte, in the capture that this one duplicates."""
    duplicate = capture.duplicate
    if duplicate is None or not duplicate.exact or not capture.body_raw:
        return False
    return duplicate.record_id[-12:] == f"{_payload_mark(capture):012x}"


class RecordBuilder:
    """Builds the records of one WARC file, all of which name its warcinfo record."""

    def __init__(self, warcinfo_id: str) -> None:
        self._warcinfo_id = warcinfo_id.encode()

    def surplus(self, record_id: str, url: str, date: str) -> bytes:
        return surplus_record(record_id, url, date, self._warcinfo_id.decode())

    def warcinfo(self, filename: str, now: float, fields: Mapping[str, str]) -> bytes:
        lines = "".join(f"{name}: {' '.join(value.split())}\r\n" for name, value in fields.items()).encode()
        head = (
            WARC_VERSION + b"WARC-Type: warcinfo\r\nWARC-Record-ID: <%b>\r\nWARC-Date: %b\r\nWARC-Filename: %b\r\n"
            b"Content-Type: application/warc-fields\r\nContent-Length: %d\r\n\r\n"
        )
        date = warc_date(now).encode()
        return head % (self._warcinfo_id, date, filename.encode(), len(lines)) + lines + RECORD_END

    def request(self, capture: Capture) -> bytes:
        block = request_block(capture.request_headers)
        head = _REQUEST % (
            _request_id(capture.record_id),
            warc_date(capture.fetched).encode(),
            _field(capture.url),
            capture.record_id.encode(),
            self._warcinfo_id,
            _contact(capture),
            len(block),
        )
        return b"".join((head, block, RECORD_END))

    def response(self, capture: Capture, digest: str) -> bytes:
        """A response record, or a revisit record without the body when the payload is stored already."""
        body = capture.body_raw
        block = stored_block(capture.response_headers, capture.status, len(body))
        kind, extra = b"response", _contact(capture)
        if is_revisit(capture):
            kind, body, extra = b"revisit", b"", extra + _refers_to(capture)
        truncated = capture.truncated or (LENGTH if is_cut(block) else "")
        if truncated:
            reason = truncated if truncated in TRUNCATED_REASONS else UNSPECIFIED
            extra += b"WARC-Truncated: %b\r\n" % reason.encode()
        head = _RESPONSE % (
            kind,
            capture.record_id.encode(),
            warc_date(capture.fetched).encode(),
            _field(capture.url),
            self._warcinfo_id,
            extra,
            digest.encode(),
            len(block) + len(body),
        )
        return b"".join((head, block, body, RECORD_END))


def _contact(capture: Capture) -> bytes:
    """The fields for the server's address and the protocol."""
    address = b"WARC-IP-Address: %b\r\n" % capture.ip.encode() if capture.ip else b""
    protocol = _PROTOCOLS.get(capture.protocol.lower())
    return address + b"WARC-Protocol: %b\r\n" % protocol if protocol else address


def _refers_to(capture: Capture) -> bytes:
    original = capture.duplicate
    if original is None:
        return b""
    return (
        b"WARC-Profile: %b\r\nWARC-Refers-To: <%b>\r\nWARC-Refers-To-Target-URI: %b\r\nWARC-Refers-To-Date: %b\r\n"
    ) % (REVISIT_PROFILE, original.record_id.encode(), _field(original.url), warc_date(original.fetched).encode())


def _field(url: str) -> bytes:
    """A URL as a field value. Canonical URLs have no line ends; if one ever had, it must not start a new field."""
    raw = url.encode()
    if b"\n" in raw or b"\r" in raw:
        return raw.replace(b"\r", b"%0D").replace(b"\n", b"%0A")
    return raw
