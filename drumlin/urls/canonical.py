"""The canonical form of a URL, which is requested, stored and shown, and its identity, which all spellings of a page
share.

The canonical form is what a browser would request: ada-url parses (it passes the whole WHATWG suite), and no parameter
is sorted or dropped, since a server may care about their order. Politeness is kept for each host name, so a machine
must not have two names by spelling alone: the dot at the end of a name is dropped, and an IPv4 address inside an IPv6
address is written as the IPv4 address. Parsing would not change most links: `PLAIN_ABSOLUTE` recognises those, and they
skip the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address

from ada_url import join_url, normalize_url

from drumlin.urls.rules import is_dropped, without_session

# A longer URL has no canonical form: RFC 9110 recommends to support 8,000, servers refuse more, and traps make longer
# ones.
URL_LENGTH_MAX = 8_000  # characters

# A longer href is not even parsed. It may be longer than a URL, since its fragment is dropped later.
HREF_LENGTH_MAX = 16_000  # characters

# Characters that the parser leaves as they are anywhere in a path or a query, except in the cases that `is_plain` looks
# for. A ";" in a path may begin a session parameter, so such a path goes through the parser.
PLAIN_PATH = r"[A-Za-z0-9_.~/,+=:@()!*'$&%-]*"
PLAIN_QUERY = r"[A-Za-z0-9_.~/,+=:@()!*$&%;?-]*"
PLAIN_TAIL = rf"(?:\?({PLAIN_QUERY}))?(?:\#.*)?"

_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_PLAIN_ADDRESS = rf"{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}"
# The parser has to check Punycode, and a name that ends in a digit (it may be an address).
_PLAIN_NAME = r"(?!xn--)[a-z0-9][a-z0-9-]{0,62}(?:\.(?!xn--)[a-z0-9][a-z0-9-]{0,62})*\.[a-z]{2,63}|localhost"
_PLAIN_PORT = "(?::(?!80[/?#]|443[/?#]|80$|443$)(?:[1-5][0-9]{4}|[1-9][0-9]{0,3}))?"

# Groups: scheme and authority, path, query.
PLAIN_ABSOLUTE = re.compile(
    rf"(https?://(?:{_PLAIN_NAME}|{_PLAIN_ADDRESS}){_PLAIN_PORT})(/{PLAIN_PATH}|){PLAIN_TAIL}", re.DOTALL
).fullmatch

# A scheme that is neither http nor https: no base can make a web address of such an href.
_OTHER_SCHEME = re.compile("(?!https?:)[a-z][a-z0-9+.-]*:", re.IGNORECASE | re.ASCII).match

# Escapes are written in upper case (a run of them at once), and those of letters, digits and "-._~" are decoded.
_ESCAPES = re.compile("(?:%[0-9A-Fa-f]{2})+")
_LOWER_CASE_ESCAPE = re.compile("%(?:[0-9A-Fa-f][a-f]|[a-f][0-9A-F])")
_NEEDLESS_ESCAPE = re.compile("%(?:2[DE]|3[0-9]|4[1-9A-F]|5[0-9AF]|6[1-9A-F]|7[0-9AE])")

# The authority as the parser writes it, if it is an address or a name that DNS could hold. Groups: name (without the
# dot at its end), port. Credentials are in neither.
_AUTHORITY = re.compile(
    r"(?:.*@)?((?:[a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}(?=\.?(?::|\Z))|\[[0-9a-f:.]+\])\.?((?::[0-9]+)?)"
).fullmatch
# An IPv4 address inside an IPv6 one, as the parser writes it. It is the same machine, so it must be the same host.
_MAPPED = re.compile(r"\[::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})\]").fullmatch
_NAME_LENGTH_MAX = 253  # characters: the longest name that DNS can carry

_SURROGATE = re.compile("[\ud800-\udfff]")


def canonical(href: str, base: str | None = None) -> str | None:
    """The canonical http(s) URL that `href` on a page at `base` means, or None if it is not a usable web address.

    A base that is not a URL is ignored. Applying this to its own result changes nothing.
    """
    if len(href) > HREF_LENGTH_MAX:
        return None
    plain = PLAIN_ABSOLUTE(href)
    if plain is not None:
        origin, path, query = plain.groups()
        if len(origin) <= _NAME_LENGTH_MAX and is_plain(path):
            return joined(origin, path or "/", query)
    elif _OTHER_SCHEME(href) is not None:
        return None
    parsed = _parse(href, base)
    return None if parsed is None else _usable(parsed)


def is_too_long(href: str, base: str) -> bool:
    """Whether an href that has no canonical form would have one if it were shorter."""
    if len(href) > HREF_LENGTH_MAX:
        return _OTHER_SCHEME(href) is None
    parsed = _parse(href, base) or ""
    return parsed.startswith(("http:", "https:")) and len(parsed.partition("#")[0]) > URL_LENGTH_MAX


def is_plain(path: str) -> bool:
    """Whether a path of plain characters has no dot segment, which may be escaped in part ("/%2e./")."""
    return "/." not in path and ("%" not in path or "%2e" not in path.lower())


def joined(origin: str, path: str, query: str | None) -> str | None:
    """The URL made of these parts, or None if it is too long."""
    url = origin + path if query is None else f"{origin}{path}?{query}"
    return url if len(url) <= URL_LENGTH_MAX else None


def _parse(href: str, base: str | None) -> str | None:
    if base is not None:
        try:
            return join_url(_scalar(base), _scalar(href))
        except ValueError:
            pass
    try:
        return normalize_url(_scalar(href))
    except ValueError:
        return None


def _scalar(text: str) -> str:
    """The text without lone surrogates, which cannot be encoded; the standard replaces them by U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


def _usable(parsed: str) -> str | None:
    """A parsed URL without fragment and credentials, or None if DNS could not know its host."""
    scheme, _, rest = parsed.partition("#")[0].partition("://")
    if scheme not in ("http", "https"):
        return None
    place, question, query = rest.partition("?")
    authority, _, path = place.partition("/")
    host = _AUTHORITY(authority)
    if host is None or len(host[1]) > _NAME_LENGTH_MAX:
        return None
    return joined(f"{scheme}://{_unmapped(host[1])}{host[2]}", "/" + path, query if question else None)


def _unmapped(name: str) -> str:
    mapped = _MAPPED(name)
    return name if mapped is None else str(IPv4Address(int(mapped[1], 16) << 16 | int(mapped[2], 16)))


def identity(url: str) -> str:
    """What all spellings of a page's URL have in common; the frontier knows the page by it.

    Escapes are written in one way, parameters that say nothing about the page are dropped, and the others are sorted by
    name. Those with the same name keep their order, which may mean something. Applying this to its own result changes
    nothing. Tables may hold what a stranger wrote, so a text that is no URL has an identity too.
    """
    if "?" not in url and "%" not in url and ";" not in url:
        return url
    place, _, query = url.partition("?")
    if "%" in place:
        place = _tidy_escapes(place)
    if ";" in place:
        place = _without_session(place)
    if query:
        query = _tidy_query(_tidy_escapes(query) if "%" in query else query)
    return f"{place}?{query}" if query else place


def without_dropped(url: str) -> str:
    """A canonical URL without the parameters that its identity drops, and otherwise spelled as it is."""
    if "?" not in url and ";" not in url:
        return url
    place, _, query = url.partition("?")
    if ";" in place:
        place = _without_session(place)
    kept = [parameter for parameter in query.split("&") if not is_dropped(parameter)]
    return place if not query or not kept else f"{place}?{'&'.join(kept)}"


def _without_session(place: str) -> str:
    """A URL without its query and without sessions in its path; what has no path stays as it is."""
    root = place.find("/", len("https://"))
    return place if root < 0 else place[:root] + without_session(place[root:])


def identities(urls: Iterable[str]) -> list[str]:
    """The identity of each URL. Most have only one spelling, which a quick look shows."""
    return [url if "?" not in url and "%" not in url and ";" not in url else identity(url) for url in urls]


def _tidy_query(query: str) -> str:
    if "&" not in query:
        return "" if is_dropped(query) else query
    kept = [parameter for parameter in query.split("&") if parameter and not is_dropped(parameter)]
    kept.sort(key=_name_of)
    return "&".join(kept)


def _name_of(parameter: str) -> str:
    return parameter.partition("=")[0]


def _tidy_escapes(text: str) -> str:
    if _LOWER_CASE_ESCAPE.search(text) is not None:
        text = _ESCAPES.sub(_upper_case, text)
    return _NEEDLESS_ESCAPE.sub(_decoded, text)


def _upper_case(escapes: re.Match[str]) -> str:
    return escapes[0].upper()


def _decoded(escape: re.Match[str]) -> str:
    start = escape.start()
    # Directly after a stray "%" or "%4" the decoded character could complete a new escape.
    stray = "%" in escape.string[max(0, start - 2) : start]
    return escape[0] if stray else chr(int(escape[0][1:], 16))
