"""Where a frontier on Redis lives: `redis://[USER:PASSWORD@]HOST[:PORT][,HOST[:PORT]…]/[NAMESPACE][?OPTION=VALUE…]`.

`rediss://` speaks TLS. Options: `replicas` (how many replicas confirm a write before it counts; default 0), `contents`
(`near`, `exact` or `off`: which duplicates are looked for; default `near`), and `ca` (a file of certificates to trust
in place of the system's). The password never appears in what is shown of an address.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from drumlin.errors import ConfigError

PORT_DEFAULT = 6379
NAMESPACE_DEFAULT = "drumlin"
REPLICAS_MAX = 16

_FORM = "redis://[USER:PASSWORD@]HOST:PORT[,HOST:PORT…]/[NAMESPACE]"
_NAMESPACE = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_SERVER = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<name>[^\[\]:,/@\s]+))(?::(?P<port>\d{1,5}))?")


class Server(NamedTuple):
    """One Redis server: where it listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Duplicates(StrEnum):
    """Which duplicates an engine looks for."""

    NEAR = "near"
    EXACT = "exact"
    OFF = "off"


class RedisAddress(NamedTuple):
    """The parts of a frontier's URL."""

    servers: tuple[Server, ...]
    namespace: str = NAMESPACE_DEFAULT
    user: str = ""
    password: str = ""
    tls: bool = False
    ca: str = ""
    replicas: int = 0
    contents: Duplicates = Duplicates.NEAR

    def __str__(self) -> str:
        return f"{'rediss' if self.tls else 'redis'}://{','.join(map(str, self.servers))}/{self.namespace}"

    def __repr__(self) -> str:
        return f"RedisAddress({self})"


def parse_address(url: str) -> RedisAddress:
    """Read a frontier's URL; a `ConfigError` says what is wrong with it, without repeating the password."""
    scheme, separator, rest = url.partition("://")
    if scheme not in ("redis", "rediss") or not separator:
        raise ConfigError("A crawl on Redis is named by a URL.", f"Use {_FORM}.")
    parts = urlsplit("//" + rest)
    credentials, _, places = parts.netloc.rpartition("@")
    user, _, password = credentials.partition(":")
    namespace = unquote(parts.path.strip("/")) or NAMESPACE_DEFAULT
    if not _NAMESPACE.fullmatch(namespace):
        raise ConfigError(
            "The namespace of a crawl on Redis is 1 to 64 letters, digits, `_`, `.` or `-`.", f"Use {_FORM}."
        )
    servers = tuple(_server(place) for place in places.split(","))
    return RedisAddress(
        servers, namespace, unquote(user), unquote(password), scheme == "rediss", *_options(parts.query)
    )


def shown(url: str) -> str:
    """A frontier's URL for people: with its namespace, also where that was left out, and without user and password."""
    address, query = parse_address(url), urlsplit(url).query
    whole = f"{address}?{query}" if query else str(address)
    return whole.replace("://", "://***@", 1) if address.user or address.password else whole


def _options(query: str) -> tuple[str, int, Duplicates]:
    """The options `ca`, `replicas` and `contents`."""
    given = dict(parse_qsl(query, keep_blank_values=True))
    ca, replicas, contents = given.pop("ca", ""), given.pop("replicas", "0"), given.pop("contents", Duplicates.NEAR)
    if given:
        raise ConfigError(f"A Redis URL has no option {min(given)!r}.", "Use `replicas`, `contents` or `ca`.")
    if not replicas.isdecimal() or int(replicas) > REPLICAS_MAX:
        raise ConfigError(f"`replicas` in a Redis URL is a number from 0 to {REPLICAS_MAX}.")
    if contents not in list(Duplicates):
        raise ConfigError("`contents` in a Redis URL is `near`, `exact` or `off`.")
    return ca, int(replicas), Duplicates(contents)


def _server(place: str) -> Server:
    match = _SERVER.fullmatch(place)
    port = int(match["port"] or PORT_DEFAULT) if match else 0
    if match is None or not 0 < port < 65_536:
        raise ConfigError("A Redis URL must name its servers as HOST:PORT, separated by commas.", f"Use {_FORM}.")
    return Server(match["six"] or match["name"], port)
