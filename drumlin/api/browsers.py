"""What a coordinator asks of requests that a browser may have sent, because web pages make browsers send requests.

Browsers say these things of a request, and no page can choose what they say:
- `Host`: the name that it was sent to. A page can have its own name stand for our address (DNS rebinding); its requests
  then come by that name, which is not ours.
- `Origin`: where the page comes from that caused it. Every change has it; pictures and links do not.
- `Sec-Fetch-Site`: whether a page of another site caused it, with every request to this machine, also with pictures and
  links. Browsers from before 2023 may not send it.

What is asked of them:

- Without tokens (`--no-auth`) whoever reaches the port is operator and node, so a browser on the same machine must not
  be made use of: `refuse_pages`.
- Where tokens are asked for, no browser adds one by itself, but it does add the cookie of a session. Such a request is
  served under our own names only, and a change must come from our own page: `check_own_page`. The cookie is `SameSite`,
  the page sends a header that other sites cannot send without our consent, and `Origin` must be ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from drumlin.access.tokens import SESSION_SCHEME
from drumlin.http.names import LOCAL_NAME, LOOPBACK, is_address, is_own_name, name_in
from drumlin.http.refusal import Refused
from drumlin.lines import one_line
from drumlin.protocol.paths import PAGE_HEADER

HINT = "Use tokens, or send it from a program."
OWN_PAGE_ALONE = "Only this crawl's own page may change something with a cookie"
PROXY_HINT = (
    "If both are this crawl, its proxy must pass on the Host that it gets, with the port (nginx: proxy_set_header Host "
    "$http_host), or coordinators need --public."
)
ADDRESS_SHOWN_CHARS = 100
READING = ("GET", "HEAD")
OWN_SITES = ("", "same-origin", "none")
"""What `Sec-Fetch-Site` says of a request of our own page, or of one that a person typed; programs send none."""
SESSIONS_MAX = 8
"""How many cookies of one name are looked at."""
PAGE_HEADER_NAME = PAGE_HEADER.lower().encode()
Headers = Mapping[bytes, bytes]


def refuse_pages(sender: str, headers: Headers, endpoint: str) -> None:
    """Refuse a request of this machine that a web page may have caused. `endpoint` is the address at which clients
    reach us: its name may be used, an address or `localhost` always may. Who comes by a Unix socket has no address and
    is no browser; who comes from other machines was let in by somebody who insisted."""
    if not sender.startswith(LOOPBACK):
        return
    host = _text(headers, b"host")
    if host and not is_own_name(name_in(f"//{host}"), name_in(endpoint)):
        raise Refused(403, "foreign_name", "Without tokens, this coordinator is not reached by that name.", HINT)
    foreign_origin = b"origin" in headers and _origin(headers) != host
    if foreign_origin or _text(headers, b"sec-fetch-site") not in OWN_SITES:
        raise Refused(403, "foreign_page", "Without tokens, requests of web pages are refused.", HINT)


def own_names(endpoint: str, machine: str) -> frozenset[str]:
    """The names under which browsers may reach us: those of the endpoint, which is `--public` if that was given, and of
    this machine."""
    return frozenset({LOCAL_NAME, name_in(endpoint), machine.lower()} - {""})


def check_name(headers: Headers, names: Iterable[str], *, addresses: bool) -> None:
    """Refuse a browser that came by a name that is not ours. `names` may have ports; then the port must be right too.
    With `addresses` every numeric address will do: no page can have one of ours as its own."""
    host = _text(headers, b"host")
    name = name_in(f"//{host}")
    if host in names or name in names or (addresses and is_address(name)):
        return
    hint = "If it is its name, start it with --public https://NAME."
    raise Refused(403, "foreign_name", "This coordinator is not known by that name.", hint)


def check_own_page(method: str, headers: Headers, endpoint: str) -> None:
    """Refuse a change that comes with a cookie, unless our own page sent it. The origin is compared without its scheme:
    a proxy may have added TLS."""
    if method in READING:
        return
    host, origin = _text(headers, b"host"), _origin(headers)
    if PAGE_HEADER_NAME not in headers or not origin:
        raise Refused(403, "foreign_page", f"{OWN_PAGE_ALONE}.", "Use the page, or a token.")
    if origin not in (host, urlsplit(endpoint).netloc.lower()):
        said = f"{OWN_PAGE_ALONE}: this was sent by a page at {_shown(origin)}, to {_shown(host)}"
        raise Refused(403, "foreign_page", f"{said}.", PROXY_HINT)


def comes_by_tls(headers: Headers, endpoint: str) -> bool:
    """Whether the browser speaks TLS, as far as our endpoint tells: it is an https address with the name that the
    browser used. The connection to us may be plain all the same, since a proxy may have ended the TLS."""
    return endpoint.startswith("https:") and name_in(f"//{_text(headers, b'host')}") == name_in(endpoint)


def sessions_of(headers: Headers, cookie: str) -> list[str]:
    """The sessions in cookies of this name, in the form of an Authorization header. A page at another port, or another
    name of the same domain, can add one that is worth nothing, and browsers may send it first."""
    parts = [part.strip().partition("=") for part in headers.get(b"cookie", b"").decode("latin-1").split(";")]
    return [f"{SESSION_SCHEME} {value}" for name, _, value in parts if name == cookie][:SESSIONS_MAX]


def _text(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1").lower()


def _origin(headers: Headers) -> str:
    """The host and port of the page that caused a request; empty if the browser does not say."""
    return _text(headers, b"origin").partition("://")[2]


def _shown(address: str) -> str:
    return one_line(address[:ADDRESS_SHOWN_CHARS])
