"""Fingerprints: equal for equal, near for nearly equal, far for the rest, the same everywhere and always."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.dedupe import digest, simhashes
from drumlin.dedupe.fingerprints import GROUP_BYTES_MAX, TEXT_BYTES_MAX

FIXED_SIMHASH = 0xAAAAF264F355884D
"""What the text of the last test has always had: another value makes stored fingerprints useless."""

ENGLISH = [
    "the", "of", "and", "to", "in", "is", "for", "that", "with", "as", "on", "by", "from", "are", "this", "which",
    "table", "index", "query", "server", "column", "value", "function", "database", "transaction", "operator",
]  # fmt: skip


def vocabulary(chance: random.Random, size: int) -> list[str]:
    letters = "etaoinshrdlucmfwypvbgk"
    return ENGLISH + ["".join(chance.choices(letters, k=chance.randint(3, 10))) for _ in range(size)]


def prose(chance: random.Random, words: int = 1200, size: int = 3000) -> bytes:
    pool = vocabulary(random.Random(0), size)
    weights = [1 / (rank + 3) for rank in range(len(pool))]
    return " ".join(chance.choices(pool, weights, k=words)).encode()


def altered(text: bytes, share: float, chance: random.Random) -> bytes:
    words = text.split(b" ")
    pool = [word.encode() for word in vocabulary(random.Random(1), 3000)]
    for place in chance.sample(range(len(words)), round(len(words) * share)):
        words[place] = chance.choice(pool)
    return b" ".join(words)


def one(text: bytes) -> int:
    value = simhashes([text])[0]
    assert value is not None
    return value


def distance(one_text: bytes, other: bytes) -> int:
    return (one(one_text) ^ one(other)).bit_count()


def mean_distance(pairs: list[tuple[bytes, bytes]]) -> float:
    return sum(distance(first, second) for first, second in pairs) / len(pairs)


def test_the_digest_is_sha256() -> None:
    assert digest(b"body") == hashlib.sha256(b"body").digest()


def test_a_hundredth_of_the_words_changed_is_near() -> None:
    texts = [prose(random.Random(seed)) for seed in range(60)]
    assert mean_distance([(text, altered(text, 0.01, random.Random(seed))) for seed, text in enumerate(texts)]) < 5


def test_unrelated_texts_of_one_language_are_far() -> None:
    texts = [prose(random.Random(seed)) for seed in range(30)]
    distances = [distance(texts[i], texts[j]) for i in range(30) for j in range(i)]
    assert sum(distances) / len(distances) > 27
    assert min(distances) > 8


def test_pages_that_share_half_their_text_as_boilerplate_are_not_near() -> None:
    boilerplate = prose(random.Random(99), 600)
    texts = [boilerplate + b" " + prose(random.Random(seed), 600) for seed in range(30)]
    assert min(distance(texts[i], texts[j]) for i in range(30) for j in range(i)) > 3


def test_an_insertion_at_the_start_moves_little() -> None:
    texts = [prose(random.Random(seed)) for seed in range(30)]
    assert mean_distance([(text, b"Updated today. " + text) for text in texts]) < 2


def test_chinese_text_is_judged_without_spaces() -> None:
    chance = random.Random(3)
    characters = [chr(0x4E00 + number) for number in range(2000)]
    texts = ["".join(chance.choices(characters, k=1500)) for _ in range(20)]
    near = [(text.encode(), (text[:700] + "新" + text[701:]).encode()) for text in texts]
    assert mean_distance(near) < 3
    assert mean_distance([(texts[i].encode(), texts[i - 1].encode()) for i in range(20)]) > 27


def test_tables_of_numbers_are_told_apart() -> None:
    chance = random.Random(4)
    tables = [" ".join(str(chance.randrange(100_000)) for _ in range(500)).encode() for _ in range(10)]
    assert mean_distance([(tables[i], tables[i - 1]) for i in range(10)]) > 27


@pytest.mark.parametrize("text", [b"", b" ", b"404 Not Found", b"word " * 5000, b"\0" * 100, b"~" * 100])
def test_too_few_distinct_shingles_are_not_judged(text: bytes) -> None:
    assert simhashes([text]) == [None]


def test_fifty_different_words_are_enough_to_judge() -> None:
    assert simhashes([b" ".join(b"word%d" % number for number in range(50))]) != [None]


def test_nothing_in_is_nothing_out() -> None:
    assert simhashes([]) == []


def test_only_the_beginning_of_a_text_counts() -> None:
    text = prose(random.Random(7), 6000)
    assert len(text) > TEXT_BYTES_MAX
    assert simhashes([text]) == simhashes([text[:TEXT_BYTES_MAX] + b" and more"])


def test_a_large_batch_answers_like_single_texts() -> None:
    texts = [prose(random.Random(seed), 100 + 97 * seed) for seed in range(60)] + [b"", b"short"]
    assert sum(len(text[:TEXT_BYTES_MAX]) for text in texts) > GROUP_BYTES_MAX
    assert simhashes(texts) == [simhashes([text])[0] for text in texts]


@settings(max_examples=60)
@given(st.lists(st.one_of(st.binary(max_size=400), st.text(max_size=400).map(str.encode)), max_size=6))
def test_a_text_is_judged_alike_whatever_is_in_its_batch(texts: list[bytes]) -> None:
    assert simhashes(texts) == [simhashes([text])[0] for text in texts]


def test_the_simhash_is_the_majority_of_its_shingles_bits() -> None:
    """A plain restatement of the definition, to hold the vectorised one to it."""
    text = prose(random.Random(5), 900)
    padded = b"\0" + text + b"\0~" + bytes(16)
    starts = [
        place
        for place in range(1, len(text) + 3)
        if (padded[place] > 0x2F >= padded[place - 1]) or padded[place] >= 0xE0
    ]
    counts = [0] * 64
    for place, following in pairwise(starts):
        value = shingle_hash(padded[place : place + 8], padded[following : following + 2])
        for bit in range(64):
            counts[bit] += 1 if value >> bit & 1 else -1
    assert one(text) == sum(1 << bit for bit in range(64) if counts[bit] > 0)


def shingle_hash(head: bytes, following: bytes) -> int:
    modulus = 1 << 64
    first, second = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
    value = (int.from_bytes(head, "little") * first + int.from_bytes(following, "little") * second) % modulus
    value ^= value >> 32
    value = value * second % modulus
    value ^= value >> 32
    value = value * first % modulus
    return value ^ value >> 32


def test_fingerprints_are_the_same_in_every_process_and_version() -> None:
    text = " ".join(f"word{number} and number {number * number}" for number in range(200)).encode()
    code = f"from drumlin.dedupe import simhashes; print(simhashes([{text!r}])[0])"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, timeout=60)
    assert int(answer.stdout) == one(text) == FIXED_SIMHASH
