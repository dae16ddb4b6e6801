"""Lines for people, in logs and on terminals. Text from strangers cannot forge a line or control a terminal.

Names, addresses, errors and URLs come from sites and nodes that nobody vouches for. With a line feed in them they could
write a second, false entry into a log, and with a control character they could repaint a terminal. So everything that
is written for people goes through `one_line`: the formats of logs (`drumlin/logs/formats.py`), `tell`, and the verbs
that print what others said. It shows as escapes all characters that end a line, control a terminal or change the
direction of text.
"""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable

RED, PLAIN = "\x1b[1;31m", "\x1b[0m"
CONTINUED_INDENT = 2
"""How many spaces begin the further lines of a folded sentence, so none of them looks like a new sentence."""

# Control characters, line and paragraph separators, and marks that reorder text.
_UNSAFE = re.compile(
    "[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028\\u2029\\u202a-\\u202e\\u2066-\\u2069\\ud800-\\udfff]"
)


def one_line(text: str) -> str:
    """The text with every unsafe character escaped as in a Python string."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), text)


def safe_json(document: str) -> str:
    """A JSON document with every unsafe character escaped, which means the same. Encoders escape only some of them; the
    ends of its own lines stay."""
    if document.isascii() and "\x7f" not in document:
        return document
    return _UNSAFE.sub(lambda found: "\n" if found[0] == "\n" else f"\\u{ord(found[0]):04x}", document)


def folded(text: str, columns: int, indent: int = CONTINUED_INDENT) -> str:
    """The text broken between words, for a terminal of so many columns. A word that is longer than a line, such as a
    URL, is not broken, so it can be copied."""
    if len(text) <= columns:
        return text
    lines = textwrap.wrap(text, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def counted(number: int, noun: str) -> str:
    """`1 page`, `2 pages`; for nouns that take an s."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def tell(sentence: str, marked: str = "") -> None:
    """Write one line to stderr at once; on a terminal it is broken between words. If it begins with `marked`, that part
    is red."""
    safe = one_line(sentence)
    if sys.stderr.isatty():
        safe = folded(safe, shutil.get_terminal_size().columns)
    if marked and safe.startswith(marked):
        safe = f"{RED}{marked}{PLAIN}{safe.removeprefix(marked)}"
    sys.stderr.write(f"{safe}\n")
    sys.stderr.flush()


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the known name that is most like `name`, or "" if none is. difflib is imported here because it is
    slow to load and seldom needed."""
    import difflib

    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"Did you mean {matches[0]!r}?" if matches else ""
