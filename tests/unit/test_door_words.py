"""What people are told when they start or join a coordinator names every option that they need."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from drumlin.cli.coordinator import ready_line
from drumlin.client.remote import CoordinatorError, read_answer
from drumlin.errors import ConfigError
from drumlin.serving.service import Listen
from drumlin.tls import client_context

PLAIN = Listen("127.0.0.1", 8700)


def test_the_line_to_join_names_every_option_that_is_needed() -> None:
    secured = msgspec.structs.replace(PLAIN, certificate=Path("c"), key=Path("k"), client_authority=Path("a"))
    assert ready_line(PLAIN, "memory", auth=False).endswith("--coordinator http://127.0.0.1:8700 --store DIR")
    behind = ready_line(PLAIN, "memory", auth=False, public="https://balancer:8700")
    assert behind.endswith("--coordinator https://balancer:8700 --store DIR")
    assert ready_line(secured, "memory", auth=True).endswith(
        "--coordinator https://127.0.0.1:8700 --token-file FILE --ca FILE --cert FILE --key FILE --store DIR"
    )


@pytest.mark.parametrize("code", ["no_token", "invalid_token"])
def test_a_person_without_a_token_is_told_of_the_option_and_not_of_the_header(code: str) -> None:
    body = msgspec.json.encode({"error": {"code": code, "message": "No.", "hint": "Send `Authorization: …`."}})
    with pytest.raises(CoordinatorError) as refused:
        read_answer("https://c.example", 401, body)
    assert "--token-file" in refused.value.hint


def test_of_several_certificate_files_the_one_that_is_missing_is_named(tmp_path: Path) -> None:
    there, missing = tmp_path / "client.pem", tmp_path / "ca.pem"
    there.write_text("")
    with pytest.raises(ConfigError, match=f"certificate files {missing}: No such file") as wrong:
        client_context(missing, there, there)
    assert str(there) not in str(wrong.value)
