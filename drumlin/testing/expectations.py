"""What a correct crawler does with the URLs of a fake web."""

from __future__ import annotations

from dataclasses import dataclass, field

# The bundled web has answers that never end and hosts that never recover. With these settings `drumlin crawl` gives up
# on them within seconds; with the defaults it would take minutes.
DEMO_OPTIONS: dict[str, str] = {
    # The robots.txt of one host always fails; do not wait for it.
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
    """Canonical URLs by what should happen to them. For URLs in none of these sets, any behaviour is correct."""

    fetched: set[str] = field(default_factory=set)
    """These are fetched in the end: a page, a redirect or a plain "not found"."""
    never: set[str] = field(default_factory=set)
    """These are never requested: robots.txt denies them, a page asks not to follow them, or they are deep in a trap."""
    dead: dict[str, set[str]] = field(default_factory=dict)
    """These are given up, by `drumlin.model.FailureKind`."""
