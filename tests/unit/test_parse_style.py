"""What a stylesheet asks for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.parse.style import STYLE_BYTES_MAX, STYLE_URLS_MAX, style_hrefs


@pytest.mark.parametrize(
    ("sheet", "hrefs"),
    [
        (b'@import url("classic.css");', ["classic.css"]),
        (b"@IMPORT 'a b.css' screen;", ["a b.css"]),
        (b"a { background: URL( ../i/x.png ) no-repeat }", ["../i/x.png"]),
        (b"src: url(f.woff2) format('woff2'), url('f.woff')", ["f.woff2", "f.woff"]),
        (b"a{b:url(x.png)} c{d:url(x.png)}", ["x.png"]),
        (b"a{b:url(data:image/png;base64,AAAA)} c{d:url(#mask)}", []),
        (b'/* url(no.png) /* @import "no.css"; */ a{b:url(yes.png)} /* url(no.png)', ["yes.png"]),
        (b"a { content: 'plain'; curl(x) } @important 'x'", []),
        (b"", []),
    ],
)
def test_a_stylesheet_asks_for(sheet: bytes, hrefs: list[str]) -> None:
    assert style_hrefs(sheet) == hrefs


@given(st.binary(max_size=300) | st.text(alphabet="url(/*'\")@import \n", max_size=300).map(str.encode))
def test_no_bytes_break_it(sheet: bytes) -> None:
    assert all(style_hrefs(sheet))


@pytest.mark.parametrize("piece", [b"url(", b'url("', b"@import '", b"/*", b"url(   ", b"@import    ", b"url(a"])
def test_megabytes_of_beginnings_come_to_an_end(piece: bytes) -> None:
    assert len(style_hrefs(piece * (STYLE_BYTES_MAX // len(piece)))) <= 1


def test_the_number_of_hrefs_is_bounded() -> None:
    sheet = b"".join(b"url(%d)" % number for number in range(STYLE_URLS_MAX + 10))
    assert len(style_hrefs(sheet)) == STYLE_URLS_MAX
