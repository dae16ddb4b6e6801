"""What strangers can make long or odd: exports that find nothing, places asked for at once, answers of a service."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from drumlin.api.intake.places import PLACES_MAX, Places
from drumlin.engines.base import Engine
from drumlin.errors import StorageError
from drumlin.http.refusal import Refused
from drumlin.protocol import BundleOffer
from drumlin.store.files import DirectoryFiles, Inbox
from drumlin.store.objects import uploads
from drumlin.store.objects.address import Access, Address
from drumlin.store.objects.bucket import Bucket
from drumlin.store.tables import exporting
from drumlin.store.tables.exporting import Taken, Wanted, exported
from tests.harness.aged import add_segment


def test_an_export_that_finds_nothing_gives_the_chance_to_end_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporting, "SEARCH_S_MAX", 0.0)
    for node in ("n1", "n2", "n3"):
        add_segment(tmp_path, node)
    wanted = Wanted("pages", ("url",), lambda host: False)
    pieces = exported(DirectoryFiles(tmp_path), wanted, Taken())
    assert [next(pieces) for _ in range(3)] == [b""] * 3


class SlowTable:
    """The part of an engine that keeps places; each call waits for the others."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    async def get_entries(self, table: str) -> dict[str, bytes]:
        found = dict(self.entries)
        await asyncio.sleep(0)
        return found

    async def put_entries(self, table: str, entries: dict[str, bytes]) -> None:
        await asyncio.sleep(0)
        self.entries |= entries

    async def delete_entries(self, table: str, keys: list[str]) -> None:
        await asyncio.sleep(0)


class NoInbox:
    valid_s = 60.0


def test_a_node_that_asks_for_many_places_at_once_gets_no_more_of_them() -> None:
    table = SlowTable()

    async def ask() -> list[Any]:
        places = Places(cast("Engine", table))
        offers = [BundleOffer(1, f"{number:064x}") for number in range(3 * PLACES_MAX)]
        asked = [places.give("n1", "n1-1-00001", offer, cast("Inbox", NoInbox()), 0.0) for offer in offers]
        return await asyncio.gather(*asked, return_exceptions=True)

    refused = [one for one in asyncio.run(ask()) if isinstance(one, Refused)]
    assert (len(table.entries), len(refused)) == (PLACES_MAX, 2 * PLACES_MAX)


class SaidBucket:
    """As much of a bucket as listing its uploads needs."""

    address = Address("bucket", "prefix")
    access = Access("http://127.0.0.1:1", "us-east-1", "key", "secret")


def listed(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> list[uploads.UnfinishedUpload]:
    monkeypatch.setattr(uploads, "_ask", lambda *_: answer)
    return list(uploads.unfinished_uploads(cast("Bucket", SaidBucket()), 0.0))


@pytest.mark.parametrize(
    "answer",
    [
        b"no XML",
        b"",
        b"<a><Upload><Key>prefix/x</Key></Upload></a>",
        b"<a><Upload><Key>x</Key><UploadId>1</UploadId><Initiated>yesterday</Initiated></Upload></a>",
        b"<a><IsTruncated>true</IsTruncated></a>",
        b'<!DOCTYPE a [<!ENTITY e0 "0123456789">'
        + b"".join(b'<!ENTITY e%d "%s">' % (at + 1, b"&e%d;" % at * 10) for at in range(9))
        + b"]><a>&e9;</a>",
    ],
)
def test_a_list_of_uploads_that_is_none_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    with pytest.raises(StorageError, match="does not list unfinished uploads"):
        listed(monkeypatch, answer)


def test_a_list_of_uploads_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    upload = "<Upload><Key>prefix/x</Key><UploadId>1</UploadId><Initiated>2026-01-01T00:00:00Z</Initiated></Upload>"
    marks = "<NextKeyMarker>x</NextKeyMarker><NextUploadIdMarker>1</NextUploadIdMarker>"
    found = listed(monkeypatch, f"<a>{upload}<IsTruncated>true</IsTruncated>{marks}</a>".encode())
    assert {one.name for one in found} == {"x"}


class SendsElsewhere(BaseHTTPRequestHandler):
    """A service that answers the first question with a redirect to another path of its own machine."""

    paths: ClassVar[list[str]] = []

    def do_GET(self) -> None:  # the library's name
        self.paths.append(self.path.partition("?")[0])
        self.send_response(307)
        self.send_header("Location", "/secrets")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_service_that_sends_us_elsewhere_is_not_followed() -> None:
    with HTTPServer(("127.0.0.1", 0), SendsElsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        bucket = SaidBucket()
        bucket.access = Access(f"http://127.0.0.1:{server.server_port}", "us-east-1", "key", "secret")
        with pytest.raises(StorageError, match="status 307"):
            list(uploads.unfinished_uploads(cast("Bucket", bucket), 0.0))
        server.shutdown()
    assert SendsElsewhere.paths == ["/bucket"]
