"""`drumlin crawl` and its companions as a user runs them, against the fake web."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import duckdb
import psutil
import pytest

from drumlin.errors import EXIT_INTERRUPTED, EXIT_NOTHING, EXIT_OK, EXIT_USAGE
from drumlin.testing import Ending, FakeWeb, Response
from tests.acceptance.commands import (
    NO_PATIENCE,
    Done,
    NamedHosts,
    chain,
    crawl,
    drumlin,
    end,
    pages_of,
    report,
    running,
    stored_urls,
    wait_until,
)
from tests.harness.outputs import check_index_matches_tables

REPORT_FIELDS = {
    "crawl",
    "state",
    "stop_reason",
    "interrupted",
    "already_finished",
    "pages",
    "urls",
    "urls_pending",
    "bytes",
    "duration_s",
    "pages_per_s",
    "statuses",
    "outcomes",
    "duplicates",
    "robots_denied",
    "retries",
    "dead_letters",
    "refused",
    "top_hosts",
    "out_of_reach",
    "fruitless_seeds",
}


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    """One empty web; each test makes hosts of its own in it."""
    with FakeWeb(hosts=0) as made:
        yield made


# The demo


def test_a_demo_that_is_stopped_is_no_bug(tmp_path: Path) -> None:
    with running(tmp_path, "demo", "--out", tmp_path / "demo", "--delay", "3s") as process:
        # The first line says that the web listens, the second one that the crawl has begun.
        assert process.stderr is not None
        begun = [process.stderr.readline() for _ in range(2)]
        stopped = end(process, signal.SIGINT)
    assert stopped.returncode == EXIT_INTERRUPTED, (begun, stopped.stderr)
    assert "It was stopped before its end." in stopped.stderr
    assert "bug" not in stopped.stderr


def test_the_demo_crawls_its_web_keeps_its_rules_and_exits_0(tmp_path: Path) -> None:
    done = drumlin(tmp_path, "demo", "--out", tmp_path / "demo")
    said = report(tmp_path, "demo")
    again = drumlin(tmp_path, "demo", "--out", tmp_path / "demo")
    assert (again.returncode, "There is a crawl in" in again.stderr) == (EXIT_USAGE, True)
    assert done.returncode == EXIT_OK
    assert "URLs that it should (pages, redirects," in done.stderr
    assert "Finished: nothing is left to fetch." in done.stdout
    # The demo's web has redirects, duplicates and failures, so the index has more than pages.
    assert check_index_matches_tables(tmp_path / "demo")["indexed"] > said["pages"]
    assert (said["state"], said["urls_pending"], said["robots_denied"]) == ("finished", 0, 3)
    assert said["dead_letters"] == {
        "reset": 1,
        "http_5xx": 1,
        "too_large": 1,
        "bad_redirect": 1,
        "redirect_loop": 1,
        "redirect_limit": 1,
        "timeout": 1,
        "robots_unreachable": 1,
    }
    assert said["duplicates"] == {"exact": 3, "near": 1}
    assert {"calendar", "path_repetition", "soft_404"} <= set(said["refused"])


# One crawl that many tests look at


@pytest.fixture(scope="module")
def finished(web: FakeWeb, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], Done]:
    """A finished crawl of a site with a bit of everything: its folder, its command and how it ended."""
    site = "site"
    web.respond(
        site,
        "/robots.txt",
        Response(
            # Longer than a page may be in this crawl: robots.txt has a limit of its own.
            body="# a long comment\n" * 200
            + f"User-agent: *\nDisallow: /private\nSitemap: {web.url(site, '/map.xml')}\n",
            content_type="text/plain",
        ),
    )
    web.page(
        site,
        "/",
        '<a href="/a.html">a</a> <a href="/private/x.html">x</a> <a href="/moved">m</a> <a href="/dead">d</a>'
        '<a href="/quiet.html">q</a> <a rel="nofollow" href="/ad.html">ad</a> <img src="/picture.png">'
        '<link rel="stylesheet" href="/style.css"> <a href="http://192.0.2.1/out.html">out</a>',
    )
    web.page(site, "/a.html", "<title>A</title>" + "<p>a page with words</p>" * 20)
    web.page(site, "/b.html", "<title>B</title><p>the target of a redirect")
    web.page(site, "/quiet.html", '<meta name="robots" content="noindex, nofollow"><a href="/hidden.html">h</a>')
    web.respond(site, "/moved", Response(status=301, headers={"Location": "/b.html"}))
    web.respond(site, "/dead", Response(ending=Ending.RESET))
    web.page(site, "/mapped.html", "<title>Mapped</title><p>only the sitemap knows me")
    entry = f"<url><loc>{web.url(site, '/mapped.html')}</loc></url>"
    xml = f'<?xml version="1.0"?><urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entry}</urlset>'
    web.respond(site, "/map.xml", Response(body=xml, content_type="application/xml"))
    folder = tmp_path_factory.mktemp("finished")
    command = [web.url(site), *NO_PATIENCE, "--body-bytes-max", "2KiB"]
    return folder, command, crawl(folder, *command)


def test_a_crawl_that_ends_by_itself_says_so_and_exits_0(finished: tuple[Path, list[str], Done]) -> None:
    folder, _, done = finished
    assert done.returncode == EXIT_OK
    assert done.stdout.startswith("Finished: nothing is left to fetch.\n")
    assert str(Path("crawl") / "warc") in done.stdout
    assert report(folder)["state"] == "finished"


def test_without_a_terminal_progress_is_plain_lines_on_stderr(finished: tuple[Path, list[str], Done]) -> None:
    _, _, done = finished
    assert "\x1b" not in done.stdout + done.stderr
    assert re.match(r"\d+ s: \d+ pages done, \d+ to go, ", done.stderr)


def test_what_robots_txt_denies_is_never_requested(web: FakeWeb, finished: tuple[Path, list[str], Done]) -> None:
    folder, _, _ = finished
    assert "/private/x.html" not in pages_of(web, "site")
    assert report(folder)["robots_denied"] == 1


def test_nofollow_links_and_the_links_of_nofollow_pages_are_not_followed(
    web: FakeWeb, finished: tuple[Path, list[str], Done]
) -> None:
    assert {"/ad.html", "/hidden.html"}.isdisjoint(pages_of(web, "site"))
    assert "/quiet.html" in pages_of(web, "site")


def test_a_noindex_page_is_marked_in_the_table(web: FakeWeb, finished: tuple[Path, list[str], Done]) -> None:
    folder, _, _ = finished
    pages = duckdb.read_parquet(str(folder / "crawl" / "tables" / "pages" / "*.parquet"))
    assert pages.filter("noindex").project("url").fetchall() == [(web.url("site", "/quiet.html"),)]


def test_pages_that_only_a_sitemap_knows_are_fetched(web: FakeWeb, finished: tuple[Path, list[str], Done]) -> None:
    assert "/mapped.html" in pages_of(web, "site")


def test_assets_are_not_fetched_unless_asked_for(
    web: FakeWeb, finished: tuple[Path, list[str], Done], tmp_path: Path
) -> None:
    assets = {"/picture.png", "/style.css"}
    assert assets.isdisjoint(pages_of(web, "site"))
    assert crawl(tmp_path, web.url("site"), *NO_PATIENCE, "--assets", "--no-sitemaps").returncode == EXIT_OK
    assert assets <= set(pages_of(web, "site"))
    assert report(tmp_path)["pages"] == report(finished[0])["pages"] - 2 + len(assets)  # two by the sitemap


def test_the_report_has_every_figure_and_they_agree(web: FakeWeb, finished: tuple[Path, list[str], Done]) -> None:
    folder, _, _ = finished
    said = report(folder)
    assert set(said) == REPORT_FIELDS
    assert said["statuses"] == {"200": 6, "301": 1}
    assert said["outcomes"] == {"fetched": 6, "denied": 1, "failed": 1, "redirected": 1}
    assert (said["pages"], said["urls"], said["urls_pending"]) == (6, 9, 0)
    assert said["dead_letters"] == {"reset": 1}
    assert said["refused"] == {"out_of_scope": 1, "nofollow": 2}
    assert said["top_hosts"] == [{"host": web.address("site"), "pages": 6, "bytes": said["bytes"]}]
    assert said["duplicates"] == {"exact": 0, "near": 0}
    assert (said["interrupted"], said["stop_reason"], said["already_finished"]) == (False, "", False)


def test_the_tables_hold_each_page_once(finished: tuple[Path, list[str], Done]) -> None:
    urls = stored_urls(finished[0] / "crawl")
    assert len(urls) == len(set(urls)) == 6


def test_the_report_verb_shows_the_report_again(finished: tuple[Path, list[str], Done]) -> None:
    folder, _, done = finished
    assert drumlin(folder, "report").stdout == done.stdout
    assert json.loads(drumlin(folder, "report", "--json").stdout) == report(folder)


def test_a_finished_crawl_says_so_and_fetches_nothing(tmp_path: Path, web: FakeWeb) -> None:
    command = (chain(web, "done", 3), "--json")
    first = crawl(tmp_path, *command)
    again = crawl(tmp_path, *command)
    assert (first.returncode, again.returncode) == (EXIT_OK, EXIT_OK)
    assert "The crawl in crawl is finished: nothing is left to fetch." in again.stderr
    assert json.loads(again.stdout)["already_finished"]
    assert json.loads(again.stdout)["pages"] == 3
    assert len(pages_of(web, "done")) == 3


def test_json_prints_one_document_on_stdout_and_quiet_nothing_else(tmp_path: Path, web: FakeWeb) -> None:
    done = crawl(tmp_path, chain(web, "json", 2), "--json", "--quiet")
    assert json.loads(done.stdout) == report(tmp_path)
    assert done.stderr == ""


def test_a_new_seed_on_a_finished_crawl_is_fetched(tmp_path: Path, web: FakeWeb) -> None:
    crawl(tmp_path, chain(web, "early", 2))
    done = crawl(tmp_path, web.url("early"), chain(web, "late", 2))
    assert done.returncode == EXIT_OK
    assert report(tmp_path)["pages"] == 4


# What is crawled

NAMED = {
    "a.site.localhost/docs/": '<a href="x.html">x</a><a href="/other.html">o</a><a href="http://b.site.localhost:PORT/">b</a>'
    '<a href="http://c.elsewhere.localhost:PORT/">c</a>',
    "a.site.localhost/docs/x.html": '<a href="y.html">y</a>',
    "a.site.localhost/docs/y.html": "<p>y",
    "a.site.localhost/other.html": "<p>other",
    "b.site.localhost/": "<p>b",
    "c.elsewhere.localhost/": "<p>c",
}
SEED, DEEP, DEEPER, OTHER, SIBLING, STRANGER = NAMED


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--scope", "page"], {SEED}),
        (["--scope", "prefix"], {SEED, DEEP, DEEPER}),
        (["--scope", "host"], {SEED, DEEP, DEEPER, OTHER}),
        (["--scope", "domain"], {SEED, DEEP, DEEPER, OTHER, SIBLING}),
        (["--scope", "any"], set(NAMED)),
        (["--include", "/docs/"], {SEED, DEEP, DEEPER}),
        (["--exclude", r"x\.html$", "--exclude", "other"], {SEED}),
        (["--depth", "0"], {SEED}),
        (["--depth", "1"], {SEED, DEEP, OTHER}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_scope_patterns_and_depth_decide_what_is_fetched(tmp_path: Path, flags: list[str], expected: set[str]) -> None:
    with NamedHosts(NAMED) as hosts:
        done = crawl(tmp_path, f"http://a.site.localhost:{hosts.port}/docs/", *flags)
        assert (done.returncode, sorted(hosts.asked)) == (EXIT_OK, sorted(expected))


def test_seeds_come_from_arguments_a_file_and_stdin(tmp_path: Path, web: FakeWeb) -> None:
    hosts = [f"seed{number}" for number in range(3)]
    for host in hosts:
        chain(web, host, 1)
    (tmp_path / "seeds.txt").write_text(f"# a comment\n\n  {web.address('seed1')}  \r\n{web.url('seed1')}\n")
    from_file = crawl(tmp_path, web.url("seed0"), "--input", "seeds.txt")
    from_stdin = crawl(tmp_path, "-i", "-", "--out", "other", input=web.url("seed2") + "\n")
    assert (from_file.returncode, from_stdin.returncode) == (EXIT_OK, EXIT_OK)
    assert [pages_of(web, host) for host in hosts] == [["/"], ["/"], ["/"]]


# Budgets


def test_no_more_pages_are_fetched_than_allowed_also_by_two_nodes_and_raising_the_limit_resumes(
    tmp_path: Path, web: FakeWeb
) -> None:
    hosts = [f"budget{number}" for number in range(12)]
    seeds = [chain(web, host, 10) for host in hosts]

    def fetched() -> int:
        return sum(len(pages_of(web, host)) for host in hosts)

    counts = []
    for limit in ("37", "37", "60"):
        done = crawl(tmp_path, *seeds, "--pages-max", limit, "--nodes", "2")
        assert done.returncode == EXIT_OK
        assert done.stdout.startswith("Stopped by --pages-max: ")
        counts.append((fetched(), report(tmp_path)["pages"], report(tmp_path)["stop_reason"]))
    assert counts == [(37, 37, "pages_max"), (37, 37, "pages_max"), (60, 60, "pages_max")]
    assert len(stored_urls(tmp_path / "crawl")) == 60


def test_bytes_max_stops_and_raising_it_resumes(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "heavy", 20)
    for number in range(1, 20):
        web.page("heavy", f"/{number}.html", f"<p>{number}" + "x" * 20_000)
    stopped = crawl(tmp_path, home, "--bytes-max", "100kB", "--delay", "0.1")
    at_stop = report(tmp_path)
    resumed = crawl(tmp_path, home, "--bytes-max", "none")
    assert stopped.stdout.startswith("Stopped by --bytes-max: ")
    # A node learns of the end with its next heartbeat; on a busy machine it fetches a few pages until then.
    assert 100_000 <= at_stop["bytes"] <= 100_000 + 10 * 20_100
    assert (at_stop["stop_reason"], at_stop["urls_pending"]) == ("bytes_max", 20 - at_stop["pages"])
    assert resumed.returncode == EXIT_OK
    assert report(tmp_path)["pages"] == len(pages_of(web, "heavy")) == 20


def test_time_max_stops_and_raising_it_resumes(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "lengthy", 12)
    stopped = crawl(tmp_path, home, "--time-max", "1.5s", "--delay", "0.2")
    at_stop = report(tmp_path)
    resumed = crawl(tmp_path, home, "--time-max", "1h")
    assert stopped.stdout.startswith("Stopped by --time-max: ")
    assert at_stop["stop_reason"] == "time_max"
    assert 0 < at_stop["urls_pending"] <= 12
    assert resumed.stdout.startswith("Finished")
    assert len(pages_of(web, "lengthy")) == 12


# Interruption


def slow_hosts(web: FakeWeb, name: str, delay_s: float) -> tuple[list[str], list[str]]:
    """Eight hosts with slow pages. Returns their home pages."""
    hosts = [f"{name}{number}" for number in range(8)]
    seeds = [chain(web, host, 4) for host in hosts]
    for host in hosts:
        for number in range(1, 4):
            web.respond(host, f"/{number}.html", Response(body=f"<p>{host} {number}", delay_s=delay_s))
    return hosts, seeds


def test_ctrl_c_finishes_what_is_in_flight_exits_130_and_the_same_command_goes_on(tmp_path: Path, web: FakeWeb) -> None:
    hosts, seeds = slow_hosts(web, "drained", 0.7)
    command = ("crawl", "--allow-private", "--delay", "0", "--nodes", "2", *seeds)
    with running(tmp_path, *command) as process:
        wait_until(lambda: any(len(pages_of(web, host)) > 1 for host in hosts), "pages in flight")
        stopped = end(process, signal.SIGINT)
    asked = sum(len(pages_of(web, host)) for host in hosts)
    said = report(tmp_path)
    assert stopped.returncode == EXIT_INTERRUPTED
    assert "Stopped: " in stopped.stdout
    assert "The same command goes on from here." in stopped.stdout
    assert (said["interrupted"], said["pages"], said["urls_pending"] > 0) == (True, asked, True)
    resumed = drumlin(tmp_path, *command)
    assert (resumed.returncode, report(tmp_path)["pages"]) == (EXIT_OK, 32)
    assert all(sorted(pages_of(web, host)) == ["/", "/1.html", "/2.html", "/3.html"] for host in hosts)
    assert len(stored_urls(tmp_path / "crawl")) == 32


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_polite_request_to_end_is_obeyed_like_ctrl_c(tmp_path: Path, web: FakeWeb, number: signal.Signals) -> None:
    home = chain(web, f"asked-{number.name}", 10)
    command = ("crawl", "--allow-private", "--delay", "0.2", "--nodes", "1", home)
    with running(tmp_path, *command) as process:
        wait_until(lambda: pages_of(web, f"asked-{number.name}"), "a page")
        stopped = end(process, number)
    assert (stopped.returncode, report(tmp_path)["interrupted"]) == (EXIT_INTERRUPTED, True)
    assert drumlin(tmp_path, *command, "--delay", "0").returncode == EXIT_OK
    assert len(pages_of(web, f"asked-{number.name}")) == 10


def test_ctrl_c_twice_stops_at_once_and_still_loses_nothing(tmp_path: Path, web: FakeWeb) -> None:
    hosts, seeds = slow_hosts(web, "stopped", 20.0)
    command = ("crawl", "--allow-private", "--delay", "0", "--nodes", "1", *seeds)
    with running(tmp_path, *command) as process:
        wait_until(lambda: all(len(pages_of(web, host)) > 1 for host in hosts), "pages in flight")
        os.killpg(process.pid, signal.SIGINT)
        # The second signal must not come together with the first, nor after the end of the crawl: its pages take 20 s.
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        stopped = end(process, signal.SIGINT)
    assert stopped.returncode == EXIT_INTERRUPTED
    for host in hosts:
        for number in range(1, 4):
            web.page(host, f"/{number}.html", f"<p>{host} {number} is quick now")
    assert drumlin(tmp_path, *command).returncode == EXIT_OK
    assert len(stored_urls(tmp_path / "crawl")) == 32


# Politeness


def test_two_contacts_of_a_host_are_never_closer_than_the_delay_also_across_kill_9(
    tmp_path: Path, web: FakeWeb
) -> None:
    hosts = [f"polite{number}" for number in range(6)]
    seeds = [chain(web, host, 7) for host in hosts]
    command = ("crawl", "--allow-private", "--delay", "0.3", "--nodes", "2", *seeds)

    def contacts(count: int) -> None:
        wait_until(lambda: len(pages_of(web, "polite0")) >= count, "some pages")

    with running(tmp_path, *command) as process:
        contacts(2)
        for node in psutil.Process(process.pid).children():
            node.kill()
        contacts(4)
        process.kill()
        process.wait()
    done = drumlin(tmp_path, *command)
    assert done.returncode == EXIT_OK
    assert min(web.min_gap(host) for host in hosts) >= 0.3
    assert len(stored_urls(tmp_path / "crawl")) == 42


def test_a_host_that_robots_files_redirect_to_is_contacted_at_its_own_pace(tmp_path: Path, web: FakeWeb) -> None:
    """Its own pages are crawled meanwhile, by whichever node has its lease; another is asked for rules only."""
    rules = Response(body="User-agent: *\nDisallow: /private\n", content_type="text/plain")
    for path in ("/robots.txt", "/rules/for-all.txt"):
        web.respond("central", path, rules)
    web.respond("aside", "/robots.txt", rules)
    targets = [("central", "/robots.txt"), ("central", "/rules/for-all.txt"), ("aside", "/robots.txt")]
    guests = [f"guest{number}" for number in range(9)]
    seeds = [chain(web, "central", 12)]
    for number, guest in enumerate(guests):
        target = web.url(*targets[number % len(targets)])
        web.respond(guest, "/robots.txt", Response(status=301, headers={"location": target}))
        web.page(guest, "/", f'{guest}: <a href="/open">open</a> <a href="/private">private</a>')
        web.page(guest, "/open", f"the open page of {guest}")
        seeds.append(web.url(guest))
    done = drumlin(tmp_path, "crawl", "--allow-private", "--delay", "0.3", "--nodes", "2", *seeds)
    assert done.returncode == EXIT_OK
    assert {host: web.min_gap(host) for host in ("central", "aside") if web.min_gap(host) < 0.3} == {}
    assert len(stored_urls(tmp_path / "crawl")) == 12 + 2 * len(guests)
    assert report(tmp_path)["robots_denied"] == len(guests)
    assert not {web.url(guest, "/private") for guest in guests} & web.requested


# Failures


def test_private_addresses_are_refused_unless_allowed_and_say_so(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "private", 2)
    refused = drumlin(tmp_path, "crawl", home, "--nodes", "1", "--delay", "0")
    letters = json.loads(drumlin(tmp_path, "dead-letters", "list", "--json").stdout)
    assert refused.returncode == EXIT_NOTHING
    assert [(letter["url"], letter["kind"]) for letter in letters] == [(home, "forbidden_address")]
    assert "private" in letters[0]["last_error"]
    assert not [request for request in web.requests if request.host == "private"]
    drumlin(tmp_path, "dead-letters", "retry")
    assert crawl(tmp_path, home).returncode == EXIT_OK
    assert len(pages_of(web, "private")) == 2


def test_dead_letters_are_listed_retried_and_dropped(tmp_path: Path, web: FakeWeb) -> None:
    home = web.page("sick", "/", '<a href="/one">1</a><a href="/two">2</a><a href="/three">3</a>')
    for path in ("/one", "/two"):
        web.respond("sick", path, lambda request: Response(status=500 if request.number == 1 else 200, body="well"))
    web.respond("sick", "/three", Response(ending=Ending.RESET))
    crawl(tmp_path, home, *NO_PATIENCE)
    listed = drumlin(tmp_path, "dead-letters", "list")
    by_kind = drumlin(tmp_path, "dead-letters", "list", "--kind", "http_5xx", "--json")
    assert listed.stdout.endswith("3 dead letters.\n")
    assert f"http_5xx  {web.url('sick', '/one')}" in listed.stdout
    assert f"1 attempt: status 500 (found on {home})" in listed.stdout
    assert {letter["url"] for letter in json.loads(by_kind.stdout)} == {web.url("sick", p) for p in ("/one", "/two")}
    mistyped = drumlin(tmp_path, "dead-letters", "list", "--kind", "5xx")
    assert (mistyped.returncode, "'5xx' is not one of" in mistyped.stderr) == (EXIT_USAGE, True)
    dropped = drumlin(tmp_path, "dead-letters", "drop", web.url("sick", "/one"))
    retried = drumlin(tmp_path, "dead-letters", "retry", "--kind", "http_5xx")
    assert dropped.stdout == "1 dead letter dropped.\n"
    assert retried.stdout == "1 URL will be fetched again by the next `drumlin crawl`.\n"
    assert crawl(tmp_path, home, *NO_PATIENCE).returncode == EXIT_OK
    assert report(tmp_path)["dead_letters"] == {"reset": 1}
    paths = pages_of(web, "sick")
    assert [paths.count(path) for path in ("/one", "/two", "/three")] == [1, 2, 1]
