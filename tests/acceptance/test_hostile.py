"""A site that answers with everything a site should not: the crawl ends well and no node dies of it."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

from drumlin.errors import EXIT_OK
from drumlin.testing import FakeWeb, Response
from tests.acceptance.commands import crawl, drumlin, pages_of

CHANCE = random.Random(5)
ENTITIES = '<!ENTITY l0 "l">' + "".join(f'<!ENTITY l{number} "{f"&l{number - 1};" * 10}">' for number in range(1, 9))
HREFS = ["http://", "//", "///", "http:///x", "#", "?", "&#0;", "\0", "http://a b/", "http://%/", "https://xn--/"]
HREFS += ["http://1.2.3.4.5/", "\U0001f600", f"http://{'a' * 300}/", "%ff%fe", "/%00", "/\u202e", f"//{'x.' * 200}"]
SITEMAP = "<url><loc>&#0;http://</loc><priority>nan</priority></url>"

ANSWERS: dict[str, Response] = {
    "retry-after-no-number": Response(status=429, headers={"Retry-After": "²"}),
    "retry-after-year-1": Response(status=503, headers={"Retry-After": "Fri, 02 Jan 0001 00:00:00 +2359"}),
    "location-of-bytes": Response(status=302, headers={"Location": "\xff\xfe//\x80"}),
    "location-port": Response(status=301, headers={"Location": "http://[::1]:99999/"}),
    "location-long": Response(status=302, headers={"Location": "/ok" * 3000}),
    "choices": Response(status=300, body="several"),
    "not-modified": Response(status=304),
    "type-of-bytes": Response(body="x", content_type="\xff/\xfe; charset=\x80"),
    "type-empty": Response(body="x", content_type=""),
    "charset-long": Response(body="<p>x", content_type="text/html; charset=" + "a" * 5000),
    "encodings": Response(body=b"x" * 100, headers={"Content-Encoding": "gzip, br, zstd, deflate, gzip"}),
    "gzip-cut": Response(body=gzip.compress(b"x")[:-4], headers={"Content-Encoding": "gzip"}),
    "gzip-bomb": Response(body=gzip.compress(b"\0" * 80_000_000, 1), headers={"Content-Encoding": "gzip"}),
    "encoding-of-bytes": Response(body=b"abc", headers={"Content-Encoding": "\xff"}),
    "hsts": Response(body="x", headers={"Strict-Transport-Security": "max-age=²"}),
    "wishes": Response(body="x", headers={"X-Robots-Tag": "\xff: noindex,,,;;;"}),
    "deep": Response(body="<div>" * 100_000),
    "attributes": Response(body=f"<a {'x=y ' * 100_000}>"),
    "links": Response(body="".join(f'<a href="/l{number % 9}">x</a>' for number in range(50_000))),
    "zeroes": Response(body=b"\0" * 300_000),
    "noise": Response(body=CHANCE.randbytes(300_000)),
    "utf-16": Response(body="<a href='/from-utf-16'>é</a>".encode("utf-16")),
    "base-script": Response(body='<base href="javascript:x"><a href="y">y</a>'),
    "base-broken": Response(body='<base href="http://[bad"><a href="/y">y</a>'),
    "hrefs": Response(body="".join(f'<a href="{href}">x</a>' for href in HREFS)),
    "status-999": Response(status=999, body="x"),
    "sitemap": Response(body=f"<?xml version='1.0'?><urlset>{SITEMAP * 500}</urlset>", content_type="text/xml"),
    "xml-bomb": Response(
        body=f'<?xml version="1.0"?><!DOCTYPE l [{ENTITIES}]><urlset><url><loc>&l8;</loc></url></urlset>',
        content_type="application/xml",
    ),
    "header-noise": Response(body="<p>x", headers={"Set-Cookie": "\xff=\xfe", "Link": "<" * 5000}),
}
ROBOTS: dict[str, Response] = {
    "noise": Response(body=b"\xff\xfe" + CHANCE.randbytes(50_000)),
    "circle": Response(status=302, headers={"Location": "/robots.txt"}),
    "delays": Response(
        body=b"User-agent: *\nCrawl-delay: \xb2\nCrawl-delay: nan\nCrawl-delay: -1e999\nSitemap: \xff\n"
    ),
}


def test_a_hostile_site_costs_no_node_its_life(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web:
        for path, answer in ANSWERS.items():
            web.respond("hostile", f"/{path}", answer)
        seeds = [web.page("hostile", "/", "".join(f'<a href="/{path}">x</a>' for path in ANSWERS))]
        for host, answer in ROBOTS.items():
            web.respond(host, "/robots.txt", answer)
            seeds.append(web.page(host, "/", "<p>behind an odd robots.txt"))
        done = crawl(tmp_path, *seeds, "--retries-max", "0", "--json", "--quiet")
        said = json.loads(done.stdout)
        asked = set(pages_of(web, "hostile"))
    assert (done.returncode, done.stderr, said["urls_pending"]) == (EXIT_OK, "", 0)
    assert {f"/{path}" for path in ANSWERS} <= asked
    assert "/from-utf-16" in asked
    assert [log.read_text() for log in (tmp_path / "crawl" / "logs").iterdir()] == [""], "no node died or complained"
    assert set(said["dead_letters"]) == {"http_5xx", "bad_redirect", "decode", "protocol", "rate_limited", "too_large"}
    assert drumlin(tmp_path, "dead-letters", "list").returncode == EXIT_OK
    for warc in (tmp_path / "crawl" / "warc").glob("*.warc.gz"):
        subprocess.run([sys.executable, "-m", "warcio.cli", "check", str(warc)], check=True)
