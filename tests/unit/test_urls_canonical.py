"""Canonical URLs, hosts and domains, by example."""

from __future__ import annotations

import pytest

from drumlin.urls import (
    HREF_LENGTH_MAX,
    URL_LENGTH_MAX,
    canonical,
    domain_of,
    host_of,
    identities,
    identity,
    is_host,
    is_too_long,
    without_dropped,
)
from drumlin.urls import host as host_module

PAGE = "https://example.com/a/b?c=1"


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("HTTP://EXAMPLE.com", "http://example.com/"),
        ("  http://example.com/\n", "http://example.com/"),
        ("http://exa\tmple.com/a\nb", "http://example.com/ab"),
        ("http:\\\\example.com\\a", "http://example.com/a"),
        ("http://example.com:80/", "http://example.com/"),
        ("https://example.com:443", "https://example.com/"),
        ("https://example.com:80/", "https://example.com:80/"),
        ("http://example.com:08080/", "http://example.com:8080/"),
        ("http://user:secret@example.com/", "http://example.com/"),
        ("http://a@b@example.com/", "http://example.com/"),
        ("http://example.com./a", "http://example.com/a"),
        ("http://example.com.:8080/a", "http://example.com:8080/a"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://ＥＸＡＭＰＬＥ.com/", "http://example.com/"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("http://0x7f000001/", "http://127.0.0.1/"),
        ("http://1.2.3.4./", "http://1.2.3.4/"),
        ("http://0177.0.0.01/", "http://127.0.0.1/"),
        ("http://16909060/", "http://1.2.3.4/"),
        ("http://[0:0:0:0:0:0:0:1]:80/", "http://[::1]/"),
        ("http://[::ffff:1.2.3.4]/a", "http://1.2.3.4/a"),
        ("http://[0:0:0:0:0:FFFF:0102:0304]:8080/", "http://1.2.3.4:8080/"),
        ("http://[::ffff:0:0]/", "http://0.0.0.0/"),
        ("http://[64:ff9b::1.2.3.4]/", "http://[64:ff9b::102:304]/"),
        ("http://a_b.example.com/", "http://a_b.example.com/"),
    ],
)
def test_scheme_and_authority_have_one_spelling(href: str, url: str) -> None:
    assert canonical(href) == url


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("http://example.com/a/./b/../c", "http://example.com/a/c"),
        ("http://example.com/a/%2e/b/%2E%2e/c", "http://example.com/a/c"),
        ("http://example.com/../../a", "http://example.com/a"),
        ("http://example.com/a/..", "http://example.com/"),
        ("http://example.com/C:/../x", "http://example.com/x"),
        ("http://example.com/a//b/", "http://example.com/a//b/"),
        ("http://example.com/%7euser/%41%2d%5F", "http://example.com/%7euser/%41%2d%5F"),
        ("http://example.com/é", "http://example.com/%C3%A9"),
        ("http://example.com/%c3%a9", "http://example.com/%c3%a9"),
        ("http://example.com/p?", "http://example.com/p?"),
        ("http://example.com/p?b=2&a=1&utm_source=x", "http://example.com/p?b=2&a=1&utm_source=x"),
        ("http://example.com/p;jsessionid=1?q='", "http://example.com/p;jsessionid=1?q=%27"),
        ("http://example.com/a b^c", "http://example.com/a%20b%5Ec"),
        ("http://example.com/100%", "http://example.com/100%"),
        ("http://example.com/%%32e", "http://example.com/%%32e"),
        ("http://example.com/%4%31", "http://example.com/%4%31"),
        ("http://example.com/\ud800", "http://example.com/%EF%BF%BD"),
        ("http://example.com/a#b#c", "http://example.com/a"),
        ("http://example.com/a #b", "http://example.com/a%20"),
    ],
)
def test_a_url_is_asked_as_a_browser_would_ask_it(href: str, url: str) -> None:
    assert canonical(href) == url
    assert canonical(" " + href) == url


@pytest.mark.parametrize(
    ("path", "same"),
    [
        ("%7euser/%41%2d%5F", "~user/A-_"),
        ("a%2fb%3fc", "a%2Fb%3Fc"),
        ("%c3%a9", "%C3%A9"),
        ("100%", "100%"),
        ("%%32e", "%%32e"),
        ("%4%31", "%4%31"),
    ],
)
def test_the_escapes_of_a_path_have_one_identity(path: str, same: str) -> None:
    assert identity(f"http://example.com/{path}") == f"http://example.com/{same}"
    assert identities([f"http://example.com/{path}", "http://a.test/"]) == [
        f"http://example.com/{same}",
        "http://a.test/",
    ]


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("", ""),
        ("?", ""),
        ("?&&", ""),
        ("?b=2&a=1", "?a=1&b=2"),
        ("?b=1&a=2&a=1&a=1", "?a=2&a=1&a=1&b=1"),
        ("?a-b=1&a=1", "?a=1&a-b=1"),
        ("?a=&a", "?a=&a"),
        ("?b&&a", "?a&b"),
        ("?q=%7e%2f&r=a+b", "?q=~%2F&r=a+b"),
        ("?q=a?b/c", "?q=a?b/c"),
        ("?utm_source=x&utm_medium=y", ""),
        ("?UTM_Source=x&a=1", "?a=1"),
        ("?utm%5Fsource=x&a=1", "?a=1"),
        ("?id=7&gclid=abc&fbclid=d&msclkid=e&mc_cid=f&mc_eid=g&_ga=h&yclid=i&igshid=j", "?id=7"),
        ("?gclid", ""),
        ("?gclide=1", "?gclide=1"),
        ("?PHPSESSID=1&JSESSIONID=2&x=3", "?x=3"),
        ("?ASPSESSIONIDABCDEFGH=1", ""),
        ("?sid=0123456789abcdef0123456789abcdef", ""),
        ("?sid=42", "?sid=42"),
        ("?sid=spring-and-summer-sale", "?sid=spring-and-summer-sale"),
        ("?session=morning", "?session=morning"),
        ("?sid=12345678901234567890", "?sid=12345678901234567890"),
    ],
)
def test_the_identity_of_a_query_is_sorted_by_name_and_has_only_what_identifies_a_page(query: str, kept: str) -> None:
    assert identity(f"http://example.com/p{query}") == f"http://example.com/p{kept}"
    assert canonical(f"http://example.com/p{query}") == f"http://example.com/p{query}"


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("cart;jsessionid=1A2B", "cart"),
        ("cart;JSESSIONID=1A2B!-5/items?x=1", "cart/items?x=1"),
        ("a;jsessionid=1;v=2", "a;v=2"),
        ("a;v=2;jsessionid=1.;jsessionid=2", "a;v=2"),
        ("a;v=2", "a;v=2"),
        ("a;%6asessionid=1", "a"),
        (".;jsessionid=1/b", ".;jsessionid=1/b"),
    ],
)
def test_a_session_in_the_path_is_no_identity_unless_a_dot_segment_would_remain(path: str, kept: str) -> None:
    assert identity(f"http://example.com/{path}") == f"http://example.com/{kept}"


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("", PAGE),
        ("#top", PAGE),
        ("?d=2", "https://example.com/a/b?d=2"),
        ("c", "https://example.com/a/c"),
        ("./", "https://example.com/a/"),
        ("..", "https://example.com/"),
        ("../../../x", "https://example.com/x"),
        ("/x", "https://example.com/x"),
        ("//other.org", "https://other.org/"),
        ("///other.org/x", "https://other.org/x"),
        ("\\\\other.org\\x", "https://other.org/x"),
        ("https:c", "https://example.com/a/c"),
        ("https:?d", "https://example.com/a/b?d"),
        ("http:c", "http://c/"),
        (" c\t", "https://example.com/a/c"),
        ("c:8080", None),
        ("mailto:a@example.com", None),
        ("javascript:void(0)", None),
        ("data:text/html,x", None),
        ("tel:+1", None),
        ("ftp://example.com/", None),
        ("httpx://example.com/", None),
        ("İstanbul:tarih", "https://example.com/a/%C4%B0stanbul:tarih"),
        ("ılık:a", "https://example.com/a/%C4%B1l%C4%B1k:a"),
        ("ſ:x", "https://example.com/a/%C5%BF:x"),
        ("\u212a:y", "https://example.com/a/%E2%84%AA:y"),
        ("a\u212a:y", "https://example.com/a/a%E2%84%AA:y"),
    ],
)
def test_an_href_is_resolved_as_a_browser_would(href: str, url: str | None) -> None:
    assert canonical(href, PAGE) == url


@pytest.mark.parametrize(
    "href",
    [
        *("", "a", "/a", "//h/a", "?a", "#a", "http://", "http:///", "http://?x", "https://#"),
        *("http://[::1", "http://[1.2.3]/", "http://256.256.256.256/", "http://1.2.3.4.5/", "http://0x100000000/"),
        *("http://h:99999/", "http://h:x/", "http://a b/", "http://a%00b/", "http://a<b/", "http://./", "http://a..b/"),
        *("http://.example.com/", "http://example.com../", "http://{host}/", "http://" + "a" * 64 + ".com/"),
        "http://" + ".".join(["a" * 50] * 6) + "/",
    ],
)
def test_what_is_no_usable_web_address_gives_none(href: str) -> None:
    assert canonical(href) is None


def test_a_base_that_is_no_url_counts_as_none() -> None:
    assert canonical("http://h/a", "nonsense") == "http://h/a"
    assert canonical("a", "nonsense") is None


def test_a_url_is_refused_when_its_canonical_form_is_too_long() -> None:
    longest = "http://h.example/".ljust(URL_LENGTH_MAX, "a")
    assert canonical(longest) == longest
    assert canonical(longest + "#fragment") == longest
    assert canonical(longest + "a") is None
    assert is_too_long(longest + "a", "")
    assert is_too_long("/" + "é" * 2000, "http://h.example/")
    assert is_too_long("x" * (HREF_LENGTH_MAX + 1), "http://h.example/")
    for href in ("mailto:" + "a" * 20_000, "http://h..example/" + "a" * 7_000, longest + "#" + "a" * 900):
        assert not is_too_long(href, "http://h.example/")
    assert canonical("http://h.example/" + "é" * (URL_LENGTH_MAX // 6)) is None


def test_an_href_of_absurd_length_is_refused_whatever_would_remain() -> None:
    assert canonical("http://h.example/#".ljust(HREF_LENGTH_MAX, "x")) == "http://h.example/"
    assert canonical("http://h.example/#".ljust(HREF_LENGTH_MAX + 1, "x")) is None


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://example.com/", "example.com"),
        ("https://example.com/a/b?c=http://d/", "example.com"),
        ("http://127.0.0.1:8080/x", "127.0.0.1:8080"),
        ("https://[::1]:80/", "[::1]:80"),
        ("http://a/", "a"),
    ],
)
def test_the_host_is_the_authority(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    ("host", "domain"),
    [
        ("example.com", "example.com"),
        ("www.example.com:8080", "example.com"),
        ("a.b.example.co.uk", "example.co.uk"),
        ("a.b.github.io", "b.github.io"),
        ("co.uk", "co.uk"),
        ("www.xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("www.example.xn--p1ai", "example.xn--p1ai"),
        ("localhost", "localhost"),
        ("localhost:8080", "localhost"),
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1:8080", "127.0.0.1"),
        ("[::1]", "[::1]"),
        ("[2001:db8::1]:8080", "[2001:db8::1]"),
    ],
)
def test_the_domain_is_what_somebody_registered(host: str, domain: str) -> None:
    assert domain_of(host) == domain
    assert domain_of(host) == domain


def test_the_memory_for_domains_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_module, "DOMAINS_CACHED_MAX", 10)
    host_module._domains.clear()
    for number in range(35):
        assert domain_of(f"www.site{number}.com") == f"site{number}.com"
    assert len(host_module._domains) <= 10


@pytest.mark.parametrize(
    "text", ["a.test", "127.0.0.1:8080", "[::1]", "a.test:80", "a.test:443", "xn--bcher-kva.example"]
)
def test_the_authority_of_a_canonical_url_is_a_host(text: str) -> None:
    assert is_host(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "A.test",
        "a.test/x",
        "a.test/?q=1",
        "a.test?q",
        "u@a.test",
        "no host",
        "a.test:99999",
        "a.test.",
        "[::ffff:102:304]",
    ],
)
def test_anything_else_is_no_host(text: str) -> None:
    assert not is_host(text)


@pytest.mark.parametrize("text", [";", "a;b", "http:;", "http://a.test;x", "", "?", "%;?&", ";jsessionid=1"])
def test_what_is_no_url_has_an_identity_too(text: str) -> None:
    assert identity(identity(text)) == identity(text)
    assert isinstance(without_dropped(text), str)
