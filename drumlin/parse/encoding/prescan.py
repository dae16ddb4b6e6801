"""Finds the encoding that a page declares in its first bytes, by the algorithm of the HTML standard:

https://html.spec.whatwg.org/multipage/parsing.html#prescan-a-byte-stream-to-determine-its-encoding
As in a browser, declarations in comments, in attributes of other tags or in a tag that does not end do not count.
"""

from __future__ import annotations

import re

from drumlin.parse.encoding.labels import encoding_of

# How most pages begin. If this matches, the walk over all tags would find the same declaration at ten times the cost.
_USUAL = re.compile(
    rb"\s*+(?:<!doctype[^<>]*+>\s*+)?(?:<html(?>(?:\s++[\w:-]++=\"[^\"<>]*+\")*)\s*+>\s*+)?(?:<head>\s*+)?"
    rb"<meta\s++charset=\"([\w.:-]++)\"\s*+/?>",
    re.IGNORECASE,
).match
_META = re.compile(rb"<meta(?=[\t\n\f\r /])", re.IGNORECASE).match
_TAG = re.compile(rb"</?[a-zA-Z][^\t\n\f\r >]*+(?=[\t\n\f\r >])").match
# A whole tag as most are written; such a tag need not be taken apart.
_TIDY_TAG = re.compile(
    rb"</?[a-zA-Z][^\t\n\f\r >]*+"
    rb"(?>(?:[\t\n\f\r ]++[^\t\n\f\r />=\"']++(?:=(?:\"[^\"]*+\"|'[^']*+'|[^\t\n\f\r >\"'][^\t\n\f\r >]*+))?)*)"
    rb"[\t\n\f\r /]*+>"
).match
_TAG_BEGIN = re.compile(rb"</?[a-zA-Z]").match
# The next attribute of a tag, or its end (group 1). Further groups: name; value in double quotes, in single quotes,
# bare. Each must be followed by what ends it, so there is no match if the bytes end first.
_ATTRIBUTE = re.compile(
    rb"[\t\n\f\r /]*+(?:(>)|([^\t\n\f\r />][^\t\n\f\r />=]*+)(?=[\t\n\f\r />=])"
    rb"(?:[\t\n\f\r ]*+=[\t\n\f\r ]*+"
    rb"(?:\"([^\"]*+)\"|'([^']*+)'|(?=>)|([^\t\n\f\r >\"'][^\t\n\f\r >]*+)(?=[\t\n\f\r >]))"
    rb"|(?=[/>])|[\t\n\f\r ]++(?=[^=])))"
).match
_CHARSET_IS = re.compile(rb"charset[\t\n\f\r ]*=[\t\n\f\r ]*").search
_CHARSET_VALUE = re.compile(rb"\"([^\"]*)\"|'([^']*)'|([^\t\n\f\r ;\"'][^\t\n\f\r ;]*)").match
_XML_ENCODING = re.compile(rb"encoding[\x00- ]*=[\x00- ]*(?:\"([^\"\x00- ]*)\"|'([^'\x00- ]*)')").match

Attributes = dict[bytes, bytes]


def prescan(start: bytes) -> str | None:
    """The name of the encoding that the first bytes of a page declare."""
    if start.startswith(b"<\0?\0x\0"):
        return "UTF-16LE"
    if start.startswith(b"\0<\0?\0x"):
        return "UTF-16BE"
    usual = _USUAL(start)
    if usual and (encoding := _said_in_meta(usual[1])):
        return encoding
    # A page without the word "charset" has no such declaration, so its tags need not be walked.
    found = _from_metas(start) if b"charset" in start.lower() else None
    return found or _from_xml(start)


def _from_metas(start: bytes) -> str | None:
    """The declaration of the first `meta` that has one. A place of -1 means that the bytes ended inside a construct."""
    place = start.find(b"<")
    while place >= 0:
        if start.startswith(b"<!--", place):
            # The two dashes that begin a comment may also be those that end it: `<!-->`.
            place = start.find(b"-->", place + 2)
        elif meta := _META(start, place):
            attributes, place = _attributes(start, meta.end())
            if place >= 0 and (encoding := _declared(attributes)):
                return encoding
        elif tidy := _TIDY_TAG(start, place):
            place = tidy.end() - 1
        elif _TAG_BEGIN(start, place):
            tag = _TAG(start, place)
            place = _attributes(start, tag.end())[1] if tag else -1
        elif start[place + 1 : place + 2] in (b"!", b"/", b"?"):
            place = start.find(b">", place)
        place = start.find(b"<", place + 1) if place >= 0 else -1
    return None


def _attributes(start: bytes, place: int) -> tuple[Attributes, int]:
    """The attributes of a tag from `place` on, the first of each name, and the end of the tag (-1 if there is none)."""
    attributes: Attributes = {}
    while found := _ATTRIBUTE(start, place):
        end, name, double, single, bare = found.groups()
        if end:
            return attributes, found.end(1) - 1
        attributes.setdefault(name.lower(), (double or single or bare or b"").lower())
        place = found.end()
    return attributes, -1


def _declared(attributes: Attributes) -> str | None:
    """The encoding that a `meta` declares: by `charset`, or by `content` if it stands for the header Content-Type."""
    if b"charset" in attributes:
        label = attributes[b"charset"]
    elif attributes.get(b"http-equiv") == b"content-type":
        label = _charset_in(attributes.get(b"content", b""))
    else:
        return None
    return _said_in_meta(label)


def _said_in_meta(label: bytes) -> str | None:
    encoding = _said_in_ascii(label)
    return "windows-1252" if encoding == "x-user-defined" else encoding


def _charset_in(content: bytes) -> bytes:
    """The label in the `content` of a `meta`; empty if there is none."""
    found = _CHARSET_IS(content)
    value = _CHARSET_VALUE(content, found.end()) if found else None
    return (value[1] or value[2] or value[3] or b"") if value else b""


def _from_xml(start: bytes) -> str | None:
    if not start.startswith(b"<?xml") or b">" not in start:
        return None
    place = start.find(b"encoding")
    found = _XML_ENCODING(start, place) if place >= 0 else None
    return _said_in_ascii(found[1] or found[2] or b"") if found else None


def _said_in_ascii(label: bytes) -> str | None:
    """The encoding of a label that could be read as ASCII. So the page cannot be UTF-16; such a label means UTF-8."""
    encoding = encoding_of(label.decode("latin-1"))
    return "UTF-8" if encoding in ("UTF-16LE", "UTF-16BE") else encoding
