"""Trap defence: what is rejected and why, and that ordinary URLs never are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.frontier.traps import REASONS, TrapFilter, TrapLimits, soft_404

YEAR = 2024
SITE = "https://site.example"


def reject(path: str, depth: int = 1, limits: TrapLimits | None = None) -> str:
    return TrapFilter(limits or TrapLimits()).reject(SITE + path, depth, YEAR)


ORDINARY = [
    "https://docs.python.example/3/library/asyncio-task.html",
    "https://docs.python.example/3.11/whatsnew/3.11.html",
    "https://www.postgresql.example/docs/15/sql-createtable.html",
    "https://docs.rs.example/tokio/1.38.0/tokio/tokio/index.html",
    "https://doc.rust.example/std/collections/hash_map/struct.HashMap.html",
    "https://kubernetes.example/docs/reference/generated/kubernetes-api/v1.30/",
    "https://developer.example/en-US/docs/Web/JavaScript/Reference/Global_Objects/Array/Array",
    "https://news.example/2024/05/17/world/europe/some-long-title-of-an-article.html",
    "https://news.example/1986/04/28/disaster.html",
    "https://founders.example/letters/1776-07-04-declaration",
    "https://blog.example/2019/11/11/11-things-about-november/",
    "https://blog.example/archive/2011/11/11/11",
    "https://blog.example/archives/2012/05/",
    "https://blog.example/archives/date/2012/5",
    "https://blog.example/2023-09-01-release-notes/",
    "https://conference.example/events/2026-06/programme",
    "https://city.example/events?date=2025-01-31",
    "https://tickets.example/events/4821/12",
    "https://tickets.example/events/1203-5-something",
    "https://forum.example/users/2150/12/posts",
    "https://museum.example/search?date_from=1650&date_to=1700",
    "https://shop.example/c/shoes?brand=a&color=red&price=10-50&size=42&sort=price&page=3",
    "https://shop.example/products/model-2600-10-pack",
    "https://shop.example/p/B07XJ8C8F5/ref=sr_1_1?keywords=lamp&qid=1715945",
    "https://wiki.example/wiki/Wiki/Wiki",
    "https://wiki.example/w/index.php?title=Main_Page&action=history&offset=20240517120000&limit=500",
    "https://wiki.example/wiki/Category:1999_births",
    "https://git.example/group/project/-/blob/main/src/test/java/org/example/test/test/AppTest.java",
    "https://git.example/torvalds/linux/commit/9d71941f2b44d23f4c0ed3f8b7c4d6c9a1b2c3d4",
    "https://git.example/a/b/tree/9d71941f2b44d23f4c0ed3f8b7c4d6c9a1b2c3d4/drivers/net/ethernet/intel/ice",
    "https://git.example/project/project/issues/1999",
    "https://cdn.example/assets/app.3f2a9c81d7e64b0f9a2b4c6d8e0f1a2b.js",
    "https://app.example/posts/8f14e45f-ceea-467f-a0e6-5b0d1c2e3f40/comments",
    "https://video.example/watch?v=dQw4w9WgXcQ&list=PLrAXtmErZgOeiKm4sgNOknGvNjby9efdf",
    "https://tiles.example/map/0/0/0",
    "https://tiles.example/map/3/3/3/3.png",
    "https://forum.example/viewtopic.php?f=2&t=10412&start=225",
    "https://forum.example/threads/what-happened-in-2099.12345/page-17",
    "https://arxiv.example/abs/2105.12345v2",
    "https://arxiv.example/list/cs.DC/1905?skip=0&show=2000",
    "https://law.example/eli/reg/2016/679/oj",
    "https://archive.example/web/20240517120000/https://other.example/a/b",
    "https://shop.example/inside-sid-vicious-a-biography/",
    "https://site.example/a//b",
    "https://site.example/",
    "https://site.example/?q=2031",
    "http://127.0.20.31:2031/05/12",
]


@pytest.mark.parametrize("url", ORDINARY)
def test_an_ordinary_url_is_accepted(url: str) -> None:
    assert TrapFilter().reject(url, 5, YEAR) == ""


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/" + "a" * 8_000, "url_length"),
        ("/" + "/".join(str(number) for number in range(40)), "path_depth"),
        ("/a/a/a", "path_repetition"),
        ("/x/a/a/a/", "path_repetition"),
        ("/a/b/a/b/a/b", "path_repetition"),
        ("/x/y/a/b/a/b/a/b/z", "path_repetition"),
        ("/a/b/c/a/b/c/a/b/c/", "path_repetition"),
        ("/1/1/1/1/1", "path_repetition"),
        ("/a////b", "path_repetition"),
        ("/a?" + "&".join(f"p{number}=1" for number in range(25)), "query_explosion"),
        ("/calendar/2031/05", "calendar"),
        ("/calendar/2031/5/3/", "calendar"),
        ("/events/2027-01-01", "calendar"),
        ("/2031/05/12/", "calendar"),
        ("/day/20310512", "calendar"),
        ("/list?date=2099-12-31", "calendar"),
        ("/list?month=12&year=2099", "calendar"),
        ("/list?cal_year=2099", "calendar"),
        ("/list/1066-10-14", "calendar"),
    ],
)
def test_a_trap_that_shows_in_one_url_is_named(path: str, reason: str) -> None:
    assert reject(path) == reason


@pytest.mark.parametrize("path", ["/a/a/b", "/a/b/a/b", "/a/b/a/c/a/d/a", "/a/b/c/a/b/c", "/1/1/1/1", "/a/aa/aaa"])
def test_a_path_may_repeat_itself_a_little(path: str) -> None:
    assert reject(path) == ""


def test_depth_is_limited_unless_left_to_the_crawl() -> None:
    assert reject("/", 6, TrapLimits(depth_max=5)) == "depth"
    assert reject("/", 5, TrapLimits(depth_max=5)) == ""
    assert reject("/", 10**6, TrapLimits(depth_max=None)) == ""


@pytest.mark.parametrize("year", [2024, 2025, 2026])
def test_two_years_ahead_are_believed(year: int) -> None:
    assert reject(f"/calendar/{year}/12") == ""


def accepted(urls: list[str], limits: TrapLimits) -> tuple[int, set[str]]:
    """How many of `urls` one filter lets pass, and the reasons for the others."""
    traps = TrapFilter(limits)
    verdicts = [traps.reject(SITE + url, 1, YEAR) for url in urls]
    return verdicts.count(""), set(verdicts) - {""}


def test_combinations_of_filters_on_one_path_are_limited() -> None:
    urls = [f"/shop?a={number}&b=1&c=2" for number in range(50)]
    assert accepted(urls, TrapLimits(queries_per_path_max=20)) == (20, {"query_explosion"})


def test_a_path_that_names_things_by_id_has_a_limit_of_its_own() -> None:
    urls = [f"/topic?id={number}" for number in range(50)]
    assert accepted(urls, TrapLimits(queries_per_path_max=20)) == (50, set())
    assert accepted(urls, TrapLimits(plain_queries_per_path_max=30)) == (30, {"query_explosion"})


def test_each_path_is_counted_for_itself() -> None:
    urls = [f"/shop{path}?a={number}&b=1&c=2" for number in range(20) for path in range(5)]
    assert accepted(urls, TrapLimits(queries_per_path_max=20)) == (100, set())


def test_the_same_url_offered_again_is_not_counted_again() -> None:
    urls = ["/shop?a=1&b=1&c=2"] * 50 + ["/shop?a=2&b=1&c=2"]
    assert accepted(urls, TrapLimits(queries_per_path_max=2)) == (51, set())


@pytest.mark.parametrize(
    "pattern",
    [
        "/calendar/{year}/{month:02}",
        "/calendar/{year}/{month}",
        "/calendar/{year}-{month:02}/view",
        "/{year}/{month:02}/01/",
        "/list?date={year}-{month:02}-01",
        "/list?month={month}&year={year}",
        "/day/{year}{month:02}01.html",
    ],
)
def test_an_endless_calendar_is_left_after_so_many_dates(pattern: str) -> None:
    urls = [pattern.format(year=year, month=month) for year in range(1900, 1910) for month in range(1, 13)]
    assert accepted(urls, TrapLimits(dates_per_shape_max=60)) == (60, {"calendar"})


@pytest.mark.parametrize(
    "pattern", ["/2024/{month:02}/{day:02}/title-{count}", "/2024/{month:02}/{day:02}/{count}.html"]
)
def test_articles_with_dates_are_never_too_many(pattern: str) -> None:
    urls = [pattern.format(month=n % 12 + 1, day=n % 28 + 1, count=n) for n in range(500)]
    assert accepted(urls, TrapLimits(dates_per_shape_max=10)) == (500, set())


@pytest.mark.parametrize(
    "pattern", ["/page;jsessionid={token}", "/(S({token}))/page", "/cart;PHPSESSID={token}/page", "/sid={token}/page"]
)
def test_a_page_under_ever_new_session_ids_is_left_soon(pattern: str) -> None:
    urls = [pattern.format(token=f"{number:024x}") for number in range(20)]
    assert accepted(urls, TrapLimits()) == (4, {"session_id"})


def test_a_page_behind_ever_new_random_tokens_is_left_in_the_end() -> None:
    urls = [f"/{number:030x}ab/products/list" for number in range(50)]
    assert accepted(urls, TrapLimits(sessions_max=20)) == (20, {"session_id"})


@pytest.mark.parametrize(
    "pattern", ["/a/b/commit/{:040x}", "/a/b/tree/{:040x}/src", "/images/a{:031x}.jpg", "/doc/a{:031x}"]
)
def test_commits_and_names_of_things_are_no_session_ids(pattern: str) -> None:
    urls = [pattern.format(number) for number in range(50)]
    assert accepted(urls, TrapLimits(sessions_max=20)) == (50, set())


def test_memory_is_bounded_and_a_hot_counter_is_kept() -> None:
    traps = TrapFilter(TrapLimits(queries_per_path_max=300, shapes_max=64))
    passed = 0
    for number in range(1_000):
        passed += not traps.reject(f"{SITE}/trap?a={number}&b=1&c=1", 1, YEAR)
        traps.reject(f"{SITE}/other{number}?a=1", 1, YEAR)
    counters = traps._counters
    held = (counters._counts, counters._counts_old, counters._members, counters._members_old)
    assert passed == 300
    assert all(len(generation) <= 64 for generation in held)


@given(st.text(max_size=200), st.integers(0, 50))
def test_any_text_is_judged(path: str, depth: int) -> None:
    assert reject("/" + path, depth) in ("", *REASONS)


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("404 Not Found", b"The requested URL was not found on this server."),
        ("404", b"Error 404"),
        ("Page not found | Example Shop", b"Sorry, this page does not exist."),
        ("Example Shop - Page Not Found", b"Nothing here. Page not found. Home Contact"),
        ("Oops! Page not found", b"404"),
        ("Error 404: page not found", b"It may have moved. 404"),
        ("Seite nicht gefunden \u2013 Beispiel", b"Die Seite wurde leider nicht gefunden."),
        ("Page introuvable", "La page demandée est introuvable.".encode()),
        ("Страница не найдена", "Страница не найдена".encode()),
        ("404 Not Found", b""),
    ],
)
def test_a_page_that_only_says_it_is_not_there_is_a_soft_404(title: str, text: bytes) -> None:
    assert soft_404(title, text, 200)
    assert not soft_404(title, text, 404)
    assert not soft_404(title, text + b" word" * 1_000, 200)


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("HTTP 404 - Wikipedia", b"The HTTP 404, 404 not found error message is a status code."),
        ("How to fix 404 page not found in nginx", b"My server says 404 not found."),
        ("Lost and not found: a novel", b"It was not found."),
        ("Peugeot 404 for sale", b"A 404 in good condition, not found every day."),
        ("Welcome", b"404 not found"),
        ("Not found", b"A gallery of paintings by unknown masters"),
        ("", b""),
        ("", b"not found"),
    ],
)
def test_a_page_about_something_is_no_soft_404(title: str, text: bytes) -> None:
    assert not soft_404(title, text, 200)
