"""Receipts: how a node that sends bundles proves that what is in them was settled.

A coordinator keeps no list of what each node settled. Instead, if the captures will come in a bundle, its answer has a
receipt for each result that counted: a code, made with the crawl's secret, over the segment, the node that had the
lease, and what the rows of the bundle will say. Any coordinator can check it later, whichever of them made it and
whoever sends the bundle: a neighbour may finish what a dead node left.

A robots.txt settles no URL, so there is no result for it. Instead of a receipt, its row needs the lease under which its
host was asked. A capture is stored only if it is really called robots.txt: otherwise whoever visits a host could store
any page of it.

The segment is part of the capture id by which the engine recognises a result. The same result sent again for another
segment is therefore stale, and no row can be stored twice.
"""

from __future__ import annotations

from drumlin.access.seals import Seals
from drumlin.model import Outcome
from drumlin.protocol import Accepted, Result, Results
from drumlin.store.bundles import Claim, is_robots_txt
from drumlin.store.tables.rows import ROBOTS_OUTCOME, micros
from drumlin.urls import host_or_nothing


def bind_to_segment(results: Results) -> None:
    """Make the segment part of the results' capture ids."""
    for result in results.results:
        result.capture_id = f"{result.capture_id or result.assignment_id}@{results.segment}"


def give_receipts(seals: Seals, results: Results, accepted: Accepted) -> None:
    """Put a receipt for each result that counted into the answer."""
    rejected, segment = frozenset(accepted.rejected_at), results.segment
    accepted.receipts = [
        "" if place in rejected else seals.receipt(_claim(result).text(segment, node_of_result(result)))
        for place, result in enumerate(results.results)
    ]


def unsettled(seals: Seals, claims: list[Claim], receipts: frozenset[str], segment: str, node: str) -> Claim | None:
    """The first claim without a receipt, or, for a robots.txt, without a lease of its host; None if there is none."""
    leased = _leased(seals, receipts, node)
    for claim in claims:
        of_robots = claim.outcome == ROBOTS_OUTCOME and host_or_nothing(claim.url) in leased
        if of_robots and (not claim.record_id or is_robots_txt(claim.url)):
            continue
        if not seals.has_receipt(claim.text(segment, node), receipts):
            return claim
    return None


def _leased(seals: Seals, receipts: frozenset[str], node: str) -> set[str]:
    """The hosts that this node was given, according to the leases among the receipts."""
    leases = (receipt.rpartition("@") for receipt in receipts if "@" in receipt)
    return {host for sealed, _, host in leases if sealed.startswith(f"{node}:") and seals.unsealed(sealed, host)}


def _claim(result: Result) -> Claim:
    digest = result.content_hash if result.outcome == Outcome.FETCHED else ""
    status = result.status_code if result.record_id else 0
    return Claim(result.page, result.record_id, result.outcome, status, micros(result.crawl_time), digest)


def node_of_result(result: Result) -> str:
    """The node that had the lease. The result counted, so its id is genuine."""
    return result.assignment_id.partition(":")[0]
