"""What a store of objects holds, by the entries of its manifest; and where a store is."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.errors import Cause, ConfigError
from drumlin.store.objects.address import Access, Address, find_access, is_objects, parse_address
from drumlin.store.objects.bucket import Bucket, _failure
from drumlin.store.objects.contents import KEPT_S, Contents, Entry, Item, SegmentNames

KEYS = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret"}


def item(path: str, name: str = "") -> Item:
    return Item(path, name or f"data/hash/{path}", 1, 0.0)


def entry(at: float = 0.0, add: tuple[Item, ...] = (), remove: tuple[str, ...] = ()) -> Entry:
    return Entry("id", at, "test", list(add), list(remove))


# Contents


def test_an_entry_adds_and_removes_files() -> None:
    contents = Contents()
    contents.apply(1, entry(add=(item("warc/a"), item("tables/pages/b"))))
    contents.apply(2, entry(remove=("warc/a",), add=(item("warc/c"),)))
    assert sorted(one.path for one in contents.items()) == ["tables/pages/b", "warc/c"]
    assert set(contents.folder("warc")) == {"c"}
    assert contents.item("warc/a") is None


def test_what_was_removed_is_still_found_for_a_while() -> None:
    contents = Contents()
    contents.apply(1, entry(add=(item("warc/a"),)))
    contents.apply(2, entry(at=10.0, remove=("warc/a",)))
    past = contents.past("warc/a")
    assert past is not None
    assert past.name == "data/hash/warc/a"
    # An entry that only adds has the time of a node, whose clock may be wrong.
    contents.apply(3, entry(at=11.0 + 2 * KEPT_S, add=(item("warc/b"),)))
    assert contents.past("warc/a") is not None
    contents.apply(4, entry(at=11.0 + 2 * KEPT_S, remove=("warc/b",)))
    assert contents.past("warc/a") is None


def test_a_file_that_is_replaced_has_one_path_and_two_objects() -> None:
    contents = Contents()
    contents.apply(1, entry(add=(item("warc/index.cdxj", "old"),)))
    contents.apply(2, entry(add=(item("warc/index.cdxj", "new"),)))
    found = contents.item("warc/index.cdxj")
    assert found is not None
    assert (found.name, len(contents), set(contents.gone)) == ("new", 1, {"old"})


def test_an_entry_that_does_not_follow_is_refused_and_changes_nothing() -> None:
    contents = Contents()
    with pytest.raises(ValueError, match="cannot follow"):
        contents.apply(2, entry(add=(item("warc/a"),)))
    assert (len(contents), contents.number) == (0, 0)


def test_a_checkpoint_reads_back_as_it_was() -> None:
    contents = Contents()
    contents.apply(1, Entry("id", 1.0, "test", [item("warc/a")], [], ["n-1f-00001"]))
    contents.apply(2, entry(at=2.0, remove=("warc/a",), add=(item("warc/b"),)))
    back = Contents.unpacked(contents.packed())
    assert back.number == 2
    assert list(back.items()) == list(contents.items())
    assert back.gone == contents.gone
    assert "n-1f-00001" in back.segments
    assert back.folder("warc") == contents.folder("warc")


@given(st.lists(st.integers(0, 30)), st.integers(0, 31))
def test_names_of_segments_are_known_however_they_came(serials: list[int], asked: int) -> None:
    names = SegmentNames()
    for serial in serials:
        names.add(f"a-b-1f-{serial:05}")
    assert (f"a-b-1f-{asked:05}" in names) == (asked in serials)
    assert f"a-b-2f-{asked:05}" not in names
    # Neighbours share a range, so a long crawl needs little room.
    ranges = [one for known in names.ranges.values() for one in known]
    assert all(first <= last for first, last in ranges)
    assert all(later[0] > earlier[1] + 1 for earlier, later in pairwise(ranges))


# Addresses and credentials


def test_an_address_is_a_bucket_and_a_prefix() -> None:
    assert parse_address("s3://crawls/2026/news/") == Address("crawls", "2026/news")
    assert str(parse_address("s3://crawls")) == "s3://crawls"
    assert is_objects("s3://crawls")
    assert not is_objects("/data/store")
    assert not is_objects(None)


@pytest.mark.parametrize("wrong", ["s3://", "s3:///x", "s3://A_B/x", "s3://b/../x y", "crawls/x"])
def test_a_wrong_address_is_refused_with_a_sentence(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"names no bucket|cannot be the prefix"):
        parse_address(wrong)


def test_credentials_come_from_variables_first(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[default]\naws_access_key_id=x\naws_secret_access_key=y\n")
    access = find_access({**KEYS, "AWS_ENDPOINT_URL": "http://127.0.0.1:1/"}, tmp_path)
    assert (access.key_id, access.secret, access.endpoint) == ("id", "secret", "http://127.0.0.1:1")


def test_credentials_come_from_the_files_of_a_profile(tmp_path: Path) -> None:
    (tmp_path / ".aws").mkdir()
    secrets = "[default]\naws_access_key_id=x\naws_secret_access_key=y\n[crawl]\naws_access_key_id=a\n"
    (tmp_path / ".aws" / "credentials").write_text(secrets + "aws_secret_access_key=b\naws_session_token=c\n")
    (tmp_path / ".aws" / "config").write_text("[profile crawl]\nregion=eu-west-1\nendpoint_url=https://s3.example\n")
    access = find_access({"AWS_PROFILE": "crawl"}, tmp_path)
    assert (access.key_id, access.secret, access.session) == ("a", "b", "c")
    assert (access.region, access.endpoint) == ("eu-west-1", "https://s3.example")


def test_no_secret_is_shown(tmp_path: Path) -> None:
    assert "secret" not in repr(find_access(KEYS, tmp_path))
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("aws_secret_access_key = tell-nobody\n")
    with pytest.raises(ConfigError) as told:
        find_access({}, tmp_path)
    assert "tell-nobody" not in str(told.value)


def test_half_a_key_and_a_profile_that_is_missing_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="only one half"):
        find_access({"AWS_ACCESS_KEY_ID": "id"}, tmp_path)
    with pytest.raises(ConfigError, match="no AWS profile 'crawl'"):
        find_access({"AWS_PROFILE": "crawl"}, tmp_path)


def test_a_private_authority_is_named_as_others_do(tmp_path: Path) -> None:
    assert find_access({"AWS_CA_BUNDLE": "/etc/ca.pem"}, tmp_path).authority == "/etc/ca.pem"
    with pytest.raises(
        ConfigError, match=r"Cannot read /nowhere/ca.pem: No such file or directory. Check AWS_CA_BUNDLE"
    ):
        Bucket(Address("crawls", ""), Access(authority="/nowhere/ca.pem"))


@pytest.mark.parametrize(
    ("said", "code", "hint"),
    [
        ("error sending request\n error: InvalidCertificate(\n   UnknownIssuer,", Cause.STORE_FAILED, "AWS_CA_BUNDLE"),
        ("403 Forbidden: <Error><Code>QuotaExceeded</Code></Error>", Cause.STORE_FULL, "Make room there"),
        ("403 Forbidden: <Error><Code>AccessDenied</Code></Error>", Cause.STORE_FAILED, "what this key may do"),
        ("error sending request", Cause.STORE_SILENT, "that the service runs"),
        ("error sending request\n HttpError {\n kind: Timeout,", Cause.STORE_SILENT, "the way to it"),
        ("503 Service Unavailable: <Error><Code>SlowDown</Code></Error>", Cause.STORE_SILENT, "is too busy"),
        ("after 4 retries - status code: 429 Too Many Requests: ", Cause.STORE_SILENT, "is too busy"),
    ],
)
def test_what_a_service_or_its_library_says_leads_to_what_can_be_done(said: str, code: Cause, hint: str) -> None:
    failure = _failure("Cannot write in s3://b", said)
    assert (failure.code, hint in failure.hint) == (code, True)
    assert "\n" not in str(failure)


def test_an_address_of_a_service_without_its_scheme_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'127\.0\.0\.1:9000' is no address of a service"):
        find_access({"AWS_ENDPOINT_URL": "127.0.0.1:9000"}, tmp_path)


def test_files_can_be_listed_while_others_are_added() -> None:
    contents = Contents()
    contents.apply(1, entry(add=(item("warc/a"), item("warc/b"))))
    for number, _ in enumerate(contents.items(), 2):
        contents.apply(number, entry(add=(item(f"warc/{number}"),)))
    for number, _ in enumerate(contents.folder("warc"), 4):
        contents.apply(number, entry(add=(item(f"warc/{number}"),)))
