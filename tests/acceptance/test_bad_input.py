"""Whatever a user or a machine does wrong: one clear sentence, the documented exit code, and nothing lost."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumlin.errors import EXIT_BUSY, EXIT_ENGINE, EXIT_INTERRUPTED, EXIT_OK, EXIT_STORAGE, EXIT_USAGE
from drumlin.testing import FakeWeb
from tests.acceptance.commands import (
    FAST,
    TIMEOUT_S,
    chain,
    crawl,
    drumlin,
    end,
    environment,
    pages_of,
    report,
    running,
    sentence,
    stored_urls,
    wait_until,
)

NOWHERE = "http://127.0.0.1:9/"
EXIT_CODES = Path(__file__).parents[2] / "docs" / "reference" / "exit-codes.md"


@pytest.fixture(scope="module")
def web() -> Iterator[FakeWeb]:
    with FakeWeb(hosts=0) as made:
        yield made


# Flags and seeds


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["http://[::1"], "URL: 'http://[::1' is not a web address. Give http:// or https:// URLs."),
        (["ftp://example.org/"], "'ftp://example.org/' is not a web address."),
        (["mailto:someone@example.org"], "'mailto:someone@example.org' is not a web address."),
        ([""], "'' is not a web address."),
        (["http://" + "x" * 5000 + "/"], "is not a web address."),
        ([], "There is nothing to crawl. Give one or more URLs, or a file of them with --input."),
        (["--input", "missing.txt"], "Cannot read missing.txt: No such file or directory."),
        (["--input", "."], "Cannot read .: Is a directory."),
        (["--input", "empty.txt"], "empty.txt names no URL. Write one a line;"),
        (["--input", "binary.txt"], "binary.txt, line 1: "),
        (["--input", "mixed.txt"], "mixed.txt, line 3: 'no web address' is not a web address."),
        ([NOWHERE, "--include", "("], "--include must be regular expressions"),
        ([NOWHERE, "--scope", "galaxy"], "galaxy"),
        ([NOWHERE, "--delay", "-1"], "--delay"),
        ([NOWHERE, "--nodes", "0"], "--nodes must be at least 1"),
        ([NOWHERE, "--bytes-max", "much"], "--bytes-max"),
        ([NOWHERE, "--user-agent", "two\nlines"], "--user-agent"),
        ([NOWHERE, "--config", "wrong.toml"], "pages_maximum"),
        ([NOWHERE, "--config", "broken.toml"], "broken.toml"),
        ([NOWHERE, "--out"], "--out"),
        ([NOWHERE, "--colour"], "--colour"),
    ],
)
def test_a_command_that_asks_for_what_cannot_be_is_one_sentence_and_touches_nothing(
    tmp_path: Path, arguments: list[str], says: str
) -> None:
    (tmp_path / "empty.txt").write_text("\n# nothing\n")
    (tmp_path / "binary.txt").write_bytes(b"\x00\xff" + random.Random(1).randbytes(100_000))
    (tmp_path / "mixed.txt").write_text("http://example.org/\n\nno web address\n")
    (tmp_path / "wrong.toml").write_text("[crawl]\npages_maximum = 3\n")
    (tmp_path / "broken.toml").write_text("[crawl\n")
    before = sorted(tmp_path.iterdir())
    done = drumlin(tmp_path, "crawl", *arguments)
    assert done.returncode == EXIT_USAGE
    assert says in sentence(done)
    assert len(done.stderr) < 700
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(("verb", "flag"), [("collect", "--older"), ("check", "--after")])
def test_a_time_of_a_store_that_is_no_duration_is_named(tmp_path: Path, verb: str, flag: str) -> None:
    done = drumlin(tmp_path, "store", verb, "--store", "s3://crawls/news", flag, "soon")
    assert (done.returncode, sentence(done)) == (
        EXIT_USAGE,
        f"drumlin: {flag} must be a duration, not 'soon'. 24h, say.",
    )


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_standard_streams_are_no_bug(tmp_path: Path, closed: str) -> None:
    command = ["bash", "-c", f'exec "$@" {closed}', "bash", sys.executable, "-m", "drumlin", "crawl", "--input", "-"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (EXIT_USAGE, "")
    assert done.stderr in (
        "",
        "drumlin: The standard input names no URL. Write one a line; lines after # do not count.\n",
    )
    assert list(tmp_path.iterdir()) == []


def test_progress_that_cannot_be_written_does_not_stop_a_crawl(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "unheard", 3)
    with Path("/dev/full").open("w") as full, running(tmp_path, "crawl", home, *FAST, stderr=full) as process:
        end(process)
    assert (process.returncode, report(tmp_path)["pages"]) == (EXIT_OK, 3)


def test_a_crawl_that_prints_nothing_does_not_miss_its_output(tmp_path: Path, web: FakeWeb) -> None:
    command = [sys.executable, "-m", "drumlin", "crawl", chain(web, "quiet", 3), *FAST, "--quiet"]
    done = subprocess.run(
        ["bash", "-c", 'exec "$@" >&-', "bash", *command],
        cwd=tmp_path,
        env=environment(tmp_path),
        stderr=subprocess.PIPE,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr, report(tmp_path)["pages"]) == (EXIT_OK, "", 3)


def test_a_file_of_many_seeds_is_taken_and_resumed(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "many", 1)
    seeds = [f"{home}{number}.html" for number in range(30_000)]
    (tmp_path / "seeds.txt").write_text("\n".join([home, *seeds]))
    done = crawl(tmp_path, "-i", "seeds.txt", "--pages-max", "5")
    assert done.returncode == EXIT_OK
    assert (report(tmp_path)["urls"], report(tmp_path)["pages"]) == (30_001, 5)


# Where it is to be written


def a_file(folder: Path) -> Path:
    (folder / "file").write_text("mine")
    return folder / "file"


def below_a_file(folder: Path) -> Path:
    return a_file(folder) / "crawl"


def where_nothing_can_be_made(folder: Path) -> Path:
    return Path("/proc/drumlin")


@pytest.mark.parametrize("place", [a_file, below_a_file, where_nothing_can_be_made])
def test_a_directory_that_cannot_be_made_is_a_storage_error(tmp_path: Path, place: Callable[[Path], Path]) -> None:
    out = place(tmp_path)
    done = crawl(tmp_path, NOWHERE, "--out", out)
    assert done.returncode == EXIT_STORAGE
    assert f"Cannot write to {out}: " in sentence(done)
    assert "Choose another --out." in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    done = crawl(tmp_path, NOWHERE, "--out", "closed/crawl")
    assert (done.returncode, "Permission denied" in sentence(done)) == (EXIT_STORAGE, True)


def test_a_directory_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    for name, content in (("frontier", "a file"), ("frontier/CURRENT", "garbage")):
        out = tmp_path / name.replace("/", "-")
        (out / name).parent.mkdir(parents=True)
        (out / name).write_text(content)
        done = crawl(tmp_path, NOWHERE, "--out", out)
        assert done.returncode in (EXIT_STORAGE, EXIT_ENGINE)
        assert "crawl's queue" in sentence(done)
        assert (out / name).read_text() == content


def test_fresh_removes_a_crawl_and_nothing_where_there_is_none(tmp_path: Path, web: FakeWeb) -> None:
    home = web.page("fresh", "/", "one")
    precious = tmp_path / "out" / "tables" / "mine.csv"
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    for _ in range(2):
        assert crawl(tmp_path, home, *FAST, "--fresh", "--out", "out").returncode == EXIT_OK
        if precious.exists():
            assert precious.read_text() == "precious"
            precious.unlink()
    assert pages_of(web, "fresh") == ["/", "/"]


def test_a_crawl_without_its_queue_is_not_fetched_and_stored_again(tmp_path: Path, web: FakeWeb) -> None:
    home = web.page("queue", "/", "one")
    assert crawl(tmp_path, home, *FAST, "--out", "out").returncode == EXIT_OK
    shutil.rmtree(tmp_path / "out" / "frontier")
    done = crawl(tmp_path, home, *FAST, "--out", "out")
    assert (done.returncode, "has lost its queue" in sentence(done)) == (EXIT_STORAGE, True), done.stderr
    assert pages_of(web, "queue") == ["/"]
    assert crawl(tmp_path, home, *FAST, "--out", "out", "--fresh").returncode == EXIT_OK
    assert len(stored_urls(tmp_path / "out")) == 1


def test_a_crawl_of_another_version_is_refused_and_left_alone(tmp_path: Path, web: FakeWeb) -> None:
    from drumlin.engines.rocksdb import founding as rocksdb

    home = chain(web, "versions", 2)
    code = (
        f"import {rocksdb.__name__} as e; e.FORMAT = b'from the future'; from drumlin.cli.main import main; "
        f"main(['crawl', *{FAST!r}, {home!r}])"
    )
    newer = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path), capture_output=True, check=False
    )
    assert newer.returncode == EXIT_OK
    done = crawl(tmp_path, home)
    assert done.returncode == EXIT_ENGINE
    assert "from the future" in sentence(done)
    assert "Resume it with the version that began it." in done.stderr


@pytest.mark.parametrize("name", ["MANIFEST-*", "CURRENT", "*.sst"])
def test_a_damaged_frontier_says_so_and_a_copy_put_back_resumes(tmp_path: Path, web: FakeWeb, name: str) -> None:
    home = chain(web, f"damaged-{name}", 6)
    command = (home, "--pages-max")
    assert crawl(tmp_path, *command, "3").returncode == EXIT_OK
    frontier = tmp_path / "crawl" / "frontier"
    shutil.copytree(frontier, tmp_path / "copy")
    for path in frontier.glob(name):
        path.write_bytes(bytes(byte ^ 0x5A for byte in path.read_bytes()))
    done = crawl(tmp_path, *command, "6")
    assert done.returncode == EXIT_ENGINE
    assert "The crawl's queue is damaged: " in sentence(done)
    assert "Stored pages are safe" in done.stderr
    shutil.rmtree(frontier)
    shutil.copytree(tmp_path / "copy", frontier)
    assert crawl(tmp_path, *command, "6").returncode == EXIT_OK
    assert len(pages_of(web, f"damaged-{name}")) == 6


def test_a_directory_in_use_is_busy_and_the_other_crawl_goes_on(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "busy", 30)
    with running(tmp_path, "crawl", *FAST, "--delay", "2", home) as first:
        wait_until(lambda: (tmp_path / "crawl" / "frontier" / "LOCK").exists(), "the first crawl")
        with (
            running(tmp_path, "crawl", *FAST, home) as second,
            running(tmp_path, "dead-letters", "list") as letters,
        ):
            refused = [end(second), end(letters)]
        assert first.poll() is None
        ended = end(first, signal.SIGINT)
    # A verb that only looks gets its answer from the running crawl.
    assert ([done.returncode for done in refused], ended.returncode) == ([EXIT_BUSY, EXIT_OK], EXIT_INTERRUPTED)
    waiting, sentence_of_end = refused[0].stderr.splitlines()
    assert waiting.startswith("Another process is at work in")
    assert sentence_of_end.startswith("drumlin: Another process is at work in")
    assert report(tmp_path)["pages"] == len(pages_of(web, "busy"))


# A disk that is full or cannot be written


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    disk = folder / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("only root can mount a small disk")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def remount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{options}", str(disk)], check=True)


def last_sentence(stderr: str) -> str:
    """The sentence of a crawl that had begun; progress lines may come before it."""
    assert "Traceback" not in stderr
    *before, last = stderr.splitlines()
    assert not [line for line in before if not line[:1].isdigit()], stderr
    return last


@pytest.mark.parametrize("size", ["16k", "120k", "300k"])
def test_a_disk_that_is_full_from_the_start_says_so_and_more_room_resumes(
    tmp_path: Path, web: FakeWeb, size: str
) -> None:
    home = chain(web, f"full-{size}", 3)
    with small_disk(tmp_path, size) as disk:
        done = crawl(tmp_path, home, "--out", disk / "crawl")
        assert done.returncode == EXIT_STORAGE
        assert "the disk is full" in last_sentence(done.stderr) or "No space left" in last_sentence(done.stderr)
        remount(disk, "size=50m")
        assert crawl(tmp_path, home, "--out", disk / "crawl").returncode == EXIT_OK
        assert report(disk)["pages"] == 3


def test_a_disk_that_fills_in_the_middle_loses_nothing(tmp_path: Path, web: FakeWeb) -> None:
    chance = random.Random(1)
    seeds = [chain(web, f"filling{host}", 40) for host in range(6)]
    for host in range(6):
        for number in range(1, 40):
            web.page(f"filling{host}", f"/{number}.html", f"<p>{chance.randbytes(10_000).hex()}")
    with small_disk(tmp_path, "2m") as disk:
        command = (*seeds, "--out", str(disk / "crawl"), "--nodes", "2")
        stopped = crawl(tmp_path, *command)
        assert stopped.returncode == EXIT_STORAGE
        assert "the disk is full. Free some space and run the same command again" in last_sentence(stopped.stderr)
        remount(disk, "size=50m")
        assert crawl(tmp_path, *command).returncode == EXIT_OK
        stored = stored_urls(disk / "crawl")
        assert (len(stored), len(set(stored))) == (240, 240)
        for warc in (disk / "crawl" / "warc").glob("*.warc.gz"):
            subprocess.run([sys.executable, "-m", "warcio.cli", "check", str(warc)], check=True)


def test_a_read_only_directory_says_so_and_resumes_when_it_can_be_written(tmp_path: Path, web: FakeWeb) -> None:
    home = chain(web, "read-only", 4)
    with small_disk(tmp_path, "50m") as disk:
        out = disk / "crawl"
        assert crawl(tmp_path, home, "--pages-max", "2", "--out", out).returncode == EXIT_OK
        remount(disk, "ro")
        refused = crawl(tmp_path, home, "--out", out)
        assert (refused.returncode, "Read-only file system" in sentence(refused)) == (EXIT_STORAGE, True)
        remount(disk, "rw")
        assert crawl(tmp_path, home, "--out", out).returncode == EXIT_OK
    assert len(pages_of(web, "read-only")) == 4


# Other verbs


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (["report", "--out", "missing"], EXIT_USAGE, "There is no report in missing: "),
        (["report", "--out", "odd"], EXIT_USAGE, "is not a report of this version"),
        (["dead-letters", "list", "--out", "missing"], EXIT_USAGE, "There is no crawl in missing."),
        (["dead-letters", "retry", "--out", "odd"], EXIT_USAGE, "There is no crawl in odd."),
        (["fetch", "http://"], EXIT_USAGE, "'http://' is not a web address."),
        (["fetch", NOWHERE], 6, "forbidden_address: "),
        (["fetch", NOWHERE, "--allow-private"], 6, "connect: "),
        (["crowl", NOWHERE], EXIT_USAGE, "Did you mean 'crawl'?"),
    ],
)
def test_the_other_verbs_say_what_is_wrong_too(tmp_path: Path, arguments: list[str], exit_code: int, says: str) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "report.json").write_text('{"pages": "many"}')
    done = drumlin(tmp_path, *arguments)
    assert (done.returncode, says in sentence(done)) == (exit_code, True), done.stderr


LONG = "long" * 100


@pytest.mark.parametrize(
    "arguments",
    [
        ["crawl", NOWHERE, "--quiet", "--out", LONG],
        ["status", "--out", LONG],
        ["report", "--out", LONG],
        ["fleet", "up", NOWHERE, "--quiet", "--out", LONG],
        ["certs", "create", LONG],
    ],
)
def test_a_path_that_the_system_refuses_is_said_and_is_no_bug(tmp_path: Path, arguments: list[str]) -> None:
    done = drumlin(tmp_path, *arguments)
    assert (done.returncode, "File name too long" in sentence(done)) == (EXIT_STORAGE, True), done.stderr
    assert "bug" not in done.stderr


def test_every_exit_code_is_documented() -> None:
    from drumlin import errors
    from drumlin.cli.fetch import EXIT_NOT_FETCHED
    from drumlin.cli.main import EXIT_PIPE_CLOSED
    from drumlin.client.remote import EXIT_COORDINATOR

    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    rows = {int(code) for code in re.findall(r"^\| (\d+) \|", EXIT_CODES.read_text(), re.MULTILINE)}
    assert rows == codes | {EXIT_NOT_FETCHED, EXIT_COORDINATOR, EXIT_PIPE_CLOSED}


# Where to listen


def coordinator(folder: Path, listen: str) -> subprocess.CompletedProcess[str]:
    where = ("--listen", listen, "--engine", "rocksdb:frontier", "--log-format", "human")
    return drumlin(folder, "coordinator", *where, "http://example.org/")


def test_a_port_that_is_taken_is_said_and_no_crawl_is_founded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        done = coordinator(tmp_path, place)
    assert done.returncode == EXIT_BUSY
    expected = f"drumlin: Another program listens on {place}. Stop it, or choose another port with --listen."
    assert sentence(done) == expected
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("listen", "says"),
    [
        ("192.0.2.1:8700", "Cannot listen on 192.0.2.1:8700: this machine has no such address."),
        ("no.such.host.invalid:8700", "Cannot listen on no.such.host.invalid: there is no such host."),
    ],
)
def test_a_place_that_is_not_here_is_said_and_no_crawl_is_founded(tmp_path: Path, listen: str, says: str) -> None:
    done = drumlin(tmp_path, "coordinator", "--listen", listen, "--insecure", "--engine", "rocksdb:frontier")
    assert done.returncode == EXIT_USAGE
    assert says in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [("crawl",), ("fleet", "up")])
def test_too_few_open_files_are_said_once_and_nothing_is_begun(tmp_path: Path, verb: tuple[str, ...]) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "drumlin", *verb, "--out", str(out), "--concurrency", "512", NOWHERE]
    limited = ["sh", "-c", 'ulimit -n 200; exec "$@"', "sh", *command]
    done = subprocess.run(
        limited, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode == EXIT_USAGE, done.stderr
    assert "the limit is 200. Raise it (`ulimit -n" in done.stderr
    assert not out.exists()
