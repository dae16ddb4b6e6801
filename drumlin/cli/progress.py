"""Live progress: a panel that redraws on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import time
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table

from drumlin.cli.status import in_flight
from drumlin.config.quantities import format_duration
from drumlin.coordinator.why import out_of_reach
from drumlin.lines import one_line

if TYPE_CHECKING:
    from drumlin.coordinator.totals import Totals
    from drumlin.local import LocalCrawl

REDRAW_S = 0.5
LINE_S = 5.0
RATE_WINDOW_S = 5.0
LAG_SHOWN_S = 1.0
MEGABYTE = 1_000_000


class Progress:
    """Shows how a crawl goes on; a context manager, since a live display must be put away."""

    def __init__(self, console: Console, *, quiet: bool) -> None:
        self._console = console
        self._quiet = quiet
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        self._next = 0.0
        self._samples: deque[tuple[float, int, int]] = deque()

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
        now = time.monotonic()
        if self._quiet or now < self._next:
            return
        self._samples.append((now, totals.pages, totals.bytes))
        while now - self._samples[0][0] > RATE_WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()
        if self._live is not None:
            self._next = now + REDRAW_S
            self._live.update(self._panel(totals, crawl), refresh=True)
        else:
            self._next = now + LINE_S
            self._console.print(self._line(totals, crawl), soft_wrap=True)

    def _rates(self) -> tuple[float, float]:
        (start, pages, size), (end, pages_now, size_now) = self._samples[0], self._samples[-1]
        span_s = max(end - start, 0.001)
        return (pages_now - pages) / span_s, (size_now - size) / span_s / MEGABYTE

    def _line(self, totals: Totals, crawl: LocalCrawl) -> str:
        pages_s, megabytes_s = self._rates()
        return (
            f"{format_duration(round(crawl.elapsed_s))}  {totals.pages} pages done, {totals.known} URLs known, "
            f"{pages_s:.0f} pages/s, {megabytes_s:.1f} MB/s, {_statuses(totals)}, "
            f"{totals.counters.get('outcome.failed', 0)} errors, {in_flight(crawl.in_flight)} in flight{_lag(crawl)}, "
            f"hosts: {_hosts(totals)}{_out_of_reach(crawl, '; ')}"
        )

    def _panel(self, totals: Totals, crawl: LocalCrawl) -> Table:
        pages_s, megabytes_s = self._rates()
        table = Table.grid(padding=(0, 2))
        draining = (
            f" · {crawl.dispatcher.stop_reason}: finishing what is in flight" if crawl.dispatcher.stop_reason else ""
        )
        table.add_row(
            "pages", f"{totals.pages:,} done · {totals.known:,} URLs known · {totals.pending:,} to go{draining}"
        )
        under_way = f"{in_flight(crawl.in_flight)} in flight{_lag(crawl)}"
        table.add_row("speed", f"{pages_s:,.0f} pages/s · {megabytes_s:,.1f} MB/s · {under_way}")
        table.add_row("answers", f"{_statuses(totals)} · {totals.counters.get('outcome.failed', 0):,} errors")
        table.add_row("hosts", _hosts(totals))
        if crawl.out_of_reach:
            table.add_row("out of reach", one_line(_out_of_reach(crawl)))
        table.add_row("time", f"{format_duration(round(crawl.elapsed_s))} · Ctrl-C stops, the same command resumes")
        return table


def _statuses(totals: Totals) -> str:
    classes = dict.fromkeys(("2xx", "3xx", "4xx", "5xx"), 0)
    for status, count in totals.group("status.").items():
        name = f"{status[0]}xx"
        classes[name] = classes.get(name, 0) + count
    return " ".join(f"{name} {count:,}" for name, count in classes.items())


def _lag(crawl: LocalCrawl) -> str:
    """Said only when it is worth a look: a healthy crawl settles a page within a fraction of a second."""
    return f", settling {crawl.lag_s:.1f} s behind" if crawl.lag_s >= LAG_SHOWN_S else ""


def _hosts(totals: Totals) -> str:
    back_off = f", {totals.hosts_in_backoff:,} in back-off" if totals.hosts_in_backoff else ""
    return f"{totals.hosts_ready:,} ready, {totals.hosts_waiting:,} waiting, {totals.hosts_leased:,} leased{back_off}"


def _out_of_reach(crawl: LocalCrawl, before: str = "") -> str:
    """Why some hosts cannot be asked, and when they are tried next."""
    said = "; ".join(out_of_reach(host, crawl.engine_time) for host in crawl.out_of_reach)
    return before + said if said else ""
