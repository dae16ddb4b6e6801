"""The cases on which Google's parser and crawler-commons agree. They are kept outside of the repository."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from drumlin import robots

CASES = Path(__file__).resolve().parents[3] / "shared" / "data" / "robots_cases.json"
CASES_COUNT = 723


@pytest.mark.skipif(not CASES.exists(), reason="../shared/data/robots_cases.json is not beside this checkout")
def test_every_agreed_case_is_decided_as_agreed() -> None:
    cases = json.loads(CASES.read_bytes())
    failed = [case["id"] for case in cases if _verdict(case) != case["allowed"]]
    assert len(cases) == CASES_COUNT
    assert failed == []


def _verdict(case: dict[str, str]) -> bool:
    encoded = case.get("robots_txt_b64")
    body = base64.b64decode(encoded) if encoded is not None else case["robots_txt"].encode()
    return robots.parse(body).allowed(case["agent"], case["url"])
