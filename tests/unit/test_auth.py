"""Tokens: nobody does what their role does not permit, no change to a token goes unnoticed, what is revoked is void."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.access.signing import NONCE_BYTES, sign
from drumlin.access.tokens import (
    ANY_NODE,
    NODE_TOKEN_S,
    PEOPLE,
    REVOKED_TABLE,
    ROLES,
    SECRET_KEY,
    TOKENS_MAX,
    TOKENS_TABLE,
    AccessControl,
    Identity,
    OpenAccess,
    Permission,
    Role,
    crawl_secret,
    revoke_token,
    token_records,
)
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import ConfigError
from drumlin.http.refusal import Refused

NOW = 1_800_000_000.0
SECRET = bytes(range(32))
TARGET = "/api/v1/nodes/n1/results"


@pytest.fixture
def engine() -> MemoryEngine:
    return MemoryEngine(1)


def person(
    engine: MemoryEngine, role: Role, *, expires: float | None = None, access: AccessControl | None = None
) -> str:
    return drive((access or AccessControl(SECRET)).issue(engine, role, "somebody", NOW, expires=expires))


def token_of(role: Role, engine: MemoryEngine) -> str:
    return AccessControl(SECRET).node_token("n1", NOW) if role is Role.NODE else person(engine, role)


def refusal(check: Callable[[], object]) -> Refused:
    with pytest.raises(Refused) as refused:
        check()
    return refused.value


def check(token: str, needed: Permission = Permission.READ, node_id: str | None = None, now: float = NOW) -> Identity:
    return AccessControl(SECRET).check(f"Bearer {token}", needed, node_id, now)


# Roles


@pytest.mark.parametrize(("role", "needed"), list(itertools.product(Role, Permission)))
def test_a_role_permits_what_the_table_says_and_nothing_else(role: Role, needed: Permission) -> None:
    token = token_of(role, MemoryEngine(1))
    if role in ROLES[needed]:
        assert check(token, needed, "n1").role is role
    else:
        wrong = refusal(lambda: check(token, needed, "n1"))
        assert (wrong.status, wrong.code) == (403, "wrong_role")


def test_the_table_of_roles_is_what_the_api_promises() -> None:
    assert ROLES[Permission.READ] < ROLES[Permission.WATCH_NODE]
    assert ROLES[Permission.OPERATE] == {Role.OPERATOR}
    assert [needed for needed in Permission if Role.JOIN in ROLES[needed]] == [Permission.JOIN]
    assert [needed for needed in Permission if Role.VIEWER in ROLES[needed]] == [
        Permission.READ,
        Permission.WATCH_NODE,
        Permission.LOOK_UP,
    ]


@pytest.mark.parametrize("needed", [needed for needed in Permission if Role.NODE in ROLES[needed]])
@pytest.mark.parametrize("named", ["n2", "N1", "n1 ", "", None])
def test_the_token_of_one_node_cannot_act_for_another(needed: Permission, named: str | None) -> None:
    token = AccessControl(SECRET).node_token("n1", NOW)
    if needed in ANY_NODE:
        assert check(token, needed, named).id == "n1"
        return
    wrong = refusal(lambda: check(token, needed, named))
    assert (wrong.status, wrong.code) == (403, "other_node")


@pytest.mark.parametrize("header", [None, "", "Basic dTpw", "drumlin_viewer_a_0_b"])
def test_a_request_without_a_token_is_told_what_to_send(header: str | None) -> None:
    wrong = refusal(lambda: AccessControl(SECRET).check(header, Permission.READ, None, NOW))
    assert (wrong.status, wrong.code) == (401, "no_token")


# The text of a token


def test_a_token_is_easy_to_find_and_safe_in_a_url(engine: MemoryEngine) -> None:
    for role in Role:
        token = token_of(role, engine)
        assert re.fullmatch(rf"drumlin_{role}_[A-Za-z0-9._-]+_[0-9]+_[a-z2-7]{{32}}", token)


@given(st.data())
def test_no_character_of_a_token_can_be_changed(data: st.DataObject) -> None:
    engine = MemoryEngine(1)
    token = data.draw(st.sampled_from([token_of(role, engine) for role in Role]))
    place = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters().filter(lambda character: character != token[place]))
    changed = token[:place] + other + token[place + 1 :]
    # White space around a token does not belong to it.
    if changed.strip() == token:
        return
    wrong = refusal(lambda: check(changed, Permission.JOIN, "n1"))
    assert (wrong.status, wrong.code) == (401, "invalid_token")


@given(st.data())
def test_no_character_of_a_token_can_be_left_out_or_added(data: st.DataObject) -> None:
    token = AccessControl(SECRET).node_token("a_node_5", NOW)
    place = data.draw(st.integers(0, len(token) - 1))
    more = data.draw(st.text(st.characters(codec="ascii", exclude_categories=["Z", "C"]), min_size=1, max_size=3))
    for changed in (token[:place] + token[place + 1 :], token[:place] + more + token[place:], token + more):
        assert refusal(lambda: check(changed, Permission.NODE, "a_node_5")).code == "invalid_token"  # noqa: B023


@given(st.text(max_size=300))
def test_any_header_is_refused_or_understood_never_an_error(header: str) -> None:
    assert refusal(lambda: AccessControl(SECRET).check(header, Permission.READ, None, NOW)).status == 401
    assert refusal(lambda: AccessControl(SECRET).check("Bearer " + header, Permission.READ, None, NOW)).status == 401


def test_a_token_of_another_crawl_is_not_valid(engine: MemoryEngine) -> None:
    token = drive(AccessControl(bytes(32)).issue(engine, Role.OPERATOR, "", NOW))
    assert refusal(lambda: check(token)).code == "invalid_token"


def test_a_node_cannot_take_a_name_that_reads_as_another_role() -> None:
    for name in ("", "-", "a b", "a/b", "a\n", "é", "x" * 65):
        assert refusal(lambda: AccessControl(SECRET).node_token(name, NOW)).code == "bad_node_id"  # noqa: B023
    tricky = AccessControl(SECRET).node_token("viewer_abc_0", NOW)
    assert check(tricky, Permission.NODE, "viewer_abc_0") == Identity(Role.NODE, "viewer_abc_0")


def test_a_token_expires(engine: MemoryEngine) -> None:
    token = person(engine, Role.VIEWER, expires=NOW + 60)
    assert check(token, now=NOW + 59.9).role is Role.VIEWER
    assert refusal(lambda: check(token, now=NOW + 60)).code == "token_expired"


# Revocation


def test_a_revoked_token_is_refused_by_every_coordinator_after_its_refresh(engine: MemoryEngine) -> None:
    here, there = AccessControl(SECRET), AccessControl(SECRET)
    token, kept = person(engine, Role.OPERATOR, access=here), person(engine, Role.OPERATOR, access=here)
    token_id = token.split("_")[2]
    assert drive(revoke_token(engine, token_id, NOW))
    drive(here.refresh(engine))
    assert refusal(lambda: here.check(f"Bearer {token}", Permission.READ, None, NOW)).code == "token_revoked"
    assert there.check(f"Bearer {token}", Permission.READ, None, NOW).id == token_id
    drive(there.refresh(engine))
    assert refusal(lambda: there.check(f"Bearer {token}", Permission.READ, None, NOW)).code == "token_revoked"
    assert there.check(f"Bearer {kept}", Permission.READ, None, NOW).id == kept.split("_")[2]


def test_revoking_what_does_not_exist_changes_nothing(engine: MemoryEngine) -> None:
    assert not drive(revoke_token(engine, "nobody", NOW))
    assert not drive(revoke_token(engine, "node/n1", NOW))
    assert drive(engine.get_entries(REVOKED_TABLE)) == {}


def test_revoking_twice_keeps_the_first_time(engine: MemoryEngine) -> None:
    token_id = person(engine, Role.VIEWER).split("_")[2]
    assert drive(revoke_token(engine, token_id, NOW))
    assert drive(revoke_token(engine, token_id, NOW + 5))
    assert [record.revoked for record in drive(token_records(engine))] == [NOW]


def test_a_revoked_node_gets_another_token_and_key_when_it_registers_again(engine: MemoryEngine) -> None:
    here, there = AccessControl(SECRET), AccessControl(SECRET)
    token, key = here.node_token("n1", NOW), here.node_key("n1")
    other = here.node_token("n2", NOW)
    drive(here.revoke_node(engine, "n1"))
    drive(there.refresh(engine))
    for access in (here, there):
        assert refusal(lambda: access.check(f"Bearer {token}", Permission.NODE, "n1", NOW)).status == 401  # noqa: B023
        assert access.check(f"Bearer {access.node_token('n1', NOW)}", Permission.NODE, "n1", NOW).id == "n1"
        assert access.check(f"Bearer {other}", Permission.NODE, "n2", NOW).id == "n2"
    assert there.node_token("n1", NOW) == here.node_token("n1", NOW) != token
    assert there.node_key("n1") == here.node_key("n1") != key


def test_two_coordinators_that_revoke_a_node_one_after_the_other_void_what_came_between(engine: MemoryEngine) -> None:
    here, there = AccessControl(SECRET), AccessControl(SECRET)
    drive(here.revoke_node(engine, "n1"))
    between = here.node_token("n1", NOW)
    drive(there.revoke_node(engine, "n1"))
    assert refusal(lambda: there.check(f"Bearer {between}", Permission.NODE, "n1", NOW)).code == "invalid_token"


def test_a_nodes_token_ends_after_a_day_and_is_renewed_in_its_second_half() -> None:
    access = AccessControl(SECRET)
    header = f"Bearer {access.node_token('n1', NOW, 'abc')}"
    assert access.renewed(header, NOW + NODE_TOKEN_S / 3) is None
    renewed = access.renewed(header, NOW + NODE_TOKEN_S * 2 / 3)
    end = NOW + NODE_TOKEN_S
    assert refusal(lambda: access.check(header, Permission.NODE, "n1", end)).code == "token_expired"
    assert access.check(f"Bearer {renewed}", Permission.NODE, "n1", end) == Identity(Role.NODE, "n1", "abc")


def test_nobody_but_a_node_is_given_another_token(engine: MemoryEngine) -> None:
    header = f"Bearer {person(engine, Role.OPERATOR, expires=NOW + 60)}"
    assert AccessControl(SECRET).renewed(header, NOW + 59) is None
    assert AccessControl(SECRET).renewed(None, NOW) is None
    assert OpenAccess(SECRET).renewed("Bearer anything", NOW) is None


def test_a_token_can_be_revoked_with_all_nodes_that_it_brought(engine: MemoryEngine) -> None:
    here, there = AccessControl(SECRET), AccessControl(SECRET)
    mine, others = (person(engine, Role.JOIN).split("_")[2] for _ in range(2))
    brought = {name: f"Bearer {here.node_token(name, NOW, token)}" for name, token in (("n1", mine), ("n2", others))}
    drive(revoke_token(engine, mine, NOW))
    drive(here.refresh(engine))
    assert here.check(brought["n1"], Permission.NODE, "n1", NOW).joined_by == mine, "its nodes go on"
    drive(revoke_token(engine, mine, NOW, with_nodes=True))
    late = f"Bearer {there.node_token('n3', NOW, mine)}"
    for access in (here, there):
        drive(access.refresh(engine))
        assert refusal(lambda: access.check(brought["n1"], Permission.NODE, "n1", NOW)).code == "token_revoked"  # noqa: B023
        assert refusal(lambda: access.check(late, Permission.NODE, "n3", NOW)).code == "token_revoked"  # noqa: B023
        assert access.check(brought["n2"], Permission.NODE, "n2", NOW).id == "n2"


def test_that_the_nodes_of_a_token_are_revoked_is_remembered_until_their_tokens_have_expired(
    engine: MemoryEngine,
) -> None:
    token_id = person(engine, Role.JOIN, expires=NOW + 60).split("_")[2]
    drive(revoke_token(engine, token_id, NOW, with_nodes=True))
    counts = []
    for now in (NOW + 61, NOW + NODE_TOKEN_S, NOW + 3 * NODE_TOKEN_S):
        drive(AccessControl(SECRET).issue(engine, Role.VIEWER, "", now))
        counts.append(len(drive(engine.get_entries(REVOKED_TABLE))))
    assert counts == [1, 1, 0]


def test_nodes_can_be_revoked_by_the_token_that_they_joined_with_after_it_has_expired(engine: MemoryEngine) -> None:
    token_id = person(engine, Role.JOIN, expires=NOW + 60).split("_")[2]
    access, later = AccessControl(SECRET), NOW + 30 * NODE_TOKEN_S
    drive(access.issue(engine, Role.VIEWER, "", later))
    assert drive(revoke_token(engine, token_id, later, with_nodes=True))
    drive(access.refresh(engine))
    node = f"Bearer {access.node_token('n1', later, token_id)}"
    assert refusal(lambda: access.check(node, Permission.NODE, "n1", later)).code == "token_revoked"


# Records


def test_the_engine_holds_who_has_a_token_and_never_the_token(engine: MemoryEngine) -> None:
    tokens = [person(engine, role, expires=NOW + 60) for role in PEOPLE]
    records = drive(token_records(engine))
    assert {record.role for record in records} == set(PEOPLE)
    assert {(record.name, record.created, record.expires) for record in records} == {("somebody", NOW, int(NOW) + 60)}
    stored = b"".join(drive(engine.get_entries(TOKENS_TABLE)).values())
    assert not any(token.rpartition("_")[2].encode() in stored for token in tokens)


def test_the_records_of_expired_tokens_are_dropped_when_another_is_made(engine: MemoryEngine) -> None:
    token_id = person(engine, Role.VIEWER, expires=NOW + 60).split("_")[2]
    drive(revoke_token(engine, token_id, NOW))
    drive(AccessControl(SECRET).issue(engine, Role.VIEWER, "", NOW + 61))
    assert token_id not in drive(engine.get_entries(TOKENS_TABLE))
    assert token_id not in drive(engine.get_entries(REVOKED_TABLE))


def test_there_is_a_limit_to_how_many_tokens_are_kept(engine: MemoryEngine) -> None:
    person(engine, Role.VIEWER)
    record = next(iter(drive(engine.get_entries(TOKENS_TABLE)).values()))
    drive(engine.put_entries(TOKENS_TABLE, {str(number): record for number in range(TOKENS_MAX)}))
    with pytest.raises(ConfigError, match="tokens already"):
        person(engine, Role.VIEWER)


@pytest.mark.parametrize("name", ["x" * 101, "a\nb", "\x1b[31m"])
def test_a_name_that_would_spoil_a_list_is_refused(engine: MemoryEngine, name: str) -> None:
    with pytest.raises(ConfigError, match="printable"):
        drive(AccessControl(SECRET).issue(engine, Role.VIEWER, name, NOW))


def test_nobody_makes_a_node_token_by_hand(engine: MemoryEngine) -> None:
    with pytest.raises(ConfigError, match="registers"):
        drive(AccessControl(SECRET).issue(engine, Role.NODE, "", NOW))


# Signed requests


def signed(access: AccessControl, body: bytes, nonce: int = 0) -> str:
    return sign(access.node_key("n1"), "POST", TARGET, body, NOW, nonce.to_bytes(NONCE_BYTES, "big"))


def test_a_signed_request_passes_once_at_all_coordinators_together(engine: MemoryEngine) -> None:
    here, there = AccessControl(SECRET), AccessControl(SECRET)
    header = signed(here, b"batch")
    drive(here.verify(engine, "n1", header, "POST", TARGET, b"batch", NOW))
    for access in (here, there):
        again = refusal(lambda: drive(access.verify(engine, "n1", header, "POST", TARGET, b"batch", NOW)))  # noqa: B023
        assert (again.status, again.code) == (401, "replayed")
    drive(there.verify(engine, "n1", signed(here, b"batch", 1), "POST", TARGET, b"batch", NOW))


def test_a_tampered_request_is_refused_and_does_not_use_up_its_nonce(engine: MemoryEngine) -> None:
    access = AccessControl(SECRET)
    header = signed(access, b"batch")
    wrong = refusal(lambda: drive(access.verify(engine, "n1", header, "POST", TARGET, b"batcH", NOW)))
    assert (wrong.status, wrong.code) == (401, "signature_wrong")
    drive(access.verify(engine, "n1", header, "POST", TARGET, b"batch", NOW))


def test_the_key_of_one_node_does_not_sign_for_another(engine: MemoryEngine) -> None:
    access = AccessControl(SECRET)
    assert access.node_key("n1") != access.node_key("n2")
    other = refusal(lambda: drive(access.verify(engine, "n2", signed(access, b""), "POST", TARGET, b"", NOW)))
    assert other.code == "signature_wrong"


# The secret


def test_two_coordinators_that_found_a_crawl_at_once_agree_on_its_secret(engine: MemoryEngine) -> None:
    assert [drive(crawl_secret(engine, digit * 32)) for digit in (b"1", b"2")] == [b"1" * 32, b"1" * 32]


@pytest.mark.parametrize("kind", [AccessControl, OpenAccess])
def test_a_secret_that_the_engine_lost_is_written_again_by_who_knows_it(
    engine: MemoryEngine, kind: type[AccessControl]
) -> None:
    drive(kind(SECRET).refresh(engine))
    assert drive(engine.get_meta(SECRET_KEY)) == SECRET


def test_a_coordinator_takes_over_the_secret_of_the_engine(engine: MemoryEngine) -> None:
    access = AccessControl(SECRET)
    drive(engine.put_meta(SECRET_KEY, b"2" * 32))
    drive(access.refresh(engine))
    assert access.node_key("n1") == AccessControl(b"2" * 32).node_key("n1")
    assert access.node_token("n1", NOW) == AccessControl(b"2" * 32).node_token("n1", NOW)


def test_a_secret_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        AccessControl(b"short")


# Without tokens


@pytest.mark.parametrize("needed", Permission)
def test_open_access_lets_everybody_in_and_still_tells_nodes_apart(engine: MemoryEngine, needed: Permission) -> None:
    access = OpenAccess(SECRET)
    drive(access.refresh(engine))
    drive(access.verify(engine, "n1", None, "POST", TARGET, b"", NOW))
    assert access.check(None, needed, None, NOW) == Identity(Role.OPERATOR, "local")
    expected = Identity(Role.NODE, "n1") if Role.NODE in ROLES[needed] else Identity(Role.OPERATOR, "local")
    assert access.check(None, needed, "n1", NOW) == expected
    assert not access.signed
