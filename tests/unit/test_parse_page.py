"""What a page says: head, links, charset, language, limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.parse import (
    ASSET_KINDS,
    FOLLOWED_KINDS,
    LINK_TEXT_CHARS_MAX,
    LINKS_MAX,
    ParsedPage,
    Source,
    language_codes,
    parse_all,
    to_utf8,
)
from drumlin.parse.links import REL_CHARS_MAX, refresh_url, srcset_urls
from drumlin.parse.page import GROUP_BYTES_MAX
from tests.harness.parsing import parse

HTML = "text/html; charset=utf-8"


def page_of(html: str, content_type: str = HTML) -> ParsedPage:
    return parse(html.encode(), content_type, "http://site.example/")


def links_of(html: str) -> list[tuple[str, str, str, str]]:
    page = page_of(html)
    return list(zip(page.hrefs, page.kinds, page.rels, page.texts, strict=True))


def test_the_head_of_a_page_is_read() -> None:
    html = (
        '<html lang="de-AT"><head><title> A\n title </title><meta name="Description" content="What it is">'
        '<link rel="canonical" href="/c"><base href="/b/"><meta name="robots" content="noindex, nofollow">'
        '<meta name="drumlin" content="noarchive"><meta http-equiv="Refresh" content="3; URL=\'/next\'"></head>'
    )
    page = parse(html.encode(), HTML, "http://site.example/", agent="drumlin")
    assert page.mime == "text/html"
    assert page.charset == "UTF-8"
    assert page.title == "A title"
    assert page.description == "What it is"
    assert page.languages == "deu"
    assert page.canonical_href == "/c"
    assert page.base_href == "/b/"
    assert page.robots == ["noindex, nofollow", "noarchive"]
    assert page.refresh_href == "/next"


@pytest.mark.parametrize(
    ("html", "base"),
    [
        ("<base target=x><base href=/a/><base href=/b/>", "/a/"),
        ("<base href=''><base href=/b/>", ""),
        ("<base href><base href=/b/>", ""),
        ("<svg><base href=/a/></svg><base href=/b/>", "/b/"),
    ],
)
def test_the_first_base_with_an_href_counts(html: str, base: str) -> None:
    assert page_of(html).base_href == base


def test_the_first_title_base_canonical_and_refresh_count() -> None:
    page = page_of(
        "<title>one</title><title>two</title><base href=a><base href=b><link rel=canonical href=c>"
        "<link rel=canonical href=d><meta http-equiv=refresh content='0;e'><meta http-equiv=refresh content='0;f'>"
        "<svg><title>three</title></svg>"
    )
    assert (page.title, page.base_href, page.canonical_href, page.refresh_href) == ("one", "a", "c", "e")


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<title></title><a href=x><svg><title>Menu</title></svg></a>", ""),
        ("<svg><g><title>Icon</title></g></svg><title>Real</title>", "Real"),
        ("<math><title>Sum</title></math>", ""),
        ("<svg><foreignObject><title>HTML again</title></foreignObject></svg>", "HTML again"),
        ("<body><div><title>Late</title></div>", "Late"),
        ("<svg>" + "<g>" * 50 + "<title>x</title>" * 2000 + "</svg><title>Too late</title>", ""),
    ],
)
def test_the_title_of_an_icon_is_not_the_pages(html: str, title: str) -> None:
    assert parse(html.encode(), HTML, "").title == title


def test_anchors_come_with_relation_and_words_in_document_order() -> None:
    assert links_of('<a href="/a" rel="NoFollow">One <b>and\n  two</b></a><p><a href=b></a><a name=x>no link</a>') == [
        ("/a", "a", "nofollow", "One and two"),
        ("b", "a", "", ""),
    ]


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<map><area href=a alt='The north'></map>", ("a", "area", "", "The north")),
        ("<iframe src=a></iframe>", ("a", "iframe", "", "")),
        ("<frameset><frame src=a></frameset>", ("a", "frame", "", "")),
        ("<meta http-equiv=refresh content='0; url=a'>", ("a", "refresh", "", "")),
        ("<link rel=stylesheet href=a>", ("a", "style", "stylesheet", "")),
        ("<link rel='shortcut icon' href=a>", ("a", "icon", "shortcut icon", "")),
        ("<link rel=next href=a>", ("a", "link", "next", "")),
        ("<link rel=alternate hreflang=DE href=a>", ("a", "link", "alternate hreflang=de", "")),
        ("<img src=a alt='A cat'>", ("a", "img", "", "A cat")),
        ("<input type=image src=a>", ("a", "img", "", "")),
        ("<script src=a></script>", ("a", "script", "", "")),
        ("<video src=a></video>", ("a", "media", "", "")),
        ("<video poster=a></video>", ("a", "img", "", "")),
        ("<audio><source src=a></audio>", ("a", "media", "", "")),
        ("<embed src=a>", ("a", "embed", "", "")),
        ("<object data=a></object>", ("a", "embed", "", "")),
        ("<svg><a xlink:href=a>x</a></svg>", ("a", "a", "", "x")),
    ],
)
def test_every_linking_element_has_its_kind(html: str, expected: tuple[str, str, str, str]) -> None:
    assert links_of(html) == [expected]


def test_what_is_followed_is_never_an_asset() -> None:
    assert not FOLLOWED_KINDS & ASSET_KINDS
    assert "link" not in FOLLOWED_KINDS | ASSET_KINDS


def test_links_in_noscript_count_and_those_in_comments_scripts_and_templates_do_not() -> None:
    html = "<noscript><a href=a></a></noscript><!-- <a href=b> --><script>'<a href=c>'</script><template><a href=d>"
    assert page_of(html).hrefs == ["a"]


def test_srcset_is_split_into_its_urls() -> None:
    assert srcset_urls("a.png, b.png 2x,  c,d.png 100w , e.png") == ["a.png", "b.png", "c,d.png", "e.png"]
    assert page_of("<img src=a srcset='b 1x, c 2x'>").hrefs == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("content", "url"),
    [
        ("5", ""),
        ("0; url=/a", "/a"),
        ("0;URL='/a b'", "/a b"),
        ('0,"/a"', "/a"),
        ("0 /a", "/a"),
        ("0 , ;/a", ";/a"),
        ("\t1.5 ; url /a", "url /a"),
        ("0;url='/a", "/a"),
        ("; url=/a", ""),
        ("url=/a", ""),
        ("0x;url=/a", ""),
        (" 300", ""),
        ("\n5 ", ""),
        ("٣; url=/a", ""),
        ("", ""),
    ],
)
def test_a_refresh_is_read_as_browsers_read_it(content: str, url: str) -> None:
    assert refresh_url(content) == url


def test_inline_data_empty_sources_and_oversized_hrefs_are_no_links() -> None:
    empty = "<a></a><area><img src=''><script src></script><iframe src=''></iframe><link href=''><embed href>"
    assert links_of(f"<img src='data:image/png;base64,AAAA'><a href='{'x' * 20_000}'></a>{empty}") == []


def test_an_empty_href_is_a_link_to_the_page_itself() -> None:
    html = "<a href=''>top</a><a href>here</a><map><area href='' alt=all></map>"
    assert links_of(html) == [("", "a", "", "top"), ("", "a", "", "here"), ("", "area", "", "all")]


def test_link_texts_and_the_number_of_links_are_bounded() -> None:
    page = page_of(f"<a href=a>{'word ' * 1000}</a>" + "<a href=b></a>" * (LINKS_MAX + 5))
    assert len(page.texts[0]) == LINK_TEXT_CHARS_MAX
    assert len(page.hrefs) == LINKS_MAX


def test_relations_and_languages_are_bounded_and_what_they_mean_is_kept() -> None:
    long = "x " * 10_000
    html = (
        f'<link rel="{long} stylesheet" href=s><link rel="alternate" hreflang="{long}" href=l>'
        f'<a rel="{long} NOFOLLOW" href=a>a</a><a rel="nofollow {long}" href=b>b</a><a rel="{long}" href=c>c</a>'
        f'<map><area rel="{long} nofollow" href=d></map>'
    )
    found = links_of(html)
    assert [(href, kind) for href, kind, _, _ in found] == [
        *(("s", "style"), ("l", "link"), ("a", "a"), ("b", "a"), ("c", "a"), ("d", "area"))
    ]
    assert max(len(rel) for _, _, rel, _ in found) <= 2 * REL_CHARS_MAX + len("alternate hreflang=")
    assert ["nofollow" in rel for _, _, rel, _ in found] == [False, False, True, True, False, True]
    for place in range(REL_CHARS_MAX + 1):
        [(_, _, rel, _)] = links_of(f'<a rel="{"x" * place} nofollow {"y" * 300}" href=a>a</a>')
        assert "nofollow" in rel
        assert len(rel) <= REL_CHARS_MAX


def test_character_references_in_attributes_and_text_are_decoded() -> None:
    assert links_of("<a href='?a=1&amp;b=2'>&eacute;&#x41;</a>") == [("?a=1&b=2", "a", "", "éA")]


def test_self_closed_elements_of_xhtml_do_not_swallow_the_page() -> None:
    html = "<html xmlns='http://www.w3.org/1999/xhtml'><head><title/><script src='s'/></head><body><a href='a'>x</a>"
    assert page_of(html, "application/xhtml+xml").hrefs == ["s", "a"]


def test_plain_text_has_text_and_no_links() -> None:
    page = page_of("one  two\r\n\r\n<a href=x>three", "text/plain")
    assert page.text == b"one  two\r\n\r\n<a href=x>three"
    assert page.hrefs == []


@pytest.mark.parametrize(
    ("body", "content_type", "name", "text"),
    [
        (b"\xef\xbb\xbfgr\xc3\xbcn", "text/html; charset=latin1", "UTF-8", "grün"),
        ("grün".encode("utf-16"), "text/html", "UTF-16LE", "grün"),
        (b"\xfe\xff" + "grün".encode("utf-16-be"), "", "UTF-16BE", "grün"),
        (b"gr\xfcn \x80", "text/html; charset=ISO-8859-1", "windows-1252", "grün €"),
        (b"<meta charset=iso-8859-1>gr\xfcn", "text/html", "windows-1252", "<meta charset=iso-8859-1>grün"),
        (b"gr\xc3\xbcn", "", "UTF-8", "grün"),
        (b"gr\xc3\xbcn", "text/html; charset=no-such-thing", "UTF-8", "grün"),
        ("日本語".encode("shift_jis"), "text/html; charset=x-sjis", "Shift_JIS", "日本語"),
        ("Привет".encode("koi8-r"), "text/html;charset='koi8-r'", "KOI8-R", "Привет"),
        ("中文".encode("gbk"), "text/html; charset=gb2312", "GBK", "中文"),
    ],
)
def test_the_charset_is_the_marks_the_headers_the_pages_or_utf8(
    body: bytes, content_type: str, name: str, text: str
) -> None:
    charset, utf8 = to_utf8(body, content_type)
    assert (charset, utf8.decode()) == (name, text)


def test_a_meta_element_of_either_form_names_the_charset() -> None:
    body = "<meta http-equiv=Content-Type content='text/html; charset=windows-1251'>Привет".encode("cp1251")
    assert to_utf8(body, "text/html")[0] == "windows-1251"


def test_a_meta_element_that_claims_utf16_is_read_as_utf8() -> None:
    assert to_utf8(b"<meta charset=utf-16>x", "")[0] == "UTF-8"


def test_an_undeclared_charset_is_guessed() -> None:
    body = "<p>Съешь же ещё этих мягких французских булок, да выпей чаю".encode("cp1251")
    page = parse(body, "text/html", "")
    assert page.charset == "windows-1251"
    assert "булок" in page.text.decode()


def test_utf8_is_not_copied() -> None:
    body = "<p>grün".encode()
    assert to_utf8(body, HTML)[1] is body


def test_undecodable_bytes_are_replaced() -> None:
    assert parse(b"<title>a\xffb</title><p>c\xfed", HTML, "").title == "a\ufffdb"
    assert parse(b"<p>c\xfed", HTML, "").text.decode() == "c\ufffdd"


@pytest.mark.parametrize(
    ("tags", "codes"),
    [
        ("en-US", "eng"),
        ("de, fr", "deu,fra"),
        ("zh_Hant", "zho"),
        ("ger", "deu"),
        ("xx", ""),
        ("", ""),
        ("en,en-GB", "eng"),
    ],
)
def test_languages_are_written_as_common_crawl_does(tags: str, codes: str) -> None:
    assert language_codes(tags) == codes


def test_the_language_is_the_pages_the_headers_or_detected() -> None:
    german = (
        "<p>Der schnelle braune Fuchs springt über den faulen Hund, und die Katze sieht ihm dabei in aller Ruhe zu."
    )
    assert parse(f"<html lang=en>{german}".encode(), HTML, "", "fr").languages == "eng"
    assert parse(german.encode(), HTML, "", "fr").languages == "fra"
    assert parse(german.encode(), HTML, "").languages == "deu"
    assert parse(b"<p>short", HTML, "").languages == ""


@given(
    st.binary(max_size=300),
    st.sampled_from(["", HTML, "text/html", "text/plain", "application/xhtml+xml", "x;charset=\x00"]),
)
def test_no_bytes_raise_and_the_text_is_always_utf8(body: bytes, content_type: str) -> None:
    page = parse(body, content_type, "")
    page.text.decode()
    assert len(page.hrefs) == len(page.kinds) == len(page.rels) == len(page.texts)


TAGS = (
    "<a href=x>|</a>|<p>|</p>|<b>|</b>|<table>|<td>|<nav>|</nav>|<main>|</main>|<svg>|<script>|</script>|<!--|-->|"
    "<template>|<form>|</form>|<select>|<option>|text |\x00|<title>|<base href=x>|<frameset>|<body>|<html lang=en>|"
    "<iframe src=x>|<article>|&amp;|\ud800"
)
MARKUP = st.lists(st.sampled_from(TAGS.split("|")), max_size=60)


@given(MARKUP)
def test_no_order_of_tags_raises(tags: list[str]) -> None:
    page = parse("".join(tags).encode("utf-8", "surrogatepass"), HTML, "")
    page.text.decode()
    assert set(page.kinds) <= FOLLOWED_KINDS | ASSET_KINDS | {"link"}


def test_pages_read_together_are_read_as_each_alone() -> None:
    large = "<p>" + "word " * (GROUP_BYTES_MAX // 4)
    bodies = [f"<title>{n}</title><a href=/{n}>x</a>{large if n % 3 else ''}<p>é{n}".encode() for n in range(7)]
    sources = [Source(body, HTML, f"http://site.example/{n}", "de") for n, body in enumerate(bodies)]
    heard: list[str] = []
    assert parse_all(sources, heard.append) == [parse(*source) for source in sources]
    assert heard == [source.url for source in sources]


def test_links_that_are_too_long_are_counted_and_scripts_of_that_length_are_not() -> None:
    long = "x" * 20_000
    page = page_of(f"<a href='{long}'></a><img src='/{long}'><a href='javascript:{long}'></a><img src='data:{long}'>")
    assert (page.hrefs, page.too_long) == ([], 2)
