"""What a correct crawler makes of a fake web."""

from __future__ import annotations

from dataclasses import dataclass, field

# The bundled web holds answers that never end and hosts that never recover. With these settings of `drumlin crawl` a
# crawl of it gives up on them in seconds, as it would with the defaults in minutes.
DEMO_OPTIONS: dict[str, str] = {
    # One host's robots.txt never comes; nobody wants to wait for it.
    "host-patience": "0s",
    "delay": "0.05",
    "retries-max": "2",
    "backoff-base": "0.1",
    "backoff-max": "2",
    "speed-window": "2",
    "fetch-timeout": "8",
}


@dataclass
class Expected:
    """Canonical URLs by what should become of them. What is in no set is left to the crawler."""

    fetched: set[str] = field(default_factory=set)
    """Answered in the end with a page, a redirect or a plain "not found"."""
    never: set[str] = field(default_factory=set)
    """Not to be requested: denied, not to be followed, or beyond where a trap should be recognised."""
    dead: dict[str, set[str]] = field(default_factory=dict)
    """Given up, by `drumlin.model.FailureKind`."""
