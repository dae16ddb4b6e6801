"""The main text: which elements count, where lines end, how white space collapses."""

from __future__ import annotations

from html import escape as html_escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.parse import TEXT_BYTES_MAX
from drumlin.parse.blocks import BLOCK_TAGS, mark_blocks
from drumlin.parse.text import tidy
from tests.harness.parsing import parse

INLINE_TAGS = (
    "a abbr acronym area audio b bdi bdo big button canvas cite code data del dfn em embed font i iframe img input ins "
    "kbd label map mark meter object output picture q ruby s samp small span strike strong sub sup svg time tt u var "
    "video wbr"
)
LONG = "word " * 60


def text_of(html: str) -> str:
    return parse(html.encode(), "text/html; charset=utf-8", "").text.decode()


def marked(html: bytes) -> bytes:
    [page] = mark_blocks([html])
    return page


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
            assert marked(f"x<{form}{rest}y".encode()) == f"x\x0c<{form}{rest}y".encode()
        assert marked(f"x</{form}>y".encode()) == f"x\x0c</{form}>y".encode()


@pytest.mark.parametrize("tag", INLINE_TAGS.split())
def test_no_inline_tag_is_marked(tag: str) -> None:
    for html in (f"x<{tag}>y", f"x<{tag} class=x>y", f"x</{tag}>y", f"x<{tag.upper()}>y"):
        assert marked(html.encode()) == html.encode()


def test_of_block_tags_that_touch_the_first_is_marked() -> None:
    assert marked(b"a<div><p>b</p></div>c<b><p>") == b"a\x0c<div><p>b\x0c</p></div>c<b>\x0c<p>"


def test_a_line_end_between_block_tags_needs_no_second_mark() -> None:
    assert marked(b"a<ul>\n<li>b</li>\n</ul>\nc<b>\n<p>") == b"a\x0c<ul>\n<li>b\x0c</li>\n</ul>\nc<b>\n\x0c<p>"


def test_an_href_that_swallows_a_block_is_as_a_browser_reads_it() -> None:
    page = parse(b"<a href='/x<p>y<p>'>z</a>", "text/html", "")
    assert page.hrefs == ["/x<p>y<p>"]


def test_what_attributes_and_titles_say_has_no_marks() -> None:
    page = parse(
        b"<title>Foo<br>Bar</title><meta name=description content='One<br>two'><base href='/x<p>y/'>"
        b"<link rel='canonical' href='/c<p>'><meta http-equiv=refresh content='0;url=/r<p>z'>"
        b"<meta name=robots content='no<p>index'>"
        b"<a rel='q<p>r' href=u>t</a><img src=i alt='a<br>b'><area href=v alt='c<hr>d'>",
        "text/html",
        "",
    )
    assert (page.title, page.description, page.robots) == ("Foo<br>Bar", "One<br>two", ["no<p>index"])
    assert (page.base_href, page.canonical_href, page.refresh_href) == ("/x<p>y/", "/c<p>", "/r<p>z")
    assert page.rels == ["canonical", "", "q<p>r", "", ""]
    assert page.texts == ["", "", "t", "a<br>b", "c<hr>d"]


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>a\x0cb</p>", "a b"),
        ("<p\x0cclass=x>a<a\x0chref=q>b</a>", "ab"),
        ("<table>\x0c<tr>\x0c<td>x</table>y", "x\ny"),
        ("<pre>one\x0ctwo</pre>", "one\x0ctwo"),
        ("<pre><span>1</span>\n<a href=x>y</a>\x0cz</pre>", "1\ny\x0cz"),
        ("<pre\x0cclass=y>a<b\x0cclass=x>b</b>\x0c<br>c</pre>d\x0ce", "ab\x0c\nc\nd e"),
        ("<TEXTAREA>a\x0cb<br>c</TEXTAREA>d\x0c\x0ce", "a\x0cb<br>c\nd e"),
        ("</pre>a\x0cb<pre>c\x0cd", "a b\nc\x0cd"),
        ("<prefix>a\x0cb</prefix>", "a b"),
    ],
)
def test_a_form_feed_of_the_page_is_white_space_and_kept_where_that_matters(html: str, text: str) -> None:
    assert text_of(html) == text


def test_tags_that_a_parser_drops_leave_no_trace_in_preformatted_text() -> None:
    assert text_of("<pre>a</li>b\n c</td>d</pre>") == "ab\n cd"


@given(st.binary(max_size=200))
def test_marks_only_add_form_feeds(html: bytes) -> None:
    # The one control character that the marking uses itself becomes a space, as do form feeds of the page.
    without = marked(html).replace(b"\x0c", b"").replace(b"\x1a", b" ")
    assert without == html.replace(b"\x0c", b" ").replace(b"\x01", b" ").replace(b"\x1a", b" ")


PIECES_OF_PAGES = (
    b"<p>",
    b"</p>",
    b"<",
    b">",
    b"\n",
    b"<div",
    b"</di",
    b"<li>x",
    b"a",
    b" ",
    b"\x0c",
    b"\x01",
    b"<br/>",
    b"<t",
)


@given(st.lists(st.lists(st.sampled_from(PIECES_OF_PAGES), max_size=12).map(b"".join), max_size=8))
def test_a_page_is_marked_alike_alone_and_among_others(pages: list[bytes]) -> None:
    assert mark_blocks(pages) == list(map(marked, pages))


def test_white_space_collapses_and_source_lines_do_not_show() -> None:
    assert text_of("<p>  one\n   two\tthree  \n</p>\n\n\n<p>\n four </p>") == "one two three\nfour"


def test_invisible_elements_have_no_text() -> None:
    html = (
        "<head><title>t</title><style>s{}</style></head><p>seen<script>var x</script><noscript>n</noscript>"
        "<template>t</template><svg><text>v</text></svg><iframe>i</iframe><!-- c -->"
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


CODE = "def f(x):\n    if x:\n\treturn 1  # two  spaces\n\n    return 0\n"


@pytest.mark.parametrize("tag", ["pre", "textarea", "listing"])
def test_preformatted_text_survives_byte_for_byte(tag: str) -> None:
    assert text_of(f"<p>before</p><{tag}>\n{CODE}</{tag}>  <p>after") == f"before\n{CODE}\nafter"


def test_code_survives_whatever_marks_it_up() -> None:
    html = "<pre><code><i>def</i> <b>f</b>(x):\n    <a href=/x>return</a>  {&quot;a&quot;:\t1}\n</code></pre>"
    assert text_of(html) == 'def f(x):\n    return  {"a":\t1}\n'


def test_a_raw_listing_keeps_its_tags() -> None:
    assert text_of("<p>a<xmp><p>\n  <b>x</b></xmp>b") == "a\n<p>\n  <b>x</b>\nb"
    assert text_of("<p>a<textarea><p>\n  <b>x</b></textarea><p>b") == "a\n<p>\n  <b>x</b>\nb"


def test_line_breaks_and_blocks_within_preformatted_text_end_its_lines() -> None:
    assert text_of("<pre>a<br>  b<br><br>c<div>  d</div>e\n<div>f</div></pre>") == "a\n  b\n\nc\n  d\ne\nf"


def test_what_is_not_shown_elsewhere_is_not_shown_in_preformatted_text() -> None:
    html = (
        "<pre>a<select><option>o</select>b<svg><g><text>s</text></g></svg>c<math><mi>m</mi></math>d"
        "<video><b>v</b></video>e<noembed>n</noembed>f<object><p>o</p></object>g</pre>"
    )
    assert text_of(html) == "abcdefg"


@pytest.mark.parametrize("tag", ["search", "dir", "option", "optgroup", "menu"])
def test_words_in_blocks_that_are_rare_are_not_glued(tag: str) -> None:
    assert marked(f"a<{tag}>b</{tag}>c".encode()) == f"a\x0c<{tag}>b\x0c</{tag}>c".encode()


def test_a_marquee_begins_a_line() -> None:
    assert text_of("a<marquee>b</marquee><p>c") == "a\nb\nc"


def test_preformatted_text_has_no_scripts_and_may_be_nested() -> None:
    assert text_of("<pre>a\n  b<script>no</script> c</pre>") == "a\n  b c"
    assert text_of("<pre>a<pre>  b\n c</pre>  d</pre>e") == "a\n  b\n c\n  d\ne"


def test_a_control_character_in_preformatted_text_is_kept_where_it_is_white_space() -> None:
    assert text_of("<pre>a&#9;b</pre>") == "a\tb"
    assert text_of("<pre>a&#13;b</pre>") == "a\rb"
    assert text_of("<pre>\x0ca\n\x0cb</pre>") == "\x0ca\n\x0cb"


def test_line_numbers_in_one_cell_do_not_disturb_the_code_in_the_next() -> None:
    html = f"<table><tr><td><pre>1\n2\n</pre></td><td><pre>\n{CODE}</pre></td></tr></table>"
    assert text_of(html) == f"1\n2\n\n{CODE}"


def test_code_in_the_main_part_survives_and_code_outside_is_left_out() -> None:
    html = f"<pre>x\n y</pre><noscript><pre>n</pre></noscript><main><p>{LONG}</p><pre>{CODE}</pre></main>"
    assert text_of(html) == f"{LONG.strip()}\n{CODE}"
    assert text_of(f"<nav><pre>x\n y</pre></nav><p>{LONG}<pre>{CODE}</pre>") == f"{LONG.strip()}\n{CODE}"


def test_plain_text_is_as_it_came() -> None:
    assert parse(CODE.encode(), "text/plain", "").text.decode() == CODE
    assert (
        parse("a  é\r\n\n\tb ".encode("latin-1"), "text/plain; charset=latin-1", "").text.decode() == "a  é\r\n\n\tb "
    )


@given(st.text(alphabet="ab<>& \n\t", max_size=100))
def test_any_escaped_text_survives_in_a_preformatted_element(code: str) -> None:
    # The line end before it is the one that HTML drops after the start tag.
    assert text_of(f"<p>x<pre>\n{html_escape(code)}</pre>y") == ("x\n" + (code + "\n" if code else "") + "y")


@given(st.text(alphabet=" \n\t\x0cab", max_size=100))
def test_tidy_text_has_no_empty_lines_and_no_double_spaces(text: str) -> None:
    lines = tidy(text).decode().split("\n")
    assert lines == [""] or all(line and line == " ".join(line.split()) for line in lines)
    assert "".join(lines).replace(" ", "") == "".join(text.split())
