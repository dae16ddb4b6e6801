"""Meta robots and X-Robots-Tag."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.robots import Directives, directives

NEITHER = Directives(False, False)
NOINDEX = Directives(True, False)
NOFOLLOW = Directives(False, True)
BOTH = Directives(True, True)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], NEITHER),
        ([""], NEITHER),
        (["all"], NEITHER),
        (["index, follow"], NEITHER),
        (["noindex"], NOINDEX),
        (["NoFollow"], NOFOLLOW),
        (["none"], BOTH),
        (["noindex,nofollow"], BOTH),
        (["noindex nofollow"], BOTH),
        (["noindex; nofollow"], BOTH),
        (["noindex", "nofollow"], BOTH),
        (["all", "noindex"], NOINDEX),
        (["noindex", "index"], NOINDEX),
        (["noarchive, nosnippet"], NEITHER),
        (["xnoindex, nofollowed"], NEITHER),
        (["googlebot: noindex"], NEITHER),
        (["drumlin: noindex"], NOINDEX),
        (["Drumlin:noindex, nofollow"], BOTH),
        (["googlebot: noindex, nofollow"], NEITHER),
        (["googlebot: noindex, drumlin: nofollow"], NOFOLLOW),
        (["drumlin: nofollow, googlebot: noindex"], NOFOLLOW),
        (["nofollow, googlebot: noindex"], NOFOLLOW),
        (["googlebot: noindex", "nofollow"], NOFOLLOW),
        (["robots: noindex"], NOINDEX),
        (["*: noindex"], NOINDEX),
        (["unavailable_after: 25 Jun 2010 15:00:00 PST"], NEITHER),
        (["unavailable_after: Friday, 25-Aug-11 15:00:00 EST, nofollow"], NOFOLLOW),
        (["max-snippet:20, noindex"], NOINDEX),
        (["max-image-preview: large, max-video-preview: -1, nofollow"], NOFOLLOW),
        (["googlebot: unavailable_after: 25 Jun 2010 15:00:00 PST, noindex"], NEITHER),
    ],
)
def test_the_strictest_of_all_values_for_this_crawler_counts(values: list[str], expected: Directives) -> None:
    assert directives(values, "drumlin") == expected


def test_the_agent_may_be_a_whole_user_agent_header() -> None:
    assert directives(["drumlin: none"], "Drumlin/0.1 (+https://bot.example)") == BOTH


@given(st.lists(st.text(max_size=60), max_size=4))
def test_any_text_is_read_and_more_values_never_loosen(values: list[str]) -> None:
    fewer, more = directives(values[:1], "drumlin"), directives(values, "drumlin")
    assert more.noindex >= fewer.noindex
    assert more.nofollow >= fewer.nofollow
