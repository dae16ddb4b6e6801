"""Cookies, as far as a crawler needs them: sites set one on a redirect and want it back before they show a page.

A cookie stays with the host that set it, and lives in memory only. Bounds keep what strangers set small.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

COOKIES_MAX: Final = 20
"""Cookies in a jar; the oldest go first."""
COOKIE_CHARS_MAX: Final = 4096
HEADER_CHARS_MAX: Final = 8192

_WHITE: Final = " \t"
_UNUSABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class Cookie(NamedTuple):
    """What a Set-Cookie header asks to be sent back, and where to. `gone` means that it is to be forgotten."""

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
        """Remember what the answer from `url` asks for."""
        for said in set_cookies:
            cookie = read_cookie(said, url, now)
            if cookie is None:
                continue
            self._cookies.pop((cookie.name, cookie.path), None)
            if not cookie.gone:
                self._cookies[cookie.name, cookie.path] = cookie
        while len(self._cookies) > COOKIES_MAX:
            del self._cookies[next(iter(self._cookies))]

    def add(self, other: Jar) -> None:
        self._cookies |= other._cookies

    def header(self, url: str) -> str:
        """The Cookie header of a request for `url`; empty when there is nothing to send."""
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
    """The cookie of one Set-Cookie header (RFC 6265, 5.2), None when it cannot be one of this URL's host."""
    pair, *attributes = said.split(";")
    name, _, value = pair.partition("=") if "=" in pair else ("", "", pair)
    name, value = name.strip(_WHITE), value.strip(_WHITE)
    if not (name or value) or len(name) + len(value) > COOKIE_CHARS_MAX or _UNUSABLE.search(pair):
        return None
    asked: dict[str, str] = {}
    for attribute in attributes:
        key, _, text = attribute.partition("=")
        asked[key.strip(_WHITE).lower()] = text.strip(_WHITE)
    domain = asked.get("domain", "").lower().lstrip(".")
    host = url.partition("://")[2].partition("/")[0].partition(":")[0]
    if domain and host != domain and not host.endswith(f".{domain}"):
        return None
    path = asked.get("path", "")
    path = path if path.startswith("/") else _path_of(url).rpartition("/")[0] or "/"
    return Cookie(name, value, path, "secure" in asked, _is_gone(asked, now))


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
