"""Sketches: the overlap that is estimated from them is that of the sets of shingles, on every machine."""

from __future__ import annotations

import hashlib
import os
import random
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.dedupe import OVERLAP_MIN, SKETCH_BYTES, digest, readable, sketches
from drumlin.dedupe.overlap import overlaps
from drumlin.dedupe.search import as_words
from drumlin.dedupe.sketches import BANDS_AT, GROUP_BYTES_MAX, TEXT_BYTES_MAX, TINY

FIXED_SKETCH = "f8ba3879ece87f89"
"""The beginning of the sha256 of the last test's sketch: another one makes stored sketches useless, and needs
another `FORMAT`."""


def prose(chance: random.Random, words: int = 1200, size: int = 3000) -> list[str]:
    letters = "etaoinshrdlucmfwypvbgk"
    source = random.Random(0)
    pool = ["".join(source.choices(letters, k=source.randint(2, 14))) for _ in range(size)]
    return chance.choices(pool, [1 / (rank + 3) for rank in range(size)], k=words)


def altered(words: list[str], share: float, chance: random.Random) -> list[str]:
    words = list(words)
    for place in chance.sample(range(len(words)), round(len(words) * share)):
        words[place] = f"changed{chance.randrange(10**6)}"
    return words


def one(text: str) -> bytes:
    (sketch,) = sketches([text.encode()])
    assert sketch is not None
    return sketch


def estimate(first: str, second: str) -> float:
    return float(overlaps(as_words([one(first)]), as_words([one(second)]))[0])


def exact(first: str, second: str) -> float:
    sets = []
    for text in (first, second):
        words = re.findall(r"[\u3000-\uffff]|[^\W\u3000-\uffff]+", text)
        sets.append(set(zip(words, words[1:], words[2:], strict=False)))
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_the_digest_is_sha256() -> None:
    assert digest(b"body") == hashlib.sha256(b"body").digest()


@pytest.mark.parametrize("count", [40, 200, 1200, 2400])
def test_the_overlap_is_that_of_the_sets_of_shingles(count: int) -> None:
    for seed in range(30):
        chance = random.Random(seed)
        words = prose(chance, count)
        first, second = " ".join(words), " ".join(altered(words, chance.choice([0.01, 0.02, 0.04, 0.1]), chance))
        if exact(first, second) > 0.85:
            assert estimate(first, second) == pytest.approx(exact(first, second), abs=0.05)


def test_how_often_a_shingle_occurs_does_not_matter() -> None:
    words = " ".join(prose(random.Random(1), 300))
    others = " ".join(prose(random.Random(2), 300))
    filler = " nbsp nbsp nbsp" * 500
    assert estimate(words + filler, others + filler) < 0.2
    assert estimate(words + filler, words + " nbsp nbsp nbsp nbsp") > 0.97


def test_unrelated_texts_and_shared_boilerplate_are_not_near() -> None:
    """If most shingles differ, a sketch cannot tell how many; it is enough that such texts are not candidates."""
    boilerplate = " ".join(prose(random.Random(99), 600))
    texts = [boilerplate + " " + " ".join(prose(random.Random(seed), 600)) for seed in range(20)]
    assert max(estimate(texts[i], texts[j]) for i in range(20) for j in range(i)) < 0.8


def test_long_words_are_read_to_their_end() -> None:
    template = "class {0} has a constructor {0} and an operator of {0} that returns the {0} as it is in {0} or so " * 2
    first, second = template.format("piecewise_linear_distribution"), template.format("piecewise_constant_distribution")
    assert estimate(first, second) < 0.5


def test_punctuation_and_white_space_do_not_count() -> None:
    text = "the first of these words, and (the last) of them: it is «quoted» – so that nothing is_like it was before"
    assert one(text) == one(re.sub(r"[^\w]+", "\n\t\xa0", text)) == one(text.replace(" ", "…  "))


def test_one_line_pages_of_a_template_are_never_taken_for_one_another() -> None:
    pages = [f"The node you are looking for is at XREFnode{number}." for number in range(3000)]
    made = sketches([page.encode() for page in pages])
    assert len(set(made)) == len(pages)
    words = as_words([sketch for sketch in made if sketch is not None])
    assert len(set(words[:, BANDS_AT].tolist())) == len(pages)
    assert max(overlaps(words[1:], words[:-1])) < OVERLAP_MIN


def test_a_tiny_text_is_near_only_to_its_own_words() -> None:
    text = " ".join(f"word{number}" for number in range(TINY))
    assert estimate(text, text.replace(" ", " - ")) == 1
    assert estimate(text, text + " more") == 0


def test_chinese_text_is_judged_without_spaces() -> None:
    chance = random.Random(3)
    characters = [chr(0x4E00 + number) for number in range(2000)]
    texts = ["".join(chance.choices(characters, k=1500)) for _ in range(20)]
    assert all(estimate(text, text[:700] + "新" + text[701:]) > 0.97 for text in texts)
    assert max(estimate(texts[i], texts[i - 1]) for i in range(20)) < 0.8


@pytest.mark.parametrize("text", [b"", b" ", b"two words", b"\0" * 100, b"~" * 100, "« » “ ”".encode()])
def test_fewer_than_three_words_are_not_judged(text: bytes) -> None:
    assert sketches([text]) == [None]
    assert sketches([b"a text with words", text, b"another text with words"])[1] is None


def test_nothing_in_is_nothing_out() -> None:
    assert sketches([]) == []


def test_only_the_beginning_of_a_text_counts() -> None:
    text = " ".join(prose(random.Random(7), 6000)).encode()
    assert len(text) > TEXT_BYTES_MAX
    assert sketches([text]) == sketches([text[:TEXT_BYTES_MAX] + b" and more"])


def test_a_large_batch_answers_like_single_texts() -> None:
    texts = [" ".join(prose(random.Random(seed), 100 + 97 * seed)).encode() for seed in range(60)] + [b"", b"short"]
    assert sum(len(text[:TEXT_BYTES_MAX]) for text in texts) > GROUP_BYTES_MAX
    assert sketches(texts) == [sketches([text])[0] for text in texts]


@settings(max_examples=100)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=400),
            st.text(max_size=400).map(str.encode),
            st.text("ab _é—語", max_size=200).map(str.encode),
        ),
        max_size=6,
    )
)
def test_a_text_is_judged_alike_whatever_is_in_its_batch(texts: list[bytes]) -> None:
    assert sketches(texts) == [sketches([text])[0] for text in texts]


def test_a_sketch_of_another_format_is_not_readable() -> None:
    sketch = one("a text of some words")
    assert len(sketch) == SKETCH_BYTES
    assert readable(sketch)
    assert not readable(sketch[:15] + b"\x63" + sketch[16:])
    assert not readable(sketch + b"\0")
    assert not readable(b"")
    assert not readable(None)


def test_sketches_are_the_same_in_every_process_and_version() -> None:
    text = " ".join(f"word{number} and the number {number * number} — 語" for number in range(200))
    code = f"from drumlin.dedupe import sketches; print(sketches([{text.encode()!r}])[0].hex())"
    environment = {**os.environ, "PYTHONHASHSEED": "77", "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, timeout=60)
    assert bytes.fromhex(answer.stdout.decode()) == one(text)
    assert hashlib.sha256(one(text)).hexdigest()[:16] == FIXED_SKETCH
