"""Whether URLs that a stranger calls canonical are spelled so, in one look at all of them.

`canonical(url) == url` says it exactly, but takes about a microsecond for each URL, and this a tenth of that: one pass
over the characters of all URLs together, and one over their different origins. It accepts every canonical URL. Of the
others it refuses those that do harm: with characters that a client cannot send, or with another spelling of a host, for
which one machine would be contacted as if it were two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from drumlin.urls.canonical import canonical, is_plain

# Printable ASCII without '"', "#", "<" and ">", which are always escaped or begin a fragment.
_CHARACTERS = bytes(set(range(0x21, 0x7F)) - set(b'"#<>'))
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_ADDRESS = rf"{_BYTE}\.{_BYTE}\.{_BYTE}\.{_BYTE}"
# A name whose last part is a number means an address, which has only one canonical spelling.
_NAME = r"(?:[a-z0-9_-]{1,63}+\.)*(?!(?:[0-9]+|0x[0-9a-f]*)[:/])[a-z0-9_-]{1,63}+"
_HOST = rf"(?:{_NAME}|{_ADDRESS}|\[[0-9a-f:.]++\])"
_PORT = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3}|0)"
# No part can match in two ways, so a text that does not match is refused in linear time too.
_ORIGINS = re.compile(rf"(?:http(?:://{_HOST}(?::(?!80/){_PORT})?|s://{_HOST}(?::(?!443/){_PORT})?)/\n)*").fullmatch

# What `meant` need not look at closely: a name that cannot be an address, no port, and nothing that a parser changes.
_PLAINLY = re.compile(r"https?://(?:[a-z0-9-]+\.)+[a-z]{2,63}/[A-Za-z0-9_.~/,+=:@()!*$&%;?-]*").fullmatch
_WEB_ADDRESS = re.compile(r"[\s<]*https?:", re.IGNORECASE).match
# What parsers of URLs drop: control characters before it, and these few wherever they are.
_DROPPED = re.compile(r"\A[\x00-\x20]+|[\t\r\n]+")
# Of a URL that is too long only the beginning is canonical, whatever is escaped in it.
_BEGINNING = 600  # characters


def meant(text: str) -> str:
    """The canonical URL that a stranger means who may have spelled it otherwise, also in the angle brackets of WARC
    1.0. A text that is no web address stays as it is, and of a URL that is too long only its host is right."""
    if _PLAINLY(text) is not None and is_plain(text):
        return text
    seen = _DROPPED.sub("", text)
    if _WEB_ADDRESS(seen) is None:
        return text
    bare = seen.strip().strip("<>")
    return canonical(bare) or canonical(bare[:_BEGINNING]) or text


def origin_of(url: str) -> str:
    """How a canonical URL begins, up to the slash after its host. Empty if a string has no such slash."""
    # The shortest one is "http://a/", and no canonical URL has a slash where this begins to look.
    return url[: url.find("/", len("https://")) + 1]


def are_well_spelled(urls: Sequence[str], origins: Iterable[str]) -> bool:
    """Whether all of these could be canonical URLs. False means that at least one of them is not canonical. `origins`
    are the different ones that they have (see `origin_of`), without those that are known to be canonical."""
    text = _lines(urls)
    # Nothing but the ends of the lines is left without the characters that URLs may have.
    if not text.isascii() or text.encode().translate(None, _CHARACTERS) != b"\n" * len(urls):
        return False
    return _ORIGINS(_lines(origins)) is not None


def _lines(texts: Iterable[str]) -> str:
    return "\n".join([*texts, ""])
