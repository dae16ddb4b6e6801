"""A crawl's figures in words: the same in the live display, in `status`, in `top` and in the final report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drumlin.lines import counted

if TYPE_CHECKING:
    from rich.text import Text

ROUNDED_FROM = 10
TENTHS_FROM = 0.1
STATUS_STYLES = {"2xx": "green", "3xx": "cyan", "4xx": "yellow", "5xx": "red"}


def hosts_now(ready: int, waiting: int, fetching: int, out_of_reach: int) -> str:
    """How many hosts are in which state. `waiting` includes those out of reach; they are shown apart."""
    gone = f", {out_of_reach:,} out of reach" if out_of_reach else ""
    return f"{fetching:,} being fetched, {ready:,} ready, {max(0, waiting - out_of_reach):,} waiting{gone}"


def hosts_of(totals: Mapping[str, Any]) -> str:
    """The same, of the totals that a coordinator tells."""
    return hosts_now(*(totals[f"hosts_{name}"] for name in ("ready", "waiting", "leased", "in_backoff")))


def pages_now(pages: int, known: int, pending: int) -> str:
    return f"{pages:,} done · {counted(known, 'URL')} known · {pending:,} to go"


def queue_now(totals: Mapping[str, Any]) -> str:
    return f"{totals['queued']:,} queued, {totals['scheduled']:,} to be tried again, {totals['leased']:,} with nodes"


def in_flight(mean: float) -> str:
    """The average number of requests under way, which at a polite pace may be less than one."""
    return f"{mean:,.0f}" if mean >= ROUNDED_FROM or not mean else f"{max(mean, 0.1):,.1f}"


def pace(per_s: float) -> str:
    """A speed. That of a polite crawl of few hosts is below one, and still is one."""
    if per_s >= ROUNDED_FROM or not per_s:
        return f"{per_s:,.0f}"
    return f"{per_s:.1f}" if per_s >= TENTHS_FROM else f"{per_s:.1g}"


def nodes_now(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in counts.items() if count) or "none"


def histogram(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())


def status_classes(statuses: Mapping[str, int]) -> dict[str, int]:
    """How many answers there were of each class of status codes; a class that is not in use stays away."""
    classes = dict.fromkeys(STATUS_STYLES, 0)
    for status, count in statuses.items():
        name = f"{status[0]}xx"
        classes[name] = classes.get(name, 0) + count
    return classes


def answers(statuses: Mapping[str, int], errors: int) -> Text:
    """Counts of status codes and failures; those that are not zero are in colour."""
    from rich.text import Text

    said = Text()
    for name, count in status_classes(statuses).items():
        said.append(f"{name} {count:,}", STATUS_STYLES.get(name, "") if count else "")
        said.append(" ")
    return said.append("· ").append(counted(errors, "error"), "red" if errors else "")
