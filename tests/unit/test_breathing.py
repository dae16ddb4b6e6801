"""Long work is done in parts."""

from __future__ import annotations

from drumlin.coordinator.breathing import GROUP_WEIGHT, PART_WEIGHT, slices
from drumlin.coordinator.findings import HREFS_AT_ONCE
from drumlin.coordinator.granting import RENEWALS_AT_ONCE
from drumlin.engines.blocking import drive
from drumlin.model import NewURLs
from drumlin.protocol import KnownRequest, Results, WorkRequest
from tests.harness.dispatching import SEEDS, Asker, Driven, batch_of, dispatcher, result


def flat(parts: list[dict[int, list[NewURLs]]], shard: int) -> list[tuple[str, str]]:
    return [(new.host, url) for part in parts for new in part.get(shard, []) for url in new.urls]


def test_parts_hold_everything_in_its_order_and_none_is_large() -> None:
    many = [NewURLs(f"h{host}.test", [f"http://h{host}.test/"]) for host in range(9_000)]
    long = NewURLs("long.test", [f"http://long.test/{page}" for page in range(12_345)], 3, 2, "http://a.test/", ("x",))
    batches = {0: [*many, long], 1: [long]}
    parts = [{shard: list(found) for shard, found in part.items()} for part in slices(batches)]
    for shard, found in batches.items():
        assert flat(parts, shard) == flat([{shard: list(found)}], shard)
    weights = [sum(len(new.urls) + GROUP_WEIGHT for found in part.values() for new in found) for part in parts]
    assert max(weights) <= 2 * PART_WEIGHT
    assert {(new.priority, new.depth, new.redirects) for part in parts for new in part.get(1, [])} == {(3, 2, ("x",))}


def test_an_honest_batch_is_one_part() -> None:
    batches = {shard: [NewURLs("a.test", ["http://a.test/"] * 10)] * 10 for shard in range(32)}
    assert list(slices(batches)) == [batches]


def breaths(made: Driven) -> list[int]:
    """Counts how often work is interrupted for others from now on."""
    taken = [0]

    async def breathe() -> None:
        taken[0] += 1

    made.made.breathe = breathe
    return taken


def test_others_have_their_turn_while_60_000_hosts_are_taken_in() -> None:
    made = dispatcher(SEEDS[:1], scope="any")
    (lease,) = Asker(made).work(0.0)
    counted = breaths(made)
    links = [f"http://h{number}.test/" for number in range(60_000)]
    task = lease.assignments[0]
    parts = [result(task, capture_id="one", links=links[at : at + 20_000]) for at in range(0, 60_000, 20_000)]
    made.results(batch_of(parts), 1.0, "n0")
    assert made.totals(1.0).known == 60_000, "h0 is the seed"
    assert counted[0] >= 60_000 * (1 + GROUP_WEIGHT) // PART_WEIGHT


def test_links_that_must_be_made_canonical_are_looked_at_in_parts() -> None:
    made = dispatcher(SEEDS[:1])
    leases = Asker(made).work(0.0)
    counted = breaths(made)
    raw = result(leases[0].assignments[0], links=[f"page?{number}" for number in range(3 * HREFS_AT_ONCE)])
    made.results(Results([raw]), 1.0, "n0")
    assert counted[0] >= 3


def test_renewals_and_questions_come_in_parts() -> None:
    made = dispatcher(SEEDS[:1])
    drive(made.made.open())
    counted = breaths(made)
    renew = [("n0:x.0.0.seal", f"h{number}.test") for number in range(4 * RENEWALS_AT_ONCE)]
    (lease,) = Asker(made).work(0.0)
    made.work("n0", WorkRequest(0, max_hosts=0, renew=renew + [(lease.lease_id, lease.host)] * RENEWALS_AT_ONCE), 1.0)
    made.known(KnownRequest([("h.test", "ab" * 32)] * 5_000))
    assert counted[0] >= 6
