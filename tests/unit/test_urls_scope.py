"""Which URLs a scope lets through, and why it keeps others out."""

from __future__ import annotations

from dataclasses import FrozenInstanceError

import pytest

from drumlin.errors import ConfigError
from drumlin.urls import Scope

SEEDS = ["http://www.example.com/docs/start.html", "https://127.0.0.1:8080/"]


@pytest.mark.parametrize(
    ("mode", "inside", "outside"),
    [
        (
            "page",
            ["http://www.example.com/docs/start.html", "https://www.example.com/docs/start.html"],
            ["http://www.example.com/docs/", "http://www.example.com/docs/start.html?x", "https://127.0.0.1:8080/x"],
        ),
        (
            "prefix",
            ["http://www.example.com/docs/", "https://www.example.com/docs/a/b?c=/../", "https://127.0.0.1:8080/a/b"],
            ["http://www.example.com/", "http://www.example.com/docs", "http://www.example.com/?a=/docs/b"],
        ),
        (
            "host",
            ["http://www.example.com/", "https://www.example.com/x", "http://127.0.0.1:8080/"],
            [
                "http://example.com/",
                "http://127.0.0.1/",
                "http://www.example.com:81/",
                "http://other.org/www.example.com/",
            ],
        ),
        (
            "domain",
            ["http://example.com/", "http://a.b.example.com:81/", "http://127.0.0.1/"],
            ["http://example.org/", "http://notexample.com/", "http://127.0.0.2/"],
        ),
        ("any", ["http://anything.org/", "https://[::1]/x"], []),
    ],
)
def test_each_mode_widens_the_seeds_as_its_name_says(mode: str, inside: list[str], outside: list[str]) -> None:
    scope = Scope(mode, SEEDS)  # type: ignore[arg-type]
    assert [scope.why_not(url) for url in inside] == [""] * len(inside)
    assert [scope.why_not(url) for url in outside] == ["scope"] * len(outside)
    assert [scope.allows(url) for url in inside + outside] == [True] * len(inside) + [False] * len(outside)


def test_an_exclude_wins_over_everything() -> None:
    scope = Scope("host", ["http://h/a"], include=["a", "b"], exclude=[r"\.pdf$", "a"])
    assert scope.why_not("http://h/b") == ""
    assert scope.why_not("http://h/a") == "exclude"
    assert scope.why_not("http://h/b.pdf") == "exclude"
    assert scope.why_not("http://other/b.pdf") == "scope"


def test_where_there_are_includes_one_must_match_except_for_a_seed() -> None:
    scope = Scope("host", ["http://h/start"], include=["/news/", "/docs/"])
    assert scope.why_not("http://h/news/1") == ""
    assert scope.why_not("http://h/docs/1") == ""
    assert scope.why_not("http://h/start") == ""
    assert scope.why_not("http://h/other") == "include"


def test_patterns_are_independent_of_each_other() -> None:
    scope = Scope("any", [], include=["(?i)NEWS", r"/(\d)\1/"])
    assert scope.allows("http://h/news")
    assert scope.allows("http://h/44/")
    assert not scope.allows("http://h/45/")


@pytest.mark.parametrize("option", ["include", "exclude"])
def test_a_bad_pattern_is_reported_with_its_text_and_its_option(option: str) -> None:
    with pytest.raises(ConfigError, match=rf"The {option} pattern '\(' is not a regular expression: missing \)"):
        Scope("host", ["http://h/"], **{option: ["("]})


def test_a_bad_mode_is_reported_with_the_modes_there_are() -> None:
    with pytest.raises(ConfigError, match=r"no scope 'site'.*page, prefix, host, domain, any"):
        Scope("site", [])  # type: ignore[arg-type]


def test_a_seed_that_is_no_web_address_is_reported() -> None:
    with pytest.raises(ConfigError, match="'mailto:x' is not a web address"):
        Scope("host", ["http://h/", "mailto:x"])


def test_seeds_need_not_be_canonical() -> None:
    assert Scope("page", ["HTTP://H:80/?b&a#c"]).allows("http://h/?a&b")


@pytest.mark.parametrize("mode", ["page", "prefix", "host", "domain"])
def test_without_seeds_nothing_is_in_scope(mode: str) -> None:
    assert not Scope(mode, []).allows("http://h/")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["page", "prefix", "host", "domain"])
def test_many_seeds_from_a_generator_are_told_apart(mode: str) -> None:
    scope = Scope(mode, (f"http://site{number}.com/d{number}/" for number in range(0, 20_000, 2)))  # type: ignore[arg-type]
    answers = [scope.allows(f"http://site{number}.com/d{number}/") for number in range(20_000)]
    assert answers == [True, False] * 10_000


def test_a_prefix_is_found_at_every_depth_of_the_seeds() -> None:
    scope = Scope("prefix", ["http://h/a/b/c/d", "http://h/x/", "http://k/"])
    inside = ["http://h/a/b/c/", "http://h/a/b/c/e/f", "http://h/x/y/z", "http://k/a/b/c/d/e"]
    outside = ["http://h/", "http://h/a/", "http://h/a/b/", "http://h/a/b/c", "http://h/a/x/", "http://h/y/a/b/c/"]
    assert [url for url in outside + inside if scope.allows(url)] == inside


def test_a_scope_cannot_be_changed() -> None:
    scope = Scope("host", ["http://h/"])
    with pytest.raises(FrozenInstanceError):
        scope.mode = "any"  # type: ignore[misc]
