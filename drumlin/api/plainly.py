"""Says in plain words what is wrong with a message, where msgspec would show a regular expression."""

from __future__ import annotations

import msgspec

from drumlin.api.intake.forms import BASE64_PATTERN, HASH_PATTERN, WEB_URL_PATTERN
from drumlin.protocol import NODE_ID_PATTERN

_MEANINGS = {
    WEB_URL_PATTERN: "a web address such as https://example.com/page, in ASCII and without credentials",
    HASH_PATTERN: "a SHA-256 in hexadecimal or base64",
    BASE64_PATTERN: "base64",
    NODE_ID_PATTERN: "a name of up to 64 letters, digits, dots, hyphens and underscores",
}


def plainly(wrong: msgspec.ValidationError) -> str:
    """The sentence of `wrong` without its full stop."""
    said = str(wrong)
    for pattern, meaning in _MEANINGS.items():
        said = said.replace(f"`str` matching regex {pattern!r}", meaning)
    return said
