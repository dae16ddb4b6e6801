"""The index of contents: what was captured before, exactly or nearly, in the same domain."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.dedupe import ContentIndex, digest
from drumlin.dedupe.index import RECORD_BATCH_MAX
from drumlin.dedupe.runs import TAIL_FINGERPRINTS_MAX
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


def content(name: str, simhash: int | None = None, body: bytes | None = None, domain: str = "a.example") -> Content:
    return Content(domain, f"https://{domain}/{name}", digest(body or name.encode()), simhash, 100.0, f"<{name}>")


def duplicate(original: Content, distance: int | None = None) -> Duplicate:
    return Duplicate(original.url, original.fetched, original.record_id, distance)


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
    first, second, third = (content(name, 5, b"same") for name in ("one", "two", "three"))
    assert index.record([first]) == [None]
    assert index.record([second]) == [duplicate(first)]
    assert index.record([third]) == [duplicate(first)]
    assert index.known([(first.domain, first.digest)]) == [duplicate(first)]


@pytest.mark.parametrize("bits", range(5))
def test_within_three_bits_is_a_near_duplicate(index: ContentIndex, bits: int) -> None:
    chance = random.Random(bits)
    first = content("first", chance.getrandbits(64))
    other = content("other", flipped(chance, first.simhash or 0, bits))
    index.record([first])
    assert index.record([other]) == [duplicate(first, bits) if bits <= 3 else None]


def test_the_nearest_is_named(index: ContentIndex) -> None:
    far, near = content("far", 0b111), content("near", 0b100000)
    assert index.record([far, near, content("new", 0)]) == [None, None, duplicate(near, 1)]


def test_exactly_the_same_counts_before_nearly_the_same(index: ContentIndex) -> None:
    original = content("original", 0, b"body")
    index.record([original, content("nearer", 7 << 20)])
    assert index.record([content("again", 7 << 20, b"body")]) == [duplicate(original)]


def test_domains_do_not_see_one_another(index: ContentIndex) -> None:
    index.record([content("one", 5, b"same", "a.example")])
    other = content("one", 5, b"same", "b.example")
    assert index.known([(other.domain, other.digest)]) == [None]
    assert index.record([other]) == [None]


def test_order_within_a_batch_counts(index: ContentIndex) -> None:
    first, same, near = content("first", 0, b"body"), content("same", 0, b"body"), content("near", 1)
    assert index.record([first, same, near]) == [None, duplicate(first), duplicate(first, 1)]
    assert index.record([near, first]) == [duplicate(first, 1), None]


def test_a_text_too_short_to_judge_has_no_near_duplicates(index: ContentIndex) -> None:
    assert index.record([content("one"), content("two"), content("three", 0)]) == [None, None, None]


def test_recording_again_answers_the_same_and_changes_nothing(kv: DictKeyValue, index: ContentIndex) -> None:
    batch = [content("a", 0), content("b", 1), content("c", 0, b"a"), content("d"), content("e", 1 << 40)]
    answers = index.record(batch)
    before = dict(kv.values)
    for again in (index, ContentIndex(kv)):
        assert again.record(batch) == answers
        assert [again.record([item])[0] for item in reversed(batch)] == answers[::-1]
    assert kv.values == before


def test_a_capture_twice_in_one_batch_is_not_its_own_duplicate(index: ContentIndex) -> None:
    first, second = content("a", 0), content("b", 1)
    assert index.record([first, second, second, first]) == [None, duplicate(first, 1), duplicate(first, 1), None]


def test_a_page_that_changed_a_little_is_a_near_duplicate_of_its_earlier_self(index: ContentIndex) -> None:
    before, after = content("page", 0, b"before"), content("page", 1, b"after")
    assert index.record([before, after]) == [None, duplicate(before, 1)]


def test_another_digest_with_the_same_beginning_is_never_a_duplicate(index: ContentIndex) -> None:
    first = content("one")
    other = Content(first.domain, "https://a.example/other", first.digest[:8] + bytes(24), None, 1.0, "<other>")
    assert index.record([first, other]) == [None, None]
    assert index.known([(first.domain, other.digest)]) == [None]
    assert index.known([(first.domain, first.digest)]) == [duplicate(first)]


def test_a_failed_write_leaves_no_trace(kv: DictKeyValue, index: ContentIndex) -> None:
    first, second = content("first", 0), content("second", 1)
    kv.failing = True
    with pytest.raises(OSError, match="no space"):
        index.record([first])
    kv.failing = False
    assert index.record([second, first]) == [None, duplicate(second, 1)]


def test_a_batch_larger_than_one_write_is_recorded_in_order(index: ContentIndex) -> None:
    first = content("first", 0, b"body")
    batch = [first] + [content(str(number)) for number in range(RECORD_BATCH_MAX)] + [content("last", 3)]
    assert index.record(batch)[-1] == duplicate(first, 2)


def brute_force(earlier: Sequence[Content], item: Content) -> int | None:
    distances = [(other.simhash ^ item.simhash).bit_count() for other in earlier]  # type: ignore[operator]
    return min([distance for distance in distances if distance <= 3], default=None)


def flipped(chance: random.Random, simhash: int, bits: int) -> int:
    for bit in chance.sample(range(64), bits):
        simhash ^= 1 << bit
    return simhash


@pytest.mark.parametrize("memory_bytes_max", [0, 1 << 30])
def test_a_domain_that_outgrows_its_tail_misses_no_neighbour(memory_bytes_max: int) -> None:
    """Large enough for two runs and a tail, probed with neighbours at distances 0 to 4."""
    chance = random.Random(8)
    count = TAIL_FINGERPRINTS_MAX * 20 + 300 if memory_bytes_max else TAIL_FINGERPRINTS_MAX * 2 + 300
    index = ContentIndex(DictKeyValue(), memory_bytes_max)
    stored = [content(str(number), chance.getrandbits(64)) for number in range(count)]
    for start in range(0, count, 100):
        index.record(stored[start : start + 100])
    for number, place in enumerate([*range(0, count, count // 100), count - 1]):
        bits = number % 5
        probe = content(f"probe{place}", flipped(chance, stored[place].simhash or 0, bits))
        assert index.record([probe]) == [duplicate(stored[place], bits) if bits <= 3 else None]


def test_domains_beyond_the_memory_limit_are_read_again(kv: DictKeyValue) -> None:
    index = ContentIndex(kv, memory_bytes_max=3000)
    chance = random.Random(9)
    originals = {}
    for round_number in range(50):
        for site in range(8):
            item = content(str(round_number), chance.getrandbits(64), domain=f"{site}.example")
            originals[round_number, site] = item
            assert index.record([item]) == [None]
    for (round_number, site), original in originals.items():
        probe = content(f"p{round_number}", flipped(chance, original.simhash or 0, 2), domain=f"{site}.example")
        assert index.record([probe]) == [duplicate(original, 2)]


clustered = st.lists(st.integers(0, 63), max_size=5).map(lambda bits: sum(1 << bit for bit in set(bits)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), clustered), max_size=8), max_size=8), st.booleans())
def test_the_index_agrees_with_brute_force(batches: list[list[tuple[str, int]]], forgetful: bool) -> None:
    kv = DictKeyValue()
    index = ContentIndex(kv)
    earlier: dict[str, list[Content]] = {"a": [], "b": []}
    serial = 0
    for batch in batches:
        items, expected = [], []
        for site, simhash in batch:
            serial += 1
            item = content(str(serial), simhash, None, f"{site}.example")
            expected.append(brute_force(earlier[site], item))
            earlier[site].append(item)
            items.append(item)
        answers = index.record(items)
        assert [answer and answer.distance for answer in answers] == expected
        index = ContentIndex(kv) if forgetful else index
