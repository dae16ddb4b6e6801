"""The web's encodings: labels, characters, declarations, guesses, and queries in them.

tests/slow/test_encodings_browser.py asks a browser about every label, sequence and character; what it agreed to is
kept here as digests.
"""

from __future__ import annotations

import os
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.parse import queries_in, to_utf8
from drumlin.parse.encoding.decoders import ERRORS_MAX, SWITCHES_MAX, decode
from drumlin.parse.encoding.encoders import _query_in
from drumlin.parse.encoding.labels import LABELS, encoding_of
from drumlin.parse.encoding.prescan import _from_metas, prescan
from tests.harness.encodings import LEGACY, digest_of
from tests.harness.languages import ARTICLES

DIGESTS = {
    "IBM866": "c1855118aacd79a1",
    "ISO-8859-2": "c6bd1be7bb980d96",
    "ISO-8859-3": "38d82aefe35db7af",
    "ISO-8859-4": "d35e52c97498ff42",
    "ISO-8859-5": "5c5c7bdc1b319b89",
    "ISO-8859-6": "15aa5ac06e1c089b",
    "ISO-8859-7": "9cd1ed92a3359b97",
    "ISO-8859-8": "03c1504280c79900",
    "ISO-8859-8-I": "03c1504280c79900",
    "ISO-8859-10": "d73e7de89792f4b3",
    "ISO-8859-13": "58e6f5e0df82f193",
    "ISO-8859-14": "d546bfba96c6eb46",
    "ISO-8859-15": "604e5f12b1fe5f84",
    "ISO-8859-16": "94c9f4c3ae127f6e",
    "KOI8-R": "c854b8ade4d76638",
    "KOI8-U": "9b837d13538f944c",
    "macintosh": "78422fde612257f1",
    "windows-874": "f821f25741e91834",
    "windows-1250": "28def643aa5904ca",
    "windows-1251": "20e6b3446d440421",
    "windows-1252": "e30405a13f9b6f56",
    "windows-1253": "dda1a9144f1be046",
    "windows-1254": "e7dcc748cc8f1939",
    "windows-1255": "12f277981a141912",
    "windows-1256": "11d1c1272fadc275",
    "windows-1257": "e65dfc58796dd58b",
    "windows-1258": "e0a1b96434817b96",
    "x-mac-cyrillic": "1270259934466c8d",
    "GBK": "eaae40e9cadac652",
    "gb18030": "eaae40e9cadac652",
    "Big5": "c42b1efd0f8ae9d1",
    "EUC-JP": "2ee0743374b57ebe",
    "ISO-2022-JP": "ec243e0629258c45",
    "Shift_JIS": "50a6b7d1918a8103",
    "EUC-KR": "451e9200ce67437d",
    "x-user-defined": "a65088e44431300c",
}
# No browser guesses this one: declared, it is read.
NEVER_GUESSED = {"macintosh"}
CASES = [(country, name, text) for country, (names, text) in ARTICLES.items() for name in names]


def encoded(text: str, name: str) -> bytes:
    """A text in an encoding, made by Python's own encoders if they can."""
    codec = {"ISO-8859-8-I": "iso8859-8", "Big5": "cp950", "EUC-KR": "cp949", "windows-874": "cp874"}.get(name, name)
    return text.encode(codec)


@pytest.mark.parametrize("name", LEGACY)
def test_every_sequence_means_what_it_means_to_a_browser(name: str) -> None:
    assert digest_of(name, decode) == DIGESTS[name]


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("EUC-JP", b"\xad\xa1\xad\xea\xfc\xf1", "①㈱ⅰ"),
        ("EUC-JP", b"\x8f\xa2\xb7~\xa1\xc1", "～~～"),
        ("EUC-JP", b"\x8f\xa2\xc5\x8f\xa2\xb7", "\ufffd～"),
        ("Shift_JIS", b"\x87\x40\xa0\xfd\xf0\x40", "①\ufffd\ufffd\ue000"),
        ("GBK", b"\x80 \xa2\xe3", "€ €"),
        ("gb18030", b"\xa8\xbc\x81\x35\xf4\x37", "ḿ\ue7c7"),
        ("Big5", b"\xa3\xe1\x87\x7a\xa2\x41\xa1\xfe\x88\x62", "€㡵∕／Ê̄"),
        ("Big5", b"\xc7\xfd\xc8\x40", "ЙЛ"),
        ("EUC-KR", b"\x81\x41\xc8\xfe", "갂힝"),
        ("ISO-2022-JP", b"a\x1b$B-!\x1b(I1\x1b(J\\~\x1b(B\\", "a①ｱ¥‾\\"),
        ("windows-1252", b"\x80\x81", "€\x81"),
        ("KOI8-U", b"\xae\xbe", "ўЎ"),
        ("x-user-defined", b"A\x80\xff", "A\uf780\uf7ff"),
        ("replacement", b"anything", "\ufffd"),
        ("replacement", b"", ""),
        # After a lost lead byte an ASCII character stays, or a tag would vanish.
        ("Shift_JIS", b"\x81<b>", "\ufffd<b>"),
        ("GBK", b"\x81\x30\x81<b>", "\ufffd0\ufffd<b>"),
        ("EUC-JP", b"\x8f\xa1<b>", "\ufffd<b>"),
        # Two escapes with nothing between them are an error: they could hide a character.
        ("ISO-2022-JP", b"\x1b(J\x1b(Ba", "\ufffda"),
    ],
)
def test_characters_that_codecs_of_python_do_not_have(name: str, body: bytes, text: str) -> None:
    assert decode(name, body) == text


@given(st.sampled_from(LEGACY), st.binary(max_size=60))
def test_no_bytes_are_too_broken_to_be_decoded(name: str, body: bytes) -> None:
    assert isinstance(decode(name, body), str)
    assert decode(name, b"plain " + body).startswith("plain ")


@pytest.mark.parametrize("name", LEGACY)
def test_noise_is_not_decoded_for_ever(name: str) -> None:
    assert len(decode(name, b"\xff" * 4 * ERRORS_MAX + os.urandom(1000))) <= 4 * ERRORS_MAX + 1000


def test_japanese_text_takes_hardly_more_memory_than_it_has_bytes() -> None:
    body = b"\x1b$B" + b"\x24\x22" * 500_000
    tracemalloc.start()
    try:
        assert decode("ISO-2022-JP", body) == "あ" * 500_000
        assert tracemalloc.get_traced_memory()[1] < 10 * len(body)
    finally:
        tracemalloc.stop()


def test_errors_are_counted_through_all_changes_of_the_character_set() -> None:
    """Each run of characters by itself has fewer than are allowed."""
    run = b"\x1b$B" + b"\x2f\x21" * 1_000 + b"\x1b(Ba"
    text = decode("ISO-2022-JP", run * (ERRORS_MAX // 1_000 + 5))
    assert text.count("a") == ERRORS_MAX // 1_000


def test_a_body_of_escapes_is_read_up_to_a_bound() -> None:
    text = decode("ISO-2022-JP", b"\x1b(Ba\x1b$B!!" * SWITCHES_MAX)
    assert len(text) == SWITCHES_MAX


def test_labels_are_those_of_the_standard() -> None:
    assert len(LABELS) == 228
    assert encoding_of("\n GB2312 ") == "GBK"
    assert encoding_of("iso-8859-1") == "windows-1252"
    assert encoding_of("hz-gb-2312") == "replacement"
    assert encoding_of("utf-7") is None
    assert encoding_of("\u212aoi8-r") is None


@pytest.mark.parametrize(("country", "name", "text"), CASES)
def test_a_declared_text_is_read_in_every_encoding(country: str, name: str, text: str) -> None:
    body = encoded(text, name)
    by_header = to_utf8(body, f"text/html; charset={name}")
    by_meta = to_utf8(f"<!doctype html><meta charset={name}><p>".encode() + body, "text/html")
    assert by_header == (name, text.encode())
    assert by_meta[1].endswith(text.encode())


@pytest.mark.parametrize(("country", "name", "text"), CASES)
def test_an_undeclared_text_is_read_as_well(country: str, name: str, text: str) -> None:
    body = b"<!doctype html><title>x</title><p>" + encoded(text, name)
    found, utf8 = to_utf8(body, "text/html", f"http://www.site.{country}/page")
    if name not in NEVER_GUESSED:
        assert utf8.endswith(text.encode()), found


def test_undeclared_utf16_is_known_by_its_xml_declaration() -> None:
    text = '<?xml version="1.0" encoding="utf-16"?><html><p>grün</p></html>'
    for name in ("UTF-16LE", "UTF-16BE"):
        assert to_utf8(text.encode(name), "application/xhtml+xml") == (name, text.encode())


def test_escapes_alone_do_not_make_a_page_japanese() -> None:
    for body in (
        b"\x1b[1mbold\x1b[0m",
        b"\x1b$B and then no Japanese",
        b"price\x1b (B)",
        b'caf\xc3\xa9 \x1b$B$"\x1b(B',
    ):
        assert to_utf8(body, "text/plain")[0] == "UTF-8"


def test_a_declaration_further_on_counts_where_nothing_else_tells() -> None:
    body = b"<html><style>" + b" " * 3000 + b"</style><meta charset=windows-1250>" + "ľúbozvučná".encode("cp1250")
    assert to_utf8(body, "text/html")[0] == "windows-1250"


META = b"<meta charset=koi8-r>"


@pytest.mark.parametrize(
    ("start", "name"),
    [
        # Step 1: UTF-16 declared by its own bytes, whatever the declaration says.
        ("<?xml".encode("utf-16-le"), "UTF-16LE"),
        ("<?xml".encode("utf-16-be"), "UTF-16BE"),
        # Comments.
        (b"<!-- <meta charset=utf-8> -->" + META, "KOI8-R"),
        (b"<!-->" + META, "KOI8-R"),
        (b"<!--->" + META, "KOI8-R"),
        (b"<!-- " + META, None),
        (b"<!-- -- >" + META, None),
        # A meta is one only if space or a slash follows its name.
        (b"<metadata charset=koi8-r>", None),
        (b"<meta/charset=koi8-r>", "KOI8-R"),
        (b"<META\tCHARSET=KOI8-R>", "KOI8-R"),
        (b"<meta\x0ccharset = 'koi8-r' >", "KOI8-R"),
        (b'<meta a="b"charset="koi8-r">', "KOI8-R"),
        (b"<meta charset=koi8-r", None),
        (b"<meta charset=koi8-r ", None),
        (b'<meta charset="koi8-r>', None),
        (b"<meta charset=koi8-r/>", None),
        (b"<meta charset=koi8-r />", "KOI8-R"),
        (b"<meta charset>" + META, "KOI8-R"),
        (b"<meta charset=>" + META, "KOI8-R"),
        (b"<meta =charset=koi8-r>", None),
        # The first attribute of a name counts, and `charset` before `content`.
        (b"<meta charset=koi8-r charset=utf-8>", "KOI8-R"),
        (b"<meta http-equiv=content-type content='text/html; charset=utf-8' charset=koi8-r>", "KOI8-R"),
        (b"<meta charset=bogus http-equiv=content-type content='text/html; charset=utf-8'>" + META, "KOI8-R"),
        # A bogus label, or one in a meta that is about something else, does not end the search.
        (b"<meta charset=bogus>" + META, "KOI8-R"),
        (b"<meta name=description content='charset=utf-8'>" + META, "KOI8-R"),
        (b"<meta content='text/html; charset=koi8-r'>", None),
        (b"<meta content='text/html; charset=koi8-r' http-equiv=Content-Type>", "KOI8-R"),
        (b"<meta http-equiv=refresh content='0; url=?charset=utf-8'>" + META, "KOI8-R"),
        # The label within `content`.
        (b"<meta http-equiv=content-type content='charset charset=koi8-r;x'>", "KOI8-R"),
        (b"<meta http-equiv=content-type content='charset = \"koi8-r\" x'>", "KOI8-R"),
        (b"<meta http-equiv=content-type content='charset=\"koi8-r'>", None),
        (b"<meta http-equiv=content-type content='charset=;'>", None),
        (b"<meta http-equiv=content-type content=text/html;charset=koi8-r>", "KOI8-R"),
        # What stands in another tag is not looked at, nor what a broken one swallows.
        (b"<a title='<meta charset=utf-8>'>" + META, "KOI8-R"),
        (b"<a title='>" + META, None),
        (b"<a title=x'y>" + META, "KOI8-R"),
        (b"</p x='>'>" + META, "KOI8-R"),
        (b"<p/x='>'>" + META, "KOI8-R"),
        (b"<a" + META, None),
        (b"<!doctype html '>" + META, "KOI8-R"),
        (b"</ x='" + META, None),
        (b"<?php echo '>' " + META, "KOI8-R"),
        (b"a < b <3 " + META, "KOI8-R"),
        (b"<script>'<b>'</script>" + META, "KOI8-R"),
        # What the bytes cannot be, since they were read as ASCII, and what pages do not mean.
        (b"<meta charset=utf-16>", "UTF-8"),
        (b"<meta charset=utf-16be>", "UTF-8"),
        (b"<meta charset=x-user-defined>", "windows-1252"),
        (b"<meta charset=iso-2022-kr>", "replacement"),
        # The XML declaration counts after every meta, and only at the very beginning.
        (b"<?xml version='1.0' encoding='koi8-r'?>", "KOI8-R"),
        (b'<?xml encoding =\n"koi8-r">', "KOI8-R"),
        (b"<?xml version='1.0' encoding='utf-8'?>" + META, "KOI8-R"),
        (b" <?xml version='1.0' encoding='koi8-r'?>", None),
        (b"<?xml version='1.0' encoding='koi8-r'", None),
        (b"<?xml version='1.0' encoding=' koi8-r'?>", None),
        (b"<?xml version='1.0' encoding=koi8-r?>", None),
        (b"<?xml version='1.0' encoding='utf-16'?>", "UTF-8"),
        (b"<?xml version='1.0' encoding='bogus'?>", None),
        (b"<html><body>no charset here", None),
        (b"", None),
    ],
)
def test_the_declaration_is_found_by_the_rules_of_the_standard(start: bytes, name: str | None) -> None:
    assert prescan(start) == name


PIECES = [
    *(b"<meta", b"<META ", b" charset=", b'charset="koi8-r"', b"koi8-r", b"utf-8", b">", b"/>", b"<", b"</", b"<!--"),
    *(
        b"-->",
        b'"',
        b"'",
        b"=",
        b" ",
        b"/",
        b"a",
        b"<html",
        b' lang="en"',
        b"<!doctype html>",
        b"<head>",
        b"x=y",
        b"\n",
    ),
    *(b"http-equiv=content-type", b"content='charset=koi8-r'"),
]


@given(st.lists(st.sampled_from(PIECES), max_size=14).map(b"".join))
def test_short_cuts_find_what_the_long_way_finds(start: bytes) -> None:
    # A comment in front forces the long way, which must find the same.
    assert prescan(start) == _from_metas(start) == prescan(b"<!-- -->" + start)


@pytest.mark.parametrize(
    ("encoding", "href", "written"),
    [
        ("windows-1251", "/поиск?q=привет#привет", "/поиск?q=%EF%F0%E8%E2%E5%F2#привет"),
        (
            "windows-1252",
            "?q=привет",
            "?q=%26%231087%3B%26%231088%3B%26%231080%3B%26%231074%3B%26%231077%3B%26%231090%3B",
        ),
        ("Shift_JIS", "?ソ", "?%83\\"),
        ("ISO-2022-JP", "?あé", "?%1B$B$%22%1B(B%26%23233%3B"),
        ("GBK", "?€", "?%80"),
        ("gb18030", "?€😀", "?%A2%E3%949%FC6"),
        ("UTF-8", "?é", "?é"),
        ("UTF-16LE", "?é", "?é"),
        ("windows-1252", "/é", "/é"),
        ("windows-1252", "#?é", "#?é"),
    ],
)
def test_queries_are_written_in_the_encoding_of_their_page(encoding: str, href: str, written: str) -> None:
    assert queries_in(encoding, [href, "/plain?x=1"]) == [written, "/plain?x=1"]


@given(st.sampled_from(LEGACY), st.text(min_size=1))
def test_no_query_is_too_strange_to_be_written(name: str, text: str) -> None:
    query = _query_in(name, "?" + text.replace("#", ""))
    assert query.isascii()
