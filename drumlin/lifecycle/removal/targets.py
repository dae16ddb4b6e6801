"""What is to be removed: URLs, hosts, registrable domains; and which URLs, hosts and texts that concerns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from drumlin.errors import ConfigError
from drumlin.urls import canonical, domain_of, host_of, host_or_nothing, identity, is_host, meant

# A name ends where no further letter of it can follow. A dot at the end of a sentence is none of it, and another port
# makes another host.
_NAME_BEGINS: Final = rb"(?<![0-9A-Za-z_.-])"
_PART_BEGINS: Final = rb"(?<![0-9A-Za-z_-])"
_NAME_ENDS: Final = rb"(?![0-9A-Za-z_-]|\.[0-9A-Za-z_])"
_HOST_ENDS: Final = _NAME_ENDS + rb"(?!:[0-9])"
_URL_ENDS: Final = rb"(?![0-9A-Za-z/?#&=%_~+;:@!$*',-]|\.[0-9A-Za-z_])"

LITERALS_MAX: Final = 64
"""Of so many names each is looked for by itself, before all of them are looked for as whole names."""


class What(StrEnum):
    """The kinds of things that can be removed."""

    URL = "url"
    HOST = "host"
    DOMAIN = "domain"


class Target(msgspec.Struct, frozen=True):
    """One thing to remove, by its canonical name; a URL by what all of its spellings have in common."""

    what: What
    name: str

    @property
    def identity(self) -> str:
        return identity(self.name) if self.what is What.URL else self.name

    @property
    def pattern(self) -> bytes:
        """Finds the name in a text."""
        name = re.escape(self.name.encode())
        if self.what is What.URL:
            return b"(?:" + name + b"|" + re.escape(self.identity.encode()) + b")" + _URL_ENDS
        if self.what is What.HOST:
            return _NAME_BEGINS + name + (_NAME_ENDS if ":" in self.name else _HOST_ENDS)
        return _PART_BEGINS + name + _NAME_ENDS


def parse_target(what: What, text: str) -> Target:
    """What a person names; ConfigError if it cannot be one."""
    if what is What.URL:
        url = canonical(text)
        if url is None or not host_or_nothing(url):
            raise ConfigError(f"{text!r} is not a web address.", "One looks like https://example.org/a.")
        return Target(what, url)
    name = text.strip().rstrip(".").lower()
    shown = canonical(f"http://{name}/") if "/" not in name and "@" not in name else None
    name = host_of(shown) if shown else name
    if not is_host(name):
        raise ConfigError(f"{text!r} is not the name of a host.", "One looks like example.org, or example.org:8080.")
    if what is What.DOMAIN and domain_of(name) != name:
        hint = f"Its domain is {domain_of(name)}. Use --host to remove one host of a domain."
        raise ConfigError(f"{text} is not a registrable domain.", hint)
    is_address = name[-1].isdigit() or name.endswith("]")
    if what is What.DOMAIN and not is_address and domain_of(f"www.{name}") != name:
        hint = "Name a domain below it, such as example.org, or one host with --host."
        raise ConfigError(f"{text} is a suffix under which domains are registered, not a domain.", hint)
    return Target(what, name)


class Targets:
    """Everything that one command removes."""

    def __init__(self, targets: Sequence[Target]) -> None:
        self.each = list(dict.fromkeys(targets))
        self.hosts = frozenset(one.name for one in self.each if one.what is What.HOST)
        self.domains = frozenset(one.name for one in self.each if one.what is What.DOMAIN)
        self.urls = [one.name for one in self.each if one.what is What.URL]
        self._pages = frozenset(identity(url) for url in self.urls)
        self._page_hosts = frozenset(host_of(url) for url in self.urls)

    @cached_property
    def pattern(self) -> re.Pattern[bytes]:
        return re.compile(b"|".join(b"(?:" + one.pattern + b")" for one in self.each))

    @cached_property
    def literals(self) -> list[str]:
        """Every text that `names` finds contains one of these."""
        return list(dict.fromkeys(name for one in self.each for name in (one.name, one.identity)))

    @cached_property
    def _letters(self) -> list[bytes]:
        few = len(self.literals) <= LITERALS_MAX
        return [one.encode() for one in self.literals] if few else [b""]

    def covers_host(self, host: str) -> bool:
        """Whether a host is removed with all its URLs."""
        return host in self.hosts or (bool(self.domains) and domain_of(host) in self.domains)

    def covers(self, url: str | None) -> bool:
        """Whether a URL is removed; False for what is no URL. Nodes of strangers may write one as we never do."""
        url = meant(url) if url else ""
        host = host_or_nothing(url)
        if not host:
            return False
        return self.covers_host(host) or (host in self._page_hosts and identity(url) in self._pages)

    def names(self, text: bytes | str) -> bool:
        """Whether a text names something that is removed. Few texts have the letters of a name at all, and whether they
        have is found out much faster."""
        content = text if isinstance(text, bytes) else text.encode("utf-8", "replace")
        return any(letters in content for letters in self._letters) and self.pattern.search(content) is not None

    def urls_of(self) -> dict[str, list[str]]:
        """The single URLs to remove, by their hosts."""
        found: dict[str, list[str]] = {}
        for url in self.urls:
            if not self.covers_host(host_of(url)):
                found.setdefault(host_of(url), []).append(url)
        return found

    def without(self, urls: Iterable[str]) -> list[str]:
        return [url for url in urls if not self.covers(url)]
