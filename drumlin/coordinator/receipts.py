"""Receipts: how a node that sends bundles proves that what is in them was settled.

A coordinator keeps no list of what each node settled. Instead its answer to results that will come in a bundle has a
receipt for each that counted: a code, by the crawl's secret, over the segment, the node that had the lease, and what
the rows of the bundle will say. Any coordinator can check it later, whoever of them gave it and whoever sends the
bundle: a neighbour may finish what a dead node left.

A segment is part of what a result is known by, so that the same result sent again for another segment is stale: no row
can be stored twice.
"""

from __future__ import annotations

from drumlin.coordinator.seals import Seals
from drumlin.model import Outcome
from drumlin.protocol import Accepted, Result, Results
from drumlin.store.bundles import Claim
from drumlin.store.rows import micros


def bind_to_segment(results: Results) -> None:
    """Make the segment part of what results are known by."""
    for result in results.results:
        result.capture_id = f"{result.capture_id or result.assignment_id}@{results.segment}"


def give_receipts(seals: Seals, results: Results, accepted: Accepted) -> None:
    """Put a receipt for each result that counted into the answer."""
    rejected, segment = frozenset(accepted.rejected_at), results.segment
    accepted.receipts = [
        "" if place in rejected else seals.receipt(_claim(result).text(segment, _node(result)))
        for place, result in enumerate(results.results)
    ]


def unsettled(seals: Seals, claims: list[Claim], receipts: frozenset[str], segment: str, node: str) -> Claim | None:
    """The first claim that no receipt covers."""
    for claim in claims:
        if not seals.has_receipt(claim.text(segment, node), receipts):
            return claim
    return None


def _claim(result: Result) -> Claim:
    digest = result.content_hash if result.outcome == Outcome.FETCHED else ""
    return Claim(result.url, result.record_id, result.outcome, result.status_code, micros(result.crawl_time), digest)


def _node(result: Result) -> str:
    """Who had the lease. The result counted, so its id is genuine."""
    return result.assignment_id.partition(":")[0]
