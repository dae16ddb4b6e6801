"""The index of contents: what was captured before, exactly or nearly, in the same domain."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator, Sequence

import msgspec
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.dedupe import made_up_sketch
from drumlin.dedupe import OVERLAP_MIN, ContentIndex, digest, sketches
from drumlin.dedupe.index import RECORD_BATCH_MAX
from drumlin.dedupe.overlap import overlaps
from drumlin.dedupe.runs import LIST_MAX, TAIL_MAX
from drumlin.dedupe.search import as_words
from drumlin.model import Content, Duplicate


class DictKeyValue:
    """A store in memory that can be made to fail."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.failing = False

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self.values.get(key) for key in keys]

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        if self.failing:
            raise OSError("no space")
        self.values.update(pairs)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return ((key, self.values[key]) for key in sorted(self.values) if key.startswith(prefix))


@functools.cache
def sketch(text: int, changed: int = 0) -> bytes:
    """The sketch of one of many texts of 400 words. Each changed word costs 1.5 % of overlap."""
    words = [f"t{text}w{number}" for number in range(400)]
    for number in range(changed):
        words[(number * 37 + changed) % 400] = f"c{changed}n{number}"
    (made,) = sketches([" ".join(words).encode()])
    assert made is not None
    return made


def content(name: str, made: bytes | None = None, body: bytes | None = None, domain: str = "a.example") -> Content:
    return Content(domain, f"https://{domain}/{name}", digest(body or name.encode()), made, 100.0, f"<{name}>")


def duplicate(original: Content, overlap: float | None = None) -> Duplicate:
    return Duplicate(original.url, original.fetched, original.record_id, overlap=overlap)


def overlap(one: Content, other: Content) -> float:
    return float(overlaps(as_words([one.sketch or b""]), as_words([other.sketch or b""]))[0])


def near(original: Content, item: Content) -> Duplicate:
    return duplicate(original, overlap(original, item))


@pytest.fixture
def kv() -> DictKeyValue:
    return DictKeyValue()


@pytest.fixture
def index(kv: DictKeyValue) -> ContentIndex:
    return ContentIndex(kv)


def test_nothing_is_known_at_first(index: ContentIndex) -> None:
    assert index.known([("a.example", digest(b"x"))]) == [None]
    assert index.known([]) == []
    assert index.record([]) == []


def test_the_same_content_is_a_duplicate_of_its_first_capture(index: ContentIndex) -> None:
    first, second, third = (content(name, sketch(1), b"same") for name in ("one", "two", "three"))
    assert index.record([first]) == [None]
    assert index.record([first]) == [None]
    assert index.record([second]) == [duplicate(first)]
    assert index.record([third]) == [duplicate(first)]
    assert index.known([(first.domain, first.digest)]) == [duplicate(first)]


@pytest.mark.parametrize("changed", range(12))
def test_a_text_that_overlaps_enough_is_a_near_duplicate(index: ContentIndex, changed: int) -> None:
    first, other = content("first", sketch(1)), content("other", sketch(1, changed))
    assert overlap(first, other) == pytest.approx(1 - 0.015 * changed, abs=0.03)
    index.record([first])
    assert index.record([other]) == [near(first, other) if overlap(first, other) >= OVERLAP_MIN else None]


def test_how_much_is_enough_can_be_set(index: ContentIndex) -> None:
    first, other = content("first", sketch(1)), content("other", sketch(1, 3))
    index.record([first])
    assert index.record([other], 0.99) == [None]
    assert index.record([content("third", sketch(1, 3))], 0.5) == [near(other, other)]
    assert ContentIndex(DictKeyValue()).record([first, content("far", sketch(1, 12))], 0.75) != [None, None]


def test_the_nearest_is_named(index: ContentIndex) -> None:
    far, nearer, new = content("far", sketch(1, 5)), content("near", sketch(1, 1)), content("new", sketch(1))
    assert index.record([far, nearer, new]) == [None, near(far, nearer), near(nearer, new)]


def test_exactly_the_same_counts_before_nearly_the_same(index: ContentIndex) -> None:
    original = content("original", sketch(1), b"body")
    index.record([original, content("nearer", sketch(2))])
    assert index.record([content("again", sketch(2), b"body")]) == [duplicate(original)]


def test_domains_do_not_see_one_another(index: ContentIndex) -> None:
    index.record([content("one", sketch(1), b"same", "a.example")])
    other = content("one", sketch(1), b"same", "b.example")
    assert index.known([(other.domain, other.digest)]) == [None]
    assert index.record([other, content("x", sketch(1), domain="c.example")]) == [None, None]


def test_order_within_a_batch_counts(index: ContentIndex) -> None:
    first, same = content("first", sketch(1), b"body"), content("same", sketch(1), b"body")
    other = content("near", sketch(1, 1))
    assert index.record([first, same, other]) == [None, duplicate(first), near(first, other)]
    assert index.record([other, first]) == [near(first, other), None]


def test_a_text_too_short_to_judge_has_no_near_duplicates(index: ContentIndex) -> None:
    assert index.record([content("one"), content("two"), content("three", sketch(1))]) == [None, None, None]


def test_recording_again_answers_the_same_and_changes_nothing(kv: DictKeyValue, index: ContentIndex) -> None:
    made = [sketch(1), sketch(1, 1), sketch(1), None, sketch(2)]
    bodies = [None, None, b"a", None, None]
    batch = [content(name, one, body) for name, one, body in zip("abcde", made, bodies, strict=True)]
    answers = index.record(batch)
    before = dict(kv.values)
    for again in (index, ContentIndex(kv)):
        assert again.record(batch) == answers
        assert [again.record([item])[0] for item in reversed(batch)] == answers[::-1]
    assert kv.values == before


def test_a_capture_twice_in_one_batch_is_not_its_own_duplicate(index: ContentIndex) -> None:
    first, second = content("a", sketch(1)), content("b", sketch(1, 1))
    assert index.record([first, second, second, first]) == [None, near(first, second), near(first, second), None]


def test_a_page_that_changed_a_little_is_a_near_duplicate_of_its_earlier_self(index: ContentIndex) -> None:
    before, after = content("page", sketch(1), b"before"), content("page", sketch(1, 1), b"after")
    assert index.record([before, after]) == [None, near(before, after)]


def test_what_cannot_be_read_is_not_compared(index: ContentIndex) -> None:
    other_format = sketch(1)[:15] + b"\x63" + sketch(1)[16:]
    assert index.record([content("a", other_format), content("b", other_format), content("c", b"x")]) == [None] * 3
    assert index.record([content("d", sketch(1))]) == [None]


def test_an_index_of_simhashes_is_not_misread(kv: DictKeyValue, index: ContentIndex) -> None:
    """Versions before sketches kept chunks with entries of 16 bytes, and a distance in bits for each near content."""
    domain = b"n" + xxhash.xxh3_64_digest(b"a.example")
    old, seen = content("old"), content("seen")
    kv.values[domain + bytes(4)] = random.Random(1).randbytes(16 * 20)
    kv.values[b"c" + domain[1:] + old.digest[:8]] = msgspec.msgpack.encode(
        [old.digest, old.url, old.fetched, old.record_id, [seen.url, seen.fetched, seen.record_id, 2]]
    )
    assert index.known([(old.domain, old.digest)]) == [duplicate(old)]
    assert index.record([old, content("same", sketch(1), b"old")]) == [None, duplicate(old)]
    first, other = content("first", sketch(1)), content("other", sketch(1, 1))
    assert index.record([first]) == [None]
    assert index.record([other]) == [near(first, other)]
    assert kv.values[domain + bytes(4)] == random.Random(1).randbytes(16 * 20)


def test_another_digest_with_the_same_beginning_is_never_a_duplicate(index: ContentIndex) -> None:
    first = content("one")
    other = Content(first.domain, "https://a.example/other", first.digest[:8] + bytes(24), None, 1.0, "<other>")
    assert index.record([first, other]) == [None, None]
    assert index.known([(first.domain, other.digest)]) == [None]
    assert index.known([(first.domain, first.digest)]) == [duplicate(first)]


def test_a_failed_write_leaves_no_trace(kv: DictKeyValue, index: ContentIndex) -> None:
    first, second = content("first", sketch(1)), content("second", sketch(1, 1))
    kv.failing = True
    with pytest.raises(OSError, match="no space"):
        index.record([first])
    kv.failing = False
    assert index.record([second, first]) == [None, near(second, first)]


def test_a_batch_larger_than_one_write_is_recorded_in_order(index: ContentIndex) -> None:
    first, last = content("first", sketch(1), b"body"), content("last", sketch(1, 2))
    batch = [first] + [content(str(number)) for number in range(RECORD_BATCH_MAX)] + [last]
    assert index.record(batch)[-1] == near(first, last)


@pytest.mark.parametrize("memory_bytes_max", [0, 1 << 30])
def test_a_domain_that_outgrows_its_tail_misses_no_neighbour(memory_bytes_max: int) -> None:
    """Large enough for two runs and a tail, probed with texts in which one word is changed."""
    chance = random.Random(8)
    count = TAIL_MAX * 20 + 300
    index = ContentIndex(DictKeyValue(), memory_bytes_max)
    others = [content(str(number), made_up_sketch(chance)) for number in range(count)]
    stored = {place: content(f"text{place}", sketch(place)) for place in range(0, count, count // 60)}
    for start in range(0, count, 100):
        batch = others[start : start + 100]
        index.record([*batch, *(item for place, item in stored.items() if start <= place < start + 100)])
    for place, original in stored.items():
        probe = content(f"probe{place}", sketch(place, 1))
        assert index.record([probe]) == [near(original, probe)]


def test_domains_beyond_the_memory_limit_are_read_again(kv: DictKeyValue) -> None:
    index = ContentIndex(kv, memory_bytes=3000)
    originals = {}
    for round_number in range(20):
        for site in range(4):
            item = content(str(round_number), sketch(round_number), domain=f"{site}.example")
            originals[round_number, site] = item
            assert index.record([item]) == [None]
    for (round_number, site), original in originals.items():
        probe = content(f"p{round_number}", sketch(round_number, 1), domain=f"{site}.example")
        assert index.record([probe]) == [near(original, probe)]


def test_thousands_of_pages_with_a_common_band_are_not_all_looked_at() -> None:
    index = ContentIndex(DictKeyValue())
    chance = random.Random(3)
    bands = chance.randbytes(8)
    pages = [content(str(number), bands + made_up_sketch(chance)[8:]) for number in range(8 * LIST_MAX)]
    assert index.record(pages) == [None] * len(pages)
    last = content("last", pages[-1].sketch)
    assert index.record([last]) == [near(pages[-1], last)]


def shares_a_band(one: Content, other: Content) -> bool:
    pairs = ((made.sketch or b"")[:8] for made in (one, other))
    first, second = ([bands[at : at + 2] for at in range(0, 8, 2)] for bands in pairs)
    return any(mine == others for mine, others in zip(first, second, strict=True))


def brute_force(earlier: Sequence[Content], item: Content) -> float | None:
    found = [overlap(other, item) for other in earlier if shares_a_band(other, item)]
    return max([share for share in found if share >= OVERLAP_MIN], default=None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 8)), max_size=8), max_size=8),
    st.booleans(),
)
def test_the_index_agrees_with_brute_force(batches: list[list[tuple[str, int, int]]], forgetful: bool) -> None:
    kv = DictKeyValue()
    index = ContentIndex(kv)
    earlier: dict[str, list[Content]] = {"a": [], "b": []}
    serial = 0
    for batch in batches:
        items, expected = [], []
        for site, text, changed in batch:
            serial += 1
            item = content(str(serial), sketch(text, changed), None, f"{site}.example")
            expected.append(brute_force(earlier[site], item))
            earlier[site].append(item)
            items.append(item)
        answers = index.record(items)
        assert [answer and answer.overlap for answer in answers] == expected
        index = ContentIndex(kv) if forgetful else index
