"""What the tables say of a URL, by any spelling of it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from drumlin.store.tables.lookup import find_fetches

STORED = [
    "http://a.test/~u/p?b=2&a=1&utm_source=x",
    "http://a.test/~u/p?a=1",
    "http://b.test/~u/p?a=1&b=2",
    "http://a.test/x",
]


def written(tables: Path) -> None:
    count = len(STORED)
    fetches = {
        "url": STORED,
        "fetch_time": pa.array(range(count), pa.timestamp("us")),
        "outcome": ["fetched"] * count,
        "fetch_status": [200] * count,
        **{name: [""] * count for name in ("kind", "error", "node", "record_id", "redirect_to")},
    }
    pages = {
        "url": STORED,
        "fetch_time": fetches["fetch_time"],
        "warc_filename": [f"{number}.warc.gz" for number in range(count)],
        "warc_record_offset": list(range(count)),
        **{name: [""] * count for name in ("found_on", "duplicate_of", "duplicate_kind")},
    }
    for name, columns in (("fetches", fetches), ("pages", pages)):
        (tables / name).mkdir(parents=True)
        pq.write_table(pa.table(columns), tables / name / "n0-1.parquet")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (STORED[0], 0),
        ("http://a.test/~u/p?a=1&b=2", 0),
        ("http://a.test/%7Eu/p?a=1&b=2", 0),
        ("http://a.test/~u/p?a=1&gclid=1", 1),
        ("http://a.test/%78", 3),
        ("http://a.test/~u/p", None),
    ],
)
def test_any_spelling_of_a_url_finds_its_attempts(url: str, place: int | None, tmp_path: Path) -> None:
    written(tmp_path)
    found, complete = find_fetches(tmp_path, url, lambda: True)
    assert complete
    assert [one.warc_filename for one in found] == ([] if place is None else [f"{place}.warc.gz"])
