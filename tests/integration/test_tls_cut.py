"""A TLS server that hangs up without a farewell: what came of its page is worth keeping."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from pathlib import Path

import pytest

from drumlin.fetch import Fetcher, Transfer
from drumlin.fetch.guard import Guard
from drumlin.node.outcomes import truncation
from tests.harness.certificates import Authority
from tests.harness.fetch_limits import LIMITS

RECEIVE_BYTES = 65_536


@pytest.mark.parametrize("length", [b"", b"Content-Length: 900\r\n"], ids=["no length", "length too large"])
def test_a_body_that_ends_without_close_notify_is_cut_and_not_lost(tmp_path: Path, length: bytes) -> None:
    authority = Authority(tmp_path, "authority")
    certificate = authority.sign("host", "IP:127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    ended: list[tuple[str, bytes, str]] = []

    def arrived(transfer: Transfer) -> None:
        ended.append((transfer.failure, transfer.body.getvalue(), truncation(transfer)))

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection = context.wrap_socket(listener.accept()[0], server_side=True)
            connection.recv(RECEIVE_BYTES)
            connection.sendall(b"HTTP/1.1 200 OK\r\n%b\r\n<p>Some text" % length)
            os.close(connection.detach())

        thread = threading.Thread(target=answer)
        thread.start()
        fetcher = Fetcher(LIMITS, user_agent="test", guard=Guard(allow_private=True), ca_file=str(authority.file))
        fetcher.start(f"https://127.0.0.1:{listener.getsockname()[1]}/", arrived, "context")
        while not ended:
            fetcher.run_once(1.0)
        fetcher.close()
        thread.join()
    assert ended == [("reset", b"<p>Some text", "disconnect")]
