"""Cookies: which are taken, where they are sent, and how much of them."""

from __future__ import annotations

import pytest

from drumlin.config.settings import CookieMode
from drumlin.contact.cookies import CHARS_MAX, HOST_CHARS_MAX, JARS_MAX, Cookies
from drumlin.http.cookies import COOKIES_MAX, HEADER_CHARS_MAX, Jar

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
        ("a=1; Expires=Sat, 01-Jan-00 00:00:00", ""),
        ("a=1; Expires=00:00:00 1 jan 99", ""),
        ("a=1; Expires=Thursday, 31-December-2099 23:59:59 GMT", "a=1"),
        ("a=1; Expires=01 Jan 2000 10:00", "a=1"),
        ("a=1; Expires=30 Feb 2000 10:00:00", "a=1"),
        ("a=1; Expires=1 Jan 1600 10:00:00", "a=1"),
        ("a=1; Max-Age=-" + "9" * 30, ""),
        ("a=1; Max-Age=" + "9" * 30, "a=1"),
        ("a=1; Max-Age=000", ""),
        ("a=1; Max-Age=+0; Expires=1 Jan 2000 10:00:00", ""),
        ("a=" + "x" * 5000, ""),
        ("a=\x00", ""),
    ],
)
def test_a_cookie_is_sent_back_where_it_belongs(said: str, sent: str) -> None:
    assert header(said) == sent


@pytest.mark.parametrize(
    ("said", "url", "sent"),
    [
        ("__Host-a=1; Path=/; Secure", "https://a.test/", "__Host-a=1"),
        ("__Host-a=1; Path=/", "https://a.test/", ""),
        ("__host-a=1; Path=/", "http://a.test/", ""),
        ("__Host-a=1; Secure", "https://a.test/", ""),
        ("__Host-a=1; Path=/; Secure; Domain=a.test", "https://a.test/", ""),
        ("__Host-a=1; Path=/; Secure", "http://a.test/", ""),
        ("__Secure-a=1; Secure", "https://a.test/", "__Secure-a=1"),
        ("__Secure-a=1", "http://a.test/", ""),
        ("__SECURE-a=1", "https://a.test/", ""),
        ("=__Secure-a=1", "https://a.test/", ""),
        ("a=1; Domain=0.0.1", "http://127.0.0.1:8080/", ""),
        ("a=1; Domain=127.0.0.1", "http://127.0.0.1:8080/", "a=1"),
        ("a=1; Domain=1]", "http://[::1]/", ""),
        ("a=1; Domain=[::1]", "http://[::1]:8080/", "a=1"),
        ("a=1", "http://[::1]:8080/", "a=1"),
    ],
)
def test_prefixes_are_promises_and_an_address_has_no_domains(said: str, url: str, sent: str) -> None:
    jar = Jar()
    jar.take([said], url, NOW)
    assert jar.header(url.replace("http:", "https:")) == sent


def test_a_secure_cookie_is_sent_over_https_only() -> None:
    assert header("a=1; Secure; Path=/") == "a=1"
    assert header("a=1; Secure; Path=/", url="http://a.test/dir/page") == ""


def test_the_closest_path_comes_first_and_a_later_cookie_replaces() -> None:
    assert header("a=1; Path=/", "b=2; Path=/dir", "a=3; Path=/") == "b=2; a=3"
    assert header("a=1; Path=/", "a=; Path=/; Max-Age=0") == ""


def test_a_cookie_that_a_later_redirect_takes_back_is_not_sent() -> None:
    cookies = Cookies("chain")
    both = b"Set-Cookie: a=1; Path=/\r\nSet-Cookie: b=2; Path=/"
    cookies.learn(b"HTTP/1.1 302 Found\r\n" + both + b"\r\n\r\n", "http://a.test/1", NOW)
    cookies.learn(b"HTTP/1.1 302 Found\r\nSet-Cookie: a=; Path=/; Max-Age=0\r\n\r\n", "http://a.test/2", NOW)
    assert cookies.header("http://a.test/2", ("http://a.test/1",)) == "a=1; b=2"
    assert cookies.header("http://a.test/3", ("http://a.test/1", "http://a.test/2")) == "b=2"
    cookies.learn(b"HTTP/1.1 302 Found\r\nSet-Cookie: a=3; Path=/\r\n\r\n", "http://a.test/3", NOW)
    chain = ("http://a.test/1", "http://a.test/2", "http://a.test/3")
    assert cookies.header("http://a.test/4", chain) == "a=3; b=2"


def test_cookies_that_are_gone_push_no_other_out() -> None:
    many = [f"gone{number}=; Path=/; Max-Age=0" for number in range(2 * COOKIES_MAX)]
    assert header("a=1; Path=/", *many, "b=2; Path=/") == "a=1; b=2"


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


def test_one_host_fills_no_memory_and_pushes_no_other_out() -> None:
    cookies, honest = Cookies("chain"), "http://honest.test/gate"
    cookies.learn(b"HTTP/1.1 302 Found\r\nSet-Cookie: ok=1; Path=/\r\n\r\n", honest, NOW)
    large = b"".join(b"Set-Cookie: c%d=%b; Path=/\r\n" % (number, b"x" * 4_000) for number in range(20))
    for number in range(JARS_MAX + 10):
        cookies.learn(b"HTTP/1.1 302 Found\r\n" + large + b"\r\n", f"http://evil.test/{number}", NOW)
        assert cookies.chars <= HOST_CHARS_MAX + 1_000
    last = f"http://evil.test/{JARS_MAX + 9}"
    assert cookies.header("http://evil.test/x", (last,)).startswith("c")
    assert cookies.header("http://honest.test/x", (honest,)) == "ok=1"


@pytest.mark.parametrize("mode", ["chain", "host"])
def test_many_hosts_fill_no_more_than_a_node_has_for_cookies(mode: CookieMode) -> None:
    cookies = Cookies(mode)
    head = b"HTTP/1.1 302 Found\r\nSet-Cookie: a=%b; Path=/%b\r\n\r\n" % (b"x" * 4_000, b"y" * 100_000)
    for number in range(4_000):
        cookies.learn(head, f"http://h{number}.test/", NOW)
    assert CHARS_MAX // 2 < cookies.chars <= CHARS_MAX
    assert cookies.header("http://h3999.test/", ("http://h3999.test/",)).startswith("a=x")
    assert cookies.header("http://h0.test/", ("http://h0.test/",)) == ""
