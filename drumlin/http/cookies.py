"""Cookies, as far as a crawler needs them: some sites set one with a redirect and show a page only if it is sent back.

A cookie is sent only to the host that set it, and is kept in memory only. How many and how long they may be is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, NamedTuple

COOKIES_MAX: Final = 20
"""How many cookies a jar holds. Those that are gone are dropped first, then the oldest."""
COOKIE_CHARS_MAX: Final = 4096
HEADER_CHARS_MAX: Final = 8192
PATH_CHARS_MAX: Final = 1024
"""A longer path is ignored, as in browsers."""
JAR_CHARS_MAX: Final = 2 * HEADER_CHARS_MAX
YEAR_MIN: Final = 1601
"""A date before this year is not a date (RFC 6265, 5.1.1)."""

_WHITE: Final = " \t"
_PORT: Final = re.compile(":[0-9]*$")
_SECURE_PREFIX: Final = "__secure-"
_HOST_PREFIX: Final = "__host-"
_UNUSABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_AGE: Final = re.compile("-?[0-9]+")
_DATE_TOKEN: Final = re.compile(r"[^\t -/;-@\[-`{-~]+")
_TIME: Final = re.compile("([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?![0-9])")
_DAY: Final = re.compile("[0-9]{1,2}(?![0-9])")
_YEAR: Final = re.compile("[0-9]{2,4}(?![0-9])")
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class Cookie(NamedTuple):
    """What a Set-Cookie header asks for: a pair to send back, and to which paths. `gone` asks to forget the cookie. A
    jar keeps such a request, because the cookie may be in the jar of an earlier answer of the chain."""

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
            if cookie is not None:
                self._cookies[cookie.name, cookie.path] = cookie
        while len(self._cookies) > COOKIES_MAX or self.chars > JAR_CHARS_MAX:
            gone = (key for key, cookie in self._cookies.items() if cookie.gone)
            del self._cookies[next(gone, next(iter(self._cookies)))]

    @property
    def chars(self) -> int:
        return sum(len(one.name) + len(one.value) + len(one.path) for one in self._cookies.values())

    def add(self, other: Jar) -> None:
        """Take over what a later answer set and took back."""
        self._cookies |= other._cookies

    def header(self, url: str) -> str:
        """The Cookie header of a request for `url`; empty if there is nothing to send."""
        path, secure = _path_of(url), url.startswith("https:")
        kept = (cookie for cookie in self._cookies.values() if not cookie.gone)
        fit = [cookie for cookie in kept if _matches(cookie.path, path) and secure >= cookie.secure]
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
    if _AGE.fullmatch(age):
        return age.startswith("-") or not age.strip("0")
    expires = _moment(asked.get("expires", ""))
    return expires is not None and expires <= now


def _moment(date: str) -> float | None:
    """The time that a date of a cookie means (RFC 6265, 5.1.1): its parts may come in any order and need no zone. None
    if it means none."""
    clock: re.Match[str] | None = None
    day = month = year = ""
    for token in _DATE_TOKEN.findall(date):
        if clock is None and (found := _TIME.match(token)):
            clock = found
        elif not day and (found := _DAY.match(token)):
            day = found[0]
        elif not month and token[:3].lower() in _MONTHS:
            month = token[:3].lower()
        elif not year and (found := _YEAR.match(token)):
            year = found[0]
    if clock is None or not (day and month and year):
        return None
    in_full = int(year) + (1900 if 70 <= int(year) <= 99 else 2000 if int(year) <= 69 else 0)
    hour, minute, second = map(int, clock.groups())
    if in_full < YEAR_MIN:
        return None
    try:
        when = datetime(in_full, _MONTHS.index(month) + 1, int(day), hour, minute, second, tzinfo=UTC)
    except ValueError:
        return None
    return when.timestamp()


def _path_of(url: str) -> str:
    return url[url.index("/", len("https://")) :].partition("?")[0]


def _matches(cookie_path: str, path: str) -> bool:
    below = path.startswith(cookie_path) and (cookie_path.endswith("/") or path[len(cookie_path) :][:1] == "/")
    return path == cookie_path or below
