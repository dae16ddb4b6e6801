"""What is not fetched because of its type: large files that are not text are stopped at their heads; rules can
change."""

from __future__ import annotations

import contextlib
import gzip
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.commands import NO_PATIENCE, crawl, drumlin, environment, report
from tests.harness.outputs import check_index_matches_tables, query
from tests.harness.raw_web import NOT_FOUND, Answer, RawWeb

VIDEO_BYTES = 12 * 2**20
LINKS = b"<a href=/film.mp4>a film</a> <a href=/picture>a picture</a> <a href=/page>a page</a>"


def head(content_type: str, length: int | None) -> bytes:
    size = "" if length is None else f"Content-Length: {length}\r\n"
    return f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n{size}\r\n".encode()


def page(body: bytes) -> bytes:
    return head("text/html", len(body)) + body


def crawled(folder: Path, answers: dict[str, Answer], *flags: str) -> tuple[RawWeb, Path]:
    with RawWeb({"/robots.txt": NOT_FOUND, "/": page(LINKS), "/page": page(b"text"), **answers}) as web:
        done = crawl(folder, web.url(), "--quiet", *NO_PATIENCE, *flags)
    assert done.returncode == 0, done.stderr
    check_index_matches_tables(folder / "crawl")
    return web, folder / "crawl"


def row(out: Path, url: str) -> tuple[Any, ...]:
    [found] = query(out, "SELECT outcome, kind, fetch_status, error, record_id FROM {fetches} WHERE url = ?", url)
    return found


class Sent:
    """Sends an endless body until the other side closes the connection, and counts its bytes."""

    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while self.bytes < 200 * VIDEO_BYTES:
                self.bytes += connection.send(b"x" * 65_536)


def test_a_film_behind_a_link_is_not_stored_and_hardly_read(tmp_path: Path) -> None:
    sent = Sent()
    with RawWeb({"/": page(LINKS), "/film.mp4": head("video/mp4", VIDEO_BYTES)}) as web:
        web.ends["/film.mp4"] = sent
        done = crawl(tmp_path, web.url(), "--quiet")
    assert done.returncode == 0, done.stderr
    out = tmp_path / "crawl"
    said = f"video/mp4 of {VIDEO_BYTES:,} bytes: --types does not permit it"
    assert row(out, web.url("/film.mp4")) == ("skipped", "type", 200, said, None)
    assert sent.bytes < VIDEO_BYTES, "the transfer was stopped"
    assert sum(path.stat().st_size for path in out.glob("warc/*.warc.gz")) < 100_000
    ended = report(tmp_path)
    assert (ended["dead_letters"], ended["retries"], ended["robots_denied"]) == ({}, {}, 0)
    assert ended["outcomes"]["skipped"] == 1


def test_what_does_not_say_how_large_it_is_is_stopped_when_it_is_too_large(tmp_path: Path) -> None:
    sent = Sent()
    with RawWeb({"/": page(LINKS), "/picture": head("image/png", None)}) as web:
        web.ends["/picture"] = sent
        crawl(tmp_path, web.url(), "--quiet", "--types", "image/*=1MiB")
    assert row(tmp_path / "crawl", web.url("/picture"))[:3] == ("skipped", "type", 200)
    assert sent.bytes < 16 * 2**20, "it was stopped before the limit of pages"


@pytest.mark.parametrize(
    ("flags", "film", "picture"),
    [
        ((), "skipped", "fetched"),
        (("--types", "video/*=20MB"), "fetched", "fetched"),
        (("--types", "video/*=20MB", "--types", "video/mp4=1MB"), "skipped", "fetched"),
        (("--types", "*/*=20MB"), "fetched", "fetched"),
        (("--types", "image/*=0"), "skipped", "skipped"),
        (("--types", "*/*=0", "--types", "text/html=1MB"), "skipped", "skipped"),
    ],
)
def test_rules_that_are_given_come_before_those_built_in(
    tmp_path: Path, flags: tuple[str, ...], film: str, picture: str
) -> None:
    answers: dict[str, Answer] = {
        "/film.mp4": head("Video/MP4; codecs=x", VIDEO_BYTES) + b"f" * VIDEO_BYTES,
        "/picture": head("image/png", 1000) + b"p" * 1000,
    }
    web, out = crawled(tmp_path, answers, *flags)
    assert (row(out, web.url("/film.mp4"))[0], row(out, web.url("/picture"))[0]) == (film, picture)
    assert row(out, web.url("/page"))[0] == "fetched"


def test_a_redirect_and_an_error_are_read_whatever_they_call_themselves(tmp_path: Path) -> None:
    answers: dict[str, Answer] = {
        "/film.mp4": b"HTTP/1.1 302 Found\r\nContent-Type: video/mp4\r\nLocation: /page\r\nContent-Length: 0\r\n\r\n",
        "/picture": b"HTTP/1.1 503 No\r\nContent-Type: video/mp4\r\nContent-Length: 1\r\n\r\nx",
    }
    web, out = crawled(tmp_path, answers)
    assert row(out, web.url("/film.mp4"))[:2] == ("redirected", None)
    assert row(out, web.url("/picture"))[:2] == ("failed", "http_5xx")


def test_a_sitemap_may_be_an_archive(tmp_path: Path) -> None:
    with RawWeb({"/": page(b"")}) as web:
        packed = gzip.compress(f"<urlset><url><loc>{web.url('/listed')}</loc></url></urlset>".encode())
        robots = f"Sitemap: {web.url('/sitemap.xml.gz')}\n".encode()
        web.answers["/robots.txt"] = head("text/plain", len(robots)) + robots
        web.answers["/sitemap.xml.gz"] = head("application/gzip", len(packed)) + packed
        web.answers["/listed"] = page(b"listed")
        crawl(tmp_path, web.url(), "--quiet")
    assert "/listed" in web.asked


def test_a_seed_that_is_skipped_is_named_with_its_cause(tmp_path: Path) -> None:
    with RawWeb({"/robots.txt": NOT_FOUND, "/": head("application/zip", 5) + b"zzzzz"}) as web:
        done = crawl(tmp_path, web.url(), "--quiet")
    assert done.returncode == 8
    said = "it is not to be fetched: application/zip of 5 bytes: --types does not permit it."
    assert said in " ".join(done.stderr.split())


@pytest.mark.parametrize("place", ["flag", "file", "variable"])
def test_rules_may_be_given_in_every_place(tmp_path: Path, place: str) -> None:
    variables = {}
    if place == "file":
        (tmp_path / "drumlin.toml").write_text('[crawl]\ntypes = ["video/*=1MB", "application/zip=0"]\n')
    if place == "variable":
        variables["DRUMLIN_TYPES"] = "video/*=1MB\napplication/zip=0"
    flags = ["--types", "video/*=1MB", "--types", "application/zip=0"] if place == "flag" else []
    shown = drumlin(tmp_path, "config", "show", *flags, env=environment(tmp_path, variables))
    assert 'types = ["video/*=1MB", "application/zip=0"]' in shown.stdout


@pytest.mark.parametrize("rule", ["video", "video/*", "video/*=many", "*/mp4=1MB", "vid*/x=1", "=1MB"])
def test_a_rule_that_is_none_is_refused_with_an_example(tmp_path: Path, rule: str) -> None:
    done = drumlin(tmp_path, "config", "show", "--types", rule)
    assert done.returncode == 2
    assert "such as video/*=100MB" in " ".join(done.stderr.split())
