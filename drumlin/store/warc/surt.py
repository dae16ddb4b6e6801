"""Sort-friendly URI keys (SURT), the order of CDXJ indexes: `http://www.example.com/A?b` is `com,example)/a?b`.

The keys equal those that the `surt` package, and so pywb, computes for the same URL; a property test compares them.
Input is a canonical URL (`drumlin.urls`), which makes the common case a few string operations.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

AUTHORITIES_CACHED_MAX: Final = 4_096
KEYS_CACHED_MAX: Final = 1_024
"""The index and the `pages` table need the same key a moment apart."""

_UNESCAPED: Final = "!\"$&'()*+,-./:;<=>?@[\\]^_`{|}~"
_WWW: Final = re.compile(r"www\d*\.")
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}

# Session identifiers do not belong to a page's identity. Of each kind, the last one in the query is dropped.
_SESSION_VALUES: Final = (
    r"jsessionid=[0-9a-z]{32}",
    r"phpsessid=[0-9a-z]{32}",
    r"sid=[0-9a-z]{32}",
    r"aspsessionid[a-z]{8}=[a-z]{24}",
    r"cfid=[^&]+&cftoken=[^&]+",
)
_QUERY_SESSIONS: Final = [re.compile(rf"^(.*){value}(?:&|$)") for value in _SESSION_VALUES]
_PATH_SESSIONS: Final = (
    re.compile(r"^(.*/)\((?:[a-z]\([0-9a-z]{24}\))+\)/([^?]+\.aspx.*)$"),
    re.compile(r"^(.*/)\([0-9a-z]{24}\)/([^?]+\.aspx.*)$"),
)


@lru_cache(maxsize=KEYS_CACHED_MAX)
def surt(url: str) -> str:
    """The key of a canonical URL."""
    scheme, _, rest = url.partition("://")
    authority, _, tail = rest.partition("/")
    path, mark, query = tail.lower().partition("?")
    key = _authority_key(scheme, authority) + _path_key(path)
    if not mark:
        return key
    query = _query_key(query)
    return f"{key}?{query}" if query else key


@lru_cache(maxsize=AUTHORITIES_CACHED_MAX)
def _authority_key(scheme: str, authority: str) -> str:
    """`www.example.com:8080` becomes `com,example:8080)`; IP addresses are reversed as names are."""
    authority = authority.lower().removesuffix(_DEFAULT_PORTS.get(scheme, ""))
    host, colon, port = authority.rpartition(":")
    if not colon or authority.endswith("]"):
        host, port = authority, ""
    host = host.strip("[].")
    if www := _WWW.match(host):
        host = host[www.end() :]
    key = ",".join(reversed(host.split(".")))
    return f"{key}:{port})" if port else f"{key})"


def _path_key(path: str) -> str:
    """The key of a canonical URL's path, which is given without its leading slash."""
    if "%" in path:
        path = _escape_minimally(path, normalise=True)
    elif "//" in path or path.startswith("/"):
        path = _normalise(path)
    if "(" in path:
        for pattern in _PATH_SESSIONS:
            path = pattern.sub(r"\1\2", "/" + path)[1:]
    return "/" + path.removesuffix("/")


def _query_key(query: str) -> str:
    if "%" in query:
        query = _escape_minimally(query, normalise=False)
    if "id=" in query or "cftoken=" in query or "aspsessionid" in query:
        for pattern in _QUERY_SESSIONS:
            query = pattern.sub(r"\1", query, count=1)
    if "&" not in query:
        return query
    return "&".join("=".join(part) for part in sorted(part.split("=", 1) for part in query.split("&")))


def _escape_minimally(text: str, *, normalise: bool) -> str:
    """Undo percent-encoding until none is left, then encode only what a URL cannot hold."""
    raw = text.encode()
    while (plain := unquote_to_bytes(raw)) != raw:
        raw = plain
    if normalise:
        raw = _normalise(raw.decode("latin-1")).encode("latin-1")
    return quote_from_bytes(raw, safe=_UNESCAPED).lower()


def _normalise(path: str) -> str:
    """Resolve dot segments that were hidden by percent-encoding and fold repeated slashes."""
    kept: list[str] = []
    for segment in path.split("/"):
        if segment == "." or (segment == ".." and kept):
            if segment == "..":
                kept.pop()
            continue
        kept.append(segment)
    return "/".join([segment for segment in kept[:-1] if segment] + kept[-1:])
