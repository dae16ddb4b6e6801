"""Which type a Content-Type header names, with the rules of the Fetch and MIME Sniffing standards, one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from drumlin.http.mime import extract_mime_type, parse_mime_type


@pytest.mark.parametrize(
    ("text", "essence", "charset"),
    [
        ("text/html", "text/html", ""),
        (" \tText/HTML \r\n", "text/html", ""),
        ("text/html;charset=gbk", "text/html", "gbk"),
        ("text/html; CHARSET=GBK", "text/html", "GBK"),
        ("text/html ;charset=gbk", "text/html", "gbk"),
        ('text/html;charset="gbk"', "text/html", "gbk"),
        ('text/html;charset="gb\\k"', "text/html", "gbk"),
        ('text/html;charset="gbk', "text/html", "gbk"),
        ('text/html;charset="gbk"xyz;x=y', "text/html", "gbk"),
        ("text/html;charset='gbk'", "text/html", "'gbk'"),
        ("text/html;charset=gbk;charset=utf-8", "text/html", "gbk"),
        ("text/html;charset=;charset=gbk", "text/html", "gbk"),
        ("text/html;charset ;charset=gbk", "text/html", "gbk"),
        ("text/html;charset =gbk", "text/html", ""),
        ("text/html;charset= gbk", "text/html", " gbk"),
        ('text/html;x=";charset=utf-8";charset=gbk', "text/html", "gbk"),
        ("text/html;;;;charset=gbk", "text/html", "gbk"),
        ("text/html;charset=gbk (", "text/html", "gbk ("),
        ("text/html;charset=g\0k", "text/html", ""),
        ("application/vnd.a+xml;q", "application/vnd.a+xml", ""),
    ],
)
def test_a_type_and_its_charset_are_read(text: str, essence: str, charset: str) -> None:
    assert parse_mime_type(text) == (essence, charset)


@pytest.mark.parametrize(
    "text",
    ["", "html", "/", "text/", "/html", "te xt/html", "text/ht ml", "text/html charset=utf-8", "té/html", "a/b/c"],
)
def test_what_is_no_type_is_none(text: str) -> None:
    assert parse_mime_type(text) is None
    assert extract_mime_type(text) == ("", "")


@pytest.mark.parametrize(
    ("values", "essence", "charset"),
    [
        (["text/html", "text/html"], "text/html", ""),
        (["", "text/plain"], "text/plain", ""),
        (["text/plain", ""], "text/plain", ""),
        (["text/html", "text/plain"], "text/plain", ""),
        (["text/plain;charset=gbk", "text/html"], "text/html", ""),
        (["text/plain;charset=gbk", "text/plain"], "text/plain", "gbk"),
        (["text/html;charset=gbk", "text/html;charset=utf-8"], "text/html", "utf-8"),
        (["text/html;charset=gbk", "text/plain", "text/html"], "text/html", ""),
        (["text/html", "*/*;charset=gbk"], "text/html", ""),
        (["text/html", "nonsense"], "text/html", ""),
        (['text/html;x="', "text/plain"], "text/html", ""),
        (['text/html;x="a\\"', 'b";charset=gbk'], "text/html", "gbk"),
        (["*/*"], "", ""),
    ],
)
def test_repeated_headers_are_one_list_whose_last_type_counts(values: list[str], essence: str, charset: str) -> None:
    for joint in (",", ", "):
        assert extract_mime_type(joint.join(values)) == (essence, charset)


@given(some.text(alphabet='text/html;="\\,* charset\0é', max_size=60) | some.text(max_size=30))
def test_no_header_raises_and_a_type_has_two_parts(content_type: str) -> None:
    essence, charset = extract_mime_type(content_type)
    assert essence.count("/") == (1 if essence else 0)
    assert essence or not charset


def test_a_header_made_to_be_slow_is_not() -> None:
    assert extract_mime_type("text/html;x=" + '"\\' * 100_000) == ("text/html", "")
