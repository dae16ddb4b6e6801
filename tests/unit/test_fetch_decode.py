"""Content encodings are undone, and hostile ones are stopped."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from contextlib import suppress

import brotli
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.errors import SiteError
from drumlin.fetch.decode import EXPANSION_BYTES_FREE, GZIP_MEMBERS_MAX, decode, decoded_bytes_max
from drumlin.model import FailureKind

PAGE = b"".join(b"<p>Paragraph %d of a page.</p>\n" % number for number in range(1000))
LIMIT = 1 << 20


def raw_deflate(body: bytes) -> bytes:
    deflater = zlib.compressobj(wbits=-15)
    return deflater.compress(body) + deflater.flush()


ENCODERS = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}


def failure(body: bytes, encoding: str, bytes_max: int = LIMIT) -> str:
    with pytest.raises(SiteError) as raised:
        decode(body, encoding, bytes_max)
    return raised.value.kind


@pytest.mark.parametrize("encoding", ENCODERS)
def test_each_encoding_is_undone(encoding: str) -> None:
    assert decode(ENCODERS[encoding](PAGE), encoding, LIMIT) == PAGE


def test_deflate_without_its_zlib_header_is_undone() -> None:
    assert decode(raw_deflate(PAGE), "deflate", LIMIT) == PAGE


@pytest.mark.parametrize("encoding", ["", "identity", " Identity , "])
def test_without_an_encoding_the_same_object_comes_back(encoding: str) -> None:
    assert decode(PAGE, encoding, LIMIT) is PAGE


def test_stacked_encodings_are_undone_from_the_last() -> None:
    assert decode(brotli.compress(gzip.compress(PAGE)), "GZIP, br", LIMIT) == PAGE


def test_more_than_three_encodings_are_refused() -> None:
    assert failure(PAGE, "gzip, gzip, gzip, gzip") == FailureKind.DECODE


@pytest.mark.parametrize("encoding", ["sdch", "dcz", "dcb, gzip"])
def test_an_encoding_that_cannot_be_undone_is_refused(encoding: str) -> None:
    assert failure(gzip.compress(PAGE) if "gzip" in encoding else PAGE, encoding) == FailureKind.DECODE


@pytest.mark.parametrize(
    ("encoding", "start"),
    [("compress", b"\x1f\x9d"), ("bzip2", b"BZh"), ("xz", b"\xfd7zXZ\0"), ("lz4", b"\x04\x22\x4d\x18")],
)
def test_an_encoding_that_shows_in_the_bytes_is_refused_only_where_it_does(encoding: str, start: bytes) -> None:
    assert failure(start + PAGE, encoding) == FailureKind.DECODE
    assert failure(gzip.compress(start + PAGE), f"{encoding}, gzip") == FailureKind.DECODE
    assert decode(PAGE, encoding, LIMIT) is PAGE


@pytest.mark.parametrize("name", ["none", "binary", "UTF-8", "aws-chunked", "ISO-8859-1", "\xff", "text/html", "qrst"])
def test_a_name_that_is_no_encoding_means_nothing(name: str) -> None:
    assert decode(PAGE, name, LIMIT) is PAGE
    assert decode(gzip.compress(PAGE), f"{name}, gzip", LIMIT) == PAGE
    assert decode(gzip.compress(PAGE), f"gzip, {name}" if name in ("none", "binary") else "gzip", LIMIT) == PAGE


def test_an_unknown_name_on_compressed_bytes_is_an_error_and_none_on_a_packed_file_is_not() -> None:
    packed = gzip.compress(PAGE)
    assert failure(packed, "qrst") == FailureKind.DECODE
    assert decode(packed, "none", LIMIT) is packed


@pytest.mark.parametrize("encoding", ['"gzip"', "gzip;q=1", "gzip, gzip", "x-gzip"])
def test_gzip_is_known_however_it_is_written_and_twice(encoding: str) -> None:
    assert decode(gzip.compress(PAGE), encoding, LIMIT) == PAGE


@pytest.mark.parametrize("encoding", ENCODERS)
def test_an_empty_body_has_nothing_to_undo(encoding: str) -> None:
    assert decode(b"", encoding, LIMIT) == b""


@pytest.mark.parametrize("encoding", ENCODERS)
def test_the_limit_is_exact(encoding: str) -> None:
    encoded = ENCODERS[encoding](PAGE)
    assert decode(encoded, encoding, len(PAGE)) == PAGE
    assert failure(encoded, encoding, len(PAGE) - 1) == FailureKind.TOO_LARGE


def test_the_limit_counts_without_an_encoding_too() -> None:
    assert failure(PAGE, "", len(PAGE) - 1) == FailureKind.TOO_LARGE


@pytest.mark.parametrize("encoding", ENCODERS)
def test_a_bomb_is_stopped_before_it_takes_memory(encoding: str) -> None:
    bomb = ENCODERS[encoding](bytes(64 << 20))
    tracemalloc.start()
    assert failure(bomb, encoding) == FailureKind.TOO_LARGE
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 8 * LIMIT


def test_a_bomb_inside_a_bomb_is_stopped() -> None:
    assert failure(gzip.compress(gzip.compress(bytes(64 << 20))), "gzip, gzip") == FailureKind.TOO_LARGE


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br"])
def test_what_arrived_of_a_cut_stream_is_kept(encoding: str) -> None:
    encoded = ENCODERS[encoding](PAGE)
    kept = decode(encoded[: len(encoded) * 3 // 4], encoding, LIMIT)
    assert kept
    assert PAGE.startswith(kept)


@pytest.mark.parametrize("encoding", ENCODERS)
def test_a_stream_cut_before_its_first_byte_is_an_error(encoding: str) -> None:
    assert failure(ENCODERS[encoding](PAGE)[:3], encoding) == FailureKind.DECODE


@pytest.mark.parametrize("encoding", ENCODERS)
def test_a_body_that_is_not_encoded_at_all_is_an_error(encoding: str) -> None:
    assert failure(PAGE, encoding) == FailureKind.DECODE


def test_a_wrong_checksum_is_an_error() -> None:
    encoded = gzip.compress(PAGE)
    assert failure(encoded[:-8] + bytes(4) + encoded[-4:], "gzip") == FailureKind.DECODE


def test_gzip_members_follow_one_another_and_rubbish_after_them_is_ignored() -> None:
    assert decode(gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0rubbish", "gzip", LIMIT) == b"one two"


def test_the_limit_counts_all_gzip_members() -> None:
    assert failure(gzip.compress(bytes(600)) * 2, "gzip", 1000) == FailureKind.TOO_LARGE


def test_too_many_gzip_members_are_refused() -> None:
    member = gzip.compress(b".")
    assert len(decode(member * GZIP_MEMBERS_MAX, "gzip", LIMIT)) == GZIP_MEMBERS_MAX
    assert failure(member * (GZIP_MEMBERS_MAX + 1), "gzip") == FailureKind.DECODE


def test_a_zstd_window_larger_than_the_web_allows_is_refused() -> None:
    parameters = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    assert failure(compressor.compress(PAGE) + compressor.flush(), "zstd") == FailureKind.DECODE


@settings(max_examples=50)
@given(st.sampled_from(sorted(ENCODERS)), st.binary(min_size=1, max_size=200), st.data())
def test_a_damaged_stream_is_an_answer_or_a_site_error(encoding: str, body: bytes, data: st.DataObject) -> None:
    encoded = bytearray(ENCODERS[encoding](body))
    encoded[data.draw(st.integers(0, len(encoded) - 1))] ^= data.draw(st.integers(1, 255))
    with suppress(SiteError):
        assert len(decode(bytes(encoded), encoding, 1000)) <= 1000


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "zstd"])
def test_a_few_bytes_do_not_become_more_than_gzip_could_make_of_them(encoding: str) -> None:
    zeroes = bytes(2 * EXPANSION_BYTES_FREE)
    for name in encoding.split(", "):
        zeroes = ENCODERS[name](zeroes)
    most = decoded_bytes_max(zeroes, 16 * EXPANSION_BYTES_FREE)
    assert failure(zeroes, encoding, most) == FailureKind.TOO_LARGE


def test_gzip_at_its_densest_is_undone() -> None:
    zeroes = bytes(4 * EXPANSION_BYTES_FREE)
    packed = gzip.compress(zeroes)
    assert decode(packed, "gzip", decoded_bytes_max(packed, len(zeroes))) == zeroes
