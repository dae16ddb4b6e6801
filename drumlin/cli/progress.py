"""Live progress: a panel that redraws on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.constrain import Constrain
from rich.live import Live
from rich.table import Table
from rich.text import Text

from drumlin.cli.console import line
from drumlin.cli.estimate import Estimate, Sample
from drumlin.cli.figures import answers, hosts_now, in_flight, pace, pages_now, status_classes
from drumlin.config.quantities import show_duration, show_size
from drumlin.lines import counted, one_line

if TYPE_CHECKING:
    from drumlin.coordinator.totals import Totals
    from drumlin.local.crawl import LocalCrawl

REDRAW_S = 0.5
LINE_S = 5.0
RATE_WINDOW_S = 5.0
LAG_SHOWN_S = 1.0
ECHO_COLUMNS = 3
"""Left free at the right: a terminal shows `^C` at the end of the last line, and must not begin a new one for it."""
LABEL = "dim"
BAD = "yellow"


class Progress:
    """Shows the progress of a crawl. It is a context manager, since a live display must be removed at the end."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._next = 0.0
        self._samples: deque[tuple[float, int, int]] = deque()
        self._estimate = Estimate()

    def __enter__(self) -> Progress:
        if self._live is not None and not self._quiet:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None and not self._quiet:
            self._live.stop()

    def show(self, totals: Totals, crawl: LocalCrawl) -> None:
        """Show how the crawl stands, if it is time to. If it cannot be written, for instance to a file on a full disk,
        the crawl goes on without it; if its reader has gone, that ends the crawl as it ends other commands."""
        try:
            self._show(totals, crawl)
        except BrokenPipeError:
            raise
        except OSError:
            self._quiet = True

    def _show(self, totals: Totals, crawl: LocalCrawl) -> None:
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._samples.append((now, totals.pages, totals.bytes))
        self._estimate.add(Sample(now, totals.pages, totals.bytes, totals.pending))
        while now - self._samples[0][0] > RATE_WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()
        if self._live is not None:
            self._next = now + REDRAW_S
            panel = Constrain(self._panel(totals, crawl), self._console.width - ECHO_COLUMNS)
            self._live.update(panel, refresh=True)
        else:
            self._next = now + LINE_S
            line(self._console, self._line(totals, crawl))

    def _rates(self) -> tuple[float, float]:
        (start, pages, size), (end, pages_now, size_now) = self._samples[0], self._samples[-1]
        span_s = max(end - start, 0.001)
        return (pages_now - pages) / span_s, (size_now - size) / span_s

    def _left(self, crawl: LocalCrawl) -> str:
        """How long the crawl will still take, if there is an estimate."""
        if crawl.dispatcher.stop_reason:
            return ""
        return self._estimate.left(crawl.dispatcher.config, crawl.elapsed_s)

    def _line(self, totals: Totals, crawl: LocalCrawl) -> str:
        pages_s, bytes_s = self._rates()
        left = f", {left}" if (left := self._left(crawl)) else ""
        classes = " ".join(f"{name} {count:,}" for name, count in status_classes(totals.group("status.")).items())
        bounds = f", bound by {' and '.join(crawl.bounds.names)}" if crawl.bounds.names else ""
        troubles = "".join(f"; {trouble}" for trouble in crawl.troubles)
        return one_line(
            f"{show_duration(round(crawl.elapsed_s))}{left}: {counted(totals.pages, 'page')} done, "
            f"{totals.pending:,} to go, {pace(pages_s)} pages/s, {show_size(bytes_s)}/s, "
            f"{classes}, {counted(_errors(totals), 'error')}, {_under_way(crawl)}, "
            f"hosts: {_hosts(totals)}{bounds}{troubles}"
        )

    def _panel(self, totals: Totals, crawl: LocalCrawl) -> Table:
        pages_s, bytes_s = self._rates()
        speed = f"{pace(pages_s)} pages/s · {show_size(bytes_s)}/s · {_under_way(crawl)}"
        left = f", {left}" if (left := self._left(crawl)) else ""
        used = f"{show_duration(round(crawl.elapsed_s))}{left}"
        table = Table.grid(padding=(0, 2))
        table.add_column(style=LABEL, no_wrap=True)
        table.add_column()
        table.add_row("pages", pages_now(totals.pages, totals.known, totals.pending))
        table.add_row("speed", speed)
        table.add_row("answers", answers(totals.group("status."), _errors(totals)))
        table.add_row("hosts", _hosts(totals))
        for place, cause in enumerate(crawl.bounds.sentences):
            table.add_row("" if place else "bound by", one_line(cause))
        for place, trouble in enumerate(crawl.troubles):
            table.add_row("" if place else "trouble", Text(one_line(trouble), BAD))
        if crawl.dispatcher.stop_reason:
            table.add_row("stopping", Text(f"{_why_stopping(crawl)}: finishing what is in flight", BAD))
        table.add_row("time", f"{used} · Ctrl-C stops, the same command resumes")
        return table


def _why_stopping(crawl: LocalCrawl) -> str:
    return crawl.dispatcher.stop_reason.replace("_", " ")


def _errors(totals: Totals) -> int:
    return totals.counters.get("outcome.failed", 0)


def _under_way(crawl: LocalCrawl) -> str:
    """The requests in flight and, if it is worth a look, how far storing is behind: in a healthy crawl a page is
    settled within a fraction of a second."""
    behind = f", {show_duration(crawl.lag_s)} behind with storing" if crawl.lag_s >= LAG_SHOWN_S else ""
    return f"{in_flight(crawl.in_flight)} in flight{behind}"


def _hosts(totals: Totals) -> str:
    return hosts_now(totals.hosts_ready, totals.hosts_waiting, totals.hosts_leased, totals.hosts_in_backoff)
