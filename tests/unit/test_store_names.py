"""Names of files in a store: each is of one node, and of no other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.store.bundles import belongs
from drumlin.store.names import node_of_segment, node_of_warc, segment_name

nodes = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@given(nodes, st.floats(min_value=1.0, max_value=4e9), st.integers(min_value=1, max_value=10**6))
def test_a_segment_is_of_the_node_that_it_was_named_for(node: str, started: float, serial: int) -> None:
    assert node_of_segment(segment_name(node, started, serial)) == node


@given(nodes)
def test_a_warc_file_is_of_the_node_that_it_was_named_for(node: str) -> None:
    assert node_of_warc(f"drumlin-20251009085320123-00001-{node}") == node


@pytest.mark.parametrize("name", ["", "n1", "n1-1", "n1-1-1", "-1-00001", "n1-xyz-00001", "n1-1-00001\n", "index"])
def test_what_is_no_segment_is_nobodys(name: str) -> None:
    assert node_of_segment(name) == ""


@pytest.mark.parametrize(
    ("member", "may"),
    [
        ("warc/drumlin-20251009085320123-00001-a.warc.gz", True),
        ("warc/drumlin-20251009085320123-00001-a.cdxj", True),
        ("tables/pages/a-1-00001.parquet", True),
        ("warc/drumlin-20251009085320123-00001-a-1.warc.gz", False),
        ("tables/pages/a-1-00002.parquet", False),
        ("tables/pages/a-1-1-00001.parquet", False),
        ("warc/index.cdxj", False),
        ("warc/drumlin-20251009085320123-00001-a.warc.gz.open", False),
        ("report.json", False),
        ("receipts", False),
    ],
)
def test_what_may_be_in_the_bundle_of_a_segment(member: str, may: bool) -> None:
    assert belongs(member, "a-1-00001") is may
