"""A web with names to take pictures of: some hosts of example.org, large and small, fast and slow, a few in trouble."""

from __future__ import annotations

import random
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DOMAIN = "example.org"
# How many dozens of pages each host has, and how long its answers take, in seconds.
HOSTS: dict[str, tuple[int, float]] = {
    "docs": (15, 0.08),
    "wiki": (13, 0.25),
    "blog": (10, 0.12),
    "forum": (12, 0.6),
    "news": (9, 0.1),
    "shop": (8, 0.18),
    "learn": (7, 0.09),
    "lists": (7, 0.35),
    "help": (6, 0.07),
    "events": (5, 0.15),
    "jobs": (4, 0.1),
    "press": (4, 0.08),
    "photos": (6, 1.4),
    "archive": (11, 0.9),
    "status": (1, 0.05),
    "mirror": (5, 0.1),
    "old": (2, 0.1),
    "api": (3, 0.06),
}
BROKEN = "old"
"""Answers its robots.txt with an error."""
CAREFUL = {"archive": 2.5, "photos": 4.0}
"""What the robots.txt of a host asks for."""
WORDS = (
    "river",
    "stone",
    "field",
    "cloud",
    "north",
    "ridge",
    "gravel",
    "valley",
    "moraine",
    "drift",
    "slope",
    "meadow",
)
NAMES = [f"{host}.{DOMAIN}" for host in HOSTS]


def page(host: str, path: str) -> tuple[int, str]:
    """Status and body."""
    count = 12 * HOSTS[host][0]
    number = 0 if path == "/" else int(path.removeprefix("/guide/")) if path.startswith("/guide/") else -1
    if not 0 <= number < count or number % 23 == 22:
        return 404, "<title>Not found</title>"
    if number % 19 == 17:
        return 500, "<title>Oops</title>"
    chance = random.Random(f"{'docs' if host == 'mirror' else host}{number}")  # noqa: S311  # made-up words
    text = " ".join(chance.choice(WORDS) for _ in range(200))
    near = [f"/guide/{one}" for one in range(number + 1, min(number + 25, count))]
    far = [f"https://{name}.{DOMAIN}/" for name in chance.sample(sorted(HOSTS), 3)] if number % 5 == 0 else []
    links = "".join(f'<a href="{link}">{link}</a> ' for link in [*near, "/private/notes", *far])
    title = f"{host.capitalize()}, {'home' if number == 0 else f'part {number}'}"
    return (
        200,
        f'<!DOCTYPE html><html lang="en"><title>{title}</title><main><h1>{title}</h1><p>{text}</p></main>{links}',
    )


class Site(BaseHTTPRequestHandler):
    """All hosts, told apart by the name that is asked for."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        host = self.headers["Host"].partition(".")[0]
        time.sleep(HOSTS[host][1])
        if self.path == "/robots.txt":
            delay = f"Crawl-delay: {CAREFUL[host]}\n" if host in CAREFUL else ""
            status, body = (503 if host == BROKEN else 200), f"User-agent: *\nDisallow: /private/\n{delay}"
        else:
            status, body = page(host, self.path)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if self.path == "/robots.txt" else "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *words: object) -> None:
        """Log nothing."""


def serve(address: str, context: ssl.SSLContext) -> None:
    """Answer on port 443 until the process ends."""
    server = ThreadingHTTPServer((address, 443), Site)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
