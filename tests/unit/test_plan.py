"""A plan is what the costs give by multiplication, for a pace that politeness and the nodes allow."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict
from typing import Any

import msgspec
import pytest

from bench.load_report import Measured
from bench.run import Run
from drumlin.config.quantities import parse_number, parse_share, show_bits, show_number
from drumlin.engines.redis.address import Duplicates
from drumlin.errors import ConfigError
from drumlin.plan import MEASURED, Costs, Plan, Wish, make_plan, read_measurements, replaced

# Round numbers, so a reader can multiply.
ROUND = {
    "node_cpu": 1.0,
    "node_memory": 200.0,
    "coordinator_cpu": 100.0,
    "coordinator_memory": 300.0,
    "connection_memory": 50.0,
    "engine_cpu": 50.0,
    "url_queued": 100.0,
    "url_seen": 10.0,
    "url_done": 5.0,
    "host": 300.0,
    "content_exact": 200.0,
    "content_near": 100.0,
    "page_size": 40_000.0,
    "result_size": 250.0,
    "stored_share": 0.5,
}
COSTS = replaced(MEASURED, ROUND, "the test")


def plan(costs: Costs = COSTS, **wishes: Any) -> Plan:
    usual: dict[str, Any] = {
        "pages_per_s": 10_000.0,
        "urls": 1e9,
        "page_bytes": 40_000.0,
        "availability": 0.5,
        "nodes_busy": 0.5,
        "servers_busy": 0.5,
    }
    return make_plan(Wish(**usual | wishes), costs)


def amount(made: Plan, group: str, name: str) -> float:
    return next(need.amount for need in made.needs if need.group.startswith(group) and need.name == name)


def test_the_test_knows_all_costs() -> None:
    assert set(ROUND) == set(MEASURED)


def test_nodes_are_cores_that_are_half_busy_and_half_of_the_time_there() -> None:
    made = plan()
    assert amount(made, "Nodes", "nodes") == 40
    assert amount(made, "Nodes", "memory") == 40 * 200e6


def test_larger_pages_cost_in_proportion_and_smaller_ones_as_much() -> None:
    assert amount(plan(page_bytes=80_000.0), "Nodes", "nodes") == 80
    assert amount(plan(page_bytes=4_000.0), "Nodes", "nodes") == 40


def test_slow_answers_need_nodes_for_the_requests_in_flight() -> None:
    made = plan(response_s=5.0, concurrency=500)
    assert amount(made, "Pace", "requests at once") == 50_000
    assert amount(made, "Nodes", "nodes") == 200


def test_coordinators_are_half_busy_and_one_may_fail() -> None:
    made = plan()
    assert amount(made, "Coordinators", "coordinators") == 2
    assert amount(made, "Coordinators", "memory") == 2 * 300e6 + 40 * 50e3
    assert amount(plan(pages_per_s=40_000.0), "Coordinators", "coordinators") == 8
    assert amount(plan(pages_per_s=40_000.0, servers_busy=1.0), "Coordinators", "coordinators") == 5
    assert amount(plan(pages_per_s=1.0), "Coordinators", "coordinators") == 2


def test_the_memory_of_the_engine_by_what_it_remembers() -> None:
    made = plan(hosts=1e6)
    assert amount(made, "Engine", "queued") == pytest.approx(1e8 * 100)
    assert amount(made, "Engine", "seen and done") == pytest.approx(9e8 * 15)
    assert amount(made, "Engine", "contents of pages") == pytest.approx(9e8 * 300)
    assert amount(made, "Engine", "hosts") == pytest.approx(3e8)
    data = 10e9 + 13.5e9 + 270e9 + 0.3e9
    assert amount(made, "Engine", "data in all") == pytest.approx(data)
    assert amount(made, "Engine", "masters") == 12
    assert amount(made, "Engine", "servers") == 36
    assert amount(made, "Engine", "memory") == pytest.approx(data * 3 * 1.5)


def test_a_slow_crawl_has_forgotten_most_of_what_it_did() -> None:
    made = plan(pages_per_s=1.0)
    assert amount(made, "Engine", "seen and done") == pytest.approx(9e8 * 10 + 14 * 86_400 * 5)


def test_contents_are_those_of_the_pages_that_are_fetched() -> None:
    assert amount(plan(pages=1e6), "Engine", "contents of pages") == pytest.approx(1e6 * 300)
    exact = plan(pages=1e6, contents=Duplicates.EXACT)
    assert amount(exact, "Engine", "contents of pages") == pytest.approx(1e6 * 200)
    assert "contents of pages" not in [need.name for need in plan(contents=Duplicates.OFF).needs]


def test_one_master_is_enough_for_little_and_a_cluster_has_three() -> None:
    assert amount(plan(pages_per_s=100.0, urls=1e6), "Engine", "masters") == 1
    assert amount(plan(pages_per_s=20_001.0, urls=1e6), "Engine", "masters") == 3
    assert amount(plan(pages_per_s=100_000.0, urls=1e6), "Engine", "masters") == 10


def test_network_and_disk() -> None:
    made = plan(pages=1e9)
    assert amount(made, "Network", "from sites") == pytest.approx(10_000 * 40_000 * 8)
    assert amount(made, "Network", "to coordinators") == pytest.approx(10_000 * 250 * 8)
    assert amount(made, "Network", "to the store") == pytest.approx(10_000 * 20_000 * 8)
    assert amount(made, "Network", "disk a day") == pytest.approx(10_000 * 20_000 * 86_400)
    assert amount(made, "Network", "disk in all") == pytest.approx(1e9 * 20_000)
    assert amount(made, "Pace", "time") == pytest.approx(100_000)


def test_politeness_is_the_bound_of_few_hosts_and_the_plan_is_for_what_it_allows() -> None:
    made = plan(hosts=200.0, delay_s=1.6, response_s=0.4, pages=1e6)
    assert made.bound.value == "politeness"
    assert made.pages_per_s == pytest.approx(100.0)
    assert made.sentence.startswith("Politeness is the bound, not cores: 200 hosts, each asked once in 1.6 s of delay")
    assert amount(made, "Pace", "hosts at least") == 200
    assert amount(made, "Pace", "time") == pytest.approx(10_000)
    assert amount(made, "Nodes", "nodes") == 1


def test_with_hosts_enough_cores_decide() -> None:
    made = plan(hosts=1e6)
    assert (made.bound.value, made.pages_per_s) == ("wish", 10_000.0)
    assert "714,286 pages/s from 1 million hosts" in made.sentence


def test_without_hosts_it_is_said_how_many_are_needed() -> None:
    assert "at least 14,000 hosts" in plan().sentence


def test_nodes_may_be_the_bound() -> None:
    made = plan(nodes=10)
    assert made.bound.value == "nodes"
    assert made.pages_per_s == pytest.approx(2_500.0)
    assert amount(made, "Nodes", "nodes") == 10
    assert plan(nodes=10, hosts=14.0).bound.value == "politeness"
    assert plan(nodes=40).bound.value == "wish"


def test_what_one_machine_can_do_needs_no_fleet() -> None:
    assert "One machine" in plan(pages_per_s=1_000.0, urls=1e6).notes[0]
    assert plan(pages_per_s=1_001.0, urls=1e6).notes == []
    assert "`?contents=off`" in plan().notes[0]


def test_one_machine_is_said_to_be_enough_only_for_a_queue_that_was_measured_on_one() -> None:
    for urls in (1e9, 1e11):
        (said, *_) = plan(pages_per_s=5.0, urls=urls).notes
        assert "`drumlin crawl` on one machine was measured with 10 million URLs at most" in said
        assert "One machine of two cores does this" not in said
    assert "One machine of two cores does this" in plan(pages_per_s=5.0, urls=1e7).notes[0]


def test_more_pages_than_urls_draw_a_remark() -> None:
    said = plan(urls=1e6, pages=1e7).notes[0]
    assert said.startswith("1 million URLs cannot give 10 million pages")
    assert "cannot give" not in " ".join(plan(urls=1e6, pages=1e6).notes)


def test_slow_nodes_are_said_to_cost_coordinators_more() -> None:
    (slow,) = plan(MEASURED, pages_per_s=166.0, urls=1e6, nodes=10_000.0, availability=0.7).notes
    assert slow.startswith("These nodes are slow: one that fetches 0.0237 pages/s")
    assert "coordinators up to five times and Redis up to three times" in slow
    waiting = plan(MEASURED, urls=1e6, response_s=60.0)  # 512 requests at once in a minute
    assert waiting.notes[0].startswith("These nodes are slow: one that fetches 8.53 pages/s")


def test_busy_nodes_and_costs_that_somebody_measured_draw_no_remark() -> None:
    assert plan(MEASURED, pages_per_s=5_000.0, urls=1e6, nodes=20.0).notes == []
    assert plan(MEASURED, pages_per_s=5_000.0, urls=1e6).notes == []
    own = replaced(MEASURED, {"coordinator_cpu": 410.0}, "load.json")
    assert plan(own, pages_per_s=166.0, urls=1e6, nodes=10_000.0).notes == []


def test_one_url_is_not_a_tenth_of_one() -> None:
    made = plan(urls=1.0, pages_per_s=1.0)
    assert amount(made, "Engine", "queued") == 0.0
    assert amount(made, "Engine", "seen and done") == 15.0


def test_many_and_few_are_said_in_plain_numbers() -> None:
    many = plan(pages_per_s=1e6, page_bytes=1e9)
    few = plan(MEASURED, pages_per_s=1.0, urls=1.0, pages=1.0, hosts=1.0, nodes=1.0)
    for made in (many, few):
        said = " ".join([made.sentence, *made.notes, *(need.made_of for need in made.needs)])
        assert re.findall(r"\de[+-]\d", said) == []
        assert re.findall(r"(?<![\d.,])1 (?:pages|URLs|hosts|nodes|cores|bytes)\b", said) == []
    assert "less than 0.01 cores busy" in said


def test_one_host_and_one_node_are_spoken_of_as_one() -> None:
    assert "1 host, asked once in 1 s of delay and 0.4 s for the answer, allows" in plan(hosts=1.0).sentence
    assert "while it has URLs to fetch" in plan(hosts=1.0, pages_per_s=0.1).sentence
    assert "at least 1 host has URLs" in plan(pages_per_s=0.1).sentence
    assert plan(nodes=1.0).sentence.startswith(
        "Nodes are the bound: 1 node, there 50% of the time, can fetch 250 pages/s"
    )


LOAD = Measured(
    pace=8_000.0,
    pages_per_s=7_900.0,
    latencies_ms={},
    calls_per_s={"results": 79.0},
    errors={},
    pages_rejected=0,
    pages_late=0,
    turns=0,
    turns_empty=0,
    turns_without_node=0,
    batch_bytes=30_000.0,
    coordinators_us=60.0,
    redis_us=50.0,
    generator_us=20.0,
    others_cores=0.0,
    coordinators_mb=500.0,
    redis_mb=400.0,
)


def run(tool: str, scenario: str, cpu_ms: float) -> dict[str, Any]:
    extra = {"written_mb": 20.0, "report": {"pages": 1_000, "bytes": 40_000_000, "state": "finished"}}
    return asdict(Run(scenario, tool, 1_000.0, cpu_ms, 400.0, 20.0, 0, 0, 0, 0, 0, extra))


def test_what_bench_load_wrote_is_read() -> None:
    dearer = msgspec.structs.replace(LOAD, coordinators_us=80.0)
    costs = read_measurements(msgspec.json.encode([LOAD, dearer, dearer]), "load.json")
    assert costs == {"coordinator_cpu": 80.0, "engine_cpu": 50.0, "result_size": 300.0}


def test_what_bench_run_wrote_is_read_as_far_as_it_is_about_drumlin_at_full_speed() -> None:
    speeds = [run("drumlin", "speed", cpu_ms) for cpu_ms in (1.0, 1.2, 1.3)]
    others = [run("wget2", "speed", 0.3), run("drumlin", "polite", 9.0)]
    others[0]["extra"]["report"] = None
    costs = read_measurements(json.dumps(speeds + others).encode(), "run.json")
    assert costs == {"node_cpu": 1.2, "page_size": 40_000.0, "stored_share": 0.5}


def test_costs_by_name_are_read() -> None:
    assert read_measurements(b'{"host": 300, "url_seen": 9.5}', "mine.json") == {"host": 300.0, "url_seen": 9.5}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no JSON",
        b"[]",
        b"7",
        b'[{"redis_us": 3}]',
        b'{"host": "dear"}',
        b"[" * 100_000 + b"]" * 100_000,
        json.dumps([run("wget2", "speed", 1.0)]).encode(),
        msgspec.json.encode([msgspec.structs.replace(LOAD, pages_per_s=0.0)]),
    ],
)
def test_a_file_without_measurements_gets_a_sentence(content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"^x\.json has no measurements: .+\. It may be what `bench.load --json`"):
        read_measurements(content, "x.json")


def test_costs_that_cannot_be_are_refused_and_the_others_keep_their_source() -> None:
    no_costs = {"hots": 1.0}, {"host": -1.0}, {"host": math.inf}, {"host": math.nan}, {"host": 1e308}
    for values in (*no_costs, {"page_size": 0.0}, {"page_size": 1e-300}, {"node_cpu": 0.0}):
        with pytest.raises(ConfigError):
            replaced(MEASURED, values, "--cost")
    costs = replaced(MEASURED, {"host": 0.0}, "--cost")
    assert (costs["host"].value, costs["host"].source) == (0.0, "--cost")
    assert costs["url_seen"] == MEASURED["url_seen"]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("23,148", 23_148.0),
        ("1e9", 1e9),
        ("2.5M", 2.5e6),
        ("10 billion", 1e10),
        ("10B", 1e10),
        ("0.5", 0.5),
        ("1e300", 1e300),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, number: float) -> None:
    assert parse_number(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "-1", "many", "10 bits", "nan", "inf", "1e-3", "e9", ",5"])
def test_what_is_not_a_number_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        parse_number(text)


def test_shares_are_read_as_people_write_them() -> None:
    assert [parse_share(text) for text in ("70%", "0.7", "1", "100 %", ".5")] == [0.7, 0.7, 1.0, 1.0, 0.5]
    for text in ("1.1", "101%", "-1", "half", ""):
        with pytest.raises(ValueError, match="not a share"):
            parse_share(text)


def test_numbers_and_networks_are_shown_to_people() -> None:
    numbers = (0.0000116, 0.25, 23_148.4, 1e6, 1.234e9, 9.876e14)
    assert [show_number(number) for number in numbers] == [
        "0.0000116",
        "0.25",
        "23,148",
        "1 million",
        "1.23 billion",
        "988 trillion",
    ]
    assert [show_bits(bits) for bits in (12, 6.6e9, 54e6)] == ["12 bit/s", "6.6 Gbit/s", "54 Mbit/s"]
