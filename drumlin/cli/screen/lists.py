"""The three lists of `drumlin top`: hosts with the reason for each wait, nodes, and what was given up."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from drumlin.api.explaining.causes import cause
from drumlin.api.explaining.why import next_try
from drumlin.cli.figures import in_flight, pace
from drumlin.cli.screen.sampling import LETTERS_ASKED, Sample
from drumlin.config.quantities import show_duration, show_gap
from drumlin.lines import one_line

GAP = 2
WIDE = 100
"""From so many columns on, a host's state and delay are shown beside the reason."""
NAME_SHARE = 3
"""A name may take one of so many parts of the width."""
STATE_WORDS = {"leased": "fetching", "backoff": "out of reach"}
STYLES = {"fetching": "green", "active": "green", "ready": "cyan", "waiting": "", "out of reach": "yellow"}
STYLES |= {"blocked": "red", "failed": "red", "quarantined": "red", "draining": "yellow"}
EMPTY = {
    "hosts": "No host has URLs left.",
    "nodes": "No node has registered.",
    "failures": "No URL was given up.",
}
FAILURE = "failure"
BUSIEST = 5
"""How many hosts that are being fetched stand before those that wait."""
_CONTACT = "It may be contacted "


class Column(NamedTuple):
    """A column of a list. Numbers stand at its right."""

    title: str
    number: bool = False


class Listing(NamedTuple):
    """A list as lines of text: its heading, and all its rows."""

    heading: Text
    rows: list[Text]


HOSTS = (
    *(Column("host"), Column("state"), Column("queued", number=True), Column("pages", number=True)),
    *(Column("delay", number=True), Column("why")),
)
HOSTS_NARROW = (Column("host"), Column("queued", number=True), Column("pages", number=True), Column("why"))
"""The reason says the state, too, and matters most where there is little room."""
NODES = (
    *(Column("node"), Column("status"), Column("pages/s", number=True), Column("in flight", number=True)),
    *(Column("hosts", number=True), Column("since start", number=True), Column("lag", number=True)),
    *(Column("CPU", number=True), Column("seen", number=True), Column("about it")),
)
CAUSES = (Column("URLs", number=True), Column("kind"), Column("cause"))
LETTERS = (Column("last try"), Column("kind"), Column("URL"))


def listing(pane: str, sample: Sample, width: int) -> Listing:
    """The rows of a list for a terminal so wide, or a sentence that says why there are none."""
    if pane == "failures":
        return _failures(sample, width)
    columns, rows = _hosts(sample, wide=width >= WIDE) if pane == "hosts" else (NODES, _nodes(sample))
    return _table(columns, rows, width) if rows else Listing(Text(EMPTY[pane]), [])


def _hosts(sample: Sample, *, wide: bool) -> tuple[Sequence[Column], list[list[str]]]:
    now, hosts = sample.time, _in_order(sample.hosts)
    rows = [
        {
            "host": host["host"],
            "state": state_word(host),
            "queued": f"{host['queued']:,}",
            "pages": f"{host['pages']:,}",
            "delay": show_gap(host["delay_s"]),
            "why": reason(host, now),
        }
        for host in hosts
    ]
    columns = HOSTS if wide else HOSTS_NARROW
    return columns, [[row[column.title] for column in columns] for row in rows]


def _waits(host: dict[str, Any]) -> bool:
    return bool(host["state"] == "waiting")


def _in_order(hosts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some of those being fetched, the most to do first; those that wait, the soonest first; then all others. So a
    small screen shows both who is busy and who waits for what."""
    fetching = sorted((one for one in hosts if one["state"] == "leased"), key=lambda one: -one["queued"])
    waiting = sorted((one for one in hosts if _waits(one)), key=lambda one: one["next_contact"])
    others = [one for one in hosts if one["state"] not in ("leased", "waiting")]
    return [*fetching[:BUSIEST], *waiting, *others, *fetching[BUSIEST:]]


def state_word(host: dict[str, Any]) -> str:
    if _waits(host) and host["backoff"]:
        return STATE_WORDS["backoff"]
    return STATE_WORDS.get(host["state"], str(host["state"]))


def reason(host: dict[str, Any], now: float) -> str:
    """Why a host stands where it stands, in a few words: `drumlin host HOST` has the whole sentence."""
    if _waits(host) and (tries := list(host["backoff"].values())):
        last = max(tries, key=lambda one: one["next_try"])
        asked = ", as it asked us to" if last["asked"] else ""
        return f"{next_try(host['next_contact'], now)}{asked}: {cause(last['kind'], last['error'])}"
    if host["state"] == "leased":
        slowly = host["why"].partition(", ")[2]
        return f"with {host['lease_node']}{f', {slowly}' if slowly else ''}"
    return str(host["why"]).replace(_CONTACT, "")


def _nodes(sample: Sample) -> list[list[str]]:
    """Those at work first, the fastest first."""
    now = sample.time
    nodes = sorted(sample.nodes, key=lambda node: (node["status"] != "active", -node["pages_per_s"], node["node_id"]))
    return [
        [
            node["node_id"],
            node["status"],
            pace(node["pages_per_s"]),
            in_flight(node["current_load"]),
            f"{node['leases']:,}",
            f"{node['total_crawled']:,}",
            show_duration(node["lag_s"]),
            _busy(node["lately"]),
            show_duration(max(0, round(now - node["last_seen"]))),
            node["metadata"].get(FAILURE) or node["ip_address"],
        ]
        for node in nodes
    ]


def _busy(lately: dict[str, float] | None) -> str:
    if not lately or not lately["time_s"]:
        return ""
    return f"{100 * min(1.0, lately['cpu_s'] / lately['time_s']):.0f} %"


def _failures(sample: Sample, width: int) -> Listing:
    """How many URLs were given up for which cause, then some of them, the latest first."""
    if not sample.causes:
        again = sample.stats["totals"]["scheduled"]
        later = f" {again:,} failed and will be tried again." if again else ""
        return Listing(Text(EMPTY["failures"] + later), [])
    causes = _table(CAUSES, [[f"{one['urls']:,}", one["kind"], one["means"]] for one in sample.causes], width)
    latest = sorted(sample.dead_letters, key=lambda letter: -letter["last_failed"])
    letters = _table(LETTERS, [[clock(one["last_failed"]), one["kind"], _letter(one)] for one in latest], width)
    return Listing(causes.heading, [*causes.rows, Text(""), *_cut(sample, width), letters.heading, *letters.rows])


def _cut(sample: Sample, width: int) -> list[Text]:
    """That not all of the URLs are listed, and which are: the latest of all may not be among them."""
    shown, known = len(sample.dead_letters), sum(one["urls"] for one in sample.causes)
    if shown < LETTERS_ASKED or known <= shown:
        return []
    said = Text(f"The first {shown:,} of {known:,} by kind and host. All: `drumlin dead-letters list`", no_wrap=True)
    said.truncate(width, overflow="ellipsis")
    return [said]


def _letter(letter: dict[str, Any]) -> str:
    return f"{letter['url']}  {letter['last_error']}".strip()


def clock(moment: float) -> str:
    """A time of day where the user is."""
    return datetime.fromtimestamp(moment).astimezone().strftime("%H:%M:%S")


def _table(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> Listing:
    """Each column as wide as what is in it; the last one has the rest of the line."""
    safe = [[one_line(cell) for cell in row] for row in rows]
    widths = [
        max([cell_len(column.title), *(cell_len(row[place]) for row in safe)]) for place, column in enumerate(columns)
    ]
    widths[0] = min(widths[0], max(cell_len(columns[0].title), width // NAME_SHARE))
    heading = _row(columns, [column.title for column in columns], widths, width)
    heading.stylize("bold")
    return Listing(heading, [_row(columns, row, widths, width) for row in safe])


def _row(columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], width: int) -> Text:
    line = Text(no_wrap=True)
    for column, cell, room in zip(columns[:-1], cells, widths, strict=False):
        shown = cell if cell_len(cell) <= room else f"{set_cell_size(cell, room - 1)}…"
        pad = " " * (room - cell_len(shown))
        line.append(f"{pad}{shown}" if column.number else f"{shown}{pad}", STYLES.get(cell, ""))
        line.append(" " * GAP)
    line.append(cells[-1])
    line.truncate(width, overflow="ellipsis")
    return line
