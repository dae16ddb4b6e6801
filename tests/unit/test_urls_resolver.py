"""What the link resolver remembers, and how much."""

from __future__ import annotations

import pytest

from drumlin.urls import LinkResolver, canonical
from drumlin.urls import resolver as resolver_module
from drumlin.urls.resolver import HREF_CACHED_MAX, PAGE_CHARS_MAX


class Joins:
    """Counts the hrefs for which nothing was remembered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.hrefs: list[str] = []
        join = resolver_module._Directory._join

        def counted(directory: resolver_module._Directory, href: str) -> str | None:
            self.hrefs.append(href)
            return join(directory, href)

        monkeypatch.setattr(resolver_module._Directory, "_join", counted)


def test_hrefs_are_resolved_in_order_and_none_marks_what_is_no_web_address() -> None:
    hrefs = ["b.html", "/c", "mailto:x", "//d.org", "../e", "#f", "b.html"]
    assert LinkResolver().resolve("http://h/a/index.html?q", hrefs) == [
        *("http://h/a/b.html", "http://h/c", None, "http://d.org/", "http://h/e", "http://h/a/index.html?q"),
        "http://h/a/b.html",
    ]


def test_a_relative_href_is_joined_once_for_all_pages_of_a_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    joins = Joins(monkeypatch)
    resolver = LinkResolver()
    for page in ("http://h/a/1", "http://h/a/2?x=/b/", "http://h/a/"):
        assert resolver.resolve(page, ["b,c", "mailto:x"]) == ["http://h/a/b,c", None]
    assert joins.hrefs == ["b,c", "mailto:x"]
    assert resolver.resolve("http://h/z/1", ["b,c"]) == ["http://h/z/b,c"]


def test_a_rooted_href_is_joined_once_for_all_directories_of_an_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    joins = Joins(monkeypatch)
    resolver = LinkResolver()
    for page in ("http://h/a/1", "http://h/b/c/2", "http://h/"):
        assert resolver.resolve(page, ["/x,z", "//y", "/x,z"]) == ["http://h/x,z", "http://y/", "http://h/x,z"]
    assert joins.hrefs == ["/x,z", "//y"]
    assert resolver.resolve("https://h/a/1", ["/x,z", "//y"]) == ["https://h/x,z", "https://y/"]
    assert resolver.resolve("http://h:81/a/1", ["/x,z", "//y"]) == ["http://h:81/x,z", "http://y/"]


def test_a_simple_href_needs_no_join_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    joins = Joins(monkeypatch)
    hrefs = ["b/c.html", "../d/", "../../../e", "/f/g"]
    urls = LinkResolver().resolve("http://h/x/y/1", hrefs)
    assert urls == ["http://h/x/y/b/c.html", "http://h/x/d/", "http://h/e", "http://h/f/g"]
    assert joins.hrefs == []


@pytest.mark.parametrize("href", ["", "#f", "?q", " ", "\t?q", "\x00#f", "http:", "http:?q", "HTTP:#f", "h\nttp:\t?q"])
def test_an_href_that_keeps_the_path_of_its_page_is_never_answered_for_another(href: str) -> None:
    resolver = LinkResolver()
    for page in ("http://h/a/1?x", "http://h/a/2?y", "http://h/a/1?x"):
        assert resolver.resolve(page, [href]) == [canonical(href, page)]
        assert page.partition("?")[0] in str(canonical(href, page))


def test_the_resolver_forgets_everything_rather_than_remember_too_much() -> None:
    resolver = LinkResolver(entries_max=100)
    for number in range(1_000):
        page = f"http://h{number % 7}/d{number % 50}/"
        hrefs = [f"r{number}", f"/s{number}", f"http://t{number}.org/", "mailto:x"]
        assert resolver.resolve(page, hrefs) == [canonical(href, page) for href in hrefs]
        directories = resolver._directories
        held = sum(map(len, directories.values())) + sum(map(len, resolver._origins.values()))
        held += len(resolver._absolute)
        held += sum(directory.depth for directory in directories.values())
        assert held + len(resolver._origins) == resolver._entries
        assert resolver._entries <= 100 + 3


def test_a_page_with_more_links_than_fit_is_resolved_without_remembering() -> None:
    resolver = LinkResolver(entries_max=10)
    hrefs = [str(number) for number in range(50)]
    assert resolver.resolve("http://h/", hrefs) == [f"http://h/{number}" for number in range(50)]
    assert resolver._entries == 0


def test_long_hrefs_are_not_remembered() -> None:
    resolver = LinkResolver()
    hrefs = ["a" * (HREF_CACHED_MAX + 1), "/" + "b" * HREF_CACHED_MAX, "http://h/" + "c" * HREF_CACHED_MAX]
    assert resolver.resolve("http://h/d/", hrefs) == [canonical(href, "http://h/d/") for href in hrefs]
    assert resolver._entries == 3, "the origin, the directory and its parent"


def test_a_long_base_makes_no_more_characters_than_a_page_may_have() -> None:
    base, hrefs = f"http://h/{'x' * 7_900}/", [str(number) for number in range(50_000)]
    resolver = LinkResolver()
    urls = resolver.resolve(base, hrefs)
    assert urls == [base + href for href in hrefs[: len(urls)]]
    assert PAGE_CHARS_MAX - 8_000_000 < sum(len(url or "") for url in urls) <= PAGE_CHARS_MAX
    assert resolver._entries == 1, "only the origin is remembered"


def test_a_large_page_without_tricks_keeps_all_its_links() -> None:
    base, hrefs = f"http://h/{'x' * 60}/", [f"page-{number}.html" for number in range(50_000)]
    assert LinkResolver().resolve(base, hrefs) == [base + href for href in hrefs]


def test_deep_directories_fill_no_memory() -> None:
    resolver = LinkResolver(entries_max=1_000)
    for number in range(100):
        deep = f"http://h/{number}/{'a/' * 3_900}"
        assert resolver.resolve(deep, ["x", "../y"]) == [deep + "x", deep[:-2] + "y"]
        resolver.resolve(f"http://h/{number}/{'a/' * 140}", ["x"])
        assert sum(directory.depth for directory in resolver._directories.values()) <= 1_000 + 150
