"""Pages over several parts are the one ordered list, cut into pieces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from drumlin.engines.blocking import drive
from drumlin.engines.paging import SLICE_MAX, page_of


@given(
    parts=st.lists(st.sets(st.text("abc", max_size=6)), min_size=1, max_size=20),
    after=st.text("abc", max_size=3),
    limit=st.integers(0, 30),
)
def test_a_page_is_what_follows_in_the_list_of_all_parts(parts: list[set[str]], after: str, limit: int) -> None:
    sizes: list[int] = []
    # A name is in one part only, as a host is in one shard.
    own = [sorted(part - set().union(*parts[:number])) for number, part in enumerate(parts)]

    async def ask(place: str | None, size: int) -> list[list[str]]:
        sizes.append(size)
        return [[name for name in part if name > (place or "")][:size] for part in own]

    page = drive(page_of(ask, str, after, limit=limit, parts=len(parts)))
    assert page == sorted(name for part in own for name in part if name > after)[:limit]
    assert all(0 < size <= SLICE_MAX for size in sizes)
