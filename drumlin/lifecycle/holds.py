"""Legal holds: what must be kept, whatever a policy says, until the hold is lifted.

A hold is on the whole crawl, on a host, or on a registrable domain with all its hosts. It covers every file that has
something of such a host, because files are deleted as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from drumlin.errors import ConfigError
from drumlin.lines import one_line
from drumlin.urls import is_host, name_of

NAME_CHARS_MAX: Final = 100
REASON_CHARS_MAX: Final = 1_000
HOLDS_MAX: Final = 10_000
USUAL_PORTS: Final = (":80", ":443")
"""URLs leave out the one that is usual for their scheme."""


class Hold(msgspec.Struct, frozen=True, omit_defaults=True):
    """A hold: its name, why, who ordered it and when. Without host and domain it is on the whole crawl."""

    name: str
    reason: str
    by: str
    at: float
    host: str = ""
    domain: str = ""

    @property
    def what(self) -> str:
        """What it covers, in words."""
        if self.host:
            return f"the host {self.host}"
        return f"the domain {self.domain}" if self.domain else "the whole crawl"

    def covers(self, host: str) -> bool:
        """Whether it is about this host. One without a port covers all ports of that name."""
        if self.host:
            return host == self.host or name_of(host) == self.host
        return not self.domain or f".{name_of(host)}".endswith(f".{self.domain}")


class Holds:
    """The holds that are in force."""

    def __init__(self, holds: Iterable[Hold]) -> None:
        self.all: Sequence[Hold] = tuple(holds)

    def covering(self, host: str) -> Hold | None:
        """The first hold that covers this host, if there is one."""
        return next((hold for hold in self.all if hold.covers(host)), None)

    @property
    def of_all(self) -> Hold | None:
        """A hold on the whole crawl, if there is one."""
        return next((hold for hold in self.all if not hold.host and not hold.domain), None)

    def covering_any(self, hosts: Iterable[str]) -> Hold | None:
        """The first hold that covers one of these hosts."""
        return next((hold for host in hosts if (hold := self.covering(host)) is not None), None)


def make_hold(name: str, reason: str, by: str, at: float, *, host: str = "", domain: str = "") -> Hold:
    """A hold as a person orders it; ConfigError if it makes no sense."""
    if host and domain:
        raise ConfigError("A hold is on a host or on a domain, not on both.", "Make two holds.")
    host, domain = host.strip().lower(), domain.strip().lower().rstrip(".")
    for text in (host, domain):
        if text and not is_host(text):
            raise ConfigError(f"{text!r} is no host.", "Write it as in a URL: example.org, or example.org:8080.")
    if name_of(domain) != domain or host.endswith(USUAL_PORTS):
        # No stored name has such a port, so the hold would cover nothing.
        raise ConfigError(f"{domain or host} has a port that it cannot have.", "Leave it out: that covers all ports.")
    if not name.strip() or len(name) > NAME_CHARS_MAX or one_line(name) != name:
        raise ConfigError(f"A hold has a name of at most {NAME_CHARS_MAX} printable characters.")
    if not reason.strip() or len(reason) > REASON_CHARS_MAX:
        raise ConfigError(f"A hold has a reason of at most {REASON_CHARS_MAX} characters.", "Give --reason.")
    return Hold(name, one_line(reason), by, at, host, domain)
