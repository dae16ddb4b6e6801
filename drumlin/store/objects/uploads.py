"""Uploads in parts that were never completed: a writer was killed, and what it sent takes room and is seen by nobody.

obstore neither lists nor ends them, so these two requests are made here, by signed URLs.
"""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from typing import Final, NamedTuple
from xml.etree import ElementTree

from drumlin.errors import StorageError
from drumlin.store.objects.bucket import Bucket
from drumlin.store.objects.signing import signed_url

VALID_S: Final = 300
REQUEST_S_MAX: Final = 30.0
ANSWER_BYTES_MAX: Final = 16 * 1024**2
ANSWERS_MAX: Final = 10_000
"""A service lists up to 1,000 uploads in each."""


class UnfinishedUpload(NamedTuple):
    """An upload that was begun; `name` is below the prefix, as of an object."""

    name: str
    id: str
    begun: float


def unfinished_uploads(bucket: Bucket, now: float) -> Iterator[UnfinishedUpload]:
    """Those below the prefix of a store. Needs a key; without one, none are found."""
    if not bucket.access.key_id:
        return
    prefix = f"{bucket.address.prefix}/" if bucket.address.prefix else ""
    marks: dict[str, str] = {}
    for _ in range(ANSWERS_MAX):
        answer = _ask(bucket, "GET", "", {"uploads": "", "prefix": prefix, **marks}, now)
        try:
            found = _read(answer, prefix)
        except (ElementTree.ParseError, KeyError, ValueError) as odd:
            message = f"{bucket.address} does not list unfinished uploads as S3 does ({type(odd).__name__})."
            raise StorageError(message, "Check AWS_ENDPOINT_URL.") from None
        yield from found.uploads
        if not found.marks or found.marks == marks:
            return
        marks = found.marks


class _Answer(NamedTuple):
    """Some of the uploads, and what to ask for the next ones; nothing if there are no more."""

    uploads: list[UnfinishedUpload]
    marks: dict[str, str]


def _read(answer: bytes, prefix: str) -> _Answer:
    # The parser (expat) refuses entities that grow beyond measure.
    found = ElementTree.fromstring(answer)  # noqa: S314
    uploads: list[UnfinishedUpload] = []
    for upload in found.iter():
        if _plain(upload.tag) == "Upload":
            fields = {_plain(part.tag): part.text or "" for part in upload}
            begun = datetime.fromisoformat(fields["Initiated"]).timestamp()
            uploads.append(UnfinishedUpload(fields["Key"].removeprefix(prefix), fields["UploadId"], begun))
    told = {_plain(part.tag): part.text or "" for part in found}
    if told.get("IsTruncated") != "true":
        return _Answer(uploads, {})
    return _Answer(uploads, {"key-marker": told["NextKeyMarker"], "upload-id-marker": told["NextUploadIdMarker"]})


def end_upload(bucket: Bucket, upload: UnfinishedUpload, now: float) -> None:
    _ask(bucket, "DELETE", upload.name, {"uploadId": upload.id}, now)


def _plain(tag: str) -> str:
    return tag.rpartition("}")[2]


def _trusting(bucket: Bucket) -> ssl.SSLContext | None:
    """What trusts the authority of the service's certificate, besides those of the system; None if these will do."""
    if not bucket.access.authority:
        return None
    context = ssl.create_default_context()
    context.load_verify_locations(bucket.access.authority)
    return context


class _StayHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a service has no reason for one, and it could lead to a machine that only we can reach."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _ask(bucket: Bucket, method: str, name: str, query: dict[str, str], now: float) -> bytes:
    url = signed_url(bucket.access, bucket.address, method, name, now=now, valid_s=VALID_S, query=query)
    request = urllib.request.Request(url, method=method)  # noqa: S310  # the address of the service
    try:
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=_trusting(bucket)), _StayHere)
        with opener.open(request, timeout=REQUEST_S_MAX) as answer:
            content: bytes = answer.read(ANSWER_BYTES_MAX)
            return content
    except urllib.error.HTTPError as refused:
        if refused.code == http.client.NOT_FOUND:
            return b"<none/>"
        raise StorageError(f"Cannot look for unfinished uploads in {bucket.address}: status {refused.code}.") from None
    except OSError as away:
        reason = getattr(away, "reason", away)
        raise StorageError(f"Cannot look for unfinished uploads in {bucket.address}: {reason}.") from None
