"""Traces of URLs at a real receiver, across a coordinator and a node; and what happens without a receiver, or without
the library."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK, EXIT_USAGE
from drumlin.testing import FakeWeb
from tests.acceptance.commands import chain, crawl, drumlin, end, environment, report, running, sentence, wait_until
from tests.harness.fleet import fleet, needs_redis
from tests.harness.otlp import ReceivedSpan, Receiver

SECRET = "hunter2"
WAY = {"lease", "url", "robots", "fetch", "read", "store", "send", "settle"}


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        yield made


def of_url(receiver: Receiver, path: str) -> dict[str, ReceivedSpan]:
    """The spans by name of the trace of the URL with this path."""
    spans = list(receiver.spans)
    traces = {one.trace for one in spans if str(one.attributes.get("url.full", "")).endswith(path)}
    return {one.name: one for one in spans if one.trace in traces}


def test_one_trace_spans_the_coordinator_and_the_node(web: FakeWeb, tmp_path: Path) -> None:
    web.page("traced", f"/item?token={SECRET}", "an item")
    home = web.page("traced", "/", f'<a href="/item?token={SECRET}">item</a>')
    address = f"unix:{tmp_path}/socket"
    with Receiver() as receiver:
        tracing = ("--trace-every", "1", "--log-format", "json", "--log-level", "debug")
        place = ("--listen", address, "--engine", f"rocksdb:{tmp_path}/queue", "--no-auth", "--allow-private")
        logs = environment(tmp_path, receiver.variables)
        with running(tmp_path, "coordinator", *place, "--delay", "0", *tracing, home, env=logs) as coordinator:
            joining = ("--coordinator", address, "--store", "store", "--name", "alpha")
            with running(tmp_path, "node", *joining, *tracing, env=logs) as node:
                wait_until(lambda: set(of_url(receiver, "/item?REDACTED")) == WAY - {"robots"}, "the trace of an item")
                wait_until(lambda: set(of_url(receiver, "/")) == WAY, "the trace of the home page")
                told_by_node = end(node, signal.SIGTERM).stderr
            told_by_coordinator = end(coordinator, signal.SIGTERM).stderr
    for path in ("/", "/item?REDACTED"):
        check_way(of_url(receiver, path))
    assert SECRET not in repr(receiver.spans)
    trace = of_url(receiver, "/item?REDACTED")["lease"].trace
    for log, words in ((told_by_node, "done with"), (told_by_coordinator, "settled")):
        entries = [json.loads(line) for line in log.splitlines()]
        traced = [entry["message"] for entry in entries if entry.get("trace_id") == trace]
        assert any(words in message for message in traced), log
        assert SECRET not in "".join(traced)


def check_way(spans: dict[str, ReceivedSpan]) -> None:
    """Whether every span is under the right parent, of the right process, and begins and ends when it should."""
    parents = {"url": "lease", "send": "url", "settle": "send"}
    parents |= dict.fromkeys({"robots", "fetch", "read", "store"} & set(spans), "url")
    assert spans["lease"].parent == ""
    assert {name: spans[parent].span for name, parent in parents.items()} == {
        name: spans[name].parent for name in parents
    }
    ours = {name for name, one in spans.items() if one.service == "drumlin-coordinator"}
    assert ours == {"lease", "settle"}
    assert {one.service for one in spans.values()} == {"drumlin-coordinator", "drumlin-node"}
    assert spans["fetch"].attributes["http.response.status_code"] == 200
    assert spans["settle"].attributes["drumlin.outcome"] == "fetched"
    order = [spans[name] for name in ("fetch", "read", "store", "send")]
    assert all(one.start <= one.end for one in spans.values())
    assert [one.start for one in order] == sorted(one.start for one in order)


@needs_redis
def test_a_fleet_passes_the_flag_on_and_keeps_it_when_it_is_started_again(
    web: FakeWeb, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = web.page("fleet-traced", "/", "home")
    shape = ("--nodes", "1", "--coordinators", "1", "--masters", "1", "--delay", "0", "--no-finish")
    with Receiver() as receiver:
        for name, value in receiver.variables.items():
            monkeypatch.setenv(name, value)
        with fleet(tmp_path, *shape, "--trace-every", "1", home) as one:
            wait_until(lambda: set(of_url(receiver, home)) == WAY, "the trace of the home page")
            assert drumlin(tmp_path, "fleet", "down", "--out", one.root).returncode == EXIT_OK
            receiver.spans.clear()
            assert drumlin(tmp_path, "fleet", "up", "--out", one.root).returncode == EXIT_OK
            later = web.page("fleet-traced", "/later", "later")
            assert drumlin(tmp_path, "enqueue", "--out", one.root, later).returncode == EXIT_OK
            wait_until(lambda: {"lease", "fetch", "settle"} <= set(of_url(receiver, "/later")), "the second trace")


def test_a_crawl_on_one_machine_is_traced_in_part(web: FakeWeb, tmp_path: Path) -> None:
    home = chain(web, "sampled", 200)
    with Receiver() as receiver:
        variables = environment(tmp_path, receiver.variables)
        done = crawl(tmp_path, home, "--out", "crawl", "--trace-every", "20", env=variables)
        assert done.returncode == EXIT_OK
    given = {one.trace for one in receiver.spans if one.name == "lease"}
    assert 0 < len(given) < 100
    assert given == {one.trace for one in receiver.spans if one.name == "settle"}, "the last spans are sent at the end"


def test_a_receiver_that_is_away_costs_no_page_and_one_line(web: FakeWeb, tmp_path: Path) -> None:
    home = chain(web, "untold", 150)
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "100"}
    # The exporter tries for so many seconds before it says that it failed; a process waits longer for its last spans.
    away |= {"OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    variables = environment(tmp_path, away | {"OTEL_BSP_MAX_QUEUE_SIZE": "16", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "8"})
    done = crawl(tmp_path, home, "--out", "crawl", "--trace-every", "1", env=variables)
    assert done.returncode == EXIT_OK
    assert report(tmp_path)["pages"] == 150
    assert "opentelemetry" not in done.stderr
    log = "".join(path.read_text() for path in (tmp_path / "crawl" / "logs").iterdir())
    assert 1 <= log.count("traces cannot be sent") <= 2, "once for each process"


def without_library(folder: Path) -> dict[str, str]:
    """An environment in which OpenTelemetry is not complete, and whoever imports it leaves a file."""
    package = folder / "path" / "opentelemetry"
    package.mkdir(parents=True)
    mark = folder / "imported"
    (package / "__init__.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    return environment(folder, {"PYTHONPATH": str(package.parent)})


def test_where_nobody_traces_nothing_of_it_is_imported(web: FakeWeb, tmp_path: Path) -> None:
    variables = without_library(tmp_path)
    assert crawl(tmp_path, chain(web, "untraced", 3), "--out", "crawl", env=variables).returncode == EXIT_OK
    assert not (tmp_path / "imported").exists()


def test_without_the_library_a_sentence_says_what_to_install(web: FakeWeb, tmp_path: Path) -> None:
    variables = without_library(tmp_path)
    done = crawl(tmp_path, web.url("untraced"), "--out", "crawl", "--trace-every", "9", env=variables)
    assert done.returncode == EXIT_USAGE
    assert "pip install '.[otel]'" in sentence(done)
    assert (tmp_path / "imported").exists(), "this is how the test above would notice"
    node = drumlin(tmp_path, "node", "--coordinator", "unix:x", "--store", "s", "--trace-every", "9", env=variables)
    assert "pip install '.[otel]'" in sentence(node)
