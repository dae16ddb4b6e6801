"""One picture of `drumlin top`: from a sample and a view to lines that fill a terminal of any size."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.cells import cell_len
from rich.text import Text

from drumlin.cli.figures import answers, hosts_of, in_flight, nodes_now, pace, pages_now, queue_now
from drumlin.cli.screen.history import chart, rates
from drumlin.cli.screen.lists import Listing, clock, listing
from drumlin.cli.screen.sampling import Sample, Seen
from drumlin.cli.screen.view import PANES, View
from drumlin.cli.status import state_of
from drumlin.cli.why import told, without_troubles
from drumlin.config.quantities import show_duration, show_size
from drumlin.lines import folded, one_line

WIDE = 110
"""From so many columns on, the chart stands beside the figures."""
LABEL = 9
LEFT = 68
"""How wide the figures are where the chart is beside them."""
SENTENCE_LINES_MAX = 3
EVENTS_SHOWN = 3
TALL = 36
"""From so many lines on, each event has a line of its own."""
HELP_LABEL = 16
NO_CHART = "the chart begins after some seconds"
WAITED_S = 3.0
"""An answer that takes longer is said to be waited for."""
STATE_STYLES = {"running": "green", "finished": "green", "paused": "yellow", "draining": "yellow", "stopped": "yellow"}
KEYS = "q quit   p hold   tab 1 2 3 lists   ↑ ↓ scroll   ? help"
HELD_KEYS = "q quit   p go on   tab 1 2 3 lists   ↑ ↓ scroll   ? help"
NO_KEYS = "Ctrl-C ends it"
HELP = (
    ("q", "leave; the crawl goes on"),
    ("p", "hold this picture, and let it go on"),
    ("1 2 3, tab", "the list below: hosts, nodes, failures"),
    ("↑ ↓, page keys", "move in the list; home and end, too"),
    ("?", "this page; any key leaves it"),
)
WORDS = (
    ("with nodes", "URLs that nodes were given and have not answered yet"),
    ("lag", "how long the oldest fetched page has waited to be settled: under a second is healthy"),
    ("errors", "requests that failed, with an answer (429, 5xx) or without"),
    ("out of reach", "hosts that could not be asked; they are tried again after the time that is shown"),
    ("more", "`drumlin why` says all that bounds the crawl, `drumlin host HOST` all about a host"),
)


class Scene(NamedTuple):
    """What a picture is made of. `now` is by the monotonic clock, and so is `asked_at`, since when an answer is waited
    for; `keys` says whether there is a keyboard."""

    name: str
    seen: Seen
    view: View
    now: float
    keys: bool = True
    asked_at: float | None = None


class Frame(NamedTuple):
    """A picture, and what the keys must know of its list: how many rows it has, and how many of them are shown."""

    lines: list[Text]
    rows: int
    shown: int


def frame(scene: Scene, width: int, height: int) -> Frame:
    """A picture of exactly `height` lines."""
    if scene.view.help:
        return Frame(_fitted([_title(scene, width), *_help(width)], width, height, _foot(scene, width)), 0, 0)
    head = [_title(scene, width), *_sentence(scene, width), Text(""), *_figures(scene.seen.sample, width)]
    head += [*_events(scene.seen, height), _tabs(scene, width)]
    found = listing(scene.view.pane, scene.seen.sample, width)
    shown = max(0, height - len(head) - 2)
    body = _rows(scene.view, found, shown)
    lines = _fitted([*head, found.heading, *body], width, height, _foot(scene, width, found, shown))
    return Frame(lines, len(found.rows), shown)


def picture(scene: Scene, width: int) -> list[Text]:
    """The same as plain lines with the whole list, for where nothing is redrawn."""
    found = listing(scene.view.pane, scene.seen.sample, width)
    head = [_title(scene, width), *_sentence(scene, width), Text(""), *_figures(scene.seen.sample, width)]
    lines = [*head, *_events(scene.seen, TALL), Text(""), found.heading, *found.rows]
    return [_cut(line, width) for line in lines]


def _cut(line: Text, width: int) -> Text:
    line.truncate(width, overflow="ellipsis")
    return line


def _fitted(lines: Sequence[Text], width: int, height: int, foot: Text) -> list[Text]:
    """As many lines as there is room for, with the last one at the foot."""
    room = max(0, height - 1)
    kept = list(lines[:room])
    return [_cut(line, width) for line in (*kept, *(Text("") for _ in range(room - len(kept))), foot)]


def _title(scene: Scene, width: int) -> Text:
    sample = scene.seen.sample
    state = state_of(sample.stats)
    left = Text.assemble((" drumlin top ", "reverse bold"), f" {one_line(scene.name)}  ")
    left.append(state, f"bold {STATE_STYLES.get(state, '')}")
    elapsed_s = sample.crawl["budgets"]["elapsed_s"]
    right = " · ".join(part for part in (show_duration(elapsed_s) if elapsed_s else "", clock(sample.time)) if part)
    return _apart(left, Text(right, "dim"), width)


def _apart(left: Text, right: Text, width: int) -> Text:
    """One text at each end of a line; the right one stays away where there is no room for both."""
    room = width - cell_len(left.plain) - cell_len(right.plain)
    return left if room < 1 else Text.assemble(left, " " * room, right)


def _sentence(scene: Scene, width: int) -> list[Text]:
    """How the crawl is and what bounds it; while nobody answers, only that."""
    sample = scene.seen.sample
    if scene.view.held:
        return [Text(f"Held at {clock(sample.time)}; the crawl goes on.", "yellow")]
    if absence := _absence(scene):
        return [Text(line, "bold red") for line in _wrapped(absence, width)]
    troubles = [f"{one['message']} {one['hint']}".strip() for one in sample.stats["troubles"]]
    red = [Text(line, "bold red") for trouble in troubles for line in _wrapped(trouble, width)]
    said = _wrapped(" ".join(told(without_troubles(sample.why, sample.stats))), width)
    return red + [Text(line, "" if place else "bold") for place, line in enumerate(said)]


def _absence(scene: Scene) -> str:
    """Since when no coordinator has answered, if that is worth a word."""
    seen = scene.seen
    waited_since = scene.asked_at if seen.lost_at is None else seen.lost_at
    gone_s = 0.0 if waited_since is None else scene.now - waited_since
    if seen.lost_at is None and gone_s < WAITED_S:
        return ""
    why = f": {seen.trouble}" if seen.trouble else "."
    return (
        f"No answer for {show_duration(round(gone_s))}{why} Asking again; the figures are of {clock(seen.sample.time)}."
    )


def _wrapped(text: str, width: int) -> list[str]:
    lines = folded(one_line(text), width).splitlines()
    if len(lines) <= SENTENCE_LINES_MAX:
        return lines
    return [*lines[: SENTENCE_LINES_MAX - 1], "  " + " ".join(map(str.strip, lines[SENTENCE_LINES_MAX - 1 :]))]


def _figures(sample: Sample, width: int) -> list[Text]:
    """The figures by name; beside them, or below, the chart."""
    stats, totals = sample.stats, sample.stats["totals"]
    speed = f"{pace(stats['pages_per_s'])} pages/s · {show_size(stats['bytes_per_s'])}/s"
    errors = stats["outcomes"].get("failed", 0)
    rows = [
        _named("pages", pages_now(stats["pages"], totals["known"], totals["pending"])),
        _named("speed", f"{speed} · {in_flight(stats['in_flight'])} in flight · lag {show_duration(stats['lag_s'])}"),
        _named("queue", queue_now(totals)),
        Text.assemble(_named("answers", ""), answers(stats["statuses"], errors)),
        _named("hosts", hosts_of(totals)),
        _named("nodes", nodes_now(stats["nodes"])),
    ]
    if width < WIDE:
        return [*rows[:2], *_chart(sample, width - LABEL, 1, "trend"), *rows[2:]]
    return [_beside(left, right) for left, right in zip(rows, _chart(sample, width - LEFT, len(rows)), strict=True)]


def _beside(left: Text, right: Text) -> Text:
    shown = left.copy()
    shown.truncate(LEFT - 2, overflow="ellipsis", pad=True)
    return Text.assemble(shown, "  ", right)


def _chart(sample: Sample, width: int, rows: int, label: str = "") -> list[Text]:
    """Pages a second, as far back as there is room, with the highest of them in words."""
    step_s = float(sample.history["step_s"])
    values = rates(sample.history["samples"], step_s, width)
    if not values:
        empty = _named(label, NO_CHART) if label else Text(NO_CHART, "dim")
        return [empty, *(Text("") for _ in range(rows - 1))]
    caption = _caption(values, step_s)
    if rows > 1:
        drawn = [Text(line, "cyan") for line in chart(values, rows - 1)]
        return [Text(f"pages/s,{caption}", "dim"), *drawn]
    values = values[-max(1, width - len(caption)) :]
    caption = _caption(values, step_s)
    return [Text.assemble(_named(label, ""), (chart(values, 1)[0], "cyan"), (caption, "dim"))]


def _caption(values: Sequence[float], step_s: float) -> str:
    most = max(values)
    return f" at most {pace(most)}/s in {show_duration(len(values) * step_s)}"


def _named(label: str, value: str) -> Text:
    return Text.assemble((f"{label:<{LABEL}}", "dim"), one_line(value))


def _events(seen: Seen, height: int) -> list[Text]:
    """What happened lately, newest first."""
    marks = [*((mark["time"], mark["text"]) for mark in seen.sample.history["marks"]), *seen.returns]
    latest = [f"{clock(moment)} {text}" for moment, text in sorted(marks)[: -EVENTS_SHOWN - 1 : -1]]
    if height < TALL:
        return [_named("events", " · ".join(latest))] if latest else []
    return [_named("" if place else "events", one) for place, one in enumerate(latest)]


def _tabs(scene: Scene, width: int) -> Text:
    """The names of the lists; the one that is shown stands out."""
    line, counts = Text(), _counts(scene.seen.sample.stats)
    for place, pane in enumerate(PANES, 1):
        line.append(f" {place} {pane} {counts[pane]:,} ", "reverse bold" if pane == scene.view.pane else "dim")
        line.append(" ")
    return line.append("─" * max(0, width - len(line.plain)), "dim")


def _counts(stats: dict[str, Any]) -> dict[str, int]:
    """How much there is of what each list shows; a list itself may be cut."""
    hosts = sum(stats["totals"][f"hosts_{name}"] for name in ("leased", "ready", "waiting"))
    return {"hosts": hosts, "nodes": sum(stats["nodes"].values()), "failures": sum(stats["dead_letters"].values())}


def _rows(view: View, found: Listing, shown: int) -> list[Text]:
    first = max(0, min(view.first_row, len(found.rows) - shown))
    return found.rows[first : first + shown]


def _foot(scene: Scene, width: int, found: Listing | None = None, shown: int = 0) -> Text:
    keys = Text((HELD_KEYS if scene.view.held else KEYS) if scene.keys else NO_KEYS, "dim")
    if found is None or len(found.rows) <= shown:
        return keys
    first = max(0, min(scene.view.first_row, len(found.rows) - shown))
    where = Text(f"{first + 1:,}–{first + shown:,} of {len(found.rows):,}", "dim")
    return _apart(keys, where, width)


def _help(width: int) -> list[Text]:
    lines = [Text("")]
    for title, entries in (("Keys", HELP), ("Words", WORDS)):
        lines.append(Text(title, "bold"))
        for name, said in entries:
            first, *others = folded(f"  {name:<{HELP_LABEL}}{said}", width, HELP_LABEL + 2).splitlines()
            lines += [Text.assemble((first[: HELP_LABEL + 2], "cyan"), first[HELP_LABEL + 2 :]), *map(Text, others)]
        lines.append(Text(""))
    return lines
