"""Hashes, times and texts in whatever form others write them."""

from __future__ import annotations

import base64
import hashlib
import re
from datetime import datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.intake.forms import HASH_PATTERN, Moment, is_data_url, read_data_url, read_hash, read_moment
from drumlin.api.intake.telling import ToldResult
from drumlin.api.messages.people import FetchResult

DIGEST = hashlib.sha256(b"a page")
HEX = DIGEST.hexdigest()
B64 = base64.b64encode(DIGEST.digest()).decode()
B64_URL = base64.urlsafe_b64encode(DIGEST.digest()).decode()
T = 1_790_000_000.0


@pytest.mark.parametrize(
    "text",
    [
        HEX,
        HEX.upper(),
        f"sha256:{HEX}",
        f"sha256-{B64}",
        f"SHA256:{HEX.upper()}",
        f"sha-256={B64}",
        B64,
        B64_URL,
        B64.rstrip("="),
        f"sha256-{B64_URL.rstrip('=')}",
    ],
)
def test_a_hash_is_understood_in_every_usual_form(text: str) -> None:
    assert re.match(HASH_PATTERN, text)
    assert read_hash(text) == HEX


@pytest.mark.parametrize(
    "text", [HEX[:-1], HEX + "0", "sha1:" + "0" * 40, f"md5-{B64}", "sha256:", HEX + "\n", "nonsense"]
)
def test_what_is_no_sha256_is_none(text: str) -> None:
    assert not re.match(HASH_PATTERN, text)


@pytest.mark.parametrize("text", [None, ""])
def test_an_unknown_hash_is_empty(text: str | None) -> None:
    assert read_hash(text) == ""


@given(st.from_regex(HASH_PATTERN))
def test_whatever_has_the_form_is_32_bytes_or_none(text: str) -> None:
    assert len(read_hash(text)) in (0, 64)


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        (T, T),
        (T * 1000, T),
        (0.0, 0.0),
        (datetime.fromisoformat("2026-09-21T14:13:20Z"), T),
        (datetime.fromisoformat("2026-09-21T16:13:20+02:00"), T),
        (datetime.fromisoformat("2026-09-21T14:13:20"), T),
        (None, 7.0),
    ],
)
def test_a_time_is_understood_in_every_usual_form(moment: float | datetime | None, seconds: float) -> None:
    assert read_moment(moment, 7.0) == seconds


@pytest.mark.parametrize("text", ["1969-12-31T23:59:59Z", "9999-12-31T23:59:59Z", "2286-11-20T19:00:00"])
@pytest.mark.parametrize("kind", [ToldResult, FetchResult])
def test_a_date_that_is_no_time_of_a_fetch_is_not_taken(kind: type[Any], text: str) -> None:
    said = {"assignment_id": "a", "url": "http://a.example/", "crawl_time": text, "fetchedAt": text}
    with pytest.raises(msgspec.ValidationError, match="between 1970 and 2286"):
        msgspec.convert(said, kind)


def test_iso_8601_is_told_from_a_number_by_its_type() -> None:
    kinds: list[float | datetime] = [msgspec.convert(one, float | Moment) for one in (T, "2026-09-21T14:13:20Z")]
    assert [read_moment(one, 0.0) for one in kinds] == [T, T]


@pytest.mark.parametrize(
    ("url", "content", "media_type"),
    [
        ("data:,a%20b", b"a b", "text/plain;charset=utf-8"),
        ("data:text/plain;charset=iso-8859-1,%E9", b"\xe9", "text/plain;charset=iso-8859-1"),
        ("data:text/plain;base64,aGVsbG8=", b"hello", "text/plain;charset=utf-8"),
        ("DATA:text/plain;charset=utf-8;BASE64,aGVsbG8", b"hello", "text/plain;charset=utf-8"),
        ("data:;base64,-_-_", b"\xfb\xff\xbf", "text/plain;charset=utf-8"),
        ("data:;charset=koi8-r;base64,aGVs%0AbG8%3D", b"hello", "text/plain;charset=koi8-r"),
        ("data:,one,two", b"one,two", "text/plain;charset=utf-8"),
        ("data:,", b"", "text/plain;charset=utf-8"),
    ],
)
def test_a_data_url_is_read(url: str, content: bytes, media_type: str) -> None:
    assert is_data_url(url)
    assert read_data_url(url) == (content, media_type)


@pytest.mark.parametrize("url", ["data:text/plain", "data:;base64,a", "data:;base64,!!!!"])
def test_a_torn_data_url_is_an_error(url: str) -> None:
    with pytest.raises(ValueError, match=r"comma|base64"):
        read_data_url(url)


@pytest.mark.parametrize("url", ["", "http://example.com/", "file:///etc/passwd", "dat", " data:,x"])
def test_other_urls_are_no_data_urls(url: str) -> None:
    assert not is_data_url(url)
