"""`drumlin crawl --store s3://…` as a user runs it, on a real S3 server; and what other verbs make of such a crawl."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from drumlin.store.objects.bucket import REQUEST_S_MAX
from drumlin.testing import FakeWeb
from tests.harness.crawls import wait_until
from tests.harness.outputs import check_index_matches_tables, check_rows_lead_to_records, check_warcs, stored_urls
from tests.harness.s3 import BUCKET, S3Server, downloaded, s3_server
from tests.harness.standing import standing

RUN_S_MAX = 120
EVENTS = ("--events", "kafka://127.0.0.1:9/x")
PAGES = 30
FLAGS = ("--delay", "0", "--allow-private", "--nodes", "1", "--quiet", "--json")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with s3_server(tmp_path_factory.mktemp("s3") / "data") as running:
        yield running


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        yield made


def shop(web: FakeWeb, name: str) -> str:
    links = "".join(f'<a href="/{number}.html">{number}</a> ' for number in range(PAGES - 1))
    for number in range(PAGES - 1):
        web.page(name, f"/{number}.html", f"<!DOCTYPE html><title>{number}</title>")
    return web.page(name, "/", f"<!DOCTYPE html><title>Shop</title>{links}")


def drumlin(server: S3Server, folder: Path, *arguments: object, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "drumlin", *map(str, arguments)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), **server.environment, **more}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=RUN_S_MAX, check=False
    )


def test_a_crawl_to_a_bucket_is_complete_there_and_can_be_asked(server: S3Server, web: FakeWeb, tmp_path: Path) -> None:
    seed, store, out = shop(web, "whole"), f"s3://{BUCKET}/whole", tmp_path / "out"
    done = drumlin(server, tmp_path, "crawl", seed, "--out", out, "--store", store, *FLAGS)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["pages"] == PAGES
    # No page is left on this disk, and the bucket has everything that a directory would have.
    assert not [path for path in out.rglob("*") if path.suffix in (".gz", ".parquet", ".tar", ".bundle", ".journal")]
    copy = downloaded(server.store("whole"), tmp_path / "copy")
    assert len(stored_urls(copy)) == check_rows_lead_to_records(copy) == PAGES
    check_index_matches_tables(copy)
    check_warcs(copy)
    assert json.loads((copy / "report.json").read_text())["pages"] == PAGES
    for named in (("--store", store), ("--out", out)):
        asked = drumlin(server, tmp_path, "query", "SELECT count(*) AS n FROM pages", *named, "--json")
        assert json.loads(asked.stdout) == [{"n": PAGES}], asked.stderr
    told = drumlin(server, tmp_path, "why", f"{seed}7.html", "--out", out)
    assert "its record at byte" in told.stdout
    assert drumlin(server, tmp_path, "store", "check", "--store", store).returncode == 0
    # Nothing that is said or written has the secret in it.
    written = [path.read_bytes() for path in out.rglob("*") if path.is_file()]
    assert not any(server.environment["AWS_SECRET_ACCESS_KEY"].encode() in content for content in written)


def test_a_crawl_goes_on_in_the_bucket_in_which_it_began(server: S3Server, web: FakeWeb, tmp_path: Path) -> None:
    seed, out = shop(web, "resumed"), tmp_path / "out"
    first = drumlin(
        server, tmp_path, "crawl", seed, "--out", out, "--store", f"s3://{BUCKET}/resumed", "--pages-max", "5", *FLAGS
    )
    assert first.returncode == 0, first.stderr
    other = drumlin(server, tmp_path, "crawl", seed, "--out", out, "--store", f"s3://{BUCKET}/elsewhere", *FLAGS)
    assert (other.returncode, "stores in s3://crawls/resumed" in other.stderr) == (2, True)
    again = drumlin(server, tmp_path, "crawl", seed, "--out", out, *FLAGS)
    assert again.returncode == 0, again.stderr
    assert len(stored_urls(downloaded(server.store("resumed"), tmp_path / "copy"))) == PAGES


def test_pages_that_never_left_a_lost_disk_are_fetched_again(server: S3Server, web: FakeWeb, tmp_path: Path) -> None:
    """The service is away, so everything that was fetched waits on the disk; then the disk loses it."""
    seed, out, store = shop(web, "lost"), tmp_path / "out", f"s3://{BUCKET}/lost"
    command = ("crawl", seed, "--out", out, "--store", store, *FLAGS, "--delay", "0.1s")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **server.environment}
    process = [sys.executable, "-m", "drumlin", *map(str, command)]
    with subprocess.Popen(process, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True) as crawl:
        wait_until(lambda: any(out.glob("nodes/*/*.journal")), RUN_S_MAX, "the first page")
        server.kill()
        try:
            wait_until(lambda: any(out.glob("nodes/*/*.bundle")), RUN_S_MAX, "a bundle that waits")
            crawl.kill()
            crawl.wait()
            wait_until(lambda: _is_free(out), RUN_S_MAX, "the end of the crawl's processes")
        finally:
            server.start()
    assert server.store("lost").manifest.contents().number == 0
    shutil.rmtree(out / "nodes")
    again = drumlin(server, tmp_path, *command)
    assert again.returncode == 0, again.stderr
    # They were fetched twice, and are stored once.
    assert json.loads(again.stdout)["pages"] > PAGES
    copy = downloaded(server.store("lost"), tmp_path / "copy")
    assert len(stored_urls(copy)) == check_rows_lead_to_records(copy) == PAGES


@pytest.mark.parametrize(
    ("trouble", "end", "said"), [("kill", "start", "Cannot write in"), ("freeze", "thaw", "does not answer")]
)
def test_whoever_watches_a_crawl_reads_that_its_store_is_away(
    server: S3Server, web: FakeWeb, tmp_path: Path, trouble: str, end: str, said: str
) -> None:
    seed, out, told = shop(web, trouble), tmp_path / "out", tmp_path / "stderr"
    flags = ("--store", f"s3://{BUCKET}/{trouble}", "--delay", "0.5s", "--allow-private", "--nodes", "1")
    process = [sys.executable, "-m", "drumlin", "crawl", seed, "--out", str(out), *flags]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **server.environment}
    with told.open("wb") as stderr, subprocess.Popen(process, cwd=tmp_path, env=environment, stderr=stderr) as crawl:
        wait_until(lambda: any(out.glob("nodes/*/*.journal")), RUN_S_MAX, "the first page")
        getattr(server, trouble)()
        try:
            wait_until(lambda: said in told.read_text(), RUN_S_MAX, "a word about the store")
        finally:
            getattr(server, end)()
        assert crawl.wait(RUN_S_MAX) == 0
    assert "disk" not in told.read_text()


def _is_free(out: Path) -> bool:
    import fcntl

    with (out / "lock").open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_node_without_credentials_stores_by_signed_urls(server: S3Server, web: FakeWeb, tmp_path: Path) -> None:
    seed, store = shop(web, "signed"), f"s3://{BUCKET}/signed"
    spool = ("--spool", str(tmp_path / "coordinator"))
    arguments = (seed, "--delay", "0", "--lease", "5s", "--store", store, *spool)
    with standing(tmp_path, *arguments, environment=server.environment) as crawl:
        nothing = dict.fromkeys(server.environment, "")
        crawl.node("n0", "--spool", str(tmp_path / "far"), store=False, environment=nothing)
        crawl.wait_for_nodes(RUN_S_MAX)
        wait_until(lambda: crawl.remote.get("/api/v1/crawl")["complete"], RUN_S_MAX, "the store to be complete")
        answer = crawl.remote.get("/api/v1/urls", url=f"{seed}7.html")
        assert "its record at byte" in " ".join(answer["story"])
        question = {"sql": "SELECT count(*) AS n FROM pages"}
        assert crawl.remote.post("/api/v1/sql", question)["rows"] == [[PAGES]]
        log = crawl.log("coordinator")
    assert "X-Amz-Signature" not in log
    copy = downloaded(server.store("signed"), tmp_path / "copy")
    assert len(stored_urls(copy)) == check_rows_lead_to_records(copy) == PAGES
    check_index_matches_tables(copy)
    assert list(server.bucket("signed").listed("incoming")) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("crawl", "http://a.test/", "--store", "s3://no_bucket"), "names no bucket"),
        (("crawl", "http://a.test/", "--store", "s3://there-is-none/x"), "There is no bucket there-is-none"),
        (("node", "--coordinator", "http://127.0.0.1:9", "--store", "s3://crawls/x"), "Give --spool DIR"),
        (
            ("node", "--coordinator", "http://127.0.0.1:9", "--store", "s3://crawls/x", "--spool", "x", *EVENTS),
            "coordinators tell of its pages",
        ),
        (("store", "compact"), "Give --store s3://BUCKET/PREFIX"),
        (("store", "check", "--store", "s3://crawls/mistyped"), "There is no store in s3://crawls/mistyped."),
        (("store", "collect", "--store", "s3://crawls/mistyped"), "There is no store in s3://crawls/mistyped."),
        (("query", "outcomes", "--store", "s3://crawls/mistyped"), "There is no store in s3://crawls/mistyped."),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    server: S3Server, tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = drumlin(server, tmp_path, *arguments)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistyped_bucket_can_be_corrected(server: S3Server, web: FakeWeb, tmp_path: Path) -> None:
    seed, out = shop(web, "corrected"), tmp_path / "out"
    wrong = drumlin(server, tmp_path, "crawl", seed, "--out", out, "--store", "s3://there-is-none/corrected", *FLAGS)
    assert (wrong.returncode, "There is no bucket there-is-none" in wrong.stderr) == (3, True)
    right = drumlin(server, tmp_path, "crawl", seed, "--out", out, "--store", f"s3://{BUCKET}/corrected", *FLAGS)
    assert right.returncode == 0, right.stderr
    assert len(stored_urls(downloaded(server.store("corrected"), tmp_path / "copy"))) == PAGES


def test_two_crawls_cannot_share_a_prefix(server: S3Server, web: FakeWeb, tmp_path: Path) -> None:
    seed, store = shop(web, "shared"), f"s3://{BUCKET}/shared"
    first = drumlin(server, tmp_path, "crawl", seed, "--out", tmp_path / "a", "--store", store, *FLAGS)
    assert first.returncode == 0, first.stderr
    number = server.store("shared").manifest.contents().number
    other = drumlin(server, tmp_path, "crawl", seed, "--out", tmp_path / "b", "--store", store, *FLAGS)
    assert (other.returncode, "is the store of another crawl" in other.stderr) == (2, True)
    assert server.store("shared").manifest.contents().number == number
    # Its own prefix is free to choose afterwards.
    again = drumlin(server, tmp_path, "crawl", seed, "--out", tmp_path / "b", "--store", f"{store}-b", *FLAGS)
    assert again.returncode == 0, again.stderr


def test_a_node_that_names_another_bucket_than_its_coordinator_is_refused(server: S3Server, tmp_path: Path) -> None:
    spool = ("--spool", str(tmp_path / "coordinator"))
    with standing(
        tmp_path, "http://a.test/", "--store", f"s3://{BUCKET}/one", *spool, environment=server.environment
    ) as crawl:
        arguments = ("--store", f"s3://{BUCKET}/two", "--spool", str(tmp_path / "n0"))
        node = crawl.node("n0", *arguments, store=False, environment=server.environment)
        wait_until(lambda: node.poll() is not None, RUN_S_MAX, "the end of the node")
        other = crawl.node("n1", "--store", str(tmp_path / "directory"), store=False)
        wait_until(lambda: other.poll() is not None, RUN_S_MAX, "the end of the other")
        assert f"This fleet stores in s3://{BUCKET}/one, and the node in s3://{BUCKET}/two." in crawl.log("n0")
        assert f"This fleet stores in s3://{BUCKET}/one, and the node in a directory." in crawl.log("n1")
        assert 0 not in (node.returncode, other.returncode)


def test_an_object_that_is_gone_is_named_in_one_sentence(server: S3Server, web: FakeWeb, tmp_path: Path) -> None:
    seed, store, out = shop(web, "gone"), f"s3://{BUCKET}/gone", tmp_path / "out"
    assert drumlin(server, tmp_path, "crawl", seed, "--out", out, "--store", store, *FLAGS).returncode == 0
    files = server.store("gone")
    tables = [one.name for one in files.manifest.contents().items() if one.path.startswith("tables/pages/")]
    files.bucket.delete(tables)
    asked = drumlin(server, tmp_path, "query", "SELECT count(title) FROM pages", "--store", store)
    assert asked.returncode == 3
    assert f"drumlin store check --store {store}" in asked.stderr
    assert not any(odd in asked.stderr for odd in ("<", "Traceback", "obstore"))
    assert len(asked.stderr.strip().splitlines()) == 1
    checked = drumlin(server, tmp_path, "store", "check", "--store", store)
    assert checked.returncode == 3


def test_why_says_that_the_bucket_is_away(server: S3Server, web: FakeWeb, tmp_path: Path) -> None:
    seed, store, out = shop(web, "away"), f"s3://{BUCKET}/away", tmp_path / "out"
    assert drumlin(server, tmp_path, "crawl", seed, "--out", out, "--store", store, *FLAGS).returncode == 0
    server.kill()
    try:
        told = drumlin(server, tmp_path, "why", f"{seed}7.html", "--out", out)
    finally:
        server.start()
    assert "The store cannot be searched now" in told.stdout, told.stdout + told.stderr
    assert "there are many" not in told.stdout


def test_wrong_credentials_are_named_and_not_shown(server: S3Server, tmp_path: Path) -> None:
    wrong = "not-the-secret"
    done = drumlin(server, tmp_path, "query", "outcomes", "--store", f"s3://{BUCKET}/x", AWS_SECRET_ACCESS_KEY=wrong)
    assert "SignatureDoesNotMatch" in done.stderr
    assert wrong not in done.stderr


def test_a_coordinator_does_not_wait_for_a_bucket_that_hangs(server: S3Server, tmp_path: Path) -> None:
    told, place = tmp_path / "told", ("--store", f"s3://{BUCKET}/hangs", "--spool", str(tmp_path / "spool"))
    command = [sys.executable, "-m", "drumlin", "coordinator", "--engine", f"rocksdb:{tmp_path / 'engine'}", *place]
    command += ["--listen", f"unix:{tmp_path / 'socket'}", "--no-auth"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **server.environment}
    server.freeze()
    with told.open("wb") as log, subprocess.Popen(command, stderr=log, env=environment) as process:
        try:
            # The service would be given up after `bucket.REQUEST_S_MAX`.
            wait_until(lambda: b"Ready at" in told.read_bytes(), REQUEST_S_MAX * 0.7, "the coordinator")
        finally:
            server.thaw()
            process.terminate()
