"""Fixtures and settings shared by all tests."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# `make test` must give the same result each time, so it uses the same examples; `make test-slow` tries more of them.
settings.register_profile("repeatable", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile(
    "thorough", max_examples=1000, deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
