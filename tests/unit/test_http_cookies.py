"""Cookies: which are taken, where they are sent, and how much of them."""

from __future__ import annotations

import pytest

from drumlin.http.cookies import COOKIES_MAX, HEADER_CHARS_MAX, Jar
from drumlin.node.cookies import JARS_MAX, Cookies

URL = "https://a.test/dir/page"
NOW = 1_800_000_000.0


def header(*said: str, url: str = URL) -> str:
    jar = Jar()
    jar.take(said, URL, NOW)
    return jar.header(url)


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("a=1", "a=1"),
        (" a = 1 ; Path=/; HttpOnly", "a=1"),
        ("a=1=2", "a=1=2"),
        ("a=", "a="),
        ("alone", "alone"),
        ("", ""),
        ("=", ""),
        ("a=1; Domain=a.test", "a=1"),
        ("a=1; Domain=.TEST", "a=1"),
        ("a=1; Domain=b.test", ""),
        ("a=1; Path=/other", ""),
        ("a=1; Path=/di", ""),
        ("a=1; Path=/dir", "a=1"),
        ("a=1; Path=nonsense", "a=1"),
        ("a=1; Max-Age=0", ""),
        ("a=1; Max-Age=9", "a=1"),
        ("a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT", ""),
        ("a=1; Expires=nonsense", "a=1"),
        ("a=" + "x" * 5000, ""),
        ("a=\x00", ""),
    ],
)
def test_a_cookie_is_sent_back_where_it_belongs(said: str, sent: str) -> None:
    assert header(said) == sent


def test_a_secure_cookie_is_sent_over_https_only() -> None:
    assert header("a=1; Secure; Path=/") == "a=1"
    assert header("a=1; Secure; Path=/", url="http://a.test/dir/page") == ""


def test_the_closest_path_comes_first_and_a_later_cookie_replaces() -> None:
    assert header("a=1; Path=/", "b=2; Path=/dir", "a=3; Path=/") == "b=2; a=3"
    assert header("a=1; Path=/", "a=; Path=/; Max-Age=0") == ""


def test_cookies_are_bounded() -> None:
    assert header(*[f"c{number}=1" for number in range(100)]).count("=") == COOKIES_MAX
    assert len(header(*[f"c{number}={'x' * 4000}" for number in range(20)])) <= HEADER_CHARS_MAX


def test_a_chain_has_its_own_cookies_and_old_ones_are_forgotten() -> None:
    cookies = Cookies("chain")
    for number in range(JARS_MAX + 1):
        head = b"HTTP/1.1 302 Found\r\nSet-Cookie: n=%d; Path=/\r\n\r\n" % number
        cookies.learn(head, f"http://a.test/{number}", NOW)
    assert cookies.header("http://a.test/x", ("http://a.test/7",)) == "n=7"
    assert cookies.header("http://a.test/x", ()) == ""
    assert cookies.header("http://b.test/x", ("http://a.test/7",)) == ""
    assert cookies.header("http://a.test/x", ("http://a.test/0",)) == "", "the oldest"
