"""By which name a request came, and whether a page of another site may have had a browser send it by that name.

A page can have its own name stand for our address (DNS rebinding), and would then be permitted to read our answers. Its
requests are known by that name, since no page of another site can be at a numeric address of ours, or at `localhost`.
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
