"""Finds what a stylesheet refers to: other stylesheets, images and fonts.

It uses a regular expression, in linear time. CSS escapes within an address are not decoded.
"""

from __future__ import annotations

import re

STYLE_BYTES_MAX = 4 * 1024 * 1024
STYLE_URLS_MAX = 10_000

# The lengths are bounded, so many quotes that never end cannot make the search quadratic.
_REFERENCE = re.compile(
    r"""(?:@import\s{1,16}(?=["'])|\burl\(\s{0,16})(?:"([^"\n]{1,2048})"|'([^'\n]{1,2048})'|([^\s"'()]{1,2048})\s{0,16}\))""",
    re.IGNORECASE | re.ASCII,
)


def style_hrefs(body: bytes) -> list[str]:
    """The hrefs of @import rules and url() values, in order, each once. `data:` URLs and fragments are left out."""
    text = _without_comments(body[:STYLE_BYTES_MAX].decode("utf-8", "replace"))
    found: dict[str, None] = {}
    for match in _REFERENCE.finditer(text):
        href = (match[1] or match[2] or match[3]).strip()
        if href and not href.startswith(("data:", "#")):
            found[href] = None
            if len(found) >= STYLE_URLS_MAX:
                break
    return list(found)


def _without_comments(text: str) -> str:
    first, *others = text.split("/*")
    return first + "".join(part.partition("*/")[2] for part in others)
