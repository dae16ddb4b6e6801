"""Only public addresses are contacted, unless the user says otherwise."""

from __future__ import annotations

import pytest

from drumlin.fetch.guard import Guard, forbidden

FORBIDDEN = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254", "169.254.0.1",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.168.0.1", "198.18.0.1",
    "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    "::", "::1", "::2", "100::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1",
    "2001:db8::1", "2001:2::1", "3fff::1", "4000::1", "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:10.0.0.1",
    "::ffff:169.254.169.254", "::127.0.0.1", "::10.0.0.1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2002:a00:1::5",
    "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::8.8.8.8", "2001:0:4136:e378:8000:63bf:f5ff:fffe",
    "2001:0:a00:1:8000:63bf:3fff:fdd2",
]  # fmt: skip
PUBLIC = [
    "1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.1", "172.15.255.255", "172.32.0.1",
    "192.0.1.1", "198.17.255.255", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::8a",
    "2001:4860:4860::8888", "::ffff:8.8.8.8", "2002:808:808::1", "64:ff9b::8.8.8.8",
]  # fmt: skip


@pytest.mark.parametrize("address", FORBIDDEN)
def test_what_is_not_public_is_forbidden(address: str) -> None:
    assert forbidden(address)
    assert Guard().refuses(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_public_is_not_forbidden(address: str) -> None:
    assert not forbidden(address)
    assert not Guard().refuses(address)


@pytest.mark.parametrize("address", ["", "localhost", "127.1", "0x7f000001", "2130706433", "[::1]", "127.0.0.1:80"])
def test_what_is_not_an_address_is_refused_even_where_private_ones_are_allowed(address: str) -> None:
    assert forbidden(address)
    assert Guard(allow_private=True).refuses(address)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "10.1.2.3", "fd00::1", "8.8.8.8"])
def test_private_addresses_may_be_allowed(address: str) -> None:
    assert not Guard(allow_private=True).refuses(address)


def test_guards_do_not_share_their_verdicts() -> None:
    assert not Guard(allow_private=True).refuses("127.0.0.1")
    assert Guard().refuses("127.0.0.1")
