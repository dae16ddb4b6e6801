"""What must hold of canonical URLs and the link resolver for every href, however hostile."""

from __future__ import annotations

import re

from ada_url import normalize_url
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from drumlin.urls import (
    HREF_LENGTH_MAX,
    URL_LENGTH_MAX,
    LinkResolver,
    Scope,
    are_well_spelled,
    canonical,
    host_of,
    identity,
    origin_of,
)
from drumlin.urls.canonical import PLAIN_ABSOLUTE

# Fragments that parsers, caches and rules disagree about; random text alone would hardly ever hit them together.
SCHEMES = ["http:", "https:", "HTTP:", "http", "mailto:", "javascript:", "file:", "data:", "C|", "ht\ttp:"]
MARKS = ["/", "//", "///", "\\", "?", "#", "@", ":", ";", "&", "&&", "=", "[", "]", "'", '"', "<", "^", "|", "{", "+"]
DOTS = [".", "..", "./", "../", "%2e", "%2E", ".%2e", "/.", "/..", "..."]
ESCAPES = ["%", "%4", "%%", "%32", "%41", "%7e", "%7E", "%2f", "%2F", "%zz", "%C3%A9", "%c3", "%20", "%25"]
BLANKS = [" ", "\t", "\n", "\r", "\x00", "\x1f", "\x7f", "\u3000", "\ufeff", "\xa0"]
HOSTS = ["example.com", "EXAMPLE.com", "h", "h.", "a..b", "127.0.0.1", "127.1", "0x7f.1", "[::1]", "256.1", "u:p@h"]
NAMES = ["☃.net", "xn--n3h.net", "xn--", "faß.de", "a_b.org", "localhost", "a.b.c.d", "1.2.3.4.", "。", "\u200d"]
PORTS = [":80", ":443", ":8080", ":0", ":99999", ":"]
WORDS = ["a", "b/", "x.html", "page-1", "é", "😀", "\ud800", "C:", "sid=0123456789abcdef0", "sid=4", "utm_a=1", "gclid"]
SESSIONS = [";jsessionid=1", ".;jsessionid=2", ";JSESSIONID=", "/;jsessionid=3/", "PHPSESSID=1", "?b=2&a=1"]
PIECES = SCHEMES + MARKS + DOTS + ESCAPES + BLANKS + HOSTS + NAMES + PORTS + WORDS + SESSIONS

STARTS = ["", "", "http://", "https://", "//", "/", "http:", "http://example.com/", "https://h:81/a/b/", "?", "#"]
BASES = [
    *("http://example.com/", "https://example.com/a/b/c?q=1", "http://127.0.0.1:8080/d/e.html", "https://[::1]/"),
    *("http://u:p@h:81/x/", "http://h./a/./b/..", "http://h/a/.;jsessionid=1/b", "http:\\\\x\\y", "mailto:x"),
    *("HTTP://X.com/%7Ea/?utm_x=1", "file:///x/y", "not a URL", "http://h/;jsessionid=3/x?b=2&a=1#f", "http://h/c:/d"),
]

hrefs = st.builds(
    lambda start, pieces: start + "".join(pieces),
    st.sampled_from(STARTS),
    st.lists(st.sampled_from(PIECES) | st.characters(), max_size=8),
)
bases = st.sampled_from(BASES) | hrefs
many = settings(max_examples=max(100, settings().max_examples))


@many
@given(hrefs, bases)
def test_canonical_form_is_a_fixed_point(href: str, base: str) -> None:
    url = canonical(href, base)
    assume(url is not None)
    assert url is not None
    assert canonical(url) == url
    assert canonical(url, base) == url


@many
@given(hrefs, bases)
def test_a_standard_parser_leaves_a_canonical_url_as_it_is(href: str, base: str) -> None:
    url = canonical(href, base)
    assume(url is not None)
    assert url is not None
    assert normalize_url(url) == url


@many
@given(hrefs, bases)
def test_an_identity_is_a_canonical_url_and_a_fixed_point(href: str, base: str) -> None:
    url = canonical(href, base)
    assume(url is not None)
    assert url is not None
    same = identity(url)
    assert canonical(same) == identity(same) == same
    assert host_of(same) == host_of(url)
    # All spellings of a page begin with the same part, which engines use to search for other spellings.
    assert same.startswith(re.split("[%?;]", url)[0])


@many
@given(hrefs, bases)
def test_a_canonical_url_is_short_printable_ascii_with_a_host(href: str, base: str) -> None:
    url = canonical(href, base)
    assume(url is not None)
    assert url is not None
    assert url.isascii()
    assert url.isprintable()
    assert not set(url) & set(' #"<>')
    assert len(url) <= URL_LENGTH_MAX
    assert url == f"{url.partition('://')[0]}://{host_of(url)}{url[url.index('/', 8) :]}"
    assert "@" not in host_of(url)


@many
@given(st.lists(st.tuples(hrefs, bases), max_size=5))
@example([("https://[::ffff:1.2.3.4]:80/", ""), ("http://a_b.-c-.0x7g:443/'{}|\\^`?'{}|\\^`[]", "")])
@example(
    [
        ("http://h:0/", ""),
        ("http://h:65535", ""),
        ("http://[1::8]", ""),
        ("http://0.255.0.1/", ""),
        ("//☃.net", "http:"),
    ]
)
def test_every_canonical_url_is_well_spelled(found: list[tuple[str, str]]) -> None:
    urls = [url for href, base in found if (url := canonical(href, base)) is not None]
    assert are_well_spelled(urls, map(origin_of, urls))
    assert are_well_spelled(urls, [])


@many
@given(hrefs, bases)
def test_what_is_well_spelled_can_be_sent_and_has_the_only_spelling_of_its_host(href: str, base: str) -> None:
    made = canonical(href, base)
    for url in (href, href + "/", base, f"{made}\n{made}"):
        if are_well_spelled([url], [origin_of(url)]):
            assert url.isascii()
            assert url.isprintable()
            same = canonical(url)
            # The pattern lets other spellings of an IPv6 address pass.
            assert same is None or host_of(same) == host_of(url) or "://[" in url


plain_hosts = st.from_regex(r"\A[a-z0-9-]{1,8}(\.[a-z0-9-]{1,70}){0,5}(:[0-9]{1,5})?\Z")
plain_tails = st.from_regex(r"\A(/[A-Za-z0-9_.~/,+=:@%-]{0,12})?(\?[A-Za-z0-9&=%;._-]{0,12})?(#[a-z]{0,3})?\Z")


@many
@given(st.sampled_from(["http://", "https://"]), plain_hosts, plain_tails)
@example("http://", ".".join(["a" * 60] * 5) + ".com", "/")
@example("http://", "example.com:80", "")
@example("https://", "1.2.3.com", "/a/%2e%2e/b")
def test_skipping_the_parser_changes_no_answer(scheme: str, host: str, tail: str) -> None:
    """A leading space is ignored by the standard, but no plain URL has one: it forces the long way."""
    href = scheme + host + tail
    assert PLAIN_ABSOLUTE(" " + href) is None
    assert canonical(href) == canonical(" " + href)


@many
@given(hrefs, bases)
def test_a_base_may_be_made_canonical_first(href: str, base: str) -> None:
    page = canonical(base)
    assume(page is not None)
    assert canonical(href, base) == canonical(href, page)


@many
@given(hrefs, st.text(max_size=5))
def test_the_fragment_never_matters(href: str, fragment: str) -> None:
    page = "http://example.com/a/b?c=1"
    assert canonical(f"{href}#{fragment}", page) == canonical(f"{href}#", page)


@many
@given(st.lists(st.tuples(bases, st.lists(hrefs, max_size=6)), min_size=1, max_size=6), st.sampled_from([3, 20, 1000]))
@example(
    [("http://h/a?b", ["http:?q", "http:", "", "?x", "\t#"]), ("http://h/c?d", ["http:?q", "http:", "", "?x", "\t#"])],
    99,
)
@example([("http://h/a/b", ["///x", "/\\x", "\\x", "//", "http:foo", "..", "./", " x"])] * 2, 99)
@example([("http://h/a//b/", ["../x", "../../x", "../../../../x", "./../x", "./%2e%2e/x", "x/../y", "/x/./y"])] * 2, 99)
@example(
    [("http://h/a", ["#" * (HREF_LENGTH_MAX + 1), "a#" + "b" * HREF_LENGTH_MAX, "/a?" + "b" * URL_LENGTH_MAX])] * 2, 99
)
def test_a_resolver_answers_as_canonical_does_whatever_it_remembers(
    pages: list[tuple[str, list[str]]], entries_max: int
) -> None:
    resolver = LinkResolver(entries_max)
    for base, page_hrefs in pages * 2:
        assert resolver.resolve(base, page_hrefs) == [canonical(href, base) for href in page_hrefs]


@many
@given(
    st.lists(hrefs, max_size=8),
    st.lists(hrefs, min_size=1, max_size=4),
    st.sampled_from(["page", "prefix", "host", "domain", "any"]),
    st.sampled_from([(), ("a",), ("example", "b")]),
    st.sampled_from([(), ("x",), ("html", "8080")]),
)
def test_scope_gives_one_answer_in_two_ways(
    found: list[str], seeds: list[str], mode: str, include: tuple[str, ...], exclude: tuple[str, ...]
) -> None:
    base = "http://example.com/a/b/c"
    good = [seed for seed in (canonical(seed, base) for seed in seeds) if seed]
    scope = Scope(mode, good, include, exclude)  # type: ignore[arg-type]
    urls = [canonical(href, base) for href in found] + good
    allowed = [url for url in urls if url is not None and scope.allows(url)]
    assert [url for url in urls if url is not None and scope.why_not(url) == ""] == allowed
    if not exclude:
        assert all(scope.allows(seed) for seed in good)
