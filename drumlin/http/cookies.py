"""Cookies, as far as a crawler needs them: some sites set one with a redirect and show a page only if it is sent back.

A cookie is sent only to the host that set it, and is kept in memory only. How many and how long they may be is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

COOKIES_MAX: Final = 20
"""How many cookies a jar holds; the oldest are dropped first."""
COOKIE_CHARS_MAX: Final = 4096
HEADER_CHARS_MAX: Final = 8192
PATH_CHARS_MAX: Final = 1024
"""A longer path is ignored, as in browsers."""
JAR_CHARS_MAX: Final = 2 * HEADER_CHARS_MAX

_WHITE: Final = " \t"
_PORT: Final = re.compile(":[0-9]*$")
_SECURE_PREFIX: Final = "__secure-"
_HOST_PREFIX: Final = "__host-"
_UNUSABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Cookie(NamedTuple):
    """What a Set-Cookie header asks for: a pair to send back, and to which paths. `gone` asks to forget the cookie."""

    name: str
    value: str
    path: str
    secure: bool
    gone: bool


class Jar:
    """The cookies of one host."""

    def __init__(self) -> None:
        self._cookies: dict[tuple[str, str], Cookie] = {}

    def take(self, set_cookies: Iterable[str], url: str, now: float) -> None:
        """Take over the cookies that the answer from `url` sets, and forget those that it takes back."""
        for said in set_cookies:
            cookie = read_cookie(said, url, now)
            if cookie is None:
                continue
            self._cookies.pop((cookie.name, cookie.path), None)
            if not cookie.gone:
                self._cookies[cookie.name, cookie.path] = cookie
        while len(self._cookies) > COOKIES_MAX or self.chars > JAR_CHARS_MAX:
            del self._cookies[next(iter(self._cookies))]

    @property
    def chars(self) -> int:
        return sum(len(one.name) + len(one.value) + len(one.path) for one in self._cookies.values())

    def add(self, other: Jar) -> None:
        self._cookies |= other._cookies

    def header(self, url: str) -> str:
        """The Cookie header of a request for `url`; empty if there is nothing to send."""
        path, secure = _path_of(url), url.startswith("https:")
        fit = [cookie for cookie in self._cookies.values() if _matches(cookie.path, path) and secure >= cookie.secure]
        fit.sort(key=lambda cookie: len(cookie.path), reverse=True)
        text = ""
        for cookie in fit:
            pair = f"{cookie.name}={cookie.value}" if cookie.name else cookie.value
            if len(text) + len(pair) < HEADER_CHARS_MAX:
                text = f"{text}; {pair}" if text else pair
        return text


def read_cookie(said: str, url: str, now: float) -> Cookie | None:
    """The cookie of one Set-Cookie header (RFC 6265bis, 5.6); None if the host of this URL may not set it."""
    pair, *attributes = said.split(";")
    name, _, value = pair.partition("=") if "=" in pair else ("", "", pair)
    name, value = name.strip(_WHITE), value.strip(_WHITE)
    if not (name or value) or len(name) + len(value) > COOKIE_CHARS_MAX or _UNUSABLE.search(pair):
        return None
    asked: dict[str, str] = {}
    for attribute in attributes:
        key, _, text = attribute.partition("=")
        asked[key.strip(_WHITE).lower()] = text.strip(_WHITE)
    if not _is_of_host(asked.get("domain", ""), url) or not _keeps_promise(name or value, asked, url):
        return None
    path = asked.get("path", "")
    if not path.startswith("/") or len(path) > PATH_CHARS_MAX:
        path = _path_of(url).rpartition("/")[0] or "/"
    return Cookie(name, value, path, "secure" in asked, _is_gone(asked, now))


def _is_of_host(domain: str, url: str) -> bool:
    """Whether the URL's host may set a cookie for this domain: the domain is the host, or one that the host is in."""
    domain = domain.lower().lstrip(".")
    host = _PORT.sub("", url.partition("://")[2].partition("/")[0])
    # The end of an IP address is not a domain that the address is in.
    is_address = host.endswith("]") or host.rpartition(".")[2].isdigit()
    return not domain or host == domain or (not is_address and host.endswith(f".{domain}"))


def _keeps_promise(name: str, asked: dict[str, str], url: str) -> bool:
    """Whether a cookie marked as secure came over HTTPS, and a name with a prefix (`__Host-`, `__Secure-`) is set as
    that prefix demands."""
    name = name.lower()
    secure = "secure" in asked
    if secure and not url.startswith("https:"):
        return False
    if name.startswith(_HOST_PREFIX):
        return secure and asked.get("path") == "/" and not asked.get("domain")
    return secure or not name.startswith(_SECURE_PREFIX)


def _is_gone(asked: dict[str, str], now: float) -> bool:
    age = asked.get("max-age", "")
    if re.fullmatch("-?[0-9]{1,15}", age):
        return int(age) <= 0
    try:
        return "expires" in asked and parsedate_to_datetime(asked["expires"]).timestamp() <= now
    except (TypeError, ValueError, OverflowError):
        return False


def _path_of(url: str) -> str:
    return url[url.index("/", len("https://")) :].partition("?")[0]


def _matches(cookie_path: str, path: str) -> bool:
    below = path.startswith(cookie_path) and (cookie_path.endswith("/") or path[len(cookie_path) :][:1] == "/")
    return path == cookie_path or below
