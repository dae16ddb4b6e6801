"""Requests and responses of the fake web, and how a response goes over the wire."""

from __future__ import annotations

import asyncio
import gzip
import http.client
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

import brotli

HEAD_BYTES_MAX = 65_536
CHUNK_BYTES = 1000
WRITE_BYTES = 65_536
HTML = "text/html; charset=utf-8"


class Ending(Enum):
    """What happens to a connection with a response."""

    KEEP = "keep"
    """It stays open for the next request."""
    CUT = "cut"
    """It closes in the middle of the body."""
    RESET = "reset"
    """It is reset without an answer."""


@dataclass(frozen=True)
class Request:
    """One request. `path` includes the query; `number` counts the requests for this path, from 1."""

    host: str
    path: str
    headers: Mapping[str, str]
    number: int
    method: str = "GET"


@dataclass(frozen=True)
class Response:
    """An answer, and how slowly or wrongly it is sent. `delay_s` is a pause before the head; with `drip_s` the body is
    sent byte by byte, with that pause between them."""

    status: int = 200
    body: bytes | str = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    content_type: str = HTML
    encoding: str = ""
    chunked: bool = False
    delay_s: float = 0.0
    drip_s: float = 0.0
    ending: Ending = Ending.KEEP

    def encoded_body(self) -> bytes:
        raw = self.body.encode() if isinstance(self.body, str) else self.body
        if self.encoding == "gzip":
            return gzip.compress(raw, mtime=0)
        return bytes(brotli.compress(raw)) if self.encoding == "br" else raw

    def head(self, body_bytes: int) -> bytes:
        phrase = http.client.responses.get(self.status, "Unknown")
        fields = {"Content-Type": self.content_type} | dict(self.headers)
        if self.encoding:
            fields["Content-Encoding"] = self.encoding
        fields |= {"Transfer-Encoding": "chunked"} if self.chunked else {"Content-Length": str(body_bytes)}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"HTTP/1.1 {self.status} {phrase}\r\n{lines}\r\n".encode("latin-1")


def parse_head(head: bytes) -> tuple[str, str, dict[str, str]]:
    """Method, target and headers (names in lower case) of a request; ValueError if it is not a request."""
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, _ = first.split(" ", 2)
    pairs = (line.partition(":") for line in lines)
    return method, target, {name.strip().lower(): value.strip() for name, _, value in pairs}


async def send(writer: asyncio.StreamWriter, response: Response, method: str) -> bool:
    """Send a response. Returns whether the connection stays open."""
    if response.delay_s:
        await asyncio.sleep(response.delay_s)
    if response.ending is Ending.RESET:
        reset(writer)
        return False
    body = response.encoded_body()
    writer.write(response.head(len(body)))
    if response.ending is Ending.CUT:
        body = body[: len(body) // 2]
    if method != "HEAD":
        await _send_body(writer, response, body)
    await writer.drain()
    return response.ending is Ending.KEEP


async def _send_body(writer: asyncio.StreamWriter, response: Response, body: bytes) -> None:
    step = 1 if response.drip_s else CHUNK_BYTES if response.chunked else WRITE_BYTES
    for start in range(0, len(body), step):
        piece = body[start : start + step]
        writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if response.chunked else piece)
        await writer.drain()
        if response.drip_s:
            await asyncio.sleep(response.drip_s)
    if response.chunked and response.ending is Ending.KEEP:
        writer.write(b"0\r\n\r\n")


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with a TCP reset: that is what closing with a linger time of zero does."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
