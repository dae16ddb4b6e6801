"""What a coordinator asks of requests that a browser may have sent, because web pages make browsers send requests.

Browsers say which name a request was sent to (`Host`), and with every change where it comes from (`Origin`); neither
can be chosen by a page. A page whose own name is made to stand for our address meanwhile (DNS rebinding) is known by
the name, other pages by their origin.

- Without tokens (`--no-auth`) whoever reaches the port is operator and node, so a browser on the same machine must not
  be made use of: `refuse_pages`.
- Where tokens are asked for, no browser adds one by itself, but it does add the cookie of a session. Such a request is
  served under our own names only, and a change must come from our own page: `session_of`. The cookie is `SameSite`, the
  page sends a header that other sites cannot send without our consent, and `Origin` must be ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from urllib.parse import urlsplit

from drumlin.access.tokens import SESSION_SCHEME
from drumlin.http.refusal import Refused
from drumlin.protocol.paths import PAGE_HEADER

LOCAL_NAME = "localhost"
LOOPBACK = ("127.", "::1", "::ffff:127.")
HINT = "Use tokens, or send it from a program."
READING = ("GET", "HEAD")
PAGE_HEADER_NAME = PAGE_HEADER.lower().encode()
Headers = Mapping[bytes, bytes]


def refuse_pages(sender: str, headers: Headers, endpoint: str) -> None:
    """Refuse a request of this machine that a web page may have caused. `endpoint` is the address at which clients
    reach us: its name may be used, an address or `localhost` always may. Who comes by a Unix socket has no address and
    is no browser; who comes from other machines was let in by somebody who insisted."""
    if not sender.startswith(LOOPBACK):
        return
    host = _text(headers, b"host")
    name = _name(f"//{host}")
    if host and name not in (LOCAL_NAME, _name(endpoint)) and not _is_address(name):
        raise Refused(403, "foreign_name", "Without tokens, this coordinator is not reached by that name.", HINT)
    if b"origin" in headers and _origin(headers) != host:
        raise Refused(403, "foreign_page", "Without tokens, requests of web pages are refused.", HINT)


def own_names(endpoint: str, machine: str) -> frozenset[str]:
    """The names under which browsers may reach us: those of the endpoint, which is `--public` if that was given, and of
    this machine."""
    return frozenset({LOCAL_NAME, _name(endpoint), machine.lower()} - {""})


def check_name(headers: Headers, names: Iterable[str], *, addresses: bool) -> None:
    """Refuse a browser that came by a name that is not ours. `names` may have ports; then the port must be right too.
    With `addresses` every numeric address will do: no page can have one of ours as its own."""
    host = _text(headers, b"host")
    name = _name(f"//{host}")
    if host in names or name in names or (addresses and _is_address(name)):
        return
    hint = "If it is its name, start it with --public https://NAME."
    raise Refused(403, "foreign_name", "This coordinator is not known by that name.", hint)


def check_own_page(method: str, headers: Headers, endpoint: str) -> None:
    """Refuse a change that comes with a cookie, unless our own page sent it. The origin is compared without its scheme:
    a proxy may have added TLS."""
    if method in READING:
        return
    own, origin = (_text(headers, b"host"), urlsplit(endpoint).netloc.lower()), _origin(headers)
    if PAGE_HEADER_NAME not in headers or not origin or origin not in own:
        hint = "Use the page, or a token."
        raise Refused(403, "foreign_page", "Only this crawl's own page may change something with a cookie.", hint)


def comes_by_tls(headers: Headers, endpoint: str) -> bool:
    """Whether a browser that came by this name came by TLS, because the endpoint of that name has it: a proxy may have
    taken it off."""
    return endpoint.startswith("https:") and _name(f"//{_text(headers, b'host')}") == _name(endpoint)


def session_of(headers: Headers, cookie: str) -> str | None:
    """The session in the cookie of this name, in the form of an Authorization header; None if there is none."""
    for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = part.strip().partition("=")
        if name == cookie:
            return f"{SESSION_SCHEME} {value}"
    return None


def _text(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").lower()


def _origin(headers: Headers) -> str:
    """The host and port of the page that caused a request; empty if the browser does not say."""
    return _text(headers, b"origin").partition("://")[2]


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
