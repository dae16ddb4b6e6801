"""The sockets that a coordinator listens on. They are bound before anything else is done.

So a port that another program uses is noticed before a crawl is founded. Clients cannot connect yet: the kernel refuses
connections to a socket that is bound but does not listen. The server starts to listen once it can answer.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator

from drumlin.api.unix_socket import private_socket
from drumlin.errors import BusyError, ConfigError

_REASONS = {
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EACCES: "ports below 1024 need more rights",
}


@contextlib.contextmanager
def listening_on(host: str, port: int, unix: str, backlog: int) -> Iterator[list[socket.socket]]:
    """Sockets bound to a path, or to every address that the host name stands for."""
    if unix:
        with private_socket(unix, backlog) as listener:
            yield [listener]
        return
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_bound(*place)) for place in _places(host, port)]


def _places(host: str, port: int) -> list[tuple[socket.AddressFamily, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise ConfigError(f"Cannot listen on {host}: there is no such host.", "127.0.0.1:8700, say.") from None
    return [(family, address) for family, _, _, _, address in dict.fromkeys(found)]  # type: ignore[misc]


def _bound(family: socket.AddressFamily, address: tuple[str, int]) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(address)
    except OSError as cause:
        listener.close()
        host, port = address[:2]
        place = f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
        if cause.errno == errno.EADDRINUSE:
            message = f"Another program listens on {place}."
            raise BusyError(message, "Stop it, or choose another port with --listen.") from cause
        reason = _REASONS.get(cause.errno or 0, cause.strerror)
        raise ConfigError(f"Cannot listen on {place}: {reason}.", "Choose another with --listen.") from cause
    return listener
