"""Batches of results that wait to be settled: how many may, and when there are too many to give out new work.

A node would fetch what it is given and add to the line. Results that wait for longer than their leases last do not
count, and their pages are fetched again, so a line that is too long would never become shorter by itself.
"""

from __future__ import annotations

import math
from contextlib import AbstractAsyncContextManager

import msgspec

from drumlin.coordinator.taking.fair_line import FairLine
from drumlin.protocol import Work, WorkRequest

SETTLING_AT_ONCE = 5
"""How many batches of results are settled at once: enough to keep an engine busy. Others wait in line. If all were
begun at once, each would take as long as all together, and small, urgent requests for work would wait as long."""
SETTLING_EACH = 3
SETTLING_WAITING_EACH = 32
"""How many batches of one node may be settled at once, and may wait; a node of drumlin sends four at a time."""
RESULTS_PER_PLACE = 200
"""A batch of more results than this counts as several batches that wait."""
SETTLING_WAITING_MAX = 500
"""How many batches may wait: about ten seconds of work. Further ones are refused, because their senders would give up
before they are settled."""
SETTLING_RETRY_S = 15.0
BEHIND_WAITING = 64
"""While more batches than this wait, over a second of work, no URLs are given out: their results would join the line
when it may have grown longer than their leases last."""
BEHIND_RETRY_S = 2.0


class Backlog(FairLine):
    """The line of batches that wait for their turn to be settled."""

    def __init__(self) -> None:
        super().__init__(
            what="batches of results",
            at_once=SETTLING_AT_ONCE,
            each=SETTLING_EACH,
            most=SETTLING_WAITING_MAX,
            each_most=SETTLING_WAITING_EACH,
            retry_after_s=SETTLING_RETRY_S,
        )

    def turn_of(self, node: str, results: int) -> AbstractAsyncContextManager[None]:
        """The turn of a batch of so many results."""
        return self.turn(node, max(1, math.ceil(results / RESULTS_PER_PLACE)))

    @property
    def too_long(self) -> bool:
        """Whether nodes should get nothing new for now."""
        return len(self) >= BEHIND_WAITING


def renewals_of(request: WorkRequest) -> WorkRequest:
    """The same request without its wish for more work: leases are kept, whatever the backlog."""
    return msgspec.structs.replace(request, max_tasks=0, max_hosts=0, preferred_domains=[])


def put_off(work: Work) -> Work:
    """The answer to such a request, which says when to ask again."""
    work.retry_after_s = max(work.retry_after_s, BEHIND_RETRY_S)
    return work
