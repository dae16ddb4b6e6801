"""The host of a URL, URLs by their hosts, and the registrable domain of a host."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import cache

from publicsuffixlist import PublicSuffixList

from drumlin.urls.canonical import canonical

# How many hosts' domains are remembered (about 10 MB); all are forgotten when there are more.
DOMAINS_CACHED_MAX = 65_536

_domains: dict[str, str] = {}


def host_of(url: str) -> str:
    """The authority of a canonical URL: "example.com", "127.0.0.1:8080", "[::1]"."""
    return url.split("/", 3)[2]


def host_or_nothing(url: str) -> str:
    """The host of a string that may not be a URL; empty when it is not a web address with a path."""
    start = 8 if url.startswith("https://") else 7 if url.startswith("http://") else 0
    end = url.find("/", start) if start else -1
    return url[start:end] if end > 0 else ""


def by_host(urls: Iterable[str]) -> dict[str, list[str]]:
    """The web addresses among URLs, by their host."""
    hosts: dict[str, list[str]] = defaultdict(list)
    for url in urls:
        if host := host_or_nothing(url):
            hosts[host].append(url)
    return hosts


def is_host(text: str) -> bool:
    """Whether this is the authority of some canonical URL."""
    return "/" not in text and any(canonical(url) == url for url in (f"http://{text}/", f"https://{text}/"))


def name_of(host: str) -> str:
    """The name or address of a host, without its port."""
    if host.startswith("["):
        # A stranger may have left the bracket open.
        address, bracket, _ = host.partition("]")
        return address + bracket
    return host.partition(":")[0]


def domain_of(host: str) -> str:
    """The registrable domain of a host; an address, a single label or a public suffix stands for itself."""
    domain = _domains.get(host)
    if domain is None:
        if len(_domains) >= DOMAINS_CACHED_MAX:
            _domains.clear()
        domain = _domains[host] = _find_domain(host)
    return domain


def _find_domain(host: str) -> str:
    name = name_of(host)
    # A canonical name never ends in a number unless it is an IPv4 address.
    if name.startswith("[") or name.rpartition(".")[2].isdigit():
        return name
    return _suffixes().privatesuffix(name) or name


@cache
def _suffixes() -> PublicSuffixList:
    """The list is large, so it is loaded when it is first needed and not at import."""
    return PublicSuffixList()
