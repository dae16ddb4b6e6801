"""A crawl that is started again with other settings says what differs, and does what one expects."""

from __future__ import annotations

import gzip
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import WriteBatch

from drumlin import __version__
from drumlin.engines.rocksdb.storage import Storage
from drumlin.errors import EXIT_NOTHING, EXIT_OK
from drumlin.testing import FakeWeb, Response
from tests.acceptance.commands import FAST, NO_PATIENCE, Done, crawl, drumlin, end, running, stored_urls, wait_until
from tests.harness.outputs import query


@pytest.fixture
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        other = made.page("other", "/", "<a href='/far'>far</a> elsewhere")
        made.page("other", "/far", "far")
        links = "".join(f"<a href='/part/{number}'>{number}</a>" for number in range(5))
        made.page("site", "/", f"<a href='{other}'>other</a><a href='/top'>top</a>{links}")
        made.page("site", "/top", "top")
        for number in range(5):
            made.page("site", f"/part/{number}", f"<a href='/deep/{number}'>deep</a> part {number}")
            made.page("site", f"/deep/{number}", f"deep {number}")
        yield made


def again(folder: Path, *arguments: str) -> Done:
    return crawl(folder, *arguments, *NO_PATIENCE, "--out", "crawl")


def refused(folder: Path) -> dict[str, int]:
    counts: dict[str, int] = json.loads((folder / "crawl" / "report.json").read_text())["refused"]
    return counts


def paths(folder: Path, web: FakeWeb, host: str = "site") -> set[str]:
    home = web.url(host)
    return {url.removeprefix(home) for url in stored_urls(folder / "crawl") if url.startswith(home)}


def test_a_wider_scope_finds_again_what_was_refused(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    first = again(tmp_path, home)
    assert "Different from the last start" not in first.stderr
    assert refused(tmp_path) == {"out_of_scope": 1}
    done = again(tmp_path, home, "--scope", "any")
    assert refused(tmp_path) == {}, "what was followed since is not counted any more"
    assert "Different from the last start: --scope was host and is any." in done.stderr
    assert paths(tmp_path, web, "other") == {"", "far"}


def test_what_was_refused_before_its_host_was_enqueued_is_found_again_too(tmp_path: Path, web: FakeWeb) -> None:
    home, moved = web.url("site"), web.page("other", "/moved", "moved")
    web.respond("site", "/top", Response(status=301, headers={"Location": moved}))
    again(tmp_path, home)
    assert drumlin(tmp_path, "enqueue", web.url("other", "/far"), "--out", "crawl").returncode == EXIT_OK
    again(tmp_path, home)
    assert paths(tmp_path, web, "other") == {"far"}
    again(tmp_path, home, "--scope", "any")
    assert paths(tmp_path, web, "other") == {"", "far", "moved"}


def test_a_greater_depth_goes_on_from_where_it_ended(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--depth", "1")
    assert not [path for path in paths(tmp_path, web) if path.startswith("deep")]
    assert refused(tmp_path) == {"depth": 5, "out_of_scope": 1}
    done = again(tmp_path, home, "--depth", "2")
    assert refused(tmp_path) == {"out_of_scope": 1}
    assert "--depth was 1 and is 2" in done.stderr
    assert len([path for path in paths(tmp_path, web) if path.startswith("deep")]) == 5


def test_what_is_excluded_now_is_not_fetched_though_it_is_queued(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--pages-max", "1")
    done = again(tmp_path, home, "--exclude", "/part/")
    assert "--exclude was" in done.stderr
    assert paths(tmp_path, web) == {"", "top"}


def test_what_a_narrower_run_left_out_of_the_queue_is_fetched_by_a_wider_one(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--pages-max", "1")
    for _ in range(2):
        done = again(tmp_path, home, "--exclude", "/part/")
        assert paths(tmp_path, web) == {"", "top"}
    assert drumlin(tmp_path, "why", web.url("site", "/part/1"), "--out", "crawl").stdout.count("narrowed") == 1
    done = again(tmp_path, home)
    assert len(paths(tmp_path, web)) == 12
    assert "scope changed" not in done.stderr


def test_a_smaller_depth_applies_to_what_is_queued_until_it_is_greater_again(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--pages-max", "1")
    again(tmp_path, home, "--depth", "0")
    assert paths(tmp_path, web) == {""}
    again(tmp_path, home, "--depth", "1")
    assert len(paths(tmp_path, web)) == 7


def test_more_urls_of_a_host_are_admitted_once_it_may_have_more(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    name_sitemap(web, web.url("site", "/listed"))
    web.page("site", "/listed", "listed")
    again(tmp_path, home, "--host-urls-max", "4")
    assert len(stored_urls(tmp_path / "crawl")) == 4
    again(tmp_path, home, "--host-urls-max", "6")
    assert len(stored_urls(tmp_path / "crawl")) == 6
    again(tmp_path, home)
    assert paths(tmp_path, web) >= {"listed", "deep/4"}
    assert len(paths(tmp_path, web)) == 14


@pytest.mark.parametrize("first", [("--host-urls-max", "1"), ("--depth", "0"), ("--no-sitemaps",)])
def test_a_sitemap_that_was_not_read_before_is_read_once_it_may_be(
    tmp_path: Path, web: FakeWeb, first: tuple[str, ...]
) -> None:
    """Nodes name sitemaps only when they fetch robots.txt, and they do not fetch it again."""
    home = web.url("site")
    name_sitemap(web, web.url("site", "/listed"))
    web.page("site", "/listed", "listed")
    again(tmp_path, home, *first)
    assert not paths(tmp_path, web) & {"sitemap.xml", "listed"}
    web.forget_requests()
    again(tmp_path, home)
    assert paths(tmp_path, web) >= {"sitemap.xml", "listed", "deep/4"}
    assert web.url("site", "/robots.txt") not in web.requested


def name_sitemap(web: FakeWeb, listed: str) -> None:
    """Let the site's robots.txt name a sitemap that lists a URL."""
    content = f'<?xml version="1.0"?><urlset><url><loc>{listed}</loc></url></urlset>'
    url = web.respond("site", "/sitemap.xml", Response(body=content, content_type="application/xml"))
    web.respond("site", "/robots.txt", Response(body=f"Sitemap: {url}", content_type="text/plain"))


def test_what_a_sitemap_lists_is_found_again_by_a_wider_scope(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    name_sitemap(web, web.url("other", "/unlinked"))
    web.page("other", "/unlinked", "only in the sitemap")
    again(tmp_path, home)
    again(tmp_path, home, "--scope", "any")
    assert "unlinked" in paths(tmp_path, web, "other")


def test_a_redirect_out_of_scope_is_counted_and_followed_once_its_target_is_in_scope(
    tmp_path: Path, web: FakeWeb
) -> None:
    home = web.page("site", "/moved", "<a href='/away'>away</a>")
    web.respond("site", "/away", Response(302, headers={"Location": "/further"}))
    web.respond("site", "/further", Response(302, headers={"Location": web.url("other", "/target")}))
    web.page("other", "/target", "target")
    again(tmp_path, home)
    report = json.loads((tmp_path / "crawl" / "report.json").read_text())
    assert report["refused"] == {"out_of_scope": 1}
    again(tmp_path, home, "--scope", "any")
    assert paths(tmp_path, web, "other") == {"target"}


def test_a_narrower_scope_applies_to_what_is_queued(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site", "/part/1")
    again(tmp_path, home, "--pages-max", "1", "--scope", "host")
    done = again(tmp_path, home, "--scope", "page")
    assert "--scope was host and is page" in done.stderr
    assert paths(tmp_path, web) == {"part/1"}


def test_an_include_that_is_dropped_lets_the_rest_in(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--include", "/top")
    assert paths(tmp_path, web) == {"", "top"}
    again(tmp_path, home)
    assert len(paths(tmp_path, web)) == 12


def test_a_new_seed_joins_and_one_that_is_gone_leaves(tmp_path: Path, web: FakeWeb) -> None:
    home, other = web.url("site"), web.url("other")
    again(tmp_path, home, "--pages-max", "1")
    done = again(tmp_path, other)
    assert f"1 seed is new ({other})" in done.stderr
    assert f"1 seed is gone ({home})" in done.stderr
    assert paths(tmp_path, web, "other") == {"", "far"}
    assert paths(tmp_path, web) <= {""}


def test_private_addresses_are_tried_again_once_they_are_permitted(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    refused = drumlin(tmp_path, "crawl", home, "--nodes", "1", "--delay", "0", "--out", "crawl")
    assert refused.returncode == EXIT_NOTHING
    done = again(tmp_path, home)
    assert "--allow-private was false and is true" in done.stderr
    assert (done.returncode, len(paths(tmp_path, web))) == (EXIT_OK, 12)


def test_a_larger_budget_goes_on_and_other_paces_are_named(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--pages-max", "2")
    done = again(tmp_path, home, "--pages-max", "100", "--user-agent", "otherbot/1.0")
    assert "--pages-max was 2 and is 100" in done.stderr
    assert "--user-agent was" in done.stderr
    assert len(paths(tmp_path, web)) == 12


def test_the_record_tells_of_every_run(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--pages-max", "2")
    again(tmp_path, home)
    record = json.loads((tmp_path / "crawl" / "crawl.json").read_text())
    assert (record["seeds"], record["settings"]["scope"]) == ([home], "host")
    assert [(run["reason"], run["pages"]) for run in record["runs"]] == [("pages_max", 2), ("finished", 12)]
    assert record["runs"][1]["changed"] == ["--pages-max was 2 and is none"]


def test_what_was_set_while_it_ran_is_said_and_recorded(tmp_path: Path, web: FakeWeb) -> None:
    home, out = web.url("site"), tmp_path / "crawl"
    slow = ("--delay", "8", "--allow-private", "--nodes", "1", *NO_PATIENCE, "--out", "crawl")

    def record() -> Any:
        return json.loads((out / "crawl.json").read_text())

    with running(tmp_path, "crawl", home, *slow) as process:
        wait_until(lambda: home in web.requested, "the first page")
        for name, value in (("delay", "0"), ("pages_max", "4")):
            assert drumlin(tmp_path, "set", name, value, "--out", "crawl").returncode == EXIT_OK
        end(process)
    assert (record()["settings"]["delay"], record()["settings"]["pages_max"]) == ("0s", "4")
    assert record()["runs"][0]["changed"] == ["drumlin set pages_max 4 (was none)", "drumlin set delay 0s (was 8s)"]
    same = drumlin(tmp_path, "crawl", home, *slow)
    for said in ("--pages-max is 4, as `drumlin set` changed it from none", "--delay is 0s, as `drumlin set`"):
        assert f"Still in force: {said}" in same.stderr
    assert (record()["settings"]["pages_max"], record()["runs"][1]["changed"]) == ("4", [])
    other = drumlin(tmp_path, "crawl", home, *slow, "--delay", "0", "--types", "video/*=1MB")
    assert "Different from the last start: --pages-max was 4 and is none." in other.stderr
    assert "Still in force" not in other.stderr
    assert len(paths(tmp_path, web)) == 12


def test_the_record_is_in_the_report_and_in_every_warc_file_too(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home, "--pages-max", "2", "--contact", "me@example.org")
    again(tmp_path, home, "--contact", "me@example.org")
    record = json.loads((tmp_path / "crawl" / "crawl.json").read_text())
    assert json.loads((tmp_path / "crawl" / "report.json").read_text())["crawl"] == record
    told = [warcinfo(path) for path in sorted((tmp_path / "crawl" / "warc").glob("*.warc.gz"))]
    assert all(one["http-header-user-agent"] == f"drumlin/{__version__} (+me@example.org)" for one in told)
    records = [json.loads(one["drumlin-crawl"]) for one in told]
    assert all((one["seeds"], one["settings"]["contact"]) == ([home], "me@example.org") for one in records)
    assert {len(one["runs"]) for one in records} == {1, 2}
    assert max(records, key=lambda one: len(one["runs"]))["runs"][0]["reason"] == "pages_max"


def warcinfo(path: Path) -> dict[str, str]:
    with gzip.open(path) as content:
        block = content.read(1_000_000).split(b"\r\n\r\n")[1].decode()
    return {name: value for name, _, value in (line.partition(": ") for line in block.split("\r\n"))}


def test_links_of_pages_whose_tables_a_killed_crawl_left_unfinished_are_found_again(
    tmp_path: Path, web: FakeWeb
) -> None:
    home = web.url("site")
    paused = ("--delay", "1", "--allow-private", "--nodes", "1", *NO_PATIENCE, "--out", "crawl")
    with running(tmp_path, "crawl", home, *paused) as process:
        wait_until(lambda: web.url("site", "/top") in web.requested, "the second page")
        end(process, signal.SIGKILL)
    assert not list((tmp_path / "crawl" / "tables" / "pages").glob("*.parquet")), "no row was finished"
    again(tmp_path, home, "--scope", "any")
    assert paths(tmp_path, web, "other") == {"", "far"}


def test_a_resume_that_is_killed_while_it_follows_other_flags_follows_them_when_it_is_run_again(
    tmp_path: Path, web: FakeWeb
) -> None:
    home = web.url("site")
    again(tmp_path, home, "--depth", "1")
    assert len(paths(tmp_path, web)) == 7
    deeper = ("crawl", home, "--depth", "2", *FAST, *NO_PATIENCE, "--out", "crawl")
    with running(tmp_path, *deeper) as process:
        assert process.stderr is not None
        while "Different from the last start" not in (line := process.stderr.readline()):
            assert line, "it said what is another"
        end(process, signal.SIGKILL)
    done = drumlin(tmp_path, *deeper)
    assert "--depth was 1 and is 2" in done.stderr
    assert len(paths(tmp_path, web)) == 12


def test_a_fresh_start_forgets_what_was(tmp_path: Path, web: FakeWeb) -> None:
    home = web.url("site")
    again(tmp_path, home)
    (tmp_path / "crawl" / "notes.txt").write_text("mine")
    web.forget_requests()
    done = again(tmp_path, home, "--fresh")
    assert "Different from the last start" not in done.stderr
    assert len(web.requested) >= 12
    assert len(paths(tmp_path, web)) == 12
    assert (tmp_path / "crawl" / "notes.txt").read_text() == "mine"


def as_earlier_versions_left_it(frontier: Path) -> int:
    """Remove the sketches from a frontier, as an earlier version would have left it. Returns how many parts there
    were."""
    storage = Storage(str(frontier), sync=False)
    sketched = [key for key, _ in storage.scan("contents", b"n")]
    batch = WriteBatch(raw_mode=True)
    for key in sketched:
        batch.delete(key, storage.handles["contents"])
    batch.delete(b"meta.sketches", storage.handles["meta"])
    storage.write(batch)
    storage.close()
    return len(sketched)


def test_near_duplicates_of_what_an_earlier_version_fetched_are_found(tmp_path: Path) -> None:
    words = " ".join(f"word{number}" for number in range(200))
    with FakeWeb(hosts=0) as web:
        original = web.page("site", "/", f"<p>{words}<a href='/copy'>copy</a>")
        copy = web.page("site", "/copy", f"<p>{words} <b>and one more</b>")
        again(tmp_path, original, "--pages-max", "1")
        assert as_earlier_versions_left_it(tmp_path / "crawl" / "frontier")
        done = again(tmp_path, original)
        assert "this version recognises near-duplicates in another way" in done.stderr
        assert "another way" not in again(tmp_path, original).stderr
    rows = query(tmp_path / "crawl", "SELECT url, duplicate_of FROM {pages} WHERE duplicate_kind = 'near'")
    assert rows == [(copy, original)]


def test_the_time_that_a_finished_crawl_takes_to_go_deeper_counts(tmp_path: Path, web: FakeWeb) -> None:
    polite = ("--delay", "0.2", "--allow-private", "--nodes", "1", *NO_PATIENCE, "--out", "crawl")
    for depth in ("0", "9"):
        assert drumlin(tmp_path, "crawl", web.url("site"), "--depth", depth, *polite).returncode == EXIT_OK
    assert len(paths(tmp_path, web)) == 12
    assert json.loads((tmp_path / "crawl" / "report.json").read_bytes())["duration_s"] >= 11 * 0.2
