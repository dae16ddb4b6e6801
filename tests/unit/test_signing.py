"""A signed request is accepted as it was sent, about when it was sent, and in no other form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.access.signing import CLOCK_SKEW_S, NONCE_BYTES, NONCE_KEPT_S, SignatureError, sign, verify

KEY = b"k" * 32
NOW = 1_800_000_000.0
NONCE = bytes(range(NONCE_BYTES))
TARGET = "/api/v1/nodes/n1/results"


def signed(body: bytes = b"body", now: float = NOW) -> str:
    return sign(KEY, "POST", TARGET, body, now, NONCE)


def refusal(
    header: str | None, *, key: bytes = KEY, target: str = TARGET, body: bytes = b"body", now: float = NOW
) -> str:
    with pytest.raises(SignatureError) as refused:
        verify(key, header, "POST", target, body, now)
    return refused.value.code


@given(st.binary(), st.text(max_size=80), st.floats(1e9, 4e9))
def test_what_was_signed_is_verified_and_gives_its_time_and_nonce(body: bytes, target: str, now: float) -> None:
    header = sign(KEY, "POST", target, body, now, NONCE)
    assert verify(KEY, header, "POST", target, body, now) == f"{round(now * 1000):016d}:{NONCE.hex()}"


@given(st.data())
def test_no_character_of_a_signature_can_be_changed(data: st.DataObject) -> None:
    header = signed()
    place = data.draw(st.integers(0, len(header) - 1))
    other = data.draw(st.characters().filter(lambda character: character != header[place]))
    assert refusal(header[:place] + other + header[place + 1 :]) in ("signature_malformed", "signature_wrong")


@given(st.binary(min_size=1, max_size=200), st.data())
def test_no_byte_of_a_body_can_be_changed_added_or_left_out(body: bytes, data: st.DataObject) -> None:
    header = signed(body)
    place = data.draw(st.integers(0, len(body) - 1))
    flipped = bytes([body[place] ^ data.draw(st.integers(1, 255))])
    for other in (body[:place] + flipped + body[place + 1 :], body[:place] + body[place + 1 :], body + b"\0"):
        assert refusal(header, body=other) == "signature_wrong"


def test_a_signature_serves_for_one_method_target_and_key() -> None:
    assert refusal(signed(), target="/api/v1/nodes/n2/results") == "signature_wrong"
    assert refusal(signed(), target=TARGET + "?x=1") == "signature_wrong"
    assert refusal(signed(), key=b"K" * 32) == "signature_wrong"
    with pytest.raises(SignatureError):
        verify(KEY, signed(), "PUT", TARGET, b"body", NOW)


def test_a_target_with_line_feeds_is_not_taken_for_other_fields() -> None:
    first = sign(KEY, "POST", "/a\n/b", b"", NOW, NONCE)
    with pytest.raises(SignatureError):
        verify(KEY, first, "POST\n/a", "/b", b"x", NOW)


@pytest.mark.parametrize("offset_s", [-CLOCK_SKEW_S, -1.0, 0.0, 1.0, CLOCK_SKEW_S])
def test_clocks_may_differ_a_little(offset_s: float) -> None:
    assert verify(KEY, signed(now=NOW + offset_s), "POST", TARGET, b"body", NOW)


@pytest.mark.parametrize("offset_s", [-CLOCK_SKEW_S - 1, CLOCK_SKEW_S + 1])
def test_a_request_of_another_time_is_refused(offset_s: float) -> None:
    assert refusal(signed(now=NOW + offset_s)) == "signature_out_of_time"


def test_when_a_nonce_is_forgotten_its_request_is_out_of_time() -> None:
    """The latest moment at which a request can be seen first, and then again, by the same clock."""
    first_seen = NOW - CLOCK_SKEW_S
    assert verify(KEY, signed(), "POST", TARGET, b"body", first_seen)
    assert refusal(signed(), now=first_seen + NONCE_KEPT_S + 0.001) == "signature_out_of_time"


def test_a_request_without_a_signature_is_told_which_header_it_lacks() -> None:
    assert refusal(None) == refusal("") == "signature_missing"


@pytest.mark.parametrize(
    "header",
    ["v2 1 a b", "v1", "v1  1 2 3", signed() + " ", signed() + "\n", signed().upper(), "v1 0 0 0", "x" * 10_000],
)
def test_a_malformed_signature_is_refused(header: str) -> None:
    assert refusal(header) == "signature_malformed"


def test_a_nonce_of_another_length_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        sign(KEY, "POST", TARGET, b"", NOW, b"short")
