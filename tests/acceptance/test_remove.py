"""`drumlin remove` as a person uses it: nothing of a host is left, nothing of others is lost, nothing comes back."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from drumlin.errors import EXIT_BUSY, StorageError
from drumlin.lifecycle.removal.targets import Targets, What, parse_target
from drumlin.local.removing import Place, remove
from drumlin.testing import FakeWeb, Response
from tests.acceptance.commands import TIMEOUT_S, crawl, drumlin, environment, stored_urls
from tests.harness.crawls import wait_until
from tests.harness.fleet import needs_redis
from tests.harness.memory_broker import MemoryBroker, MemoryOptions
from tests.harness.outputs import check_index_matches_tables, check_rows_lead_to_records, check_warcs
from tests.harness.redis import redis_server, url_of
from tests.harness.searching import found_in

NO_TRIES = ("--retries-max", "0")


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    """Two hosts that link to each other; one of them has a page that fails, and more than a budget allows."""
    with FakeWeb(hosts=0) as made:
        gone, kept = made.url("gone"), made.url("kept")
        more = "".join(f'<a href="/more{number}">more</a> ' for number in range(6))
        made.page("gone", "/", f'<title>Gone</title><a href="{kept}one">one</a> <a href="/broken">b</a> {more}')
        made.page("kept", "/", f'<title>Kept</title><p>See {gone} for more.</p><a href="{gone}">gone</a>')
        made.page("kept", "/one", f'<title>One</title><a href="/two">two</a> <a href="{gone}more1">more</a>')
        made.page("kept", "/two", "<title>Two</title><p>Nothing else.</p>")
        made.respond("kept", "/away", Response(status=302, headers={"Location": gone}))
        made.respond("gone", "/broken", Response(status=500))
        for number in range(6):
            made.page("gone", f"/more{number}", f"<title>More {number}</title><p>{'word ' * number}</p>")
        yield made


def removed(folder: Path, *arguments: str | Path) -> dict[str, Any]:
    done = drumlin(folder, "remove", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def kept_in(counts: dict[str, int]) -> dict[str, int]:
    """The mentions that a report tells, as `found_in` counts them."""
    rows = {"pages": "kept_page_rows", "links": "kept_link_rows", "fetches": "kept_fetch_rows"}
    found = {name: counts[kept] for name, kept in rows.items()}
    return {"warc": counts["kept_warc_records"], **found, "frontier": 0, "raw": 0}


def test_a_removed_host_is_found_nowhere_but_in_pages_of_others_and_does_not_come_back(
    tmp_path: Path, web: FakeWeb
) -> None:
    host, out = web.url("gone").split("/")[2], tmp_path / "crawl"
    wanted = (web.url("gone"), web.url("kept"), web.url("kept", "/away"), *NO_TRIES, "--out", "crawl")
    assert crawl(tmp_path, *wanted, "--pages-max", "7").returncode == 0
    before = stored_urls(out)
    assert any(host in url for url in before)
    dry = removed(tmp_path, "--host", host, "--dry-run", "--out", out)
    assert stored_urls(out) == before
    run = removed(tmp_path, "--host", host, "--yes", "--by", "the lawyers", "--out", out)
    assert run["counts"] == dry["counts"]
    assert all(run["counts"][name] for name in ("hosts", "notes", "captures", "pages", "fetches", "index_lines"))
    assert run["counts"]["queued"] + run["counts"]["dead_letters"] > 0
    assert found_in(out, host) == kept_in(run["counts"])
    assert run["counts"]["kept_link_rows"] > 0
    assert stored_urls(out) == [url for url in before if host not in url]
    check_rows_lead_to_records(out)
    check_warcs(out)
    check_index_matches_tables(out)
    asked = len([one for one in web.requests if one.host == "gone"])
    again = crawl(tmp_path, *wanted, "--pages-max", "50")
    assert again.returncode == 0, again.stderr
    assert len([one for one in web.requests if one.host == "gone"]) == asked
    assert {url for url in stored_urls(out) if host in url} == set()
    said = drumlin(tmp_path, "why", web.url("gone"), "--out", out).stderr
    assert "was removed from the crawl on request" in said
    audit = drumlin(tmp_path, "audit", "--out", out).stdout
    assert "the lawyers" in audit
    assert run["removed"][0] in audit
    assert host not in audit
    (report,) = (out / "removals").iterdir()
    assert host not in report.read_text()
    refused = drumlin(tmp_path, "enqueue", web.url("gone", "/new"), "--out", out)
    assert "1 removed on request" in refused.stdout


def test_one_url_is_removed_and_the_rest_of_its_host_stays(tmp_path: Path, web: FakeWeb) -> None:
    out, url = tmp_path / "crawl", web.url("kept", "/two")
    wanted = (web.url("kept"), web.url("kept", "/one"), "--scope", "host", "--out", "crawl")
    assert crawl(tmp_path, *wanted).returncode == 0
    before = stored_urls(out)
    assert drumlin(tmp_path, "frontier", "checkpoint", "early", "--out", out).returncode == 0
    dry = removed(tmp_path, "--url", url, "--dry-run", "--out", out)
    run = removed(tmp_path, "--url", url, "--yes", "--out", out)
    assert run["counts"] == dry["counts"]
    assert stored_urls(out) == [one for one in before if one != url]
    counted = ("hosts", "done", "captures", "pages", "fetches", "checkpoints")
    assert [run["counts"][name] for name in counted] == [0, 1, 1, 1, 1, 1]
    check_rows_lead_to_records(out)
    check_index_matches_tables(out)
    assert drumlin(tmp_path, "frontier", "restore", "early", "--out", out).returncode == 0
    assert crawl(tmp_path, *wanted).returncode == 0
    assert url not in stored_urls(out)


KILLER = """
import os, signal, sys
left = int(sys.argv[1])
def hook(name, arguments):
    global left
    if name in ("os.rename", "os.remove") and any(part in str(arguments[0]) for part in ("crawl", ".removing-")):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
from drumlin.cli.main import run
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.parametrize(("option", "files"), [("--host", 0), ("--domain", 7)])
def test_a_removal_that_is_killed_is_ended_by_the_same_command(
    tmp_path: Path, web: FakeWeb, option: str, files: int
) -> None:
    """It is killed after it has renamed or deleted so many files. The domain of an address is the address."""
    host, out = web.url("gone").split("/")[2], tmp_path / "crawl"
    name = host if option == "--host" else host.partition(":")[0]
    wanted = (web.url("gone"), web.url("kept"), *NO_TRIES, "--out", "crawl")
    assert crawl(tmp_path, *wanted).returncode == 0
    before = stored_urls(out)
    arguments = ["remove", option, name, "--yes", "--out", str(out), "--quiet"]
    command = [sys.executable, "-c", KILLER, str(files), *arguments]
    done = subprocess.run(command, cwd=tmp_path, env=environment(tmp_path), timeout=TIMEOUT_S, check=False)
    assert done.returncode == -9
    check_rows_lead_to_records(out)
    assert "was broken off" in crawl(tmp_path, *wanted).stderr
    assert "was broken off" in drumlin(tmp_path, "why", "--out", out).stdout
    assert "Not all of it may be gone." in drumlin(tmp_path, "why", web.url("gone"), "--out", out).stderr
    other = drumlin(tmp_path, "remove", "--host", "other.test", "--yes", "--out", out)
    assert "A removal of something else was broken off" in other.stderr
    assert "was broken off" in crawl(tmp_path, *wanted).stderr
    assert drumlin(tmp_path, *arguments).returncode == 0
    assert "Nothing of it is kept" in drumlin(tmp_path, "why", web.url("gone"), "--out", out).stderr
    counts = removed(tmp_path, option, name, "--dry-run", "--out", out)["counts"]
    assert not any(number for name, number in counts.items() if not name.startswith("kept_"))
    assert found_in(out, host) == kept_in(counts)
    assert stored_urls(out) == [url for url in before if host not in url]
    check_rows_lead_to_records(out)
    check_warcs(out)
    check_index_matches_tables(out)
    assert not list(out.rglob("*.removing"))


@needs_redis
def test_the_frontier_that_a_moved_crawl_left_is_cleaned_too_and_another_store_is_refused(
    tmp_path: Path, web: FakeWeb
) -> None:
    host, out = web.url("gone").split("/")[2], tmp_path / "crawl"
    wanted = (web.url("gone"), web.url("kept"), *NO_TRIES, "--out", "crawl")
    assert crawl(tmp_path, *wanted, "--pages-max", "5").returncode == 0
    assert drumlin(tmp_path, "frontier", "checkpoint", "early", "--out", out).returncode == 0
    with redis_server(tmp_path / "redis") as server:
        engine = ("--engine", url_of(server, namespace="moved"))
        moved = drumlin(tmp_path, "frontier", "migrate", "--from", f"rocksdb:{out}", "--to", engine[1])
        assert moved.returncode == 0, moved.stderr
        for store in ("nothing", "redis"):
            refused = drumlin(tmp_path, "remove", "--host", host, "--yes", *engine, "--store", tmp_path / store)
            assert "There is no store in" in refused.stderr
        run = removed(tmp_path, "--host", host, "--yes", *engine, "--store", out)
    assert run["counts"]["checkpoints"] == 2
    assert found_in(out, host) == kept_in(run["counts"])
    assert "was moved to" in crawl(tmp_path, *wanted).stderr


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_engine_forgets_its_past_when_all_is_removed_also_if_kafka_cannot_be_told(
    tmp_path: Path, web: FakeWeb, *, dry_run: bool
) -> None:
    assert crawl(tmp_path, web.url("kept", "/two"), "--scope", "page", "--out", "crawl").returncode == 0
    broker, done, out = MemoryBroker(), list[str](), tmp_path / "crawl"
    broker.refusing = True
    place = Place(f"rocksdb:{out / 'frontier'}", str(out), out, forget=lambda: done.append("forgotten"))
    targets = Targets([parse_target(What.HOST, web.url("kept").split("/")[2])])
    work = remove(place, targets, dry_run=dry_run, events=MemoryOptions.at(broker))
    with contextlib.nullcontext() if dry_run else pytest.raises(StorageError, match="Kafka was not told"):
        asyncio.run(work)
    assert done == ([] if dry_run else ["forgotten"])


@pytest.mark.parametrize("what", ["--host", "--url"])
def test_whoever_forgets_a_port_is_told_which_hosts_have_that_name(tmp_path: Path, web: FakeWeb, what: str) -> None:
    page = web.url("kept", "/two")
    assert crawl(tmp_path, page, "--scope", "page", "--out", "crawl").returncode == 0
    host = page.split("/")[2]
    name = host.partition(":")[0]
    wanted = name if what == "--host" else f"http://{name}/two"
    done = drumlin(tmp_path, "remove", what, wanted, "--dry-run", "--out", "crawl")
    assert (done.returncode, f"The crawl knows this name as {host}." in done.stderr) == (0, True), done.stderr


def test_quiet_means_that_no_report_is_printed(tmp_path: Path, web: FakeWeb) -> None:
    page = web.url("kept", "/two")
    assert crawl(tmp_path, page, "--scope", "page", "--out", "crawl").returncode == 0
    for quiet in ((), ("--quiet",)):
        done = drumlin(tmp_path, "remove", "--host", page.split("/")[2], "--dry-run", "--out", "crawl", *quiet)
        assert (done.returncode, bool(done.stdout or done.stderr)) == (0, not quiet)


def test_bad_requests_get_one_sentence(tmp_path: Path, web: FakeWeb) -> None:
    assert crawl(tmp_path, web.url("kept", "/two"), "--scope", "page", "--out", "crawl").returncode == 0
    for arguments, said in {
        (): "It is not said what to remove.",
        ("--url", "nothing at all"): "is not a web address.",
        ("--host", "a/b"): "is not the name of a host.",
        ("--domain", "www.example.org"): "is not a registrable domain.",
        ("--host", "example.org"): "Add --yes, or --dry-run to look.",
        (
            "--host",
            "example.org",
            "--dry-run",
            "--engine",
            "redis://127.0.0.1:1/x",
        ): "--out and --engine name two different things.",
    }.items():
        done = drumlin(tmp_path, "remove", *arguments, "--out", "crawl", stdin=subprocess.DEVNULL)
        assert said in done.stderr, done.stderr
        assert (done.stdout, len(done.stderr.strip().splitlines())) == ("", 1)
        assert done.returncode != 0


@needs_redis
def test_a_coordinator_that_was_frozen_while_something_was_removed_does_not_bring_it_back(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis") as server:
        place = ("--engine", url_of(server, namespace="frozen"), "--store", str(tmp_path / "store"))
        told = tmp_path / "told"
        command = [sys.executable, "-m", "drumlin", "coordinator", *place, "http://gone.test/", "--no-auth"]
        (tmp_path / "store" / "warc").mkdir(parents=True)
        with told.open("wb") as log:
            process = subprocess.Popen(
                [*command, "--listen", f"unix:{tmp_path / 'socket'}"], stderr=log, env=environment(tmp_path)
            )
        try:
            wait_until(lambda: b"Ready at" in told.read_bytes(), TIMEOUT_S, "the coordinator")
            process.send_signal(signal.SIGSTOP)
            assert removed(tmp_path, "--host", "gone.test", "--yes", *place)["counts"]["hosts"] == 1
            process.send_signal(signal.SIGCONT)
            assert process.wait(TIMEOUT_S) == EXIT_BUSY
        finally:
            process.kill()
            process.wait()
        assert b"while this coordinator was frozen" in told.read_bytes()
