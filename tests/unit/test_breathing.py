"""Long work is done in parts."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from drumlin.coordinator.breathing import (
    GROUP_WEIGHT,
    LIGHT_WEIGHT,
    PART_WEIGHT,
    PART_WEIGHT_REMOTE,
    Lanes,
    LoopLanes,
    parts,
)
from drumlin.coordinator.dispatch import KNOWN_AT_ONCE
from drumlin.coordinator.giving.granting import RENEWALS_AT_ONCE
from drumlin.coordinator.taking.findings import HREFS_AT_ONCE
from drumlin.model import NewURLs
from drumlin.protocol import KnownRequest, Results, WorkRequest
from tests.harness.dispatching import SEEDS, Asker, Driven, batch_of, dispatcher, result


def flat(found: Iterable[NewURLs]) -> list[tuple[str, str]]:
    return [(new.host, url) for new in found for url in new.urls]


def test_parts_hold_everything_in_its_order_and_none_is_large() -> None:
    many = [NewURLs(f"h{host}.test", [f"http://h{host}.test/"]) for host in range(9_000)]
    long = NewURLs("long.test", [f"http://long.test/{page}" for page in range(12_345)], 3, 2, "http://a.test/", ("x",))
    found = [*many, long, *many]
    made = list(parts(found))
    assert flat(new for part in made for new in part) == flat(found)
    assert max(sum(len(new.urls) + GROUP_WEIGHT for new in part) for part in made) <= 2 * PART_WEIGHT
    pieces = [new for part in made for new in part if new.host == "long.test"]
    assert {(new.priority, new.depth, new.found_on, new.redirects) for new in pieces} == {
        (3, 2, "http://a.test/", ("x",))
    }


def test_an_honest_batch_is_one_part_where_parts_cost_round_trips() -> None:
    found = [NewURLs("a.test", ["http://a.test/"] * 10)] * 300
    assert list(parts(found, PART_WEIGHT_REMOTE)) == [found]
    assert list(parts([])) == []


class CountedLanes(Lanes):
    """Counts how often work pauses for others."""

    def __init__(self) -> None:
        self.breaths = 0

        async def breathe() -> None:
            self.breaths += 1

        self.breathe = breathe


def breaths(made: Driven) -> CountedLanes:
    made.made.lanes = lanes = CountedLanes()
    return lanes


def test_of_heavy_work_only_one_is_done_at_a_time_and_light_work_waits_for_none() -> None:
    async def run() -> None:
        lanes, order = LoopLanes(), list[str]()

        async def work(name: str, weight: int) -> None:
            async with lanes.lane(weight) as breathe:
                for _ in range(3):
                    order.append(name)
                    await breathe()

        heavy = [asyncio.create_task(work(name, LIGHT_WEIGHT + 1)) for name in ("one", "two")]
        await asyncio.sleep(0)
        await work("light", LIGHT_WEIGHT)
        assert order == ["one", "light", "light", "light"]
        await asyncio.gather(*heavy)
        assert order[4:] == ["one", "one", "two", "two", "two"]

    asyncio.run(run())


def test_others_have_their_turn_while_60_000_hosts_are_taken_in() -> None:
    made = dispatcher(SEEDS[:1], scope="any")
    (lease,) = Asker(made).work(0.0)
    counted = breaths(made)
    links = [f"http://h{number}.test/" for number in range(60_000)]
    task = lease.assignments[0]
    told = [result(task, capture_id="one", links=links[at : at + 20_000]) for at in range(0, 60_000, 20_000)]
    made.results(batch_of(told), 1.0, "n0")
    assert made.totals(1.0).known == 60_000, "h0 is the seed"
    assert counted.breaths >= 60_000 * (1 + GROUP_WEIGHT) // PART_WEIGHT


def test_links_that_must_be_made_canonical_are_looked_at_in_parts() -> None:
    made = dispatcher(SEEDS[:1])
    leases = Asker(made).work(0.0)
    counted = breaths(made)
    raw = result(leases[0].assignments[0], links=[f"page?{number}" for number in range(3 * HREFS_AT_ONCE)])
    made.results(Results([raw]), 1.0, "n0")
    assert counted.breaths >= 3


def test_renewals_come_in_parts_and_each_once() -> None:
    made = dispatcher(SEEDS[:1], delay_s=0.0)
    made.seed([f"http://r{number}.test/" for number in range(2 * RENEWALS_AT_ONCE)], 0.0)
    leases = [lease for number in range(9) for lease in Asker(made, "n0").work(number / 10, hosts=512, tasks=5_000)]
    counted = breaths(made)
    renew = [(lease.lease_id, lease.host) for lease in leases]
    work = made.work("n0", WorkRequest(0, max_hosts=0, renew=renew * 3), 1.0)
    assert len(work.leases) == len(leases) > RENEWALS_AT_ONCE
    assert counted.breaths == -(-len(leases) // RENEWALS_AT_ONCE)


def test_questions_come_in_parts() -> None:
    made = dispatcher(SEEDS[:1])
    counted = breaths(made)
    assert made.known(KnownRequest([("h.test", "ab" * 32)] * 5_000)).duplicates == [None] * 5_000
    assert counted.breaths == 5_000 // KNOWN_AT_ONCE
