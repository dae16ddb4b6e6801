"""Keeps web pages away from a coordinator that asks for no tokens.

With `--no-auth` whoever reaches the port is operator and node. A browser on the same machine reaches it, and any page
that is open there can have it send requests: to 127.0.0.1, or to a name of the page's own whose address is changed to
127.0.0.1 meanwhile (DNS rebinding). Browsers say where a request comes from (`Origin`) and which name it was sent to
(`Host`); neither can be changed by the page. Where tokens are asked for nothing of this matters: no browser adds one.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from drumlin.http.refusal import Refused

LOCAL_NAME = "localhost"
LOOPBACK = ("127.", "::1", "::ffff:127.")
HINT = "Use tokens, or send it from a program."


def refuse_pages(sender: str, headers: Mapping[bytes, bytes], endpoint: str) -> None:
    """Refuse a request of this machine that a web page may have caused. `endpoint` is the address at which clients
    reach us: its name may be used, an address or `localhost` always may. Who comes by a Unix socket has no address and
    is no browser; who comes from other machines was let in by somebody who insisted."""
    if not sender.startswith(LOOPBACK):
        return
    host = headers.get(b"host", b"").decode("latin-1").lower()
    name = _name(f"//{host}")
    if host and name not in (LOCAL_NAME, _name(endpoint)) and not _is_address(name):
        raise Refused(403, "foreign_name", "Without tokens, this coordinator is not reached by that name.", HINT)
    origin = headers.get(b"origin")
    if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host:
        raise Refused(403, "foreign_page", "Without tokens, requests of web pages are refused.", HINT)


def _name(url: str) -> str:
    """The host name in a URL; empty if there is none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
