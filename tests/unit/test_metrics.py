"""The registry of metrics, the text format, what a node counts, and the small server that shows it."""

from __future__ import annotations

import re
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

import pytest

from drumlin.config.processes import ListenAddress, parse_metrics
from drumlin.errors import BusyError, ConfigError
from drumlin.fetch import Transfer
from drumlin.metrics.counting import Histogram
from drumlin.metrics.reference import reference_page
from drumlin.metrics.registry import METRICS, Kind, Metric, Teller
from drumlin.metrics.server import serving
from drumlin.metrics.text import histograms, many, page
from drumlin.model import FailureKind, Outcome
from drumlin.node.figures import PAGE, ROBOTS, Gauges, NodeFigures
from drumlin.protocol import Result
from tests.harness.prometheus import check_page, families, promtool, samples

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"(drumlin|process)_[a-z]+(_[a-z]+)*")
CHOSEN_BY_SITES = {"host", "url", "domain", "site", "path", "ip", "title"}
ABBREVIATED = re.compile(r"_(s|ms|sec|secs|b|kb|mb|bytes_s)(_total)?$")
SOME = Metric("drumlin_some_seconds", Kind.HISTOGRAM, Teller.NODE, "Some time.", {"of": "what"}, (0.1, 1.0))


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_a_metric_is_named_by_the_conventions(metric: Metric) -> None:
    assert NAME.fullmatch(metric.name)
    assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
    assert not ABBREVIATED.search(metric.name), "units are written out"
    assert metric.help.endswith(".")
    assert "\n" not in metric.help
    assert bool(metric.buckets) == (metric.kind is Kind.HISTOGRAM)
    assert list(metric.buckets) == sorted(set(metric.buckets))
    assert not set(metric.labels) & {*CHOSEN_BY_SITES, "le", "job", "instance"}
    assert all(metric.labels.values()), "say what the values are"


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_times_and_sizes_have_their_unit_in_the_name(metric: Metric) -> None:
    words = set(re.findall(r"[a-z]+", metric.help.lower()))
    name = metric.name.removesuffix("_total")
    if words & {"time", "long", "age", "ages"}:
        assert name.endswith("_seconds")
    if words & {"bytes", "memory"}:
        assert name.endswith("_bytes")


def test_the_reference_page_is_current() -> None:
    assert (ROOT / "docs/reference/metrics.md").read_text() == reference_page(), "run `make docs`"


# The text format


def test_buckets_are_cumulative_and_end_with_all() -> None:
    histogram = Histogram(SOME.buckets)
    for value in (0.05, 0.1, 0.5, 7.0):
        histogram.observe(value)
    lines = list(histograms(SOME, {("page",): histogram}))
    assert lines == [
        "# HELP drumlin_some_seconds Some time.",
        "# TYPE drumlin_some_seconds histogram",
        'drumlin_some_seconds_bucket{of="page",le="0.1"} 2',
        'drumlin_some_seconds_bucket{of="page",le="1.0"} 3',
        'drumlin_some_seconds_bucket{of="page",le="+Inf"} 4',
        'drumlin_some_seconds_sum{of="page"} 7.650000',
        'drumlin_some_seconds_count{of="page"} 4',
    ]


def test_a_label_cannot_break_out_of_its_quotes() -> None:
    *_, line = many(SOME, {('a"} 1\nforged 2\\',): 3})
    assert line == 'drumlin_some_seconds{of="a\\"} 1\\nforged 2\\\\"} 3'


def test_labels_must_be_those_of_the_metric() -> None:
    with pytest.raises(ValueError, match="shorter"):
        list(many(SOME, {(): 1}))


# What a node counts


def result(outcome: Outcome, kind: str = "", put_off_s: float = 0.0) -> Result:
    return Result("id", "http://a.test/", 0, "", [], 0.0, outcome=outcome, kind=kind, put_off_s=put_off_s)


def transfer(seconds: float, size: int) -> Transfer:
    made = Transfer(cast(Any, None))
    made.started, made.finished = 10.0, 10.0 + seconds
    made.body.write(bytes(size))
    return made


def test_a_node_counts_what_became_of_urls_and_how_long_sites_took() -> None:
    figures = NodeFigures(memory_bytes_max=1_000)
    figures.fetched(PAGE, transfer(0.02, 500))
    figures.fetched(PAGE, transfer(2.0, 0))
    figures.fetched(ROBOTS, transfer(0.001, 30))
    figures.finished(result(Outcome.FETCHED))
    figures.finished(result(Outcome.DENIED, "robots"))
    figures.finished(result(Outcome.FAILED, FailureKind.TIMEOUT))
    figures.finished(result(Outcome.FAILED, FailureKind.DNS, put_off_s=9.0))
    told = samples(figures.page(50.0).decode())
    outcomes = {name: told[f'drumlin_node_urls_total{{outcome="{name}"}}'] for name in [*Outcome, "put_off"]}
    assert {name: count for name, count in outcomes.items() if count} == dict.fromkeys(
        ["fetched", "denied", "failed", "put_off"], 1
    )
    assert told['drumlin_node_failures_total{kind="timeout"}'] == 1
    assert told['drumlin_node_failures_total{kind="dns"}'] == 0, "it was put off, not tried"
    assert told['drumlin_node_fetch_seconds_bucket{of="page",le="0.025"}'] == 1
    assert told['drumlin_node_fetch_seconds_count{of="page"}'] == 2
    assert told['drumlin_node_fetch_seconds_sum{of="page"}'] == pytest.approx(2.02)
    assert told['drumlin_node_body_bytes_total{of="page"}'] == 500
    assert told['drumlin_node_body_bytes_total{of="robots"}'] == 30
    assert told["drumlin_node_memory_max_bytes"] == 1_000


def test_a_failure_of_a_kind_that_this_version_does_not_know_is_counted() -> None:
    figures = NodeFigures()
    figures.finished(result(Outcome.FAILED, "novel"))
    assert samples(figures.page(0.0).decode())['drumlin_node_failures_total{kind="novel"}'] == 1


def test_what_changes_is_looked_at_every_second_and_only_if_somebody_may_ask() -> None:
    figures = NodeFigures()
    assert figures.look_at == float("inf")
    figures.be_watched()
    assert figures.look_at <= 0
    figures.looked(Gauges(100.0, in_flight=7, lease_ages_s=[1.0, 4.0], settling_lag_s=0.5))
    assert figures.look_at == 101.0
    told = samples(figures.page(102.5).decode())
    assert told["drumlin_node_requests_in_flight"] == 7
    assert told["drumlin_node_leases"] == 2
    assert told["drumlin_node_lease_ages_seconds"] == 5.0
    assert told["drumlin_node_lease_oldest_seconds"] == 4.0
    assert told["drumlin_node_look_age_seconds"] == 2.5


def test_for_how_long_a_node_is_cut_off_is_told_before_its_loop_begins_and_after_its_end() -> None:
    figures = NodeFigures()
    figures.waits(5.0, 4.0)
    assert samples(figures.page(5.0).decode())["drumlin_node_cut_off_seconds"] == 0, "nobody may ask"
    figures.be_watched()
    figures.waits(100.0, 40.0)
    figures.waits(100.5, 40.5)
    told = samples(figures.page(100.5).decode())
    assert (told["drumlin_node_cut_off_seconds"], told["drumlin_node_look_age_seconds"]) == (40.0, 0.0)
    figures.looked(Gauges(200.0, in_flight=1))
    assert samples(figures.page(200.0).decode())["drumlin_node_cut_off_seconds"] == 0
    figures.waits(300.0, 50.0)
    told = samples(figures.page(300.0).decode())
    assert (told["drumlin_node_cut_off_seconds"], told["drumlin_node_look_age_seconds"]) == (50.0, 100.0)


def test_a_node_tells_all_its_metrics_and_no_others() -> None:
    ours = {name: str(one.kind) for name, one in METRICS.items() if one.told_by in (Teller.NODE, Teller.PROCESS)}
    assert families(NodeFigures().page(0.0).decode()) == ours


def test_promtool_finds_nothing_wrong_with_the_page_of_a_node() -> None:
    check_page(NodeFigures().page(0.0).decode())


def test_promtool_would_find_something() -> None:
    done = promtool("check", "metrics", text="# HELP a_ms A.\n# TYPE a_ms counter\na_ms 1\n")
    assert done.returncode != 0


# The server


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def test_the_page_is_served_and_nothing_else() -> None:
    port, count = free_port(), iter(range(9))
    with serving("127.0.0.1", port, lambda: page([[f"a {next(count)}"]])):
        for expected in (b"a 0\n", b"a 1\n"):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                assert answer.read() == expected
                assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        with pytest.raises(urllib.error.HTTPError, match="404") as refused:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10)
        refused.value.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_a_port_that_is_taken_and_an_address_of_others_are_refused_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(BusyError, match=r"Another program listens on 127\.0\.0\.1:"):
            serving("127.0.0.1", taken.getsockname()[1], bytes).__enter__()
    with pytest.raises(ConfigError, match=r"Cannot serve metrics on 192\.0\.2\.1:9"):
        serving("192.0.2.1", 9464, bytes).__enter__()


def test_a_port_alone_is_served_on_this_machine_only() -> None:
    assert parse_metrics("9464") == ListenAddress("127.0.0.1", 9464)
    assert parse_metrics("[::1]:9464") == ListenAddress("::1", 9464)
    assert parse_metrics("0.0.0.0:9464") == ListenAddress("0.0.0.0", 9464)


@pytest.mark.parametrize("text", ["", "x", "0", "70000", "unix:x", "127.0.0.1", ":9464", "a:b"])
def test_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="PORT or HOST:PORT"):
        parse_metrics(text)
