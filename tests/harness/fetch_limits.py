"""The limits of a fetcher in tests: enough for any page of a test, and a timeout for what hangs."""

from __future__ import annotations

from drumlin.fetch import FetchLimits

LIMITS = FetchLimits(5.0, 5.0, 1_000_000, 0, 60)
