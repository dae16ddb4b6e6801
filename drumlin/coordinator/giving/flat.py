"""The flat view of work: every assignment by itself, for nodes that do not understand leases."""

from __future__ import annotations

from msgspec.structs import asdict

from drumlin.protocol import FlatAssignment, WorkLease
from drumlin.urls import domain_of


def flat_view(leases: list[WorkLease], node: str, now: float) -> list[FlatAssignment]:
    return [
        FlatAssignment(
            **asdict(one),
            lease_id=lease.lease_id,
            node_id=node,
            domain=domain_of(lease.host),
            assigned_at=now,
            retry_count=one.attempts,
        )
        for lease in leases
        for one in lease.assignments
    ]
