"""How a node proves who it is to its coordinators: signatures, tokens, and joining again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from drumlin.access.signing import verify
from drumlin.node.calling.client import (
    REJOINS_MAX,
    CoordinatorRefused,
)
from drumlin.node.calling.parties import Credentials
from drumlin.protocol import Done, Register, Registered
from drumlin.protocol.paths import SIGNATURE_HEADER
from tests.harness.answering import CLOSED, OK, WITHIN_S, Answer, Asked, Server, client_of, refusal, results, say

KEY = b"k" * 32


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as made:
        yield made


def test_results_are_signed_as_sent_and_anew_each_time(server: Server) -> None:
    server.answers = [refusal(503), refusal(401, "replayed"), refusal(401, "signature_out_of_time")]
    access = Credentials("join", "mine", KEY)
    with client_of(server.endpoint, access=access, rejoin=lambda: Register(0.0, "n0")) as client:
        client.call("/api/v1/nodes/n0/results", results(100), Done, within_s=WITHIN_S, signed=True)
    assert [asked.path.rpartition("/")[2] for asked in server.asked] == ["results"] * 4, "it need not join again"
    assert len(names_of(server.asked)) == 4
    assert server.asked[0].headers["authorization"] == "Bearer mine"


def names_of(sent: list[Asked]) -> set[str]:
    """The names of signed requests, which no two of them share."""
    return {verify(KEY, one.headers[SIGNATURE_HEADER.lower()], "POST", one.path, one.body, time.time()) for one in sent}


def test_what_a_dying_connection_may_have_carried_is_signed_anew(server: Server) -> None:
    """Behind a load balancer a kept connection leads to a coordinator that was killed. libcurl would send the request
    again by itself."""
    server.answers = [OK, CLOSED, CLOSED]
    with client_of(server.endpoint, access=Credentials("join", "mine", KEY)) as client:
        for _ in range(2):
            client.call("/api/v1/nodes/n0/results", results(100), Done, within_s=WITHIN_S, signed=True)
    assert len(server.asked) == len(names_of(server.asked)) == 4


OK_REGISTERED: Answer = (
    200,
    Registered("n0", "registered", 1.0, "", {}, "", [], [], token="new", key=KEY.hex()),
    {},
)


def _rejoining(refused: Answer, taken: str = "new") -> Callable[[Asked], Answer]:
    """Registrations get a new token; other calls are refused unless they come with the token that is `taken`. A call
    may be repeated several times before its node's registration is answered."""

    def answer(asked: Asked) -> Answer:
        if asked.path.endswith("register"):
            return OK_REGISTERED
        return OK if asked.headers.get("authorization") == f"Bearer {taken}" else refused

    return answer


def tokens_sent(server: Server) -> list[tuple[str, str]]:
    """The last part of each call's path, and what it was authorised with."""
    return [(asked.path.rpartition("/")[2], asked.headers.get("authorization", "")) for asked in server.asked]


def test_a_node_whose_token_is_not_taken_any_more_joins_again_and_goes_on(server: Server) -> None:
    server.answer = _rejoining(refusal(401, "invalid_token"))
    with client_of(server.endpoint, access=Credentials("join", "old"), rejoin=lambda: Register(0.0, "n0")) as client:
        assert say(client).status == "ok"
    assert tokens_sent(server)[:2] == [("hello", "Bearer old"), ("register", "Bearer join")]
    assert tokens_sent(server)[-1] == ("hello", "Bearer new")


def test_a_node_that_the_coordinators_forgot_registers_with_its_own_token(server: Server) -> None:
    server.answer = _rejoining(refusal(404, "not_registered"))
    with client_of(server.endpoint, access=Credentials("join", "mine"), rejoin=lambda: Register(0.0, "n0")) as client:
        assert say(client).status == "ok"
    assert tokens_sent(server)[:2] == [("hello", "Bearer mine"), ("register", "Bearer mine")]
    assert tokens_sent(server)[-1] == ("hello", "Bearer new")


def test_a_node_whose_own_token_does_not_let_it_register_joins_with_its_join_token(server: Server) -> None:
    server.answers = [refusal(401, "token_revoked"), OK_REGISTERED]
    with client_of(server.endpoint, access=Credentials("join", "mine"), rejoin=lambda: Register(0.0, "n0")) as client:
        client.call("/api/v1/nodes/register", Register(0.0, "n0"), Registered, within_s=WITHIN_S)
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer mine", "Bearer join"]


def test_a_token_that_a_heartbeat_brought_is_used_from_then_on(server: Server) -> None:
    with client_of(server.endpoint, access=Credentials("join", "mine")) as client:
        for token in (None, "next"):
            client.renewed(token)
            say(client)
    assert [asked.headers["authorization"] for asked in server.asked] == ["Bearer mine", "Bearer next"]


def test_a_node_whose_join_token_is_revoked_too_ends_with_one_clear_sentence(server: Server) -> None:
    server.answers = [refusal(401, "token_revoked")] * 100
    with (
        client_of(server.endpoint, access=Credentials("join", "mine"), rejoin=lambda: Register(0.0, "n0")) as client,
        pytest.raises(CoordinatorRefused) as ended,
    ):
        say(client)
    assert str(ended.value) == (
        "The coordinator does not let this node join: The token_revoked. "
        "Ask for another: `drumlin tokens create --role join` makes one."
    )


def test_a_name_that_is_taken_is_waited_for(server: Server) -> None:
    server.answers = [refusal(409, "node_id_taken"), refusal(409, "node_id_taken"), OK_REGISTERED]
    with client_of(server.endpoint, access=Credentials("join")) as client:
        client.call("/api/v1/nodes/register", Register(0.0, "n0"), Registered, within_s=WITHIN_S)
    assert len(server.asked) == 3


def test_a_name_that_stays_taken_is_an_error_in_the_coordinators_words(server: Server) -> None:
    server.answers = [refusal(409, "node_id_taken")] * 100
    with client_of(server.endpoint) as client, pytest.raises(CoordinatorRefused, match="node_id_taken"):
        client.call("/api/v1/nodes/register", Register(0.0, "n0"), Registered, within_s=1.5)


def test_a_node_that_is_never_let_in_says_so_and_ends(server: Server) -> None:
    server.answer = _rejoining(refusal(401, "invalid_token"), taken="another")
    with (
        client_of(server.endpoint, access=Credentials("join", "old"), rejoin=lambda: Register(0.0, "n0")) as client,
        pytest.raises(CoordinatorRefused, match="refuses this node even after it registered again"),
    ):
        say(client)
    assert sum(asked.path.endswith("register") for asked in server.asked) == REJOINS_MAX


def test_a_join_token_that_is_not_taken_is_an_error_at_once(server: Server) -> None:
    server.answers = [refusal(401, "invalid_token")]
    with client_of(server.endpoint, access=Credentials("join"), rejoin=lambda: Register(0.0, "n0")) as client:
        with pytest.raises(CoordinatorRefused, match="invalid_token"):
            client.call("/api/v1/nodes/register", Register(0.0, "n0"), Registered, within_s=WITHIN_S)
    assert len(server.asked) == 1
