"""Redirects as servers really send them: every page behind them is stored, and only real loops count as loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin.errors import EXIT_OK
from tests.acceptance.commands import NO_PATIENCE, crawl, drumlin, stored_urls
from tests.harness.outputs import check_index_matches_tables, check_rows_lead_to_records, check_warcs, query
from tests.harness.raw_web import Answer, RawWeb

OPEN = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"


def page(text: bytes = b"<title>There</title>") -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


def moved(*locations: bytes) -> bytes:
    fields = b"".join(b"Location: %b\r\n" % location for location in locations)
    return b"HTTP/1.1 302 Found\r\n%bContent-Length: 0\r\n\r\n" % fields


@pytest.mark.parametrize(
    ("asked", "location", "spelling"),
    [
        ("/q?a=1&b=2", b"/q?b=2&a=1", "/q?b=2&a=1"),
        ("/~u", b"/%7Eu", "/%7Eu"),
        ("/p", b"/p?utm_source=x", "/p?utm_source=x"),
        ("/p;jsessionid=1", b"/p;jsessionid=1", "/p;jsessionid=1"),
        ("/caf%C3%A9", b"/caf%c3%a9", "/caf%c3%a9"),
    ],
)
def test_a_server_that_insists_on_its_own_spelling_is_followed_once(
    tmp_path: Path, asked: str, location: bytes, spelling: str
) -> None:
    with RawWeb({"/robots.txt": OPEN}) as web:
        web.answers |= {asked: moved(location), asked.partition(";")[0]: moved(location)} | {spelling: page()}
        done = crawl(tmp_path, web.url(asked), "--quiet")
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert web.asked[-1] == spelling
    assert len(web.asked) <= 3, "robots.txt, the URL, its own spelling"
    assert query(tmp_path / "crawl", "SELECT title, len(redirects) FROM {pages}") == [("There", len(web.asked) - 2)]


@pytest.mark.parametrize(
    ("locations", "target"),
    [
        ([b"/caf\xc3\xa9"], "/caf%C3%A9"),
        ([b"/caf\xe9?x=\xfc"], "/caf%E9?x=%FC"),
        ([b"/to", b"/to"], "/to"),
        ([b"/a,b"], "/a,b"),
    ],
    ids=["UTF-8", "latin-1", "twice", "comma"],
)
def test_a_location_means_what_it_means_to_browsers(tmp_path: Path, locations: list[bytes], target: str) -> None:
    with RawWeb({"/robots.txt": OPEN, "/": moved(*locations), target: page()}) as web:
        crawl(tmp_path, web.url(), "--quiet")
    assert web.asked == ["/robots.txt", "/", target]
    assert stored_urls(tmp_path / "crawl") == [web.url(target)]


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({"/": moved(b"/")}, "redirect_loop"),
        ({"/": moved(b"/#part")}, "redirect_loop"),
        ({"/": moved(b"/x"), "/x": moved(b"/")}, "redirect_loop"),
        ({"/": moved(b"/?utm_source=1"), "/?utm_source=1": moved(b"/")}, "redirect_loop"),
        ({"/": moved(b"/a", b"/b")}, "protocol"),
        ({"/": moved()}, "bad_redirect"),
        (
            {"/": moved(b"/?utm_source=0")}
            | {f"/?utm_source={n}": moved(b"/?utm_source=%d" % (n + 1)) for n in range(30)},
            "redirect_loop",
        ),
    ],
)
def test_what_leads_nowhere_is_named_after_a_few_contacts(tmp_path: Path, answers: dict[str, bytes], kind: str) -> None:
    with RawWeb({"/robots.txt": OPEN} | answers) as web:
        done = crawl(tmp_path, web.url(), "--quiet", *NO_PATIENCE)
    assert "Traceback" not in done.stderr
    letters = drumlin(tmp_path, "dead-letters", "list", "--json").stdout
    assert kind in letters
    assert len(web.asked) <= 12, "no more than a few"


def test_fetch_follows_another_spelling_too(tmp_path: Path) -> None:
    with RawWeb({"/robots.txt": OPEN, "/~u": moved(b"/%7Eu"), "/%7Eu": page()}) as web:
        done = drumlin(tmp_path, "fetch", "--allow-private", "--delay", "0", web.url("/~u"))
    assert (done.returncode, web.asked[-1]) == (EXIT_OK, "/%7Eu")
    assert "There" in done.stdout


# Cookies


def sets(cookie: bytes, location: bytes) -> bytes:
    return b"HTTP/1.1 302 Found\r\nLocation: %b\r\nSet-Cookie: %b\r\nContent-Length: 0\r\n\r\n" % (location, cookie)


def gate(cookie: bytes, behind: bytes, closed: bytes) -> Answer:
    """Shows the page only to clients that send the cookie."""
    return lambda head: behind if b"\r\nCookie: %b\r\n" % cookie in head else closed


def test_a_redirect_to_itself_that_sets_a_cookie_is_followed_with_the_cookie(tmp_path: Path) -> None:
    secret = b"seen=S3CRET"
    shown = page(b'<title>There</title><a href="/next">on</a>')
    answers = {"/": gate(secret, shown, sets(secret + b"; Path=/; HttpOnly", b"/")), "/next": page()}
    with RawWeb({"/robots.txt": OPEN} | answers) as web:
        done = crawl(tmp_path, web.url(), "--quiet")
    out = tmp_path / "crawl"
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert web.asked == ["/robots.txt", "/", "/", "/next"]
    assert b"Cookie:" not in web.requests[-1], "a cookie goes along its chain, not to other pages"
    rows = query(out, "SELECT title, redirects FROM {pages} WHERE url = ?", web.url())
    assert rows == [("There", [web.url()])], "counted as a redirect"
    check_warcs(out)
    for log in (out / "logs").iterdir():
        assert b"S3CRET" not in log.read_bytes()


def test_a_cookie_goes_along_the_chain_to_another_url(tmp_path: Path) -> None:
    answers = {"/": sets(b"a=1; Path=/", b"/in"), "/in": gate(b"a=1", page(), moved(b"/login"))}
    with RawWeb({"/robots.txt": OPEN} | answers) as web:
        crawl(tmp_path, web.url(), "--quiet")
    assert web.asked == ["/robots.txt", "/", "/in"]
    assert stored_urls(tmp_path / "crawl") == [web.url("/in")]


def test_a_gate_that_sets_a_cookie_and_leads_back_is_passed(tmp_path: Path) -> None:
    shown = page(b'<title>There</title><a href="next">on</a>')
    back = sets(b"pass=S3CRET; Path=/", b"/in/page")
    answers = {"/in/page": gate(b"pass=S3CRET", shown, moved(b"/gate?to=%2Fin%2Fpage")), "/in/next": page()}
    with RawWeb({"/robots.txt": OPEN, "/gate?to=%2Fin%2Fpage": back} | answers) as web:
        done = crawl(tmp_path, web.url("/in/page"), "--quiet")
    out, (asked, gated) = tmp_path / "crawl", (web.url("/in/page"), web.url("/gate?to=%2Fin%2Fpage"))
    assert (done.returncode, done.stderr) == (EXIT_OK, "")
    assert web.asked == ["/robots.txt", "/in/page", "/gate?to=%2Fin%2Fpage", "/in/page", "/in/next"]
    rows = query(out, "SELECT title, redirects, depth FROM {pages} WHERE url = ?", asked)
    assert rows == [("There", [asked, gated], 0)], "the page is stored as what it is"
    assert query(out, "SELECT url FROM {links}") == [(asked,)]
    assert check_rows_lead_to_records(out) == 2
    check_index_matches_tables(out)
    check_warcs(out)
    for log in (out / "logs").iterdir():
        assert b"S3CRET" not in log.read_bytes()


@pytest.mark.parametrize("mode", ["chain", "host"])
def test_a_gate_that_only_looks_for_the_cookie_is_passed(tmp_path: Path, mode: str) -> None:
    answers = {
        "/": gate(b"a=1", page(), sets(b"a=1; Path=/", b"/look")),
        "/look": gate(b"a=1", moved(b"/"), moved(b"/no-cookies")),
    }
    with RawWeb({"/robots.txt": OPEN} | answers) as web:
        crawl(tmp_path, web.url(), "--quiet", "--cookies", mode)
    assert web.asked == ["/robots.txt", "/", "/look", "/"]
    assert stored_urls(tmp_path / "crawl") == [web.url()]


def test_fetch_passes_a_gate_too(tmp_path: Path) -> None:
    answers = {"/": gate(b"a=1", page(), moved(b"/gate")), "/gate": sets(b"a=1", b"/")}
    with RawWeb({"/robots.txt": OPEN} | answers) as web:
        done = drumlin(tmp_path, "fetch", "--allow-private", "--delay", "0", web.url())
    assert done.returncode == EXIT_OK, done.stderr
    assert "There" in done.stdout


@pytest.mark.parametrize(
    ("gate_sets", "mode", "asked_max"),
    [(b"a=1", "none", 3), (b"a=1; Max-Age=0", "chain", 3), (b"a=1", "chain", 5), (b"a=%d", "chain", 12)],
    ids=["refused", "nothing set", "never content", "another each time"],
)
def test_a_gate_that_never_opens_ends_as_a_loop(tmp_path: Path, gate_sets: bytes, mode: str, asked_max: int) -> None:
    def opens(head: bytes) -> bytes:
        return sets(gate_sets % len(web.asked) if b"%" in gate_sets else gate_sets, b"/")

    with RawWeb({"/robots.txt": OPEN, "/": moved(b"/gate"), "/gate": opens}) as web:
        crawl(tmp_path, web.url(), "--quiet", "--cookies", mode, *NO_PATIENCE)
    assert "redirect_l" in drumlin(tmp_path, "dead-letters", "list", "--json").stdout
    assert len(web.asked) <= asked_max


def test_a_robots_txt_behind_a_cookie_is_read(tmp_path: Path) -> None:
    rules = page(b"User-agent: *\nDisallow: /private\n")
    answers = {"/robots.txt": gate(b"a=1", rules, sets(b"a=1", b"/robots.txt")), "/": page(b'<a href="/private">')}
    with RawWeb(answers) as web:
        crawl(tmp_path, web.url(), "--quiet")
    assert web.asked == ["/robots.txt", "/robots.txt", "/"]


@pytest.mark.parametrize(("mode", "titles"), [("none", []), ("host", ["Next", "There"])])
def test_cookies_can_be_refused_or_kept_for_a_host(tmp_path: Path, mode: str, titles: list[str]) -> None:
    shown = page(b'<title>There</title><a href="/next">on</a>')
    answers = {
        "/": gate(b"a=1", shown, sets(b"a=1", b"/")),
        "/next": gate(b"a=1", page(b"<title>Next</title>"), moved(b"/login")),
    }
    with RawWeb({"/robots.txt": OPEN} | answers) as web:
        crawl(tmp_path, web.url(), "--quiet", "--cookies", mode, *NO_PATIENCE)
    if titles:
        found = query(tmp_path / "crawl", "SELECT title FROM {pages} ORDER BY title")
        assert [title for (title,) in found] == titles
    else:
        assert web.asked == ["/robots.txt", "/"]


def test_a_cookie_that_changes_for_ever_ends_as_a_loop(tmp_path: Path) -> None:
    def counted(head: bytes) -> bytes:
        return sets(b"n=%d" % len(web.asked), b"/")

    with RawWeb({"/robots.txt": OPEN, "/": counted}) as web:
        crawl(tmp_path, web.url(), "--quiet", *NO_PATIENCE)
    assert "redirect_loop" in drumlin(tmp_path, "dead-letters", "list", "--json").stdout
    assert len(web.asked) <= 8
