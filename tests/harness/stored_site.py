"""A small site with something of everything that a stored page can be: types, languages, encodings, repeated contents,
and pages that try to run scripts, load things, and look like markup wherever they are named."""

from __future__ import annotations

import codecs
from pathlib import Path

from drumlin.testing import FakeWeb, Response
from tests.acceptance.commands import NO_PATIENCE, crawl

HOST = "site"
SCRIPT = "<img src=x onerror=\"document.body.dataset.hacked=1;alert('img')\"><script>alert('script')</script>"
HOSTILE_PATH = "/%3Cscript%3Ealert('url')%3C/script%3E?q=%22%3E%3Cimg+src=x+onerror=alert(1)%3E"
JAPANESE = "日本語のページです。文字が正しく表示されることを確かめます。" * 5
GERMAN = "Dies ist eine Seite in deutscher Sprache, damit auch eine zweite Sprache gefunden werden kann. " * 8
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010806000000"
    "1f15c4890000000d49444154789c6360f8cfc0f01f0005000201e221bc330000000049454e44ae426082"
)
# Hostile again, in an encoding that its second byte-order mark names.
MARKED_PATH = "/marked"
LINKED = (
    *("/a", "/b", "/nearly", "/german", "/japanese", "/packed", "/picture.png", "/data.json"),
    *(HOSTILE_PATH, MARKED_PATH),
)
# These are found through `/a` and each other. So the content of `/a` is known before its twin is fetched.
PATHS = (*LINKED, "/later", "/twin")


def make_site(web: FakeWeb, *, elsewhere: str = "http://127.0.0.1:9/") -> str:
    """Let a host answer with these pages; returns the address of its first one. `elsewhere` is what the hostile page
    tries to load things from."""
    links = "".join(f'<li><a href="{path}">to {path.strip("/")[:12]}</a>' for path in LINKED)
    web.page(HOST, "/", f"<title>A home</title><ul>{links}</ul>")
    words = " ".join(f"word{number}" for number in range(400))
    for path in ("/a", "/twin"):
        web.page(HOST, path, f'<title>The first</title><p>{words}<a href="/later">later</a>')
    web.page(HOST, "/later", '<title>Later</title><a href="/twin">A twin</a>')
    web.page(HOST, "/nearly", f"<title>The first</title><p>{words} and a few more")
    web.page(HOST, "/b", f"<title>{SCRIPT}</title><h1>{SCRIPT}</h1>" + "others " * 30)
    web.page(HOST, "/german", f"<html lang=de><title>Über uns</title><p>{GERMAN}")
    shift_jis = f"<meta charset=shift_jis><title>日本</title><p>{JAPANESE}".encode("shift_jis")
    web.respond(HOST, "/japanese", Response(body=shift_jis, content_type="text/html"))
    web.respond(HOST, "/packed", Response(body="<title>Packed</title>" + "squeezed " * 2_000, encoding="gzip"))
    web.respond(HOST, "/picture.png", Response(body=PIXEL, content_type="image/png"))
    web.respond(HOST, "/data.json", Response(body='{"a": 1}', content_type="application/json"))
    web.respond(HOST, HOSTILE_PATH, Response(body=hostile(elsewhere), headers={"Set-Cookie": "stolen=1"}))
    marked = codecs.BOM_UTF8 + codecs.BOM_UTF16_LE + hostile(elsewhere).encode("utf-16-le")
    web.respond(HOST, MARKED_PATH, Response(body=marked, content_type="text/html"))
    return web.url(HOST)


def hostile(elsewhere: str) -> str:
    """A page that does what it can to run something, or to reach another host, when somebody looks at it."""
    return f"""<!doctype html><title>{SCRIPT}</title>
    <meta http-equiv=refresh content="0;url={elsewhere}refresh">
    <meta http-equiv=Content-Security-Policy content="default-src *">
    <base href="{elsewhere}" target=_top>
    <link rel=stylesheet href="{elsewhere}style.css"><link rel=preload as=image href="{elsewhere}preload.png">
    <link rel=preconnect href="{elsewhere}"><link rel=dns-prefetch href="{elsewhere}">
    <link rel=prefetch href="{elsewhere}prefetch"><link rel=icon href="{elsewhere}icon.png">
    <link rel=manifest href="{elsewhere}manifest"><link rel=modulepreload href="{elsewhere}module.js">
    <style>body {{ background: url({elsewhere}style.png) }} @import url({elsewhere}import.css);</style>
    <body onload="alert('load')" background="{elsewhere}back.png">
    <h1 id=told>A hostile page</h1>
    <script>parent.document.body.dataset.hacked = 1; alert('inline');
    fetch('/api/v1/crawl/stop', {{method: 'POST'}})</script>
    <script src="{elsewhere}script.js"></script><img src="{elsewhere}picture.png" onerror="alert('error')">
    <iframe src="{elsewhere}frame"></iframe><iframe srcdoc="<script>alert('srcdoc')</script>"></iframe>
    <object data="{elsewhere}object"></object><embed src="{elsewhere}embed">
    <video src="{elsewhere}film" autoplay></video>
    <svg onload="alert('svg')"><script>alert('svg script')</script><image href="{elsewhere}svg.png"/></svg>
    <form action="/api/v1/crawl/stop" method=post><input autofocus onfocus="alert('focus')">
    <button>Send</button></form>
    <a id=away href="{elsewhere}away">Away</a> <a href="javascript:alert('link')">Script</a>
    """


def crawled(folder: Path, *, elsewhere: str = "http://127.0.0.1:9/") -> str:
    """Crawl this site into `crawl` in a folder; returns the address of its first page."""
    with FakeWeb(hosts=0) as web:
        home = make_site(web, elsewhere=elsewhere)
        done = crawl(folder, home, *NO_PATIENCE, "--out", "crawl")
        assert done.returncode == 0, done.stderr
    return home
