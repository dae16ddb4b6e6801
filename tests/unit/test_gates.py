"""A page behind a gate: what a coordinator accepts in a result for another URL than it gave out."""

from __future__ import annotations

import pytest
from xxhash import xxh3_128_hexdigest

from drumlin.coordinator.taking.receipts import give_receipts
from drumlin.engines.blocking import drive
from drumlin.model import Outcome
from drumlin.protocol import Assignment, KnownRequest, Results
from tests.harness.dispatching import SEEDS, Asker, Driven, batch_of, dispatcher, release, result

PAGE, GATE = SEEDS[0], SEEDS[0] + "gate"
HASH = "d" * 64


def at_the_gate() -> tuple[Driven, Assignment]:
    """The page has led to its gate, which is given out."""
    made = dispatcher([PAGE])
    (lease,) = Asker(made).work(0.0)
    moved = result(lease.assignments[0], Outcome.REDIRECTED, status_code=302, redirect_to=GATE)
    made.results(batch_of([moved], [release(lease)]), 1.0)
    (lease,) = Asker(made, "n1").work(5.0)
    (gate,) = lease.assignments
    assert (gate.url, list(gate.redirects)) == (GATE, [PAGE])
    return made, gate


def first_capture(made: Driven) -> str:
    (duplicate,) = made.known(KnownRequest([("h0.test", HASH)])).duplicates
    assert duplicate is not None
    return duplicate.url


def test_a_page_that_led_to_the_gate_is_known_as_what_it_is() -> None:
    made, gate = at_the_gate()
    accepted = made.results(batch_of([result(gate, page_url=PAGE, content_hash=HASH)]), 6.0)
    assert (accepted.accepted_count, first_capture(made)) == (1, PAGE)
    assert made.totals(6.0).pending == 0


@pytest.mark.parametrize("claimed", [SEEDS[0] + "other", SEEDS[1], "x"])
def test_a_page_that_did_not_is_not_believed_in(claimed: str) -> None:
    made, gate = at_the_gate()
    accepted = made.results(batch_of([result(gate, page_url=claimed, content_hash=HASH)]), 6.0)
    assert (accepted.accepted_count, first_capture(made)) == (1, GATE)


def test_a_result_that_is_sent_again_must_name_the_same_page_and_gets_the_same_receipt() -> None:
    made, gate = at_the_gate()
    receipts: list[list[str]] = []
    for page_url, count in ((PAGE, 1), (PAGE, 1), (PAGE + "other", 0), ("", 0)):
        sent = Results([result(gate, page_url=page_url, content_hash=HASH)], [], canonical_links=True, segment="s")
        accepted = drive(made.made.take(None, sent, 6.0)).accepted
        assert accepted.accepted_count == count
        give_receipts(made.made.seals, sent, accepted)
        receipts.append(accepted.receipts)
    assert receipts[0] == receipts[1] != [""]


OTHER = PAGE + "other"
OTHER_MARK = xxh3_128_hexdigest(OTHER.encode())


@pytest.mark.parametrize(("capture_id", "page_url"), [("own", OTHER), (f"own>{OTHER_MARK}", "")])
def test_a_false_page_gets_no_receipt_when_it_is_sent_again(capture_id: str, page_url: str) -> None:
    """Neither if the first result named it, nor if the first one's id was made to look as if it had."""
    made, gate = at_the_gate()
    for own_id, claimed in ((capture_id, page_url), ("own", OTHER)):
        told = result(gate, content_hash=HASH, capture_id=own_id, page_url=claimed)
        sent = Results([told], [], canonical_links=True, segment="s")
        accepted = drive(made.made.take(None, sent, 6.0)).accepted
        give_receipts(made.made.seals, sent, accepted)
        assert [told.page for receipt in accepted.receipts if receipt] in ([], [GATE])


def test_where_the_page_then_leads_its_own_url_is_in_the_chain() -> None:
    made, gate = at_the_gate()
    on = result(gate, Outcome.REDIRECTED, status_code=302, page_url=PAGE, redirect_to=PAGE + "on")
    on.redirect_chain = [PAGE, GATE]
    made.results(batch_of([on]), 6.0)
    made.tick(40.0)
    (lease,) = Asker(made, "n2").work(41.0)
    assert [list(task.redirects) for task in lease.assignments] == [[PAGE, GATE, PAGE]]
