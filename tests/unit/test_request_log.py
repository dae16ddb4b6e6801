"""What the log says of requests that were refused."""

from __future__ import annotations

import logging

import pytest

from drumlin.api.request_log import RefusalLog
from drumlin.api.routing import PATH_SHOWN_CHARS, Call
from drumlin.http.refusal import Refused
from drumlin.logs.formats import fields_of


async def nothing() -> dict[str, object]:
    return {}


def test_the_node_id_of_a_path_is_cut_as_the_path_is(caplog: pytest.LogCaptureFixture) -> None:
    node_id = "n" * 10_000
    scope = {"method": "POST", "path": f"/api/v1/nodes/{node_id}/work", "raw_path": b"", "query_string": b""}
    call = Call(scope, {}, nothing, "application/json", 0.0)
    call.parameters = {"node_id": node_id}
    with caplog.at_level(logging.DEBUG, "drumlin.coordinator"):
        RefusalLog().note(call, Refused(404, "not_found", "There is nothing here."), 0.0)
    (entry,) = caplog.records
    assert len(entry.getMessage()) < 2 * PATH_SHOWN_CHARS
    assert fields_of(entry)["node"] == node_id[:PATH_SHOWN_CHARS]
