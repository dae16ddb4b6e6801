"""A lease in the form in which a node gets it."""

from __future__ import annotations

from drumlin.access.seals import Seals
from drumlin.coordinator.steering import Steering
from drumlin.model import Lease
from drumlin.protocol import Assignment, WorkLease


def work_lease(lease: Lease, steering: Steering, seals: Seals, margin_s: float, now: float) -> WorkLease:
    """The lease with sealed ids. For the node it ends `margin_s` before it does for the engine."""
    config = steering.config
    delay_s = max(lease.delay_s or 0.0, config.delay_s)
    not_before = lease.not_before + steering.slower_s(now)
    sealed_id, seal = seals.sealed(lease.lease_id, lease.host), seals.assignment_id
    assignments = [
        Assignment(
            seal(sealed_id, task),
            task.url,
            task.priority,
            lease.deadline - margin_s,
            lease.host,
            not_before,
            task.depth,
            task.failures,
            task.found_on,
            task.redirects,
        )
        for task in lease.tasks
    ]
    return WorkLease(
        sealed_id,
        lease.host,
        config.lease_s,
        delay_s,
        assignments,
        wait_s=max(0.0, not_before - now),
        rate=1 / delay_s if delay_s > 0 else None,
        note=lease.note,
        host_delay_s=lease.delay_s or 0.0,
    )
