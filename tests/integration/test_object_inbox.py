"""Bundles of nodes without credentials: each is put into its place in a bucket, by a signed URL, and then checked."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from drumlin.api.intake.places import LATE_S, PLACES_BYTES_MAX, PLACES_MAX, Places
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.http.refusal import Refused
from drumlin.protocol import BundleOffer
from drumlin.store.bundles import BUNDLE_BYTES_MAX
from drumlin.store.objects.inbox import BucketInbox
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
    # What was refused takes no room.
    assert list(server.bucket(prefix).listed("incoming")) == []


def test_a_bundle_may_still_come_through_the_coordinator(node: BundlingNode, server: S3Server, prefix: str) -> None:
    segment, members = node.bundle(*URLS)
    assert node.put(segment, members).json == {"status": "stored"}
    assert server.store(prefix).has_segment(segment)


def test_a_node_has_few_places_at_a_time_and_a_stored_bundle_frees_its_own(node: BundlingNode) -> None:
    segment, members = node.bundle(*URLS)
    body = packed(members)
    assert ask(node, segment, "place", body).status == 200
    for number in range(PLACES_MAX - 1):
        assert ask(node, segment, "place", b"something else %d" % number).status == 200
    refused = ask(node, segment, "place", b"one too many")
    assert (refused.status, refused.code) == (429, "too_many_places")
    # Its own place it is given again, as after a lost answer.
    place = ask(node, segment, "place", body).json
    assert put(place["url"], body, place["headers"]) == 200
    assert ask(node, segment, "arrived", body).json == {"status": "stored"}
    assert ask(node, segment, "place", b"one too many").status == 200


def test_a_refused_bundle_keeps_its_place_while_it_could_be_put_there_again(node: BundlingNode) -> None:
    segment, _ = node.bundle(*URLS)
    body = b"this is no tar"
    place = ask(node, segment, "place", body).json
    assert put(place["url"], body, place["headers"]) == 200
    assert ask(node, segment, "arrived", body).code == "not_a_bundle"
    for number in range(PLACES_MAX - 1):
        assert ask(node, segment, "place", b"something else %d" % number).status == 200
    assert ask(node, segment, "place", b"the next").code == "too_many_places"


def test_the_places_of_a_node_may_have_so_many_bytes_together(node: BundlingNode) -> None:
    segment, _ = node.bundle(*URLS)
    remote = node.remote

    def offer(number: int) -> Any:
        told = {"bytes": BUNDLE_BYTES_MAX, "sha256": f"{number:064x}"}
        return remote.coordinator.post(remote.path(f"bundles/{segment}/place"), told, token=remote.token)

    allowed = PLACES_BYTES_MAX // BUNDLE_BYTES_MAX
    assert [offer(number).status for number in range(allowed + 1)] == [200] * allowed + [429]


def test_places_that_ran_out_are_given_again_and_what_lies_there_is_removed(server: S3Server, prefix: str) -> None:
    async def story() -> None:
        inbox = BucketInbox(server.bucket(prefix))
        places = Places(MemoryEngine(1))
        for number in range(PLACES_MAX):
            await places.give("n1", f"n1/s{number}", BundleOffer(10, f"{number:064x}"), inbox, 1_000.0)
        server.bucket(prefix).put(f"incoming/n1/s0-{0:064x}.tar", b"never told of")
        with pytest.raises(Refused):
            await places.give("n1", "n1/more", BundleOffer(10, "f" * 64), inbox, 1_000.0 + inbox.valid_s)
        await places.give("n1", "n1/more", BundleOffer(10, "f" * 64), inbox, 1_000.0 + inbox.valid_s + LATE_S)

    asyncio.run(story())
    assert list(server.bucket(prefix).listed("incoming")) == []
