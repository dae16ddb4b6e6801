"""A plot of a simulation as plain SVG: which faults struck when, and pages a second, live nodes and lag over time.

At the top each kind of fault that struck has a lane with its name. Below are the panels, all on the same time. If a
promise was broken, a red line goes through all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from drumlin.config.quantities import show_duration
from drumlin.lines import counted, one_line
from drumlin.sim.faults import KINDS, Fault
from drumlin.sim.measuring import Sample
from drumlin.sim.running import Outcome

WIDTH, LEFT, RIGHT = 1_080, 190, 30
INNER = WIDTH - LEFT - RIGHT
TITLE_HEIGHT, LANE_HEIGHT, PANEL_HEIGHT, GAP = 46, 15, 150, 44
LANE, SHADE, RED = "#c98a8a", "#f7e6e6", "#c00000"
LINES = ("#1f4e8c", "#2f7d4f", "#a8541c")
GRID, AXIS = "#e4e4e4", "#999999"
POINTS_MAX = 1_000
"""More points than this cannot be seen side by side. Of samples that share one the largest is drawn."""
TIME_TICKS_MAX, VALUE_TICKS_MAX = 9, 4
_UNITS = ((3_600, "h"), (60, "min"), (1, "s"))
_STEPS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200)
_DAY_S = 86_400


class Panel(msgspec.Struct, frozen=True):
    """One figure over time."""

    title: str
    colour: str
    values: Sequence[float]
    whole: bool = False
    """Whether there is nothing between 0 and 1, such as a part of a node."""


def plot(outcome: Outcome) -> str:
    """The whole picture."""
    samples, broken = outcome.samples, outcome.broken
    end = max([sample.at for sample in samples] + [broken.at if broken is not None else 0.0]) or 1.0
    faults = [fault for fault in outcome.scenario.faults if fault.at <= end]
    kinds = [kind for kind in KINDS if any(fault.kind == kind for fault in faults)]
    tops, top = list[int](), TITLE_HEIGHT + LANE_HEIGHT * len(kinds) + 30
    for _ in range(3):
        tops.append(top)
        top += PANEL_HEIGHT + GAP
    parts = [_text(LEFT, 22, _title(outcome, end), 15)]
    parts += _lanes(kinds, faults, end)
    times = _thinned([sample.at for sample in samples])
    for one, place in zip(_panels(samples), tops, strict=True):
        parts += _panel(one, times, place, faults, end)
    if broken is not None:
        parts += _violation(broken.checker, broken.at, end, tops[-1] + PANEL_HEIGHT)
    height = tops[-1] + PANEL_HEIGHT + 30
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"


def _title(outcome: Outcome, end: float) -> str:
    nodes = counted(outcome.scenario.nodes, "node")
    return f"seed {outcome.scenario.seed}: {nodes}, {show_duration(end)} of virtual time"


def _panels(samples: Sequence[Sample]) -> Iterator[Panel]:
    rates = [0.0] * bool(samples)
    for before, after in pairwise(samples):
        rates.append((after.pages - before.pages) / max(after.at - before.at, 1e-9))
    live = [float(sample.live) for sample in samples]
    lags = [sample.lag_s for sample in samples]
    yield Panel("pages a second", LINES[0], _thinned(rates))
    yield Panel("nodes at work", LINES[1], _thinned(live), whole=True)
    yield Panel("longest wait for settling, in seconds", LINES[2], _thinned(lags))


def _thinned(values: Sequence[float]) -> list[float]:
    step = max(1, math.ceil(len(values) / POINTS_MAX))
    return [max(values[start : start + step]) for start in range(0, len(values), step)]


# Parts of the picture


def _x(at: float, end: float) -> float:
    return LEFT + INNER * min(at, end) / end


def _text(x: float, y: float, said: str, size: int = 10, anchor: str = "start", colour: str = "black") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}">{said}</text>'


def _line(x: float, y: float, to: str, colour: str, width: float = 1.0) -> str:
    return f'<path d="M{x:.1f} {y:.1f}{to}" stroke="{colour}" stroke-width="{width:g}" fill="none"/>'


def _bar(fault: Fault, top: float, height: float, colour: str, end: float) -> str:
    start, width = _x(fault.at, end), max(2.0, _x(fault.over_at, end) - _x(fault.at, end))
    struck = f", {fault.share:.0%} of the nodes" if fault.share else ""
    told = one_line(f"{fault.kind} at {fault.at:g} s for {fault.lasts_s:g} s{struck}")
    return (
        f'<rect x="{start:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" fill="{colour}" '
        f'fill-opacity="0.7"><title>{told}</title></rect>'
    )


def _lanes(kinds: Sequence[str], faults: Sequence[Fault], end: float) -> Iterator[str]:
    """A lane for each kind of fault that struck, with its name and a bar for each time."""
    for number, kind in enumerate(kinds):
        top = TITLE_HEIGHT + number * LANE_HEIGHT
        yield _text(LEFT - 6, top + 11, one_line(kind), anchor="end")
        yield _line(LEFT, top + LANE_HEIGHT - 0.5, f"H{WIDTH - RIGHT}", GRID)
        yield from [_bar(fault, top + 3, LANE_HEIGHT - 6, LANE, end) for fault in faults if fault.kind == kind]


def _panel(panel: Panel, times: Sequence[float], top: int, faults: Sequence[Fault], end: float) -> Iterator[str]:
    step = _value_step(max(panel.values, default=0.0), whole=panel.whole)
    count = max(1, math.ceil(max(panel.values, default=0.0) / step - 1e-9))
    most, bottom = count * step, top + PANEL_HEIGHT

    def y(value: float) -> float:
        return top + PANEL_HEIGHT * (1.0 - value / most)

    yield from [_bar(fault, top, PANEL_HEIGHT, SHADE, end) for fault in faults]
    for number in range(count + 1):
        yield _line(LEFT, y(number * step), f"H{WIDTH - RIGHT}", GRID if number else AXIS)
        yield _text(LEFT - 6, y(number * step) + 3.5, f"{number * step:,.6g}", anchor="end")
    for at, said in _time_ticks(end):
        yield _line(_x(at, end), bottom, "v4", AXIS)
        yield _text(_x(at, end), bottom + 15, said, anchor="middle")
    yield _text(LEFT, top - 7, panel.title, 12)
    points = " ".join(f"{_x(at, end):.1f},{y(value):.1f}" for at, value in zip(times, panel.values, strict=True))
    yield f'<polyline points="{points}" fill="none" stroke="{panel.colour}" stroke-width="1.3"/>'


def _violation(checker: str, at: float, end: float, bottom: int) -> Iterator[str]:
    """A red line through everything, and the name of the promise on its side that has room."""
    x = _x(at, end)
    left = x > LEFT + INNER / 2
    yield _line(x, TITLE_HEIGHT - 10, f"V{bottom}", RED, 1.5)
    yield _text(x - 4 if left else x + 4, TITLE_HEIGHT - 4, one_line(checker), 11, "end" if left else "start", RED)


# Ticks with round numbers


def _value_step(most: float, *, whole: bool) -> float:
    """The smallest round step of which few enough reach `most`: 1, 2, 2.5 or 5 times a power of ten."""
    if most <= 0.0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(most / VALUE_TICKS_MAX))
    steps = [share * power for share in (1.0, 2.0, 2.5, 5.0, 10.0)]
    return next(step for step in steps if step * VALUE_TICKS_MAX >= most and not (whole and step % 1.0))


def _time_ticks(end: float) -> list[tuple[float, str]]:
    """Round moments, with their names in the largest unit that says all of them without a fraction."""
    step = next((one for one in _STEPS_S if end / one <= TIME_TICKS_MAX), 0)
    if not step:
        step = _DAY_S * math.ceil(end / TIME_TICKS_MAX / _DAY_S)
    size, unit = next((size, unit) for size, unit in _UNITS if step % size == 0)
    return [(float(at), f"{at // size:,} {unit}" if at else "0") for at in range(0, int(end) + 1, step)]
