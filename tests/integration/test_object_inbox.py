"""Bundles of nodes without credentials: each is put into its place in a bucket, by a signed URL, and then checked."""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.harness.bundles import BundlingNode, packed
from tests.harness.coordinators import RemoteNode, RunningCoordinator
from tests.harness.outputs import check_warcs, stored_urls
from tests.harness.s3 import S3Server, downloaded, s3_server

URLS = ("http://a.test/1", "http://a.test/2", "http://b.test/")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3") / "data") as running:
        yield running


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    name: str = request.node.name
    return name.replace("_", "-")[:60]


@pytest.fixture
def coordinator(server: S3Server, prefix: str, tmp_path: Path) -> Iterator[RunningCoordinator]:
    with RunningCoordinator(store=tmp_path / "work", files=server.store(prefix), controlled=True) as running:
        yield running


@pytest.fixture
def node(coordinator: RunningCoordinator, tmp_path: Path) -> BundlingNode:
    return BundlingNode(RemoteNode(coordinator, "n1"), tmp_path / "n1")


def ask(node: BundlingNode, segment: str, what: str, body: bytes) -> Any:
    offer = {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
    remote = node.remote
    return remote.coordinator.post(remote.path(f"bundles/{segment}/{what}"), offer, token=remote.token)


def put(url: str, body: bytes, headers: dict[str, str]) -> int:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=30)
    try:
        connection.request("PUT", f"{parts.path}?{parts.query}", body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def test_a_bundle_goes_through_the_inbox_into_the_store(
    node: BundlingNode, server: S3Server, prefix: str, tmp_path: Path
) -> None:
    segment, members = node.bundle(*URLS)
    body = packed(members)
    place = ask(node, segment, "place", body).json
    assert put(place["url"], body, place["headers"]) == 200
    assert server.store(prefix).files("tables/pages", ".parquet") == []
    assert ask(node, segment, "arrived", body).json == {"status": "stored"}
    out = downloaded(server.store(prefix), tmp_path / "out")
    assert stored_urls(out) == sorted(URLS)
    check_warcs(out)
    assert list(server.bucket(prefix).listed("incoming")) == []
    # The same once more, as after a lost answer, changes nothing.
    put(place["url"], body, place["headers"])
    number = server.store(prefix).manifest.contents().number
    assert ask(node, segment, "arrived", body).json == {"status": "stored"}
    assert server.store(prefix).manifest.contents().number == number


def test_nothing_else_can_be_put_into_the_place(node: BundlingNode, server: S3Server, prefix: str) -> None:
    segment, members = node.bundle(*URLS)
    body = packed(members)
    place = ask(node, segment, "place", body).json
    url, headers = place["url"], place["headers"]
    wrong = bytes([body[0] ^ 1]) + body[1:]
    elsewhere = url.replace("/incoming/n1/", "/incoming/n2/")
    assert put(url, wrong, headers) >= 400
    assert put(url, body + b"more", headers) >= 400
    assert put(url, body, {}) >= 400
    assert put(elsewhere, body, headers) >= 400
    assert list(server.bucket(prefix).listed("incoming")) == []


def test_a_bundle_that_did_not_arrive_has_to_be_sent_again(node: BundlingNode) -> None:
    segment, members = node.bundle(*URLS)
    answer = ask(node, segment, "arrived", packed(members))
    assert (answer.status, answer.code) == (409, "damaged")


def test_what_is_no_bundle_does_not_enter_the_manifest(node: BundlingNode, server: S3Server, prefix: str) -> None:
    segment, _ = node.bundle(*URLS)
    body = b"this is no tar"
    place = ask(node, segment, "place", body).json
    assert put(place["url"], body, place["headers"]) == 200
    answer = ask(node, segment, "arrived", body)
    assert (answer.status, answer.code) == (409, "not_a_bundle")
    assert server.store(prefix).manifest.contents().number == 0


def test_a_bundle_may_still_come_through_the_coordinator(node: BundlingNode, server: S3Server, prefix: str) -> None:
    segment, members = node.bundle(*URLS)
    assert node.put(segment, members).json == {"status": "stored"}
    assert server.store(prefix).has_segment(segment)
