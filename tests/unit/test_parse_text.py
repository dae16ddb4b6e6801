"""The main text: which elements count, where lines end, how white space collapses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.parse import TEXT_BYTES_MAX, parse
from drumlin.parse.blocks import BLOCK_TAGS, mark_blocks
from drumlin.parse.text import tidy

INLINE_TAGS = (
    "a abbr acronym area audio b bdi bdo big button canvas cite code data del dfn em embed font i iframe img input ins "
    "kbd label map mark meter object output picture q ruby s samp small span strike strong sub sup svg time tt u var "
    "video wbr"
)
LONG = "word " * 60


def text_of(html: str) -> str:
    return parse(html.encode(), "text/html; charset=utf-8", "").text.decode()


def test_blocks_end_lines_and_inline_elements_do_not() -> None:
    assert text_of("<h1>Title</h1>Some <b>bold</b>, <i>i</i>talic<p>two<br>three<ul><li>a</li><li>b</ul>end") == (
        "Title\nSome bold, italic\ntwo\nthree\na\nb\nend"
    )


def test_table_cells_are_lines_of_their_own() -> None:
    assert text_of("<table><tr><td>a</td><td>b</td></tr><TR><TD>c<TH>d</table>") == "a\nb\nc\nd"


@pytest.mark.parametrize("tag", BLOCK_TAGS)
def test_each_block_tag_is_marked_in_either_case_and_form(tag: str) -> None:
    for form in (tag, tag.upper()):
        for rest in (">", " class=x>", "\n>", "/>"):
            assert mark_blocks(f"x<{form}{rest}y".encode()) == f"x\x0c<{form}{rest}y".encode()
        assert mark_blocks(f"x</{form}>y".encode()) == f"x\x0c</{form}>y".encode()


@pytest.mark.parametrize("tag", INLINE_TAGS.split())
def test_no_inline_tag_is_marked(tag: str) -> None:
    for html in (f"x<{tag}>y", f"x<{tag} class=x>y", f"x</{tag}>y", f"x<{tag.upper()}>y"):
        assert mark_blocks(html.encode()) == html.encode()


def test_of_block_tags_that_touch_the_first_is_marked() -> None:
    assert mark_blocks(b"a<div><p>b</p></div>c<b><p>") == b"a\x0c<div><p>b\x0c</p></div>c<b>\x0c<p>"


def test_a_line_end_between_block_tags_needs_no_second_mark() -> None:
    assert mark_blocks(b"a<ul>\n<li>b</li>\n</ul>\nc<b>\n<p>") == b"a\x0c<ul>\n<li>b\x0c</li>\n</ul>\nc<b>\n\x0c<p>"


def test_an_href_that_swallows_a_block_is_as_a_browser_reads_it() -> None:
    page = parse(b"<a href='/x<p>y<p>'>z</a>", "text/html", "")
    assert page.hrefs == ["/x<p>y<p>"]


@given(st.binary(max_size=200))
def test_marks_only_add_form_feeds(html: bytes) -> None:
    # The one control character that the marking uses itself becomes a space.
    assert mark_blocks(html).replace(b"\x0c", b"") == html.replace(b"\x0c", b"").replace(b"\x01", b" ")


def test_white_space_collapses_and_source_lines_do_not_show() -> None:
    assert text_of("<p>  one\n   two\tthree  \n</p>\n\n\n<p>\n four </p>") == "one two three\nfour"


def test_invisible_elements_have_no_text() -> None:
    html = (
        "<head><title>t</title><style>s{}</style></head><p>seen<script>var x</script><noscript>n</noscript>"
        "<template>t</template><svg><text>v</text></svg><iframe>i</iframe><textarea>a</textarea><!-- c -->"
    )
    assert text_of(html) == "seen"


def test_main_is_preferred_when_it_has_substance() -> None:
    assert text_of(f"<p>before<main><p>{LONG}<nav>menu</nav></main><p>after") == LONG.strip()
    assert text_of("<p>before<main>short</main><p>after") == "before\nshort\nafter"


def test_a_single_article_is_preferred_and_one_of_several_is_not() -> None:
    assert text_of(f"<p>before<article>{LONG}</article>") == LONG.strip()
    assert text_of(f"<p>before<article>{LONG}</article><article>two</article>") == f"before\n{LONG.strip()}\ntwo"
    assert text_of(f"<article>one</article><main>{LONG}</main><article>two</article>") == LONG.strip()


def test_the_header_of_an_article_is_part_of_it() -> None:
    assert text_of(f"<article><header>Title</header>{LONG}</article>") == f"Title\n{LONG.strip()}"


def test_boilerplate_is_left_out_of_a_body() -> None:
    html = "<header>h<nav>n</nav></header><p>text<aside>a</aside><form>f</form><footer>f</footer>"
    assert text_of(html) == "text"


def test_a_page_that_is_all_boilerplate_keeps_its_text() -> None:
    assert text_of(f"<form><p>{LONG}</form>x") == f"{LONG.strip()}\nx"


def test_text_is_capped_at_a_whole_character() -> None:
    text = tidy("é" * TEXT_BYTES_MAX)
    assert len(text) == TEXT_BYTES_MAX
    text.decode()


@given(st.text(alphabet=" \n\t\x0cab", max_size=100))
def test_tidy_text_has_no_empty_lines_and_no_double_spaces(text: str) -> None:
    lines = tidy(text).decode().split("\n")
    assert lines == [""] or all(line and line == " ".join(line.split()) for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(text.split())
