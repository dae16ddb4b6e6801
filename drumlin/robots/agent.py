"""The product token: the one name under which a crawler looks for its group in robots.txt."""

from __future__ import annotations

import re

ANY_AGENT = "*"

# In RFC 9309 a product token consists of letters, `_` and `-`, but real names have digits too (MJ12bot, 360Spider).
_RFC_TOKEN = re.compile(r"[A-Za-z_-]+")
_TOKEN = re.compile(r"[A-Za-z0-9_-]+")
_COMPATIBLE = re.compile(r"Mozilla/[0-9.]+ \(compatible; *([A-Za-z0-9_-]+)", re.IGNORECASE | re.ASCII)


def product_token(user_agent: str) -> str:
    """The lower-case token of a crawler's name or whole User-Agent header: "Foo/1.0 (+http://…)" gives "foo"."""
    named = _COMPATIBLE.match(user_agent)
    if named is not None:
        return named.group(1).lower()
    found = _TOKEN.match(user_agent.strip())
    return found.group().lower() if found is not None else ""


def group_tokens(value: str) -> tuple[str, ...]:
    """The lower-case names of the crawlers that a `User-agent:` line is for; "*" is for all others.

    A name with digits counts as a whole, and also cut at its first digit, as RFC 9309 reads it. So MJ12bot finds its
    own group, and a crawler called MJ is bound by that group too.
    """
    value = value.strip()
    if value[:1] == ANY_AGENT and (len(value) == 1 or value[1].isspace()):
        return (ANY_AGENT,)
    found = (pattern.match(value) for pattern in (_TOKEN, _RFC_TOKEN))
    return tuple(dict.fromkeys(match.group().lower() for match in found if match is not None))
