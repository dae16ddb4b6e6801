"""What a coordinator remembers while it gives work out has an end, however long it runs."""

from __future__ import annotations

from msgspec.structs import replace

from drumlin.coordinator.giving.hunger import LATELY_S, Hunger
from drumlin.coordinator.giving.lost_hosts import LINE_MAX, LostHosts
from drumlin.coordinator.giving.memories import GONE_MAX, Memories
from tests.harness.dispatching import Asker, dispatcher


def test_nodes_that_are_gone_are_forgotten_and_those_present_are_not() -> None:
    memories = Memories()
    for number in range(2 * GONE_MAX):
        assert memories.next_turn(f"n{number}") == 1
        memories.note(f"n{number}", ["h0.test"])
        memories.forget_gone({"n0": None, f"n{number}": None})
    assert len(memories) <= GONE_MAX + 2
    assert memories.next_turn("n0") == 2
    assert list(memories.recent("n0")) == ["h0.test"]


def test_a_coordinator_that_thousands_of_names_have_asked_remembers_few() -> None:
    made = dispatcher(delay_s=0.0, affinity="spread")
    for number in range(2 * GONE_MAX):
        Asker(made, f"n{number}").work(float(number))
        if number % 100 == 0:
            made.made.nodes.let_go(float(number))
            made.tick(float(number))
    assert len(made.made._granting._memories) < 1.5 * GONE_MAX


def test_hunger_of_long_ago_is_forgotten_though_nobody_asks_for_it() -> None:
    hunger, record = Hunger(), dispatcher().register("n", 0.0)
    for number in range(1_000):
        hunger.answered(replace(record, node_id=f"n{number}"), 0, 0, number * LATELY_S)
    assert len(hunger._since) < 10
    assert hunger.felt(1_000 * LATELY_S)
    assert not hunger.felt(2_000 * LATELY_S)


def test_a_node_is_hungry_until_it_asks_again() -> None:
    """In a large fleet whoever gets nothing waits for seconds."""
    hunger, record = Hunger(), dispatcher().register("n", 0.0)
    hunger.count(10, 1_000, 3.0)
    hunger.answered(record, 0, 0, 0.0)
    assert hunger.felt(3.0)
    hunger.answered(replace(record, pages_per_s=1.0), 0, 50, 3.1)
    assert not hunger.felt(3.1), "it has work"


def test_a_leader_that_no_node_asks_does_not_collect_lost_hosts_for_ever() -> None:
    lost = LostHosts()
    for number in range(2 * LINE_MAX):
        lost.add(0, f"h{number}.test", float(number))
    shard, hosts = lost.take(float("inf"), 3 * LINE_MAX)
    assert (shard, len(hosts), hosts[-1]) == (0, LINE_MAX, f"h{2 * LINE_MAX - 1}.test")
