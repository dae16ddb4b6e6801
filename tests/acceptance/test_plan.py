"""`drumlin plan` as a planner runs it; what docs/explanation/capacity.md shows of it is what it prints."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK, EXIT_USAGE
from drumlin.plan import MEASURED
from tests.acceptance.commands import drumlin

CAPACITY = (Path(__file__).parents[2] / "docs" / "explanation" / "capacity.md").read_text()
WIDTH = 80
MISSION = ("plan", "--pages", "10B", "--days", "5", "--urls", "11B")
# A command in a block of its own, then what it prints.
SHOWN = re.findall(r"^```sh\ndrumlin (plan .+)\n```\n```text\n(.*?)^```", CAPACITY, re.DOTALL | re.MULTILINE)
# A command in the text, and a sentence that it prints in quotation marks after it.
QUOTED = re.findall(r"`drumlin (plan [^`]+)` says: \"([^\"]+)\"", CAPACITY)
MEMORY_ROW = re.compile(r"^\| (\d+ billion) \| (.+) \| (.+) \| \*\*(.+)\*\* \| (.+) \|$", re.MULTILINE)


def span(cells: list[str]) -> str:
    """`62–90` of all numbers in cells of a table."""
    numbers = [int(number) for number in re.findall(r"\d+", " ".join(cells))]
    return f"{min(numbers)}–{max(numbers)}"


def without_tokens(row: str) -> list[str]:
    """The cells of a row in the table of the CPU of a page, with one Redis and with three masters."""
    (line,) = re.findall(rf"^\| {row} \| ([\d–]+) \| ([\d–]+) \| [\d–]+ \|$", CAPACITY, re.MULTILINE)
    return list(line)


def engine(folder: Path, *arguments: str) -> dict[str, str]:
    done = drumlin(folder, "plan", "--pages-per-second", "23148", *arguments, "--json")
    needs = json.loads(done.stdout)["needs"]
    return {need["name"]: need["shown"] for need in needs if need["group"].startswith("Engine")}


def test_the_mission_needs_dozens_of_cores_and_its_table_fits_a_terminal(tmp_path: Path) -> None:
    done = drumlin(tmp_path, *MISSION)
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert max(map(len, done.stdout.splitlines())) <= WIDTH
    document = json.loads(drumlin(tmp_path, *MISSION, "--json").stdout)
    assert document["pages_per_s"] == pytest.approx(23_148, abs=1)
    nodes = next(need for need in document["needs"] if need["name"] == "nodes")
    assert 20 < nodes["amount"] < 200
    assert document["costs"]["node_cpu"]["source"].startswith("bench.run speed")


def test_the_page_about_capacity_shows_what_the_verb_prints(tmp_path: Path) -> None:
    assert SHOWN
    for line, printed in SHOWN:
        assert drumlin(tmp_path, *shlex.split(line)).stdout == printed


def test_the_page_about_capacity_quotes_what_the_verb_says(tmp_path: Path) -> None:
    assert QUOTED
    for line, sentence in QUOTED:
        said = drumlin(tmp_path, *shlex.split(line)).stdout
        assert " ".join(sentence.split()) in " ".join(said.split())


def test_what_is_said_of_a_page_in_all_places_is_what_the_tables_say() -> None:
    coordinators, redis = without_tokens("coordinators"), without_tokens("Redis")
    said = f"need {span(coordinators)} µs in coordinators and {span(redis)} µs in Redis a page"
    assert said in CAPACITY
    # Of the rows with filled parcels, which are those with a share in bold.
    of_nodes = re.findall(r"^\| \d \| [\d,]+ \| (\d+) \| \d+ \| \d+ \| \*\*", CAPACITY, re.MULTILINE)
    node = span(of_nodes)
    assert re.findall(r"beside nodes that\s+need (\S+?)[.,]? ", CAPACITY) == [node, node]
    assert f"{node} µs is what one further page costs the process of a node" in CAPACITY
    assert f"{MEASURED['node_cpu'].value:g} ms, with\nwhich `drumlin plan` counts" in CAPACITY


def test_the_table_of_memory_is_what_the_verb_prints(tmp_path: Path) -> None:
    rows = MEMORY_ROW.findall(CAPACITY)
    assert len(rows) == 2
    for urls, queued, known, in_all, with_contents in rows:
        without = engine(tmp_path, "--urls", urls, "--contents", "off")
        assert (without["queued"], without["seen and done"], without["data in all"]) == (queued, known, in_all)
        assert engine(tmp_path, "--urls", urls)["data in all"] == with_contents


def test_costs_of_a_file_and_of_the_command_line_take_the_place_of_ours(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"node_cpu": 2, "host": 1}')
    done = drumlin(tmp_path, *MISSION, "--costs", "mine.json", "--cost", "host=2", "--json")
    costs = json.loads(done.stdout)["costs"]
    assert (costs["node_cpu"]["value"], costs["node_cpu"]["source"]) == (2, "mine.json")
    assert (costs["host"]["value"], costs["host"]["source"]) == (2, "--cost")
    said = drumlin(tmp_path, *MISSION, "--costs", "mine.json", "--show-costs").stdout
    assert "(mine.json)" in said
    assert max(map(len, said.splitlines())) <= WIDTH


def test_the_costs_are_listed_without_a_pace(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text('{"node_cpu": 2}')
    done = drumlin(tmp_path, "plan", "--show-costs", "--costs", "mine.json")
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert "(mine.json)" in done.stdout
    assert "engine_cpu" in done.stdout
    assert "Coordinators" not in done.stdout
    costs = json.loads(drumlin(tmp_path, "plan", "--show-costs", "--costs", "mine.json", "--json").stdout)["costs"]
    assert (costs["node_cpu"]["value"], costs["host"]["unit"]) == (2, "bytes")


def test_the_delay_is_that_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "drumlin.toml").write_text("[crawl]\ndelay = '9.6s'\n")
    done = drumlin(tmp_path, "plan", "--pages-per-second", "50", "--urls", "1M", "--hosts", "100")
    assert done.stdout.startswith("Politeness is the bound, not cores: 100 hosts")
    assert "allow 10 pages/s, not 50" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--urls 1M", "How fast should the crawl be? Give --pages-per-second, or --pages and --days."),
        ("--urls 1M --pages 5", "How fast should the crawl be? Give --pages-per-second, or --pages and --days."),
        (
            "--urls 1M --pages-per-second 5 --days 2",
            "Give --pages-per-second or --days, not both: each says how fast the crawl should be.",
        ),
        (
            "--urls 1M --pages-per-second 5 --days 2 --pages 5",
            "Give --pages-per-second or --days, not both: each says how fast the crawl should be.",
        ),
        ("--pages-per-second 5", "How many URLs will the crawl know? Give --urls."),
        ("--urls 1M --show-costs --pages 5", "How fast should the crawl be?"),
        ("--urls 1M --pages-per-second 1e15", "1,000 trillion pages/s is too fast for a plan. 1 million pages/s is"),
        ("--urls 1M --pages 1e15 --days 1", "11.6 billion pages/s is too fast for a plan."),
        ("--urls 1M --pages 1 --days 2", "Slower than a page a day is too slow for a plan."),
        ("--urls -5 --pages-per-second 5", "Invalid value for '--urls': -5 is too little: it must be 1 or more."),
        ("--urls 0.5 --pages-per-second 5", "Invalid value for '--urls': 0.5 is too little: it must be 1 or more."),
        ("--urls 1e300 --pages-per-second 5", "Invalid value for '--urls': 1e300 is too much: 1e+15 is the most."),
        (
            "--urls 5 --pages-per-second 5 --queued -5%",
            "Invalid value for '--queued': -5% is too little: it must be 0 or more.",
        ),
        (
            "--urls 5 --pages-per-second 5 --response -5s",
            "Invalid value for '--response': -5s is too little: it must be more than 0.",
        ),
        (
            "--urls many --pages-per-second 5",
            "Invalid value for '--urls': 'many' is not a number, such as 23148, 2.5M or 10 billion.",
        ),
        (
            "--urls 1M --pages-per-second 0",
            "Invalid value for '--pages-per-second': 0 is too little: it must be more than 0.",
        ),
        ("--urls 1e20 --pages-per-second 5", "Invalid value for '--urls': 1e20 is too much: 1e+15 is the most."),
        (
            "--urls 1M --pages-per-second 5 --availability 3",
            "Invalid value for '--availability': '3' is not a share, such as 0.7 or 70%.",
        ),
        ("--urls 1M --pages-per-second 5 --costs none.json", "none.json cannot be read: No such file or directory."),
        (
            "--urls 1M --pages-per-second 5 --cost host",
            "'host' is not a cost. It is written NAME=NUMBER, such as node_cpu=1.5.",
        ),
        ("--urls 1M --pages-per-second 5 --cost hots=1", "There is no cost 'hots'. The costs are node_cpu,"),
    ],
)
def test_bad_input_gets_one_sentence(tmp_path: Path, arguments: str, sentence: str) -> None:
    done = drumlin(tmp_path, "plan", *shlex.split(arguments))
    assert done.returncode == EXIT_USAGE
    assert done.stderr.startswith(f"drumlin: {sentence}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
