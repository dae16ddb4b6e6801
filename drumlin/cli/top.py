"""`drumlin top`: a crawl on the whole terminal, live."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from types import FrameType
from typing import TYPE_CHECKING

import click
import msgspec

from drumlin.cli.console import line, results, write_json
from drumlin.cli.help import Verb
from drumlin.cli.remote import remote_options
from drumlin.cli.screen.view import PANES, View
from drumlin.config import Loaded
from drumlin.errors import ConfigError
from drumlin.lines import counted

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.text import Text

    from drumlin.cli.screen.sampling import Sample, Seen
    from drumlin.client.remote import Remote

REDRAW_S = 0.25
"""How often a change of the terminal's size is looked for; samples and keys are drawn as they come."""
NO_TERMINAL = "`drumlin top` draws on a terminal, and this is none."
INSTEAD = "Give --once for one picture or --json for one sample; `drumlin status --watch` prints a line every second."


@click.command("top", cls=Verb)
@click.option("--once", is_flag=True, help="print one picture, with the whole list, and end")
@click.option("--show", type=click.Choice(PANES), default=PANES[0], show_default=True, help="the list to begin with")
@remote_options("json", "color")
def command(loaded: Loaded, remote: Remote, once: bool, show: str) -> None:
    """Watch a crawl on the whole terminal: how it is and what bounds it, its speed, its hosts with the reason for each
    wait, its nodes and its failures.

    Keys: q leaves, p holds the picture, tab or 1 2 3 choose a list, arrows scroll, ? explains.
    """
    console = results(loaded.process)
    can_draw = console.is_terminal and not console.is_dumb_terminal
    if not (can_draw or once or loaded.process.json):
        raise ConfigError(NO_TERMINAL, INSTEAD)
    from drumlin.cli.screen.sampling import first_sample

    sample = first_sample(remote)
    if loaded.process.json:
        write_json(sample)
    elif once or remote.standing:
        _print_picture(console, remote, sample, show)
    else:
        _tell_end(console, remote, _watch(console, remote, sample, View(show)))


def _name(remote: Remote) -> str:
    return str(remote.folder) if remote.folder is not None else ", ".join(remote.endpoints)


def _print_picture(console: Console, remote: Remote, sample: Sample, pane: str) -> None:
    from drumlin.cli.screen.frame import Scene, picture
    from drumlin.cli.screen.sampling import Seen

    for text in picture(Scene(_name(remote), Seen(sample), View(pane), 0.0), console.width):
        console.print(text, soft_wrap=True)
    if remote.standing and remote.folder is not None:
        line(console, f"It does not run. {_looks(remote.folder)}")


def _watch(console: Console, remote: Remote, sample: Sample, view: View) -> Seen:
    """Draw until the crawl or the person at the keyboard ends it; returns what was seen last."""
    from drumlin.cli.screen.frame import Scene, frame
    from drumlin.cli.screen.keys import Keyboard
    from drumlin.cli.screen.sampling import Sampler

    remote.tells_waiting = False
    sampler = Sampler(remote, sample, view.pane)
    with _ended_by_signals(view), Keyboard() as keyboard, console.screen(hide_cursor=True):
        sampler.start()
        seen = sampler.seen
        while not view.over and not sampler.seen.ended:
            seen = seen if view.held else sampler.seen
            scene = Scene(_name(remote), seen, view, time.monotonic(), keyboard.works, sampler.asked_at)
            drawn = frame(scene, *console.size)
            _draw(console, drawn.lines)
            for key in keyboard.read(REDRAW_S):
                view.press(key, drawn.rows, drawn.shown)
            sampler.show(view.pane)
    sampler.close()
    return sampler.seen


def _draw(console: Console, lines: list[Text]) -> None:
    """Draw over the picture before, in one piece, so nothing flickers."""
    from rich.console import Group
    from rich.control import Control
    from rich.screen import Screen

    with console:
        console.control(Control.home())
        console.print(Screen(Group(*lines)), end="")


@contextlib.contextmanager
def _ended_by_signals(view: View) -> Iterator[None]:
    """Ctrl-C and SIGTERM leave as `q` does, so the terminal is put back as it was."""

    def leave(number: int, stack: FrameType | None) -> None:
        view.over = True

    before = {number: signal.signal(number, leave) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell_end(console: Console, remote: Remote, seen: Seen) -> None:
    """If the crawl has ended, say how, and how to look at it from now on."""
    if not seen.ended:
        return
    stats = seen.sample.stats
    line(console, _ending(remote.folder, stats["pages"]) or _last_words(seen), style="bold")
    if remote.folder is not None and remote.of_one_machine:
        line(console, _looks(remote.folder))
    elif remote.folder is not None:
        line(console, f"`drumlin report --out {remote.folder}` shows what it has fetched.")


def _last_words(seen: Seen) -> str:
    stats = seen.sample.stats
    left = stats["totals"]["pending"]
    return f"The crawl has ended: {counted(stats['pages'], 'page')}, {counted(left, 'URL')} left."


def _ending(folder: Path | None, pages: int) -> str:
    """How the crawl ended, by its report; empty without one, or where it is that of an earlier run."""
    from drumlin.api.explaining.report import REPORT_NAME, Report
    from drumlin.cli.summary import ending

    if folder is None:
        return ""
    try:
        report = msgspec.json.decode((folder / REPORT_NAME).read_bytes(), type=Report)
    except (OSError, msgspec.DecodeError):
        return ""
    return f"{ending(report)} {counted(report.pages, 'page')} in all." if report.pages >= pages else ""


def _looks(folder: Path) -> str:
    return (
        f"`drumlin open {folder}` shows it in a browser, `drumlin report --out {folder}` what it has fetched, "
        f"`drumlin query --out {folder}` answers questions about it."
    )
