"""Over HTTP/2 requests share a connection: when it breaks, those that had no answer yet were lost, not refused."""

from __future__ import annotations

import socket
from pathlib import Path

from drumlin.fetch import Fetcher, Transfer
from drumlin.fetch.guard import Guard
from tests.harness.certificates import Authority
from tests.harness.cutting import CuttingProxy
from tests.harness.fetch_limits import LIMITS
from tests.harness.nginx import free_port, nginx


def test_a_connection_that_breaks_under_several_requests_makes_none_of_them_an_attempt(tmp_path: Path) -> None:
    ended: list[tuple[str, str, bool]] = []

    def arrived(transfer: Transfer) -> None:
        ended.append((transfer.url.rpartition("/")[2], transfer.failure, transfer.stale))

    authority, port = Authority(tmp_path, "authority"), free_port()
    certificate = authority.sign("host", "IP:127.0.0.1")
    fetcher = Fetcher(LIMITS, user_agent="test", guard=Guard(allow_private=True), ca_file=str(authority.file))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server = (
            f"server {{ listen 127.0.0.1:{port} ssl http2; {certificate.nginx()} location / {{ return 200 'x'; }} "
            f"location /slow {{ proxy_pass http://127.0.0.1:{silent.getsockname()[1]}; }} }}"
        )
        with nginx(tmp_path / "nginx", server, port), CuttingProxy(port) as proxy:
            home = f"https://127.0.0.1:{proxy.port}/"
            fetcher.start(home, arrived, "context")
            while not ended:
                fetcher.run_once(1.0)
            for name in ("slow1", "slow2"):
                fetcher.start(home + name, arrived, "context")
            for _ in range(20):
                fetcher.run_once(0.01)
            for near, _ in proxy._pairs:
                near.shutdown(socket.SHUT_RDWR)
            while len(ended) < 3:
                fetcher.run_once(1.0)
    fetcher.close()
    assert sorted(ended) == [("", "", False), ("slow1", "reset", True), ("slow2", "reset", True)]
