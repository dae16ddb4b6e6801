"""robots.txt: groups, tokens, longest match, wildcards, escapes, mistakes, limits."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin import robots
from drumlin.robots import rules
from drumlin.robots.agent import group_tokens
from drumlin.robots.match import normalise_path, normalise_pattern

SITE = "https://site.example"


def allowed(body: str | bytes, path: str, agent: str = "drumlin") -> bool:
    raw = body.encode() if isinstance(body, str) else body
    return robots.parse(raw).allowed(agent, SITE + path)


def everybody(*rules: str) -> str:
    return "\n".join(["User-agent: *", *rules])


GROUPS = """
Disallow: /before-any-group
User-agent: one
User-agent: two
Disallow: /shared

User-agent: *
Disallow: /everybody

Sitemap: https://site.example/a.xml
User-agent: One
Disallow: /merged

User-agent: three
"""


@pytest.mark.parametrize(
    ("agent", "path", "expected"),
    [
        ("one", "/before-any-group", True),
        ("one", "/shared", False),
        ("two", "/shared", False),
        ("one", "/merged", False),
        ("two", "/merged", True),
        ("one", "/everybody", True),
        ("other", "/everybody", False),
        ("other", "/shared", True),
        ("three", "/everybody", True),
        ("ONE", "/shared", False),
        ("one/2.1", "/shared", False),
        ("one/2.1 (+https://one.example/bot)", "/shared", False),
        ("Mozilla/5.0 (compatible; One/2.1; +https://one.example/bot)", "/shared", False),
        ("oneandmore", "/shared", True),
        ("on", "/shared", True),
        ("*", "/everybody", False),
        ("", "/everybody", False),
    ],
)
def test_a_crawler_obeys_its_own_merged_groups_or_else_everybodys(agent: str, path: str, expected: bool) -> None:
    assert allowed(GROUPS, path, agent) is expected


@pytest.mark.parametrize(
    ("rules", "path", "expected"),
    [
        (["Disallow: /"], "/", False),
        (["Disallow: /"], "/anything", False),
        (["Disallow:"], "/anything", True),
        (["Disallow: /a", "Allow: /a/b"], "/a/b/c", True),
        (["Allow: /a/b", "Disallow: /a"], "/a/b/c", True),
        (["Disallow: /a", "Allow: /a/b"], "/a/c", False),
        (["Allow: /a", "Disallow: /a"], "/a", True),
        (["Disallow: /a", "Allow: /a"], "/a", True),
        (["Disallow: /a$", "Allow: /a"], "/a", False),
        (["Allow: /a*c", "Disallow: /abc"], "/abc", True),
        (["Allow: /a*", "Disallow: /abc"], "/abc", False),
        (["Allow: /", "Disallow: /*"], "/x", False),
        (["Disallow: *", "Allow: /"], "/x", True),
        (["Disallow: /A"], "/a", True),
        (["Disallow: /a"], "/b/a", True),
        (["Disallow: a"], "/a", True),
        (["Disallow: /private", "Disallow: /private/more"], "/private/more/x", False),
        (["Allow: /x/index.html", "Disallow: /"], "/x/", True),
        (["Allow: /x/index.html", "Disallow: /"], "/x/y", False),
        (["Disallow: /x/index.html"], "/x/", True),
        (["Disallow: /?"], "/?q=1", False),
        (["Disallow: /?"], "/", True),
    ],
)
def test_the_longest_rule_wins_and_allow_wins_ties(rules: list[str], path: str, expected: bool) -> None:
    assert allowed(everybody(*rules), path) is expected


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/fish", "/fish.html", True),
        ("/fish", "/Fish.asp", False),
        ("/fish*", "/fishheads/yummy.html?id=1", True),
        ("/fish/", "/fish", False),
        ("/*.php", "/folder/any.php.file.html", True),
        ("/*.php$", "/folder/any.php", True),
        ("/*.php$", "/any.php?q", False),
        ("/*.php$", "/any.php.php", True),
        ("/fish*.php", "/fishheads/catfish.php?p", True),
        ("/a*b*c$", "/abcbc", True),
        ("/a*b*c$", "/acb", False),
        ("/a*a$", "/a", False),
        ("/a*a$", "/aa", True),
        ("/a**b", "/a/b", True),
        ("*/print", "/x/print", True),
        ("*", "/", True),
        ("/*$", "/anything", True),
        ("/$", "/", True),
        ("/$", "/a", False),
        ("/a$b", "/a$b", True),
        ("/a$b", "/a", False),
        ("/$$", "/$", True),
        ("/*?*sort=", "/list?a=1&sort=up", True),
        ("/*?*sort=", "/list/sort=", False),
    ],
)
def test_stars_match_anything_and_a_final_dollar_the_end(pattern: str, path: str, matches: bool) -> None:
    assert allowed(everybody("Disallow: " + pattern), path) is not matches


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/*A$", "/secret/x*", False),
        ("/*A", "/secret/x*A", True),
        ("/*24", "/private$x", False),
        ("/*24", "/private$24", True),
        ("/*C", "/w?titles=a|b", False),
        ("/*C$", "/w?titles=a|b|C", True),
        ("*2", "/x$y", False),
        ("*2*4", "/x$y", False),
        ("*%7*C", "/x|y", False),
        ("/x%2", "/x*y", False),
        ("/x%", "/x*y", False),
        ("/x%2*", "/x*y", False),
        ("/*%", "/x*y", False),
        ("/*%", "/x*y%20", True),
        ("/*x%2Ay", "/x*y", True),
        ("/*%7C%7C", "/x|||", True),
        ("/*%7C%", "/x|||", False),
        ("/*%7C%7C$", "/x|||", True),
        ("/x%7C%7C", "/x|||", True),
        ("/x%7C%7", "/x|||", False),
        ("/x%7C%7", "/x%7C%7C", True),
        ("/*9$", "/café", False),
        ("/*C3%A9", "/café", False),
        ("/*%C3", "/café", True),
        ("/*E$", "/a^", False),
        ("/*B", "/a?{b}", False),
    ],
)
def test_a_raw_character_is_one_symbol_though_it_is_compared_as_an_escape(
    pattern: str, path: str, matches: bool
) -> None:
    assert allowed(everybody("Disallow: " + pattern), path) is not matches
    assert allowed(everybody("Disallow: /", "Allow: " + pattern), path) is (matches and len(pattern) > 1)


def test_a_url_made_to_be_slow_by_its_raw_characters_is_denied() -> None:
    # Each match of the long piece begins within an escape of a raw `$`, and each has to be looked at.
    rule = f"Disallow: /*4{'%24' * 700}*x"
    assert allowed(everybody(rule), "/" + "$" * 800 + "x")
    assert not allowed(everybody(rule), "/" + "$" * 8000 + "x")


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/caf%C3%A9", "/caf%c3%a9", True),
        ("/café", "/caf%C3%A9", True),
        ("/caf%c3%a9", "/café", True),
        ("/%7Ejoe", "/~joe", True),
        ("/~joe", "/%7ejoe/x", True),
        ("/a%2Fb", "/a/b", False),
        ("/a/b", "/a%2Fb", False),
        ("/a%2fb", "/a%2Fb", True),
        ("/a b", "/a%20b", True),
        ("/a%20b", "/a b", True),
        ("/%2A", "/*", True),
        ("/%2A", "/anything", False),
        ("/x%24", "/x$", True),
        ("/x%24", "/x", False),
        ("/x|y", "/x%7Cy", True),
        ("/100%", "/100%", True),
        ("/%zz", "/%zz", True),
        ("/*%", "/a%20b", True),
        ("/p?u=http%3A%2F%2Fa", "/p?u=http%3a%2f%2fa", True),
        ("/p?u=http%3A%2F%2Fa", "/p?u=http://a", False),
    ],
)
def test_escapes_are_compared_in_one_normal_form(pattern: str, path: str, matches: bool) -> None:
    assert allowed(everybody("Disallow: " + pattern), path) is not matches


@pytest.mark.parametrize(
    "body",
    [
        b"\xef\xbb\xbfUser-agent: *\nDisallow: /x",
        b"User-agent: *\r\nDisallow: /x\r\n",
        b"User-agent: *\rDisallow: /x\r",
        b"User-agent: *\n\r\n\rDisallow: /x",
        b"USER-AGENT:*\nDISALLOW:/x",
        b"  User-agent : *  \n\tDisallow :\t/x  ",
        b"User-agent *\nDisallow /x",
        b"useragent: *\nDissallow: /x",
        b"user agent: *\nDisalow: /x",
        b"User-agent: * # all\nDisallow: /x # secret",
        b"User-agent: *\n\n\n# nothing\nNoindex: /y\nDisallow: /x",
        b"User-agent: *\nHost: a.example\nUser-agent: b\nDisallow: /x",
        b"\x00\xff\xfe garbage\nUser-agent: *\nDisallow: /x",
        b"<html><body>\nUser-agent: *\nDisallow: /x\n</body>",
    ],
)
def test_the_usual_mistakes_are_forgiven(body: bytes) -> None:
    assert not allowed(body, "/x")
    assert allowed(body, "/z")


@pytest.mark.parametrize("line", ["Disallow /x y", "Disallowed: /x", "Disallow", ": /x", "#Disallow: /x", "/x"])
def test_what_is_no_rule_binds_nobody(line: str) -> None:
    assert allowed(everybody(line), "/x")


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        ("Foo", ("foo",)),
        ("foo/1.2", ("foo",)),
        ("Foo Bar", ("foo",)),
        ("foo<br>", ("foo",)),
        ("MJ12bot", ("mj12bot", "mj")),
        ("360Spider", ("360spider",)),
        ("*", ("*",)),
        ("* all", ("*",)),
        ("*foo", ()),
        ("", ()),
    ],
)
def test_a_user_agent_line_is_found_under_its_tokens(value: str, tokens: tuple[str, ...]) -> None:
    assert group_tokens(value) == tokens


@pytest.mark.parametrize(
    ("body", "agent", "delay"),
    [
        ("User-agent: *\nCrawl-delay: 3", "a", 3.0),
        ("User-agent: *\nCrawl-delay: 0.5", "a", 0.5),
        ("User-agent: *\nCrawl-delay: .5", "a", 0.5),
        ("User-agent: *\nCrawl-delay: 10s # slowly", "a", 10.0),
        ("User-agent: *\nCrawl-delay: 0", "a", 0.0),
        ("User-agent: *\nCrawl-delay: -1", "a", None),
        ("User-agent: *\nCrawl-delay: soon", "a", None),
        ("User-agent: *\nCrawl-delay: 999999999", "a", robots.CRAWL_DELAY_MAX_S),
        ("User-agent: *\nCrawl-delay: 2\nCrawl-delay: 7\nCrawl-delay: 4", "a", 7.0),
        ("User-agent: a\nDisallow: /x\nUser-agent: *\nCrawl-delay: 3", "a", None),
        ("User-agent: a\nCrawl-delay: 1\nUser-agent: b\nCrawl-delay: 2\nUser-agent: *\nDisallow: /x", "a", 1.0),
        ("User-agent: a\nCrawl-delay: 1\nUser-agent: b\nCrawl-delay: 2\nUser-agent: *\nDisallow: /x", "b", 2.0),
        ("User-agent: a\nCrawl-delay: 1\nUser-agent: b\nCrawl-delay: 2\nUser-agent: *\nDisallow: /x", "c", None),
        ("User-agent: a\nUser-agent: b\nDisallow: /x\nCrawl-delay: 5", "a", 5.0),
        ("Crawl-delay: 5\nUser-agent: *\nDisallow: /x", "a", None),
    ],
)
def test_a_crawl_delay_binds_the_agents_named_right_before_it(body: str, agent: str, delay: float | None) -> None:
    assert robots.parse(body.encode()).crawl_delay(agent) == delay


def test_a_crawl_delay_does_not_end_a_run_of_agents() -> None:
    body = "User-agent: a\nCrawl-delay: 1\nUser-agent: b\nDisallow: /x"
    assert not allowed(body, "/x", "a")
    assert not allowed(body, "/x", "b")


def test_sitemaps_are_listed_once_in_order_wherever_they_stand() -> None:
    body = (
        "Sitemap: https://a.example/1.xml\nUser-agent: *\nSite-map: /2.xml\nsitemap: https://a.example/1.xml\nSitemap:"
    )
    assert robots.parse(body.encode()).sitemaps == ["https://a.example/1.xml", "/2.xml"]


def test_robots_txt_itself_is_always_allowed() -> None:
    body = everybody("Disallow: /", "Disallow: /robots.txt$", "Disallow: *.txt")
    assert allowed(body, "/robots.txt")
    assert not allowed(body, "/other.txt")


@pytest.mark.parametrize("url", ["https://site.example", "https://site.example?q=/a", "http://h#/a", "/", "/?q=a"])
def test_a_url_without_a_path_means_the_root(url: str) -> None:
    assert not robots.parse(b"User-agent: *\nDisallow: /$\nDisallow: /?").allowed("a", url)


def test_a_fragment_is_no_part_of_what_is_matched() -> None:
    assert allowed(everybody("Disallow: /*secret"), "/page#secret")
    assert not allowed(everybody("Disallow: /page$"), "/page#secret")


def padded(size: int, tail: bytes) -> bytes:
    """A robots.txt of so many bytes that ends in `tail`, after comments."""
    head = b"User-agent: *\nDisallow: /early\n"
    filler = b"# nothing to see in this line\n"
    return head + (filler * (size // len(filler)))[: size - len(head) - len(tail) - 1] + b"\n" + tail


def test_rules_far_into_a_long_file_bind() -> None:
    for size in (600 * 1024, robots.BODY_BYTES_MAX):
        body = padded(size, b"Disallow: /late")
        assert len(body) == size
        assert not allowed(body, "/late")
        assert allowed(body, "/other")


def test_a_file_too_long_to_be_read_to_its_end_denies_everything() -> None:
    body = padded(robots.BODY_BYTES_MAX + 1, b"Allow: /late")
    assert not allowed(body, "/late")
    assert not allowed(body, "/other")
    assert not robots.parse(body).allowed("googlebot", "http://h/")


def remembered(body: bytes, agent: str) -> bytes | None:
    decision = robots.decide(200, body, 0, "", 0.0, agent=agent)
    return None if decision.deny_all else decision.rules


def test_of_a_long_file_only_the_rules_for_one_crawler_are_remembered() -> None:
    others = b"".join(b"User-agent: bot%d\nDisallow: /private/%d\n" % (one, one) for one in range(50_000))
    ours = b"User-agent: drumlin\nDisallow: /ours\nAllow: /ours/open\nCrawl-delay: 2.5\nSitemap: http://h/s.xml\n"
    kept = remembered(others + ours, "drumlin/1.0")
    assert kept is not None
    assert len(kept) < 200
    rules = robots.parse(kept)
    assert not rules.allowed("drumlin", "/ours")
    assert rules.allowed("drumlin", "/ours/open")
    assert rules.allowed("drumlin", "/private/7")
    assert rules.crawl_delay("drumlin") == 2.5
    assert rules.sitemaps == ["http://h/s.xml"]
    assert not robots.parse(remembered(others + ours, "bot7") or b"").allowed("bot7", "/private/7")


def test_a_short_file_is_remembered_as_it_is() -> None:
    body = b"User-agent: *\nDisallow: /x # because\n"
    assert remembered(body, "drumlin") is body


def test_rules_for_us_that_are_too_many_to_be_kept_are_not_kept_in_part() -> None:
    body = b"User-agent: *\n" + b"".join(b"Disallow: /path/number/%08d\n" % one for one in range(50_000))
    assert robots.KEPT_BYTES_MAX < len(body) < robots.BODY_BYTES_MAX
    assert remembered(body, "drumlin") is None


def test_more_rules_for_us_than_can_be_tried_on_every_url_are_not_kept_in_part() -> None:
    body = b"User-agent: *\n" + b"".join(b"Disallow: /%d*x\n" % one for one in range(rules.RULES_MAX + 1))
    assert len(body) < robots.KEPT_BYTES_MAX
    assert remembered(body, "drumlin") is None


def test_a_file_of_more_lines_than_are_read_denies_everything() -> None:
    body = b"User-agent: *\n" + b"\n" * rules.LINES_MAX
    assert len(body) < robots.BODY_BYTES_MAX
    assert not allowed(body, "/")


def test_parsed_files_are_kept_within_bounds_those_used_last() -> None:
    files = robots.PreparedFiles(bytes_max=100, files_max=3)
    small, large = [b"Sitemap: http://h/%d" % number for number in range(5)], b"#" * 200
    first = files.of(small[0])
    for body in (small[1], small[2], small[0], small[3]):
        files.of(body)
    assert len(files) == 3
    assert files.of(small[0]) is first, "used lately"
    files.of(large)
    assert len(files) == 1, "a file that is too large is kept alone"


def test_an_empty_file_allows_everything_and_asks_for_nothing() -> None:
    rules = robots.parse(b"")
    assert rules.allowed("a", SITE + "/x")
    assert rules.crawl_delay("a") is None
    assert rules.sitemaps == []


def test_a_matcher_is_prepared_once_per_agent_and_their_number_is_bounded() -> None:
    rules = robots.parse(b"User-agent: *\nDisallow: /x")
    assert rules.for_agent("a") is rules.for_agent("a")
    for number in range(100):
        assert not rules.allowed(f"agent{number}", SITE + "/x")
    assert len(rules._matchers) <= 16


def test_hostile_patterns_do_not_backtrack() -> None:
    # With a backtracking matcher the first of these alone would outlast the universe.
    hostile = [f"Disallow: /{'*a' * 400}*b$", f"Disallow: /{'*' * 5000}b$", "Disallow: /" + "*a*aa" * 300 + "c"]
    path = "/" + "a" * 8000
    assert allowed(everybody(*hostile), path)
    assert not allowed(everybody(*hostile), path + "b")


# An independent, obviously right and slow matcher: the set of places a pattern may have reached, octet by octet.
def slow_match(pattern: str, path: str) -> bool:
    anchored = pattern.endswith("$")
    reached = {0}
    for symbol in pattern[:-1] if anchored else pattern:
        if symbol == "*":
            reached = set(range(min(reached), len(path) + 1))
        else:
            reached = {place + 1 for place in reached if path[place : place + 1] == symbol}
        if not reached:
            return False
    return not anchored or len(path) in reached


def slow_allowed(rules: list[tuple[bool, str]], path: str) -> bool:
    matching = [(len(pattern), allow) for allow, pattern in rules if slow_match(pattern, path)]
    return max(matching, default=(0, True))[1]


# An escape that stands for a raw character of the URL, as one symbol, which is what the definition asks for.
def with_symbols(text: str) -> str:
    return text.replace("%7C", "|")


raw_patterns = st.lists(st.sampled_from(["7", "C", "%", "%7C", "%7", "a", "*"]), max_size=6).map(
    lambda parts: "/" + "".join(parts)
)


@settings(max_examples=500)
@given(raw_patterns, st.sampled_from(["", "$"]), st.text("7Ca|", max_size=8))
def test_raw_characters_are_matched_by_the_definition(pattern: str, end: str, path: str) -> None:
    expected = not slow_match(with_symbols(pattern + end), "/" + path)
    assert allowed(everybody("Disallow: " + pattern + end), "/" + path) is expected


patterns = st.builds(lambda body, end: "/" + body + end, st.text("ab/*", max_size=6), st.sampled_from(["", "$"]))


@settings(max_examples=300)
@given(st.lists(st.tuples(st.booleans(), patterns), max_size=6), st.text("ab/", max_size=8))
def test_the_prepared_matcher_agrees_with_the_definition(rules: list[tuple[bool, str]], path: str) -> None:
    body = everybody(*(f"{'Allow' if allow else 'Disallow'}: {pattern}" for allow, pattern in rules))
    assert allowed(body, "/" + path) is slow_allowed(rules, "/" + path)


@given(st.binary(max_size=300))
def test_any_bytes_can_be_parsed(body: bytes) -> None:
    rules = robots.parse(b"User-agent: *\nDisallow: " + body)
    assert isinstance(rules.allowed("a", SITE + "/x"), bool)


pieces = st.sampled_from(["/", "a", "~", "%41", "%7e", "%2f", "%2A", "%C3%A9", "é", " ", "|", "$", "*", "?", "="])


@given(st.lists(pieces, max_size=8).map("".join))
def test_normalising_twice_changes_nothing(path: str) -> None:
    once = normalise_path(path)
    assert normalise_path(once) == once
    pattern = normalise_pattern(path.encode())
    assert normalise_pattern(pattern.encode()) == pattern


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("/private/x", 3),
        ("/private/open", None),
        ("/a.cgi", 6),
        ("/b.cgi?x=1", 6),
        ("/only", 8),
        ("/only/more", None),
        ("/robots.txt", None),
        ("/free", None),
    ],
)
def test_a_denial_names_the_first_line_that_says_so(path: str, line: int | None) -> None:
    lines = ["# for all", "Disallow: /private/", "Allow: /private/open", "Disallow: /private/", "Disallow: /*.cgi"]
    body = "\r\n".join(["User-agent: *", *lines, "Disallow: /*?x=", "Disallow: /only$"])
    rule = robots.parse(body.encode()).denying_rule("drumlin", SITE + path)
    assert (rule.line if rule else None) == line
    assert allowed(body, path) is (line is None)


def test_a_file_that_is_too_long_denies_without_a_line() -> None:
    parsed = robots.parse(b"\n" * (rules.LINES_MAX + 1))
    assert not parsed.allowed("drumlin", SITE + "/x")
    assert parsed.denying_rule("drumlin", SITE + "/x") is None
