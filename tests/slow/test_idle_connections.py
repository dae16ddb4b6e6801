"""Servers that close idle connections, at every pace: hardly a contact is wasted, and no page is lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.certificates import Authority
from tests.harness.idle_web import IdleWeb
from tests.harness.nginx import free_port, nginx
from tests.harness.paced import Contacts, ask

HOSTS = 20
LIMITS_S = [1.2, 2.0, 5.0]
PACES = [(0.0, 50), (1.0, 12), (2.0, 10), (5.0, 8)]
WASTED_SHARE_MAX = 0.01


def check(contacts: Contacts, pages: int, protocol: str) -> None:
    assert contacts.sent - contacts.wasted == HOSTS * pages, "no page is lost"
    assert contacts.wasted < WASTED_SHARE_MAX * contacts.sent
    assert contacts.protocols == {protocol}


@pytest.mark.parametrize(("delay_s", "pages"), PACES)
@pytest.mark.parametrize("idle_s", LIMITS_S)
def test_over_http_1(idle_s: float, delay_s: float, pages: int) -> None:
    with IdleWeb(idle_s, HOSTS, net=101) as web:
        check(ask(web.origins, delay_s, pages), pages, "http/1.1")


@pytest.mark.parametrize(("delay_s", "pages"), PACES)
@pytest.mark.parametrize("idle_s", LIMITS_S)
def test_over_http_2(tmp_path: Path, idle_s: float, delay_s: float, pages: int) -> None:
    addresses = [f"127.102.0.{number}" for number in range(1, HOSTS + 1)]
    authority, port = Authority(tmp_path, "authority"), free_port()
    certificate = authority.sign("hosts", ",".join(f"IP:{address}" for address in addresses))
    server = (
        f"server {{ listen 0.0.0.0:{port} ssl http2; {certificate.nginx()} keepalive_timeout {int(idle_s * 1000)}ms; "
        "location / { default_type text/html; return 200 '<p>A page.'; } }"
    )
    with nginx(tmp_path / "nginx", server, port):
        origins = [f"https://{address}:{port}" for address in addresses]
        check(ask(origins, delay_s, pages, ca_file=str(authority.file)), pages, "h2")
