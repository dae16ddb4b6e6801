"""Index keys equal those of the `surt` package, which pywb uses to look pages up."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from drumlin.store import surt
from drumlin.urls import canonical

KEYS = {
    "http://example.com/": "com,example)/",
    "https://www.example.com/A/B.html": "com,example)/a/b.html",
    "https://www2.example.co.uk:8443/a/": "uk,co,example:8443)/a",
    "http://example.com/a//b///c": "com,example)/a/b/c",
    "http://example.com/?b=2&a=1&a=0": "com,example)/?a=0&a=1&b=2",
    "http://example.com/?B": "com,example)/?b",
    "http://127.0.0.1:8080/x": "1,0,0,127:8080)/x",
    "http://example.com/%C3%89?q=%20%26": "com,example)/%c3%89?&q=%20",
    "http://example.com/a%2Fb%252e/%2e%2e/c": "com,example)/a/c",
    "http://example.com/(S(0123456789abcdefghijklmn))/page.aspx": "com,example)/page.aspx",
}


@pytest.mark.parametrize("url", KEYS)
def test_a_key_is_the_reversed_host_and_the_folded_path(url: str) -> None:
    assert surt(url) == KEYS[url]


characters = st.sampled_from([*"aBz09./?&=%;()~-_+,:@!$'*[]|\\^\"<>{}` ", "%2F", "%2e", "%25", "%3F", "%C3%A9", "ß"])
tails = st.lists(characters, max_size=12).map("".join)
hosts = st.sampled_from(
    ["example.com", "www.example.com", "www12.a.b.example", "192.0.2.1", "www.com", "x.www.y", "[2001:db8::1]"]
)
ports = st.sampled_from(["", ":8080", ":80", ":443"])
schemes = st.sampled_from(["http", "https"])


@given(schemes, hosts, ports, tails)
@example("http", "example.com", "", "?sid=0123456789abcdef0123456789abcdef&a=b")
@example("http", "example.com", "", "?cfid=1&cftoken=2&a=b")
@example("http", "example.com", "", "%2F%2e%2e/%2e/..%2F")
def test_keys_equal_those_of_the_surt_package(scheme: str, host: str, port: str, tail: str) -> None:
    reference = pytest.importorskip("surt")
    url = canonical(f"{scheme}://{host}{port}/{tail}")
    if url is not None:
        assert surt(url) == reference.surt(url)
