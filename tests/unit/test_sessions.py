"""Sessions of browsers: signed, expiring, ended with their token; and the code that opens the page of a local crawl."""

from __future__ import annotations

import asyncio

import pytest

from drumlin.access.ended_sessions import ENDED_EACH_MAX
from drumlin.access.entry_code import EntryCode
from drumlin.access.tokens import (
    REVOKED_TABLE,
    SECRET_BYTES,
    SESSION_S,
    SESSION_SCHEME,
    AccessControl,
    Identity,
    Permission,
    Role,
    Session,
    revoke_token,
)
from drumlin.engines import open_engine
from drumlin.http.refusal import Refused

SECRET = b"s" * SECRET_BYTES
NOW = 1_000_000.0


def shown(session: Session) -> str:
    return f"{SESSION_SCHEME} {session.text}"


async def opened(role: Role, *, expires: float | None = None) -> tuple[AccessControl, Session]:
    engine = await open_engine("memory:")
    access = AccessControl(SECRET)
    token = await access.issue(engine, role, "somebody", NOW, expires=expires)
    return access, access.open_session(f"Bearer {token}", NOW)


def test_a_session_may_do_what_its_token_may() -> None:
    access, session = asyncio.run(opened(Role.VIEWER))
    identity = access.check(shown(session), Permission.READ, None, NOW)
    assert (identity.role, identity.id) == (Role.VIEWER, session.identity.id)
    with pytest.raises(Refused) as refused:
        access.check(shown(session), Permission.OPERATE, None, NOW)
    assert refused.value.code == "wrong_role"


def test_every_coordinator_of_the_crawl_knows_a_session_and_no_other_does() -> None:
    _, session = asyncio.run(opened(Role.OPERATOR))
    assert AccessControl(SECRET).check(shown(session), Permission.OPERATE, None, NOW).role is Role.OPERATOR
    with pytest.raises(Refused) as refused:
        AccessControl(b"t" * SECRET_BYTES).check(shown(session), Permission.READ, None, NOW)
    assert refused.value.code == "invalid_token"


def test_a_session_ends_by_itself_and_no_later_than_its_token() -> None:
    access, session = asyncio.run(opened(Role.VIEWER))
    access.check(shown(session), Permission.READ, None, NOW + SESSION_S - 1)
    with pytest.raises(Refused) as refused:
        access.check(shown(session), Permission.READ, None, NOW + SESSION_S)
    assert refused.value.code == "token_expired"
    _, short = asyncio.run(opened(Role.VIEWER, expires=NOW + 60))
    assert short.expires == NOW + 60


def test_a_session_ends_when_its_token_is_revoked() -> None:
    async def scenario() -> str:
        engine = await open_engine("memory:")
        access = AccessControl(SECRET)
        await access.refresh(engine)
        token = await access.issue(engine, Role.VIEWER, "", NOW)
        session = access.open_session(f"Bearer {token}", NOW)
        await revoke_token(engine, session.identity.id, NOW)
        await access.refresh(engine)
        with pytest.raises(Refused) as refused:
            access.check(shown(session), Permission.READ, None, NOW)
        return refused.value.code

    assert asyncio.run(scenario()) == "token_revoked"


@pytest.mark.parametrize("role", [Role.JOIN])
def test_other_roles_open_no_session(role: Role) -> None:
    with pytest.raises(Refused) as refused:
        asyncio.run(opened(role))
    assert refused.value.code == "wrong_role"


def test_a_nodes_token_opens_no_session() -> None:
    access = AccessControl(SECRET)
    with pytest.raises(Refused) as refused:
        access.open_session(f"Bearer {access.node_token('n1', NOW)}", NOW)
    assert refused.value.code == "wrong_role"


@pytest.mark.parametrize("at", [0, 9, 20, -1])
def test_any_change_makes_a_session_void(at: int) -> None:
    access = AccessControl(SECRET)
    text = access.session(Identity(Role.VIEWER, "abcdefgh"), int(NOW) + 60).text
    changed = text[:at] + ("b" if text[at] != "b" else "c") + text[at:][1:]
    with pytest.raises(Refused):
        access.check(f"{SESSION_SCHEME} {changed}", Permission.READ, None, NOW)


def test_a_session_that_was_ended_is_refused_at_every_coordinator_and_others_of_its_token_go_on() -> None:
    async def scenario() -> None:
        engine = await open_engine("memory:")
        here, there = AccessControl(SECRET), AccessControl(SECRET)
        await here.refresh(engine)
        token = await here.issue(engine, Role.VIEWER, "", NOW)
        ended, other = (here.open_session(f"Bearer {token}", NOW) for _ in range(2))
        here.end_session(shown(ended), NOW)
        await here.share_ended(engine, NOW)
        await there.refresh(engine)
        for access in (here, there):
            access.check(shown(other), Permission.READ, None, NOW)
            with pytest.raises(Refused, match="has ended"):
                access.check(shown(ended), Permission.READ, None, NOW)
        # It is forgotten when it would have ended by itself, and the other coordinator's is not.
        there.end_session(shown(other), NOW)
        await there.share_ended(engine, NOW + SESSION_S + 1)
        assert await engine.get_entries(REVOKED_TABLE) == {}

    asyncio.run(scenario())


def is_over(access: AccessControl, session: Session) -> bool:
    try:
        access.check(shown(session), Permission.READ, None, NOW)
    except Refused as refused:
        return "has ended" in refused.message
    return False


def test_no_session_that_was_ended_comes_back_however_many_are() -> None:
    async def scenario() -> None:
        engine = await open_engine("memory:")
        here, there = AccessControl(SECRET), AccessControl(SECRET)
        greedy, other = Identity(Role.VIEWER, "abcdefgh"), Identity(Role.VIEWER, "bcdefghi")
        kept, stolen = here.session(other, int(NOW) + 60), here.session(other, int(NOW) + 60)
        sessions = [here.session(greedy, int(NOW) + 60 + number) for number in range(12 * ENDED_EACH_MAX)]
        for ended in (stolen, *sessions):
            here.end_session(shown(ended), NOW)
        await here.share_ended(engine, NOW)
        await there.refresh(engine)
        later = here.session(greedy, int(NOW) + 60 + len(sessions))
        for access in (here, there):
            assert all(is_over(access, one) for one in (stolen, *sessions))
            assert not is_over(access, kept), "of another token"
            assert not is_over(access, later), "it lasts longer than all that were ended"

    asyncio.run(scenario())


def test_ended_sessions_take_little_room_at_coordinators_that_only_hear_of_them() -> None:
    async def scenario() -> None:
        engine = await open_engine("memory:")
        here, there = AccessControl(SECRET), AccessControl(SECRET)
        for number in range(5 * ENDED_EACH_MAX):
            session = here.session(Identity(Role.VIEWER, "abcdefgh"), int(NOW) + 60 + number)
            here.end_session(shown(session), NOW)
            await here.share_ended(engine, NOW)
            await there.refresh(engine)
            assert len(await engine.get_entries(REVOKED_TABLE)) <= ENDED_EACH_MAX + 1
            assert len(there._ended.known) <= ENDED_EACH_MAX + 1

    asyncio.run(scenario())


def test_two_coordinators_that_end_many_sessions_at_once_lose_none() -> None:
    async def scenario() -> None:
        engine = await open_engine("memory:")
        pair = [AccessControl(SECRET), AccessControl(SECRET)]
        ended = []
        for number in range(4 * ENDED_EACH_MAX):
            session = pair[0].session(Identity(Role.VIEWER, "abcdefgh"), int(NOW) + 60 + number)
            pair[number % 2].end_session(shown(session), NOW)
            ended.append(session)
            if number % 50 == 49:
                await asyncio.gather(*(access.share_ended(engine, NOW) for access in pair))
        third = AccessControl(SECRET)
        await third.refresh(engine)
        assert all(is_over(third, session) for session in ended)

    asyncio.run(scenario())


def test_a_token_is_no_session_and_a_session_no_token() -> None:
    access, session = asyncio.run(opened(Role.VIEWER))
    for wrong in (f"Bearer {session.text}", f"{SESSION_SCHEME} drumlin_viewer_abc_0_{'a' * 32}", f"{SESSION_SCHEME} "):
        with pytest.raises(Refused):
            access.check(wrong, Permission.READ, None, NOW)


def test_a_session_does_not_show_itself_in_logs() -> None:
    _, session = asyncio.run(opened(Role.VIEWER))
    assert session.text not in repr(session)


def test_a_code_opens_once() -> None:
    code = EntryCode("127.0.0.1:8700", Role.OPERATOR)
    assert not code.take(""), "before there is an address"
    address, _, text = code.address().partition("#code=")
    assert address == "http://127.0.0.1:8700/"
    assert text not in repr(code)
    assert not code.take("something else")
    assert not code.take("ünïcode")
    assert code.take(text)
    assert not code.take(text)
    assert not code.take("")


def test_a_new_address_makes_the_last_one_void() -> None:
    code = EntryCode("127.0.0.1:8700", Role.OPERATOR)
    first, second = (code.address().partition("#code=")[2] for _ in range(2))
    assert not code.take(first)
    assert code.take(second)
