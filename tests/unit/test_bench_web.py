"""The benchmark web: complete, reachable, the same every time, and with right counts."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest

from bench.pages import PageMaker, WebShape, denied_paths, host_address
from bench.web import CONTROL_ADDRESS, Web, make_tables

SHAPE = WebShape(hosts=3, pages=20, size_median=6000)
CLIENT_S_MAX = 10.0


@pytest.fixture
def web() -> Iterator[Web]:
    web = Web(SHAPE, 0, gap_s=0.0, latency_s=0.0, hosts_denied=0, log=True)
    thread = threading.Thread(target=web.serve)
    thread.start()
    yield web
    web.stop()
    thread.join()
    web.close()


def get(web: Web, address: str, path: str) -> bytes:
    connection = http.client.HTTPConnection(address, web.port, timeout=CLIENT_S_MAX)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return body


def stats(web: Web) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(get(web, CONTROL_ADDRESS, "/_stats"))
    return answer


def test_pages_are_the_same_for_the_same_seed() -> None:
    assert PageMaker(SHAPE, 80).host_pages(1) == PageMaker(SHAPE, 80).host_pages(1)


def test_every_page_is_reachable_from_the_first_within_its_host() -> None:
    maker = PageMaker(SHAPE, 8000)
    for host in range(SHAPE.hosts):
        pages = {path: b"".join(parts).decode() for path, parts in maker.host_pages(host)}
        origin = maker.origins[host]
        seen, waiting = {"/"}, ["/"]
        while waiting:
            path = waiting.pop()
            targets = [urlsplit(urljoin(origin + path, href)) for href in re.findall(r'<a href="([^"#]+)', pages[path])]
            local = {target.path for target in targets if f"http://{target.netloc}" == origin}
            new = local - seen - set(denied_paths())
            seen |= new
            waiting += new
        assert seen == set(pages)


def test_a_page_has_as_many_links_as_asked_for() -> None:
    for _, parts in PageMaker(SHAPE, 8000).host_pages(0):
        hrefs = re.findall(rb'<a href="([^"]+)', b"".join(parts))
        assert len([href for href in hrefs if not href.startswith((b"#", b"mailto:"))]) == SHAPE.links


def test_hosts_that_serve_the_same_pages_count_their_own_and_are_never_named_in_them() -> None:
    shape = WebShape(hosts=6, pages=5, size_median=6000, distinct_hosts=2)
    tables = make_tables(shape, 8000, hosts_denied=0)
    paths = [path for path, _ in PageMaker(shape, 8000).host_pages(0)]
    numbers = [tables[host][path.encode()][2] for host in range(6) for path in paths if path.encode() in tables[host]]
    assert len(set(numbers)) == len(numbers)
    for _, parts in PageMaker(shape, 8000).host_pages(1):
        assert f"//{host_address(1)}:8000".encode() not in b"".join(parts)


def test_the_accounts_tell_pages_doubles_denied_and_unknown_apart(web: Web) -> None:
    get(web, CONTROL_ADDRESS, "/_reset")
    for path in ("/", "/", "/robots.txt", denied_paths()[0], "/assets/site.css", "/no-such-page"):
        get(web, host_address(0), path)
    found = stats(web)
    assert (found["pages_distinct"], found["doubles"], found["missed"]) == (1, 1, 59)
    assert (found["robots_requests"], found["denied_requests"], found["unknown_requests"]) == (1, 2, 1)
    assert found["requests"] == sum(found["series"]) == 6
    get(web, CONTROL_ADDRESS, "/_reset")
    assert stats(web)["requests"] == 0


def test_the_log_lists_requests_with_their_hosts_and_pages(web: Web) -> None:
    for host, path in ((1, "/robots.txt"), (2, "/")):
        get(web, host_address(host), path)
    requests = json.loads(get(web, CONTROL_ADDRESS, "/_log"))["requests"]
    assert [(host, page) for _, host, page in requests] == [(1, -1), (2, 2 * SHAPE.pages)]
    assert requests[0][0] <= requests[1][0]


def test_pipelined_requests_are_answered_in_order(web: Web) -> None:
    paths = [path for path, _ in PageMaker(SHAPE, web.port).host_pages(0)][:3]
    with socket.create_connection((host_address(0), web.port), timeout=CLIENT_S_MAX) as sock:
        lines = [f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n" for path in paths]
        lines[-1] = lines[-1].replace("Host: x", "Host: x\r\nConnection: close")
        sock.sendall("".join(lines).encode())
        received = b"".join(iter(lambda: sock.recv(65_536), b""))
    canonicals = re.findall(rb'rel="canonical" href="http://[^/]+([^"]+)"', received)
    assert canonicals == [path.encode() for path in paths]


def test_a_request_in_two_pieces_is_answered_once(web: Web) -> None:
    with socket.create_connection((host_address(0), web.port), timeout=CLIENT_S_MAX) as sock:
        sock.sendall(b"GET / HTT")
        assert stats(web)["requests"] == 0
        sock.sendall(b"P/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"".join(iter(lambda: sock.recv(65_536), b"")).startswith(b"HTTP/1.1 200 OK")
    assert stats(web)["requests"] == 1
