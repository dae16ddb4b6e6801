"""The host of a URL, and the registrable domain of a host."""

from __future__ import annotations

from functools import cache

from publicsuffixlist import PublicSuffixList

from drumlin.urls.canonical import canonical

# How many hosts' domains are remembered; all are forgotten when it is full. About 10 MB.
DOMAINS_CACHED_MAX = 65_536

_domains: dict[str, str] = {}


def host_of(url: str) -> str:
    """The authority of a canonical URL: "example.com", "127.0.0.1:8080", "[::1]"."""
    return url.split("/", 3)[2]


def is_host(text: str) -> bool:
    """Whether this is the authority of some canonical URL."""
    return "/" not in text and any(canonical(url) == url for url in (f"http://{text}/", f"https://{text}/"))


def domain_of(host: str) -> str:
    """The registrable domain of a host; an address, a single label or a public suffix stands for itself."""
    domain = _domains.get(host)
    if domain is None:
        if len(_domains) >= DOMAINS_CACHED_MAX:
            _domains.clear()
        domain = _domains[host] = _find_domain(host)
    return domain


def _find_domain(host: str) -> str:
    if host.startswith("["):
        return host[: host.index("]") + 1]
    name = host.partition(":")[0]
    # A canonical name never ends in a number unless it is an IPv4 address.
    if name.rpartition(".")[2].isdigit():
        return name
    return _suffixes().privatesuffix(name) or name


@cache
def _suffixes() -> PublicSuffixList:
    """The list is large: it is read at first need, not at import."""
    return PublicSuffixList()
