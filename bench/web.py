"""A fast fake web for benchmarks: `python -m bench.web --hosts 200 --pages 100`.

Hosts are loopback addresses (127.1.0.1, 127.1.0.2, …), one listening socket each, all on one port. A single
epoll loop serves prebuilt pages (`bench.pages`) straight from their parts with `sendmsg`, because every µs that the
server takes is taken from the crawler on the same machine. The first line on stdout is JSON and says that the web is
ready; it stays up until SIGTERM or until its stdin closes.

The web counts requests. On the control address 127.0.0.1, same port, `GET /_stats` gives the counts as JSON,
`GET /_stats?short` only those that cost nothing, and `GET /_reset` sets them to zero. A request counts at the moment
the server reads it. With a latency, each request waits by itself between being read and being answered; it is longer on
one host than on the next if it is to vary. With `--log`,
`GET /_log` lists all requests: when (by the monotonic clock), the number of the host, and that of the page or -1.

Limits: HTTP/1.1 GET only, no request bodies, request heads of up to 64 KiB; pipelined requests are answered in order.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import os
import resource
import select
import signal
import socket
from contextlib import suppress
from pathlib import Path
from time import monotonic

from bench.pages import (
    DENIED_PREFIXES,
    ROBOTS,
    ROBOTS_DENYING_ALL,
    PageMaker,
    Parts,
    WebShape,
    denied_paths,
    host_address,
    with_headers,
)

CONTROL_ADDRESS = "127.0.0.1"
RECEIVE_BYTES = 65_536
SEND_BUFFER_BYTES = 1_200_000
BACKLOG = 1024
PORT_ATTEMPTS = 20
BUCKETS_PER_S = 10
EVENTS_PER_POLL = 256
POLL_S_MAX = 0.2
OPEN_FILES_WANTED = 65_536
LATENCIES = 41

PAGE, ROBOTS_FILE, DENIED = range(3)
NOT_FOUND = with_headers([b"<!DOCTYPE html><title>Not found</title><h1>Not found</h1>"], status="404 Not Found")

# What a host answers for a path: the parts to send, what it is, and (for a page) its number in the whole web.
Answer = tuple[Parts, int, int]
Table = dict[bytes, Answer]


def latency_share(host: int, varies: float) -> float:
    """The latency of a host, as a share of the mean: evenly spread, and unlike that of its neighbours."""
    return 1.0 + varies * (host * 7 % LATENCIES * 2 / (LATENCIES - 1) - 1.0)


class Accounts:
    """Counts of what was requested, kept with a few list operations for each request."""

    def __init__(self, hosts: int, pages: int, gap_s: float, *, log: bool = False) -> None:
        self.hosts, self.pages, self.gap_s = hosts, pages, gap_s
        self.keeps_log = log
        self.reset()

    def reset(self) -> None:
        self.page_counts = [0] * self.pages
        self.kind_counts = [0, 0, 0]
        self.unknown: dict[str, int] = {}
        self.unknown_requests = 0
        self.last_contact = [float("-inf")] * self.hosts
        self.least_gap = [float("inf")] * self.hosts
        self.short_gaps = 0
        self.buckets: dict[int, int] = {}
        self.log: list[tuple[float, int, int]] = []
        self.first = self.last = 0.0

    def count(self, host: int, answer: Answer | None, path: bytes) -> None:
        now = monotonic()
        gap = now - self.last_contact[host]
        self.last_contact[host] = now
        if gap < self.least_gap[host]:
            self.least_gap[host] = gap
        if gap < self.gap_s:
            self.short_gaps += 1
        bucket = int(now * BUCKETS_PER_S)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + 1
        self.last = now
        if not self.first:
            self.first = now
        if self.keeps_log:
            self.log.append((now, host, answer[2] if answer is not None and answer[1] == PAGE else -1))
        if answer is None:
            self._count_unknown(host, path)
            return
        self.kind_counts[answer[1]] += 1
        if answer[1] == PAGE:
            self.page_counts[answer[2]] += 1

    def _count_unknown(self, host: int, path: bytes) -> None:
        if path.startswith(DENIED_PREFIXES):
            self.kind_counts[DENIED] += 1
            return
        self.unknown_requests += 1
        if len(self.unknown) < 20:
            self.unknown[host_address(host) + path.decode("latin-1")] = self.unknown_requests

    def short_report(self) -> dict[str, int]:
        """The counts that cost nothing, for callers that ask several times a second."""
        return {"pages_served": self.kind_counts[PAGE]}

    def report(self) -> dict[str, object]:
        distinct = sum(map(bool, self.page_counts))
        requests = sum(self.kind_counts) + self.unknown_requests
        return {
            "pages_known": self.pages,
            "pages_distinct": distinct,
            "missed": self.pages - distinct,
            "doubles": self.kind_counts[PAGE] - distinct,
            "requests": requests,
            "robots_requests": self.kind_counts[ROBOTS_FILE],
            "denied_requests": self.kind_counts[DENIED],
            "unknown_requests": self.unknown_requests,
            "unknown_examples": list(self.unknown),
            "hosts_contacted": sum(contact > 0 for contact in self.last_contact),
            **self._gap_report(),
            **self._time_report(requests),
        }

    def _gap_report(self) -> dict[str, object]:
        gaps = [gap for gap in self.least_gap if gap != float("inf")]
        by_host = {host_address(n): round(gap, 6) for n, gap in enumerate(self.least_gap) if gap != float("inf")}
        worst = dict(sorted(by_host.items(), key=lambda item: item[1])[:10])
        return {"least_gap_s": min(gaps, default=None), "gaps_under": self.short_gaps, "worst_hosts": worst}

    def _time_report(self, requests: int) -> dict[str, object]:
        duration = self.last - self.first
        start, end = int(self.first * BUCKETS_PER_S), int(self.last * BUCKETS_PER_S)
        series = [self.buckets.get(bucket, 0) for bucket in range(start, end + 1)]
        per_s = requests / duration if duration > 0 else 0.0
        return {"duration_s": duration, "requests_per_s": per_s, "buckets_per_s": BUCKETS_PER_S, "series": series}


class Connection:
    """One client's connection: its socket, its host, and what could not be sent yet."""

    __slots__ = ("backlog", "closing", "head", "host", "sock", "table")

    def __init__(self, sock: socket.socket, host: int, table: Table) -> None:
        self.sock = sock
        self.host = host
        self.table = table
        self.head = b""
        self.backlog = b""
        self.closing = False


class Web:
    """The hosts, their tables of answers, and the loop that serves them."""

    def __init__(
        self,
        shape: WebShape,
        port: int,
        gap_s: float,
        latency_s: float,
        hosts_denied: int,
        *,
        latency_varies: float = 0.0,
        log: bool = False,
    ) -> None:
        self.listeners, self.port = listen(shape.hosts, port)
        self.tables = make_tables(shape, self.port, hosts_denied)
        known = shape.pages * (shape.hosts - hosts_denied)
        self.accounts = Accounts(shape.hosts, known, gap_s, log=log)
        self.latency_s = [latency_s * latency_share(host, latency_varies) for host in range(shape.hosts)]
        self.connections: dict[int, Connection] = {}
        self.delayed: list[tuple[float, int, Connection, Parts]] = []
        self._answered = 0
        self.stopping = False
        self.epoll = select.epoll()

    def serve(self, stop_file: int | None = None) -> None:
        """Serve until `stop` is called or the file `stop_file` (stdin) is closed."""
        for file in self.listeners:
            self.epoll.register(file, select.EPOLLIN)
        if stop_file is not None:
            # If stdin is a file or /dev/null instead of a pipe, it cannot be watched, and it never closes.
            with suppress(PermissionError):
                self.epoll.register(stop_file, select.EPOLLIN)
        connections, poll = self.connections, self.epoll.poll
        while not self.stopping:
            for file, event in poll(self._wait_s(), EVENTS_PER_POLL):
                connection = connections.get(file)
                if connection is not None:
                    self._advance(connection, event)
                elif file in self.listeners:
                    self._accept(file)
                elif file == stop_file:
                    self.stopping = not os.read(file, RECEIVE_BYTES)
            if self.delayed:
                self._send_due()

    def stop(self) -> None:
        self.stopping = True

    def close(self) -> None:
        """Close every socket; only after `serve` has returned."""
        for listener, _ in self.listeners.values():
            listener.close()
        for connection in self.connections.values():
            connection.sock.close()
        self.epoll.close()

    def _wait_s(self) -> float:
        # The timeout of epoll counts whole milliseconds, rounded up, so a due answer is at most 1 ms late.
        return max(0.0, self.delayed[0][0] - monotonic()) if self.delayed else POLL_S_MAX

    def _accept(self, file: int) -> None:
        listener, host = self.listeners[file]
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        table = self.tables[host] if host >= 0 else {}
        self.connections[sock.fileno()] = Connection(sock, host, table)
        self.epoll.register(sock.fileno(), select.EPOLLIN)

    def _advance(self, connection: Connection, event: int) -> None:
        try:
            if event & select.EPOLLOUT:
                self._send_backlog(connection)
            elif event & ~select.EPOLLIN:
                self._close(connection)
            else:
                self._receive(connection)
        except OSError:
            self._close(connection)

    def _receive(self, connection: Connection) -> None:
        data = connection.sock.recv(RECEIVE_BYTES)
        if not data:
            self._close(connection)
            return
        if connection.head:
            data = connection.head + data
        start, end = 0, data.find(b"\r\n\r\n")
        while end > 0:
            self._answer(connection, data[start : end + 4])
            start, end = end + 4, data.find(b"\r\n\r\n", end + 4)
        connection.head = data[start : start + RECEIVE_BYTES] if start < len(data) else b""

    def _answer(self, connection: Connection, head: bytes) -> None:
        path = head[4 : head.find(b" ", 4)]
        if connection.host < 0:
            self._send(connection, self._control(path))
            return
        answer = connection.table.get(path)
        self.accounts.count(connection.host, answer, path)
        parts = NOT_FOUND if answer is None else answer[0]
        if b"ion: close" in head or b"ion: Close" in head:
            connection.closing = True
        if head[:4] == b"HEAD":
            parts = [parts[0][: parts[0].index(b"\r\n\r\n") + 4]]
        latency_s = self.latency_s[connection.host]
        if latency_s:
            self._answered += 1
            heapq.heappush(self.delayed, (monotonic() + latency_s, self._answered, connection, parts))
        else:
            self._send(connection, parts)

    def _send_due(self) -> None:
        delayed, now = self.delayed, monotonic()
        while delayed and delayed[0][0] <= now:
            _, _, connection, parts = heapq.heappop(delayed)
            if connection.sock.fileno() < 0:
                continue
            try:
                self._send(connection, parts)
            except OSError:
                self._close(connection)

    def _send(self, connection: Connection, parts: Parts) -> None:
        if connection.backlog:
            connection.backlog += b"".join(parts)
            return
        try:
            sent = connection.sock.sendmsg(parts)
        except BlockingIOError:
            sent = 0
        length = sum(map(len, parts))
        if sent < length:
            connection.backlog = b"".join(parts)[sent:]
            self.epoll.modify(connection.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)
        elif connection.closing:
            self._close(connection)

    def _send_backlog(self, connection: Connection) -> None:
        sent = connection.sock.send(connection.backlog)
        connection.backlog = connection.backlog[sent:]
        if connection.backlog:
            return
        self.epoll.modify(connection.sock.fileno(), select.EPOLLIN)
        if connection.closing:
            self._close(connection)

    def _close(self, connection: Connection) -> None:
        if connection.sock.fileno() >= 0:
            del self.connections[connection.sock.fileno()]
            connection.sock.close()

    def _control(self, path: bytes) -> Parts:
        if path == b"/_stats?short":
            return with_headers([json.dumps(self.accounts.short_report()).encode()], content_type="application/json")
        if path == b"/_log":
            return with_headers([json.dumps({"requests": self.accounts.log}).encode()], content_type="application/json")
        if path == b"/_reset":
            self.accounts.reset()
        elif path != b"/_stats":
            return NOT_FOUND
        return with_headers([json.dumps(self.accounts.report()).encode()], content_type="application/json")


def listen(hosts: int, port: int) -> tuple[dict[int, tuple[socket.socket, int]], int]:
    """A socket per host and one for control (host -1), by file number, and the port that they share."""
    for _ in range(PORT_ATTEMPTS):
        opened: dict[int, tuple[socket.socket, int]] = {}
        chosen = port
        try:
            for host in range(-1, hosts):
                sock = socket.socket()
                opened[sock.fileno()] = (sock, host)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.bind((host_address(host) if host >= 0 else CONTROL_ADDRESS, chosen))
                sock.listen(BACKLOG)
                sock.setblocking(False)
                chosen = sock.getsockname()[1]
            return opened, chosen
        except OSError:
            for sock, _ in opened.values():
                sock.close()
            if port:
                raise
    raise OSError(f"no port is free on all {hosts} addresses after {PORT_ATTEMPTS} attempts")


def make_tables(shape: WebShape, port: int, hosts_denied: int) -> list[Table]:
    """For each host what it answers. The last `hosts_denied` hosts deny everything in robots.txt."""
    maker = PageMaker(shape, port)
    denied_page = with_headers([b"<!DOCTYPE html><title>Private</title><p>Nobody should read this.</p>"])
    robots = with_headers([ROBOTS], "text/plain")
    robots_denying = with_headers([ROBOTS_DENYING_ALL], "text/plain")
    tables = []
    pages: dict[int, list[tuple[str, Parts]]] = {}
    for host in range(shape.hosts):
        open_host = host < shape.hosts - hosts_denied
        kind = PAGE if open_host else DENIED
        original = shape.original_of(host)
        if original not in pages:
            pages[original] = maker.host_pages(original)
        numbered = enumerate(pages[original], host * shape.pages)
        table: Table = {path.encode(): (parts, kind, number) for number, (path, parts) in numbered}
        table |= {path.encode(): (denied_page, DENIED, 0) for path in denied_paths()}
        table[b"/robots.txt"] = (robots if open_host else robots_denying, ROBOTS_FILE, 0)
        tables.append(table)
    return tables


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.web", description=__doc__.split("\n", 1)[0] if __doc__ else "")
    parser.add_argument("--hosts", type=int, default=200)
    parser.add_argument("--pages", type=int, default=100, help="pages per host")
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument(
        "--latency-varies", type=float, default=0.0, help="by how much of it at most, from host to host"
    )
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    parser.add_argument("--size-median", type=int, default=20_000, help="bytes; the mean is 1.8 times that")
    parser.add_argument("--links", type=int, default=50, help="links per page")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--distinct-hosts", type=int, default=0, help="only so many have pages of their own; 0: all")
    parser.add_argument("--robots-deny", type=int, default=0, help="so many hosts deny everything")
    parser.add_argument("--gap-s", type=float, default=0.0, help="count contacts of a host closer than this")
    parser.add_argument("--log", action="store_true", help="keep a list of all requests")
    parser.add_argument("--seeds-file", type=Path, help="write one seed URL per host")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse_arguments()
    raise_open_files_limit()
    made_of = (options.size_median, options.links, options.seed, options.distinct_hosts)
    shape = WebShape(options.hosts, options.pages, *made_of)
    more = {"latency_varies": options.latency_varies, "log": options.log}
    web = Web(shape, options.port, options.gap_s, options.latency_ms / 1000, options.robots_deny, **more)
    if options.seeds_file:
        seeds = "".join(f"http://{host_address(host)}:{web.port}/\n" for host in range(options.hosts))
        options.seeds_file.write_text(seeds)
    signal.signal(signal.SIGTERM, lambda *_: web.stop())
    signal.signal(signal.SIGINT, lambda *_: web.stop())
    # Serving makes no reference cycles, so looking for them among 20,000 pages would only cause pauses.
    gc.freeze()
    gc.disable()
    pages = web.accounts.pages
    ready = {"port": web.port, "pages": pages, "seeds_file": str(options.seeds_file) if options.seeds_file else None}
    print(json.dumps(ready), flush=True)
    web.serve(stop_file=0)


def raise_open_files_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_WANTED)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    main()
