"""Which addresses a crawler must not contact: everything that is not the public internet.

A page can link to a machine inside the network that the crawler runs in, for instance to a cloud's metadata service,
and so read or change what it could not reach itself (server-side request forgery, SSRF). The guard looks at the address
that is about to be connected to, after the name was resolved. So neither a redirect nor a name whose address changes
gets past it. An IPv6 address that carries an IPv4 address (mapped, 6to4, NAT64, Teredo, compatible) is forbidden if the
address within it is.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

CACHED_ADDRESSES_MAX = 65_536
"""How many verdicts all guards of the process remember together."""

_Address = IPv4Address | IPv6Address

# The networks of the IANA special-purpose registries that are not globally reachable, written out because the
# `is_private` and `is_global` of the standard library differ between Python versions.
_FORBIDDEN_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network, unspecified
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT, and cloud metadata at 100.100.100.200
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, and cloud metadata at 169.254.169.254
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments, and cloud metadata at 192.0.0.192
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
# Only 2000::/3 is global unicast. Everything outside of it is refused: unspecified, loopback, link-local, site-local,
# unique local (with cloud metadata at fd00:ec2::254), local NAT64 (64:ff9b:1::/48), multicast, and unassigned ranges.
_GLOBAL_6 = IPv6Network("2000::/3")
_FORBIDDEN_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: benchmarking, ORCHID; Teredo, in it too, is handled by `_embedded`
        "2001:db8::/32",  # documentation
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_COMPATIBLE = IPv6Network("::/96")
_LOW_32_BITS = 0xFFFF_FFFF


@lru_cache(CACHED_ADDRESSES_MAX)
def forbidden(address: str) -> bool:
    """Whether an address is not public. Text that is not an address at all is forbidden too."""
    parsed = _parse(address)
    return parsed is None or not _public(parsed)


class Guard:
    """Refuses forbidden addresses, unless private ones are allowed."""

    def __init__(self, allow_private: bool = False) -> None:
        self.allow_private = allow_private

    def refuses(self, address: str) -> bool:
        """Whether a connection to this address (text, without port or brackets) must not be made."""
        return forbidden(address) if not self.allow_private else _parse(address) is None


@lru_cache(CACHED_ADDRESSES_MAX)
def _parse(address: str) -> _Address | None:
    """The address without its zone (`fe80::1%eth0`), or None."""
    try:
        return ip_address(address.partition("%")[0])
    except ValueError:
        return None


def _public(address: _Address) -> bool:
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _FORBIDDEN_4)
    embedded = _embedded(address)
    if embedded:
        return all(_public(carried) for carried in embedded)
    return address in _GLOBAL_6 and not any(address in network for network in _FORBIDDEN_6)


def _embedded(address: _Address) -> list[IPv4Address]:
    """The IPv4 addresses that an IPv6 address leads to."""
    if isinstance(address, IPv4Address):
        return []
    if address.teredo is not None:
        return list(address.teredo)
    carried = address.ipv4_mapped or address.sixtofour
    if carried is None and (address in _NAT64 or address in _COMPATIBLE):
        carried = IPv4Address(int(address) & _LOW_32_BITS)
    return [] if carried is None else [carried]
