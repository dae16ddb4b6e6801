"""Every answer names the id of its request, and the log names it wherever the request led to an entry."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from drumlin.logs.formats import fields_of
from drumlin.protocol.paths import REQUEST_HEADER
from tests.harness.coordinators import RunningCoordinator

HEADER = REQUEST_HEADER.lower()


@pytest.fixture
def seen() -> Iterator[list[tuple[int, dict[str, object]]]]:
    """The level and fields of every entry, read when it is made: the id belongs to the request under way."""
    entries: list[tuple[int, dict[str, object]]] = []

    class Reading(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            entries.append((record.levelno, fields_of(record)))

    logger, handler = logging.getLogger("drumlin.coordinator"), Reading()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield entries
    logger.setLevel(logging.NOTSET)
    logger.removeHandler(handler)


def test_every_answer_has_an_id_of_its_own_whatever_its_status() -> None:
    with RunningCoordinator(controlled=True) as coordinator:
        answers = [coordinator.get(path) for path in ("/healthz", "/nowhere", "/api/v1/crawl", "/healthz")]
    assert [answer.status for answer in answers] == [200, 404, 401, 200]
    assert len({answer.headers[HEADER] for answer in answers}) == len(answers)


def test_a_refusal_is_logged_with_the_id_that_its_answer_had(seen: list[tuple[int, dict[str, object]]]) -> None:
    with RunningCoordinator(controlled=True) as coordinator:
        mistyped = coordinator.get("/nowhere")
        stranger = coordinator.get("/api/v1/nodes/n7/status", token="nonsense")
        again = coordinator.get("/api/v1/nodes/n7/status", token="nonsense")
    refused = {str(fields["request"]): (level, fields) for level, fields in seen if fields.get("event") == "refused"}
    assert refused[mistyped.headers[HEADER]][0] == logging.DEBUG
    level, fields = refused[stranger.headers[HEADER]]
    assert (level, fields["code"], fields["status"], fields["node"]) == (logging.WARNING, "invalid_token", 401, "n7")
    assert refused[again.headers[HEADER]][0] == logging.DEBUG, "strangers do not fill the log"
