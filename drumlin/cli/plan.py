"""`drumlin plan`: what a fleet needs for a pace and a number of URLs, by costs that were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from drumlin.cli.console import MARK, results, write_json
from drumlin.cli.help import Verb
from drumlin.cli.quantity import COUNT, DURATION, NUMBER, SHARE, SHARE_OR_NONE, SIZE, Quantity
from drumlin.config import Loaded, config_options
from drumlin.config.quantities import parse_number, show_rate
from drumlin.engines.redis.address import Duplicates
from drumlin.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from drumlin.plan import Costs, Plan

WIDTH_MAX = 80
FILE_BYTES_MAX = 64 * 2**20
DAY_S = 86_400.0
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
_ESTIMATE = (
    "All of this is multiplication, so an estimate. --show-costs lists what was measured, where and when; --cost and "
    "--costs put your own measurements in its place."
)


def _amount(*names: str, reads: Quantity, what: str, default: str | None = None) -> Decorator:
    """An option whose value `reads` reads."""
    shown = "N" if reads in (NUMBER, COUNT) else reads.name.upper()
    return click.option(
        *names,
        callback=reads,
        metavar=shown,
        default=default,
        show_default=default is not None,
        help=what,
    )


@click.command("plan", cls=Verb)
@_amount("--pages-per-second", "pages_per_s", reads=NUMBER, what="how fast the crawl should be")
@_amount("--pages", reads=COUNT, what="how many pages it should fetch in all")
@_amount("--days", reads=NUMBER, what="in how many days, instead of --pages-per-second")
@_amount("--urls", reads=COUNT, what="how many URLs it will know, fetched or not")
@_amount("--queued", "queued_share", reads=SHARE_OR_NONE, default="10%", what="part of them that is queued, not done")
@_amount("--hosts", reads=COUNT, what="how many hosts have URLs to fetch at every moment")
@_amount("--response", "response_s", reads=DURATION, default="400ms", what="how long a host takes to answer")
@_amount("--nodes", reads=COUNT, what="nodes that you have, with a core each [default: enough]")
@_amount("--availability", reads=SHARE, default="70%", what="part of the nodes that is there at a time")
@_amount("--page-size", "page_bytes", reads=SIZE, what="mean size of a page [default: as measured]")
@click.option(
    "--contents",
    type=click.Choice([str(kind) for kind in Duplicates]),
    default="near",
    show_default=True,
    help="which duplicates are found in all of the crawl",
)
@click.option(
    "--replicas", metavar="N", type=click.IntRange(0, 5), default=2, show_default=True, help="replicas of each master"
)
@_amount("--master-memory", "master_bytes", reads=SIZE, default="25GB", what="most data on one Redis master")
@_amount("--nodes-busy", reads=SHARE, default="66%", what="how busy a node's core may be; the rest is for slow minutes")
@_amount(
    "--servers-busy",
    reads=SHARE,
    default="50%",
    what="how busy the cores of coordinators and Redis may be, so lines stay short",
)
@click.option(
    "--costs",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="costs that you measured: what bench.run or bench.load wrote with --json; may be repeated",
)
@click.option("--cost", "single", multiple=True, metavar="NAME=NUMBER", help="one cost of your own; may be repeated")
@click.option("--show-costs", is_flag=True, help="list the costs, with their sources; alone, only these")
@config_options("delay", "concurrency", "json", "color")
def command(
    loaded: Loaded,
    pages_per_s: float | None,
    pages: float | None,
    days: float | None,
    urls: float | None,
    page_bytes: float | None,
    contents: str,
    files: tuple[Path, ...],
    single: tuple[str, ...],
    show_costs: bool,
    **amounts: Any,
) -> None:
    """Say what a fleet needs: cores, servers, memory, network and disk.

    Each line says what it is made of. If sites may not be asked as often as would be needed, this is said first.
    """
    from drumlin.plan import Wish, make_plan

    costs = _costs(files, single)
    if show_costs and (pages_per_s, pages, days) == (None, None, None):
        _print_costs(loaded, costs)
        return
    wish = Wish(
        pages_per_s=_pace(pages_per_s, pages, days),
        pages=pages,
        urls=_urls(urls),
        page_bytes=page_bytes if page_bytes is not None else costs["page_size"].value,
        contents=Duplicates(contents),
        delay_s=loaded.crawl.delay_s,
        concurrency=loaded.process.concurrency,
        **amounts,
    )
    plan = make_plan(wish, costs)
    if loaded.process.json:
        write_json(plan)
    else:
        _print(results(loaded.process), plan, show_costs)


def _print_costs(loaded: Loaded, costs: Costs) -> None:
    if loaded.process.json:
        write_json({"costs": costs})
    else:
        console = results(loaded.process)
        console.print(_costs_table(costs), width=min(WIDTH_MAX, console.width))


def _urls(urls: float | None) -> float:
    if urls is None:
        raise ConfigError("How many URLs will the crawl know?", "Give --urls.")
    return urls


def _pace(pages_per_s: float | None, pages: float | None, days: float | None) -> float:
    from drumlin.plan import PACE_MAX, PACE_MIN

    pace = _asked_pace(pages_per_s, pages, days)
    if pace > PACE_MAX:
        raise ConfigError(f"{show_rate(pace)} is too fast for a plan.", f"{show_rate(PACE_MAX)} is the most.")
    if pace < PACE_MIN:
        raise ConfigError("Slower than a page a day is too slow for a plan.", "Give a faster pace, or fewer --days.")
    return pace


def _asked_pace(pages_per_s: float | None, pages: float | None, days: float | None) -> float:
    if pages_per_s is not None and days is not None:
        raise ConfigError("Give --pages-per-second or --days, not both: each says how fast the crawl should be.")
    if pages_per_s is not None:
        return pages_per_s
    if pages is not None and days is not None:
        return pages / (days * DAY_S)
    raise ConfigError("How fast should the crawl be?", "Give --pages-per-second, or --pages and --days.")


def _costs(files: Sequence[Path], single: Sequence[str]) -> Costs:
    """The costs that we measured, with those of the user in their place. A single cost is stronger than a file."""
    from drumlin.plan import MEASURED, read_measurements, replaced

    costs = MEASURED
    for path in files:
        costs = replaced(costs, read_measurements(_read(path), str(path)), str(path))
    given = dict(map(_named, single))
    return replaced(costs, given, "--cost")


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as cause:
        raise ConfigError(f"{path} cannot be read: {cause.strerror}.") from cause
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"{path} is too large for a file of measurements.")
    return content


def _named(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, parse_number(number)
    except ValueError as cause:
        raise ConfigError(f"{text!r} is not a cost.", "It is written NAME=NUMBER, such as node_cpu=1.5.") from cause


def _print(console: Console, plan: Plan, show_costs: bool) -> None:
    from rich.table import Table
    from rich.text import Text

    width = min(WIDTH_MAX, console.width)
    for sentence in (plan.sentence, *plan.notes):
        console.print(Text(sentence), width=width)
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim")
    for group, needs in groupby(plan.needs, key=lambda need: need.group):
        table.add_row("")
        table.add_row(Text(group, style=MARK))
        for need in needs:
            table.add_row(f"  {need.name}", need.shown, need.made_of)
    console.print(table, width=width)
    if show_costs:
        console.print(_costs_table(plan.costs), width=width)
    console.print("")
    console.print(Text(_ESTIMATE), width=width)


def _costs_table(costs: Costs) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, justify="right")
    table.add_column()
    table.add_row("")
    table.add_row(Text("Costs", style=MARK))
    for name, cost in costs.items():
        table.add_row(f"  {name}", f"{cost.value:g} {cost.unit}", f"{cost.what} ({cost.source})")
    return table
