"""By which name a request came, and whether a page of another site may have had a browser send it by that name.

A page whose own name is made to stand for our address meanwhile (DNS rebinding) may read our answers. It is known by
that name: no page can have as its own a numeric address of ours, or `localhost`.
"""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit

LOCAL_NAME = "localhost"
LOOPBACK = ("127.", "::1", "::ffff:127.")
"""How addresses of this machine begin."""


def name_in(url: str) -> str:
    """The host name in a URL, or in a Host header after `//`; empty if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def is_own_name(name: str, *own: str) -> bool:
    """Whether a name is an address, `localhost`, or one of our `own`, in lower case."""
    return bool(name) and (name in (LOCAL_NAME, *own) or is_address(name))
