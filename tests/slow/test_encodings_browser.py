"""A browser reads every sequence of the legacy encodings as we do, and writes every query as we do.

Where Chromium and the Encoding Standard differ, the standard wins, and the difference is named here.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from ada_url import URL

from drumlin.parse import queries_in
from drumlin.parse.encoding.decoders import decode
from drumlin.parse.encoding.labels import LABELS
from tests.harness.encodings import LEGACY, four_bytes, sequences
from tests.harness.replay import CHROMIUM

BROWSER_S_MAX = 300
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
# Chromium's TextDecoder knows no label of the replacement encoding: a script has no use for it.
REPLACED = {label for label, name in LABELS.items() if name == "replacement"}
# Four pairs of Big5 mean a letter and an accent (Encoding Standard, Big5 decoder, step 3.4); Chromium makes other
# characters of them.
BIG5_TWO_CHARACTERS = {b"\x88\x62": "Ê̄", b"\x88\x64": "Ê̌", b"\x88\xa3": "ê̄", b"\x88\xa5": "ê̌"}
# A text that ends within an escape sequence: the standard reads the "$" or "(" after ESC in the mode that was on,
# Chromium as ASCII.
CUT_ESCAPES = {escape + b"\x1b" + last for escape in (b"\x1b(I", b"\x1b$@", b"\x1b$B") for last in (b"$", b"(")}

# A new TextDecoder for each sequence: Chromium's carry over what an error left.
DECODING = """<!doctype html><script>(async () => {
  const asked = await (await fetch('/asked')).json(), answer = {labels: {}, texts: []};
  for (const label of asked.labels) {
    try { answer.labels[label] = new TextDecoder(label).encoding } catch (error) { answer.labels[label] = null }
  }
  for (const sequence of asked.sequences) {
    const bytes = Uint8Array.from(sequence.match(/../g), pair => parseInt(pair, 16));
    answer.texts.push(new TextDecoder(asked.encoding, {ignoreBOM: true}).decode(bytes));
  }
  await fetch('/answer', {method: 'POST', body: JSON.stringify(answer)});
})()</script>"""
WRITING = """<!doctype html><a id=a></a><script>(async () => {
  const asked = await (await fetch('/asked')).json(), anchor = document.getElementById('a'), answer = [];
  for (const query of asked.queries) {
    anchor.setAttribute('href', '/?' + query);
    answer.push(anchor.search.slice(1));
  }
  await fetch('/answer', {method: 'POST', body: JSON.stringify(answer)});
})()</script>"""

CHARACTERS = [chr(code) for code in (*range(0x80, 0xD800), *range(0xE000, 0x10000), 0x1F600, 0x20021, 0x10FFFF)]
QUERIES = ["日本a語", "q=あ&b=¥x~y‾z\\w", "é あ", "あé", "¥é~", "ｱﾞｶﾟ", "a日'\"<b>", "漢é漢", "−～‖", "①㈱€"]


def ask(page: str, asked: dict[str, Any], charset: str, profile: Path) -> Any:
    """What a page answers in a browser that is asked something."""
    assert CHROMIUM is not None, "apt-get install chromium"
    answers: list[Any] = []
    answered = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send((json.dumps(asked) if self.path == "/asked" else page).encode("ascii"))

        def do_POST(self) -> None:
            answers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self._send(b"")
            answered.set()

        def _send(self, body: bytes) -> None:
            self.send_response(200)
            kind = "application/json" if self.path == "/asked" else f"text/html; charset={charset}"
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as origin, browsing(origin, profile):
        assert answered.wait(BROWSER_S_MAX), f"Chromium did not answer for {charset}"
    return answers[0]


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def browsing(url: str, profile: Path) -> Iterator[None]:
    command = [CHROMIUM or "", *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-port=0", url]
    browser = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        browser.terminate()
        browser.wait()


def test_every_label_means_to_us_what_it_means_to_a_browser(tmp_path: Path) -> None:
    strangers = ["utf-7", "utf-32", "cesu-8", "cp850", "x-mac-ce", "none", "", "latin-1", "utf-8\x00", "\u212aoi8-r"]
    asked = {"labels": [*LABELS, *strangers], "sequences": [], "encoding": "utf-8"}
    answer = ask(DECODING, asked, "utf-8", tmp_path)["labels"]
    expected = {label: None if label in REPLACED else name.lower() for label, name in LABELS.items()}
    assert answer == expected | dict.fromkeys(strangers)


@pytest.mark.parametrize("name", LEGACY)
def test_every_sequence_of_an_encoding_means_to_us_what_it_means_to_a_browser(name: str, tmp_path: Path) -> None:
    asked = list(sequences(name))
    if name in ("GBK", "gb18030"):
        asked += four_bytes()
    answer = ask(
        DECODING, {"labels": [], "sequences": [one.hex() for one in asked], "encoding": name}, "utf-8", tmp_path
    )
    differing = {
        sequence: (decode(name, sequence), text)
        for sequence, text in zip(asked, answer["texts"], strict=True)
        if decode(name, sequence) != text
    }
    if name == "Big5":
        assert {sequence: ours for sequence, (ours, _) in differing.items()} == BIG5_TWO_CHARACTERS
    elif name == "ISO-2022-JP":
        assert set(differing) == CUT_ESCAPES
    else:
        assert not differing


@pytest.mark.parametrize("name", LEGACY)
def test_every_character_in_a_query_is_written_as_a_browser_writes_it(name: str, tmp_path: Path) -> None:
    answer = ask(WRITING, {"queries": CHARACTERS + QUERIES}, name, tmp_path)
    ours = [
        URL(f"http://x/{href}").search[1:] for href in queries_in(name, [f"?{text}" for text in CHARACTERS + QUERIES])
    ]
    differing = [
        (text, mine, theirs)
        for text, mine, theirs in zip(CHARACTERS + QUERIES, ours, answer, strict=True)
        if mine != theirs
    ]
    assert not differing
