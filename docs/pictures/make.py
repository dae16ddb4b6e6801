"""Makes the pictures of README.md and the docs: `make pictures`.

A recording of a terminal (terminal.svg) and screenshots of the dashboard (dashboard-light.png, dashboard-dark.png), of
real crawls of a made-up web (`web.py`), in a machine of its own (`tests/harness/sealed.py`). So the names are nice, and
nothing of this machine is in them. Look at them before you commit them.
"""

from __future__ import annotations

import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fcntl import ioctl
from pathlib import Path
from termios import TIOCSWINSZ

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from playwright.sync_api import Browser, sync_playwright  # noqa: E402
from terminal import frames_of, svg  # noqa: E402
from web import NAMES, serve  # noqa: E402

from tests.harness.browser import CHROMIUM  # noqa: E402
from tests.harness.sealed import ADDRESS, UNSHARE, network, trusted  # noqa: E402

COLUMNS, ROWS = 88, 26
TYPED_S, READ_S, STEP_S = 0.03, 2.5, 0.25
"""How long a key takes, how long a result is shown, and the shortest time of a picture."""
HURRIED = 4
"""How many times faster than in truth commands run in the recording."""
CODE = re.compile(r"#code=[\w-]+")
PROMPT = "\x1b[32m$\x1b[0m "
SESSION = (
    "drumlin crawl https://docs.example.org/ --scope domain --pages-max 150 --out docs",
    'drumlin query "SELECT host, pages, mean_s FROM hosts ORDER BY 3 DESC LIMIT 5" --out docs',
    "drumlin why https://docs.example.org/guide/3 --out docs",
)
SCREEN = {"width": 1360, "height": 1000}
SCALE = 1.5
WATCHED_S = 40.0
"""How long a crawl runs before its picture is taken."""
PICTURE_BYTES_MAX = 400_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        command = [*UNSHARE, "--mount-proc", sys.executable, str(HERE / "make.py"), "--inside", folder]
        subprocess.run(command, cwd=folder, env=os.environ | {"HOME": folder}, check=True, timeout=600)
    for path in sorted(HERE.glob("*.[sp][vn]g")):
        print(f"{path.name}: {path.stat().st_size:,} bytes")


def inside(folder: Path) -> None:
    world = folder / ".world"
    world.mkdir()
    network(world, ((ADDRESS, name) for name in NAMES))
    serve(ADDRESS, trusted(world, NAMES))
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    os.environ["DRUMLIN_CONTACT"] = "me@example.net"
    os.chdir(folder)
    frames = frames_of(_session(), COLUMNS, ROWS, STEP_S)
    (HERE / "terminal.svg").write_text(svg(frames, COLUMNS, ROWS, f"drumlin ({HURRIED} times faster than it was)"))
    _screenshots()


# The recording


def _session() -> Iterator[tuple[float, str]]:
    """What a person types and what comes of it, with the seconds since the beginning."""
    now = 0.0
    for command in SESSION:
        yield now, PROMPT
        for character in command:
            now += TYPED_S
            yield now, character
        now += 10 * TYPED_S
        yield now, "\n"
        for passed_s, text in _run(command):
            yield now + passed_s / HURRIED, CODE.sub("#code=…", text)
        now += passed_s / HURRIED
        for _ in range(3):
            now += READ_S / 3
            yield now, ""
    yield now, PROMPT


def _run(command: str) -> Iterator[tuple[float, str]]:
    """Run a command on a terminal of its own; gives what it writes, whole reads at a time."""
    began = time.monotonic()
    pid, descriptor = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(COLUMNS), LINES=str(ROWS))
        os.execvp("sh", ["sh", "-c", command])  # noqa: S606  # the command is ours
    ioctl(descriptor, TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    while True:
        select.select([descriptor], [], [])
        try:
            read = os.read(descriptor, 65_536)
        except OSError:  # how Linux says that nobody writes any more
            break
        yield time.monotonic() - began, read.decode(errors="replace").replace("\r\n", "\n")
    os.waitpid(pid, 0)
    yield time.monotonic() - began, ""


# The screenshots


def _screenshots() -> None:
    seeds = [f"https://{name}/" for name in NAMES]
    command = ["drumlin", "crawl", *seeds, "--scope", "domain", "--out", "web", "--ui"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    ) as crawl:
        address = next(found[0] for line in crawl.stdout or () if (found := re.search(r"http://127\S+", line)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            _take(browser, address)
            browser.close()
        crawl.terminate()
        crawl.communicate()


def _take(browser: Browser, address: str) -> None:
    context = browser.new_context(viewport=SCREEN, device_scale_factor=SCALE, color_scheme="light")
    page = context.new_page()
    page.goto(address)
    page.locator("main h1").wait_for()
    page.wait_for_timeout(WATCHED_S * 1000)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(1500)
        path = HERE / f"dashboard-{scheme}.png"
        page.screenshot(path=path)
        if path.stat().st_size > PICTURE_BYTES_MAX:
            raise SystemExit(f"{path.name} has {path.stat().st_size:,} bytes; {PICTURE_BYTES_MAX:,} is the most.")
    context.close()


if __name__ == "__main__":
    inside(Path(sys.argv[2])) if "--inside" in sys.argv else main()
