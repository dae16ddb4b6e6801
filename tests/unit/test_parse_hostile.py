"""Pages made to be slow, and a short run of the fuzzer of tests/slow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from drumlin.parse import PARSE_BYTES_MAX
from drumlin.parse.hostile import ATTRIBUTES_MAX, UNCHECKED_BYTES_MAX, tame
from tests.harness.parsing import parse

ROOT = Path(__file__).parents[2]
FUZZER = ROOT / "tests" / "slow" / "test_parse_fuzz.py"
HTML = "text/html; charset=utf-8"
MANY = 100_000

BOMBS = {
    "nested blocks": b"<div>" * MANY,
    "nested inline": b"<b>" * MANY,
    "nested anchors": b"<a href=x><object>" * MANY,
    "nested fonts": b"".join(b"<font x%d>" % number for number in range(MANY)),
    "nested tables": b"<table><tr><td>" * MANY,
    "nested lists": b"<ul><li>" * MANY,
    "nested foreign": b"<math><mi>" * MANY,
    "nested templates": b"<template>" * MANY,
    "misnested formatting": b"<p><b><i>" * MANY,
    "adopted formatting": b"<b>" * 50 + b"<div>" * MANY + b"</b>" * MANY,
    "adopted in turn": b"<b><div></b>" * MANY,
    "stray end tags": b"<div>" * MANY + b"</p>" * MANY,
    "fostered": b"<table>" + b"<div>" * MANY,
    "many attributes": b"<a " + b"".join(b"a%d=1 " % number for number in range(MANY)) + b">",
    "attributes with quoted ends": b"<a " + b"".join(b'a%d="><b c=" ' % number for number in range(MANY)) + b">",
    "attributes behind a script": b'<script><a x="</script><a '
    + b"".join(b"a%d " % number for number in range(MANY))
    + b">",
    "attributes of the body": b"".join(b"<body a%d>" % number for number in range(MANY)),
    "one huge attribute": b"<a href='" + b"x" * 10 * MANY + b"'>",
    "open tags without end": b"<a" * 10 * MANY,
    "open comments": b"<!--" * MANY,
    "comments": b"<!---->" * MANY,
    "character references": b"&notit;" * MANY,
    "nothing but NUL": b"\x00" * MANY,
    "descriptors without end": b"<img srcset='" + b"a( " * MANY + b"'>",
    "a refresh of spaces": b"<meta http-equiv=refresh content='" + b" " * 10 * MANY + b"'>",
    "navigation": b"<nav>" * MANY,
}


@pytest.mark.timeout(30)  # Unguarded, most of these take minutes; how long exactly is for the fuzzer to say.
@pytest.mark.parametrize("name", BOMBS)
@pytest.mark.parametrize("content_type", [HTML, "application/xhtml+xml"])
def test_a_page_made_to_be_slow_is_parsed_all_the_same(name: str, content_type: str) -> None:
    page = parse(b"<title>t</title><p><a href=first>x</a>" + BOMBS[name], content_type, "")
    assert page.title == "t"
    assert page.hrefs[0] == "first"


def test_an_honest_large_page_is_left_whole() -> None:
    rows = b"".join(
        b'<tr class="row"><td>%d</td><td><a href="/%d" title="a > b">x</a></td></tr>' % (n, n) for n in range(20_000)
    )
    page = b"<html><body><div><table>" + rows + b"</table></div>" + b"<p>word word " * 20_000 + b"</body></html>"
    assert tame(page) is page or tame(page) == page
    assert len(parse(page, HTML, "").hrefs) == 20_000


def test_a_manual_with_many_diagrams_is_left_whole() -> None:
    shapes = b"<g class='g'>" + b"<path d='M0 0' stroke=\"#000\"/><text x='1'>a</text>" * 20 + b"</g>"
    page = (b"<div><svg viewBox='0 0 9 9'>" + shapes + b"</svg></div><pre>code</pre>") * 1_000
    assert tame(page) == page
    assert parse(page, HTML, "").text.count(b"code") == 1_000


LEFT_DRAWINGS = {
    "no drawing": b"",
    "ended": b"<svg></svg>",
    "closed itself": b"<svg/>",
    "left by a paragraph": b"<svg><p>",
    "left by an end tag of its parent": b"<div><svg></div>",
    "left by an end tag of a shape around it": b"<g><svg></g>",
    "left by a shape that another end tag closed": b"<text><svg><g><text></g></text>",
    "html within": b"<svg><foreignObject>",
    "a slash in an attribute": b"<svg><path d='/>'>",
    "a value that ends in a slash": b"<svg a=b/>",
}


@pytest.mark.parametrize("way", LEFT_DRAWINGS)
def test_a_drawing_that_was_left_hides_no_nested_elements(way: str) -> None:
    page = b"<p>start" + LEFT_DRAWINGS[way] + b"<path/>" * MANY
    if way != "a value that ends in a slash":
        assert len(tame(page)) < len(page)
    assert parse(page, HTML, "").text == b"start"


def test_a_page_is_cut_before_a_flood_of_attributes() -> None:
    start = b"<p>start " * 10_000
    flood = b"<a " + b"".join(b"a%d " % number for number in range(50_000)) + b">end"
    assert tame(start + flood) == start


def test_a_page_of_nuls_costs_the_parser_no_more_than_a_few() -> None:
    page = tame(b"<p>a<a href='x" + b"\x00" * PARSE_BYTES_MAX + b"'>b" + b"\x00" * PARSE_BYTES_MAX + b"c</a>")
    assert len(page) < 100
    assert parse(page, HTML, "").text == b"abc"


def test_text_with_a_nul_after_each_letter_is_left_whole() -> None:
    page = b"<p>" + b"t\x00e\x00x\x00t\x00" * 10_000
    assert tame(page) == page


def test_a_tag_of_many_attributes_in_a_small_page_is_left_whole() -> None:
    page = b"<a " + b"b " * (2 * ATTRIBUTES_MAX) + b"href=x>"
    assert len(page) < UNCHECKED_BYTES_MAX
    assert parse(page, HTML, "").hrefs == ["x"]


def test_only_the_beginning_of_a_huge_page_is_read() -> None:
    page = parse(b"<a href=first></a>" + b"x" * PARSE_BYTES_MAX + b"<a href=last></a>", HTML, "")
    assert page.hrefs == ["first"]


@pytest.mark.timeout(120)
def test_two_thousand_mutated_pages_neither_crash_nor_hang_nor_leak() -> None:
    command = [sys.executable, str(FUZZER), "2000", "7"]
    child = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=110, check=False)
    assert child.returncode == 0, f"exit {child.returncode}: {child.stderr[-3000:]}"
    report = json.loads(child.stdout)
    assert report["pages"] == 2000
    assert report["slowest_s"] < 1.0
    assert report["grown_bytes"] < 16 * 1024 * 1024
