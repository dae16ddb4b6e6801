"""Kafka with a broker that is not there: a person sees what is wrong, and `--seeds-idle` ends a crawl from a topic."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from drumlin.testing import FakeWeb
from tests.acceptance.commands import FAST, drumlin, end, report, running, sentence, wait_until
from tests.harness.redis import free_port

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install '.[kafka]'")

LOST = "topic of --seeds-from cannot be read"


def test_a_wrong_broker_is_named_and_ends_a_crawl_that_may_be_idle_only_so_long(tmp_path: Path) -> None:
    port = free_port()
    topic = ("--seeds-from", f"kafka://127.0.0.1:{port}/urls", "--seeds-idle", "6s")
    with running(tmp_path, "crawl", *topic, *FAST, "--out", "crawl") as crawl:
        why = ("why", "--out", "crawl", "--json")
        wait_until(lambda: LOST in drumlin(tmp_path, *why).stdout, "a reason")
        reasons = json.loads(drumlin(tmp_path, *why).stdout)["reasons"]
        done = end(crawl)
    assert reasons[0]["code"] == "seeds_lost"
    assert done.returncode == 9
    shown = [line for line in done.stderr.splitlines() if LOST in line]
    assert shown, done.stderr
    assert f"127.0.0.1:{port}" in shown[0]
    assert "(after " not in done.stderr
    assert done.stdout.startswith(f"The {LOST} (")
    assert report(tmp_path)["stop_reason"].startswith(f"the {LOST} (")


def test_an_idle_time_without_a_topic_is_refused(tmp_path: Path) -> None:
    done = drumlin(tmp_path, "crawl", "http://a.example/", "--seeds-idle", "5s", "--contact", "me@a.example")
    assert (done.returncode, "Give --seeds-from too" in sentence(done)) == (2, True)
    assert not (tmp_path / "crawl").exists()


def test_a_crawl_says_that_it_waits_for_kafka(tmp_path: Path) -> None:
    told = tmp_path / "told"
    with FakeWeb(hosts=0) as web, told.open("w+") as stderr:
        url = web.page("site", "/", "a page")
        flags = (*FAST, "--out", "crawl", "--events", f"kafka://127.0.0.1:{free_port()}/x")
        with running(tmp_path, "crawl", url, *flags, stderr=stderr) as crawl:
            wait_until(lambda: "Kafka has taken no events" in told.read_text(), "a reason")
            end(crawl, signal.SIGKILL)
    assert "Connection refused" in told.read_text()
    assert "(after " not in told.read_text()
