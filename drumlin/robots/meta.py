"""Meta robots and X-Robots-Tag: what a page says about indexing it and following its links."""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from drumlin.robots.agent import product_token

_WORDS = re.compile(r"[^\s,;]+").findall
_AGENT_PREFIX = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*|\*):(.*)", re.DOTALL).fullmatch

# In these the colon is followed by a value, so the word before it is not the name of a crawler.
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})
_EVERYBODY = frozenset({"*", "robots"})


class Directives(msgspec.Struct, frozen=True):
    """Whether a page asks not to be indexed, and not to have its links followed."""

    noindex: bool = False
    nofollow: bool = False


_UNRESTRICTED = Directives()


def directives(values: Iterable[str], agent: str) -> Directives:
    """Combine all values meant for `agent`. The stricter wins, so `all`, `index` and `follow` never undo anything.

    `values` are the contents of meta elements (named `robots` or like the crawler) and of X-Robots-Tag headers, one
    string each. In a value, everything after "name:" applies only to the crawler of that name.
    """
    words: set[str] = set()
    token = ""
    for value in values:
        token = token or product_token(agent)
        words |= _words_for(value, token)
    if not words:
        return _UNRESTRICTED
    both = "none" in words
    return Directives(noindex=both or "noindex" in words, nofollow=both or "nofollow" in words)


def _words_for(value: str, token: str) -> set[str]:
    concerned = True
    words: set[str] = set()
    for word in _WORDS(value.lower()):
        prefixed = _AGENT_PREFIX(word) if ":" in word else None
        if prefixed is not None and prefixed[1] not in _VALUED:
            concerned = prefixed[1] in _EVERYBODY or product_token(prefixed[1]) == token
            word = prefixed[2]
        if concerned:
            words.add(word)
    return words
