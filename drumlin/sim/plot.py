"""A plot of a simulation as plain SVG: pages a second, live nodes and lag over time, with the faults marked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from drumlin.lines import one_line
from drumlin.sim.running import Outcome

WIDTH, PANEL_HEIGHT, LEFT, TOP, GAP = 960, 150, 70, 40, 40
SHADE = "#f3d9d9"
LINES = ("#1f4e8c", "#2f7d4f", "#a8541c")
GRID = "#cccccc"
TICKS = 6


def plot(outcome: Outcome) -> str:
    """The whole picture."""
    samples = outcome.samples
    times = [sample.at for sample in samples]
    rates = [0.0]
    for before, after in pairwise(samples):
        rates.append((after.pages - before.pages) / max(after.at - before.at, 1e-9))
    panels = [
        ("pages a second", rates),
        ("nodes at work", [float(sample.live) for sample in samples]),
        ("longest wait for settling, in seconds", [sample.lag_s for sample in samples]),
    ]
    end = max(times, default=1.0)
    parts = [_panel(number, title, times, values, end, outcome) for number, (title, values) in enumerate(panels)]
    height = TOP + len(panels) * (PANEL_HEIGHT + GAP) + 20
    seed, nodes = outcome.scenario.seed, outcome.scenario.nodes
    title = (
        f'<text x="{LEFT}" y="22" font-size="15">seed {seed}: {nodes:,} nodes, {end / 60:.0f} virtual minutes</text>'
    )
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', title, *parts, "</svg>"]) + "\n"


def _panel(
    number: int, title: str, times: Sequence[float], values: Sequence[float], end: float, outcome: Outcome
) -> str:
    top = TOP + number * (PANEL_HEIGHT + GAP)
    most = max([*values, 1e-9])
    inner = WIDTH - LEFT - 20

    def x(at: float) -> float:
        return LEFT + inner * at / end

    def y(value: float) -> float:
        return top + PANEL_HEIGHT * (1.0 - value / most)

    parts = [
        f'<rect x="{x(fault.at):.1f}" y="{top}" width="{max(1.0, x(fault.over_at) - x(fault.at)):.1f}" '
        f'height="{PANEL_HEIGHT}" fill="{SHADE}" fill-opacity="0.5"><title>{one_line(fault.kind)}</title></rect>'
        for fault in outcome.scenario.faults
        if fault.at <= end
    ]
    parts += [
        f'<text x="{x(end * tick / TICKS):.1f}" y="{top + PANEL_HEIGHT + 14}" font-size="10" text-anchor="middle">'
        f"{end * tick / TICKS / 60:.0f} min</text>"
        for tick in range(TICKS + 1)
    ]
    parts.append(f'<path d="M{LEFT} {top}V{top + PANEL_HEIGHT}H{WIDTH - 20}" stroke="{GRID}" fill="none"/>')
    parts.append(f'<text x="{LEFT - 6}" y="{top + 8}" font-size="10" text-anchor="end">{most:,.4g}</text>')
    parts.append(f'<text x="{LEFT - 6}" y="{top + PANEL_HEIGHT}" font-size="10" text-anchor="end">0</text>')
    parts.append(f'<text x="{LEFT}" y="{top - 5}" font-size="12">{title}</text>')
    points = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in zip(times, values, strict=True))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{LINES[number]}" stroke-width="1.3"/>')
    return "\n".join(parts)
