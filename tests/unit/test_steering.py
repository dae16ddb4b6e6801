"""Settings that change while a crawl runs, and how coordinators follow them."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.calls.settings import CrawlChange, SettingsCalls
from drumlin.api.routing import Call
from drumlin.config import SETTINGS, CrawlConfig
from drumlin.config.changes import CHANGEABLE, changeable, changed
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.steering import Steering
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.errors import ConfigError
from drumlin.model import NewURLs, TaskState
from drumlin.protocol import CrawlState, Heartbeat, WorkRequest
from drumlin.serving.service import found_crawl
from tests.harness.dispatching import Asker, Driven, batch_of, dispatcher, release, result

BEAT = Heartbeat("active", 0.0, 0, config_version=0)


def change(made: Driven, now: float = 0.0, **values: Any) -> None:
    drive(made.made.change_settings(values, now))


def second_of(made: Driven) -> Driven:
    first = made.made
    config = drive(found_crawl(first.engine, None, []))[0] if drive(first.engine.get_meta("config")) else first.config
    return Driven(Dispatcher(first.engine, config, [], chance=random.Random(2), name="second"))


# Which


def test_only_settings_that_all_can_follow_may_change_and_the_refusal_names_them() -> None:
    assert set(CHANGEABLE) < set(SETTINGS)
    for name in ("lease", "concurrency", "nonsense"):
        with pytest.raises(ConfigError) as refused:
            changeable(name)
        assert "delay, per_host" in refused.value.hint
        assert name in refused.value.message
    with pytest.raises(ConfigError) as mistyped:
        changeable("dleay")
    assert mistyped.value.hint.startswith("Did you mean 'delay'?")


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("delay_s", -1.0, "delay must be at least 0s."),
        ("per_host", 257, "per_host must be at most 256."),
        ("pages_max", 0, "pages_max must be at least 1."),
        ("scope", "galaxy", "scope must be one of page, prefix, host, domain, any."),
        ("include", ["("], "include must be regular expressions"),
        ("delay_s", None, "delay must be a duration"),
    ],
)
def test_a_bad_value_is_refused_with_a_sentence_and_changes_nothing(field: str, value: Any, sentence: str) -> None:
    made = dispatcher()
    with pytest.raises(ConfigError) as refused:
        change(made, **{"bytes_max": 5, field: value})
    assert refused.value.message.startswith(sentence)
    assert made.made.config.bytes_max is None


# Agreeing


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["pages_max", "bytes_max"]), st.integers(1, 9)), max_size=9)
)
def test_all_coordinators_come_to_the_same_settings_in_the_same_order(changes: list[tuple[int, str, int]]) -> None:
    engine = MemoryEngine(1)
    steerings = [Steering(engine, CrawlConfig(), f"c{number}") for number in range(3)]
    expected = CrawlConfig()
    for which, field, value in changes:
        before, after = drive(steerings[which].change({field: value}, 0.0))
        assert before == expected
        expected = changed(expected, {field: value})
        assert after == expected
    for steering in steerings:
        drive(steering.follow())
    assert {(steering.config, steering.version) for steering in steerings} == {(expected, steerings[0].version)}


class Slow(MemoryEngine):
    """Lets others in between a look and a write, as a network does."""

    async def get_meta(self, key: str) -> bytes | None:
        await asyncio.sleep(0)
        return await super().get_meta(key)

    async def put_meta_if_absent(self, key: str, value: bytes) -> bytes:
        await asyncio.sleep(0)
        return await super().put_meta_if_absent(key, value)


def test_of_changes_at_the_same_moment_none_is_lost() -> None:
    async def run() -> None:
        engine = Slow(1)
        steerings = [Steering(engine, CrawlConfig(), f"c{number % 3}") for number in range(3)]
        fields = [("pages_max", 1), ("bytes_max", 2), ("delay_s", 3.0), ("per_host", 4), ("host_urls_max", 5)]
        await asyncio.gather(
            *(steerings[n % 3].change({field: value}, 0.0) for n, (field, value) in enumerate(fields)),
            *(steering.follow() for steering in steerings),
        )
        for steering in steerings:
            await steering.follow()
            assert {field: getattr(steering.config, field) for field, _ in fields} == dict(fields)
            assert steering.version == len(fields)

    asyncio.run(run())


def test_another_coordinator_follows_at_its_next_tick() -> None:
    made = dispatcher()
    other = second_of(made)
    change(made, delay_s=7.0)
    assert other.made.config.delay_s == 1.0
    other.tick(1.0)
    assert (other.made.config.delay_s, other.made.steering.version) == (7.0, 1)


def test_a_value_that_is_there_already_makes_no_version() -> None:
    made = dispatcher()
    change(made, delay_s=1.0)
    assert made.made.steering.version == 0


# Starting again


def test_a_coordinator_with_the_flags_of_the_founding_or_of_today_joins_and_follows_and_others_are_refused() -> None:
    engine = MemoryEngine(1)
    founding = CrawlConfig(delay_s=2.0)
    drive(found_crawl(engine, founding, []))
    drive(Steering(engine, founding, "c").change({"delay_s": 5.0, "per_host": 2}, 0.0))
    for flags in (founding, CrawlConfig(delay_s=5.0, per_host=2), None):
        config, _ = drive(found_crawl(engine, flags, []))
        again = Dispatcher(engine, config, [], chance=random.Random(1))
        drive(again.open())
        assert (again.config.delay_s, again.config.per_host) == (5.0, 2)
    with pytest.raises(ConfigError, match="other values of delay"):
        drive(found_crawl(engine, CrawlConfig(delay_s=3.0), []))


def test_a_crawl_on_one_machine_keeps_what_was_set_unless_it_is_started_with_other_flags() -> None:
    engine = MemoryEngine(1)

    def start(flags: CrawlConfig) -> Steering:
        steering = Steering(engine, flags, "local")
        drive(steering.start_with(flags, 0.0))
        return steering

    first = start(CrawlConfig(delay_s=2.0))
    drive(first.change({"delay_s": 5.0}, 0.0))
    assert start(CrawlConfig(delay_s=2.0)).config.delay_s == 5.0
    assert start(CrawlConfig(delay_s=1.0)).config.delay_s == 1.0
    assert start(CrawlConfig(delay_s=1.0)).config.delay_s == 1.0
    assert start(CrawlConfig(delay_s=2.0)).config.delay_s == 2.0


# Following


def test_a_budget_that_is_lowered_ends_the_crawl_at_the_next_look_and_one_that_is_raised_lets_it_go_on() -> None:
    made = dispatcher()
    leases = Asker(made).work(0.0)
    made.results(batch_of([result(lease.assignments[0]) for lease in leases[:3]]), 1.0)
    made.tick(1.5)
    calls, call = SettingsCalls(made.made, lambda: None), cast(Call, SimpleNamespace(now=2.0, note=""))
    assert drive(calls.change(call, CrawlChange(pages_max=4))).spent == ""
    assert drive(calls.change(call, CrawlChange(pages_max=3))).spent == "pages_max"
    assert drive(calls.change(call, CrawlChange(delay_s=7.0))).spent == "", "that is not what was changed"
    assert Asker(made, "n1").work(2.1) == []
    made.tick(2.5)
    assert (made.state, made.made.stop_reason) == (CrawlState.DRAINING, "pages_max")
    change(made, 3.0, pages_max=None)
    drive(made.made.resume())
    made.tick(3.5)
    assert made.state is CrawlState.RUNNING


def test_a_node_is_told_of_settings_once_with_its_heartbeat_and_not_of_older_ones() -> None:
    made = dispatcher(scope="any")
    other = second_of(made)
    assert made.heartbeat("n0", BEAT, 1.0).settings is None
    change(made, 1.0, delay_s=4.0, scope="host")
    told = made.heartbeat("n0", BEAT, 1.5).settings
    assert told is not None
    assert (told.config_version, told.config["delay_s"]) == (1, 4.0)
    assert told.seeds, "a scope of hosts is made of the seeds"
    follows = Heartbeat("active", 0.0, 0, config_version=1)
    assert made.heartbeat("n0", follows, 2.0).settings is None
    assert other.heartbeat("n0", follows, 2.0).settings is None, "it has not heard of it itself"
    assert made.heartbeat("n1", Heartbeat("active", 0.0, 0), 2.0).settings is None, "a node that did not ask"
    assert made.heartbeat("n0", BEAT, 2.0).config_hash == made.made.config.config_hash()


def test_a_host_that_was_contacted_under_a_shorter_delay_waits_the_longer_one_when_it_changes_hands() -> None:
    made = dispatcher(["http://h0.test/"], delay_s=1.0)
    made.seed([f"http://h0.test/{path}" for path in range(5)], 0.0)
    (lease,) = Asker(made).work(0.0)
    # Its node contacted it at 10 and gives it back with the delay it knows.
    made.results(batch_of([], [release(lease, 1.0)]), 10.0)
    change(made, 10.2, delay_s=5.0)
    (moved,) = Asker(made, "n1").work(10.5)
    assert moved.min_delay_s == 5.0
    assert 10.5 + moved.wait_s == pytest.approx(15.0)
    made.results(batch_of([], [release(moved, 5.0)]), 20.0)
    (later,) = Asker(made, "n2").work(60.0)
    assert later.wait_s == 0.0


# Narrower scope


def queue(made: Driven, *urls: str, depth: int = 1) -> None:
    by_host = [NewURLs(url.split("/")[2], [url], 5, depth, "http://h0.test/") for url in urls]
    drive(made.made._offer(by_host, 0.0))


def given_urls(made: Driven, now: float, node: str = "n0") -> list[str]:
    return sorted(one.url for lease in Asker(made, node).work(now, hosts=50) for one in lease.assignments)


def test_queued_urls_that_a_new_scope_leaves_out_are_dead_letters_without_a_contact() -> None:
    made = dispatcher(["http://h0.test/"], scope="any", delay_s=0.0)
    queue(made, "http://h0.test/kept", "http://h0.test/private/1", "http://out.test/", "http://out.test/2")
    change(made, scope="host", exclude=["/private/"])
    assert given_urls(made, 1.0) == ["http://h0.test/", "http://h0.test/kept"]
    assert made.totals(1.0).group("dead.") == {"scope_changed": 3}
    story = drive(made.made.engine.story(made.made.engine.shard_of("out.test"), "http://out.test/"))
    assert story is not None
    assert story.state is TaskState.DEAD
    assert made.totals(1.0).hosts_leased == 1, "a host of which nothing is left is given back"


def test_what_a_narrower_scope_left_out_comes_back_with_a_wider_one_as_often_as_it_changes() -> None:
    made = dispatcher(["http://h0.test/"], scope="any", delay_s=0.0)
    queue(made, "http://a.test/private/", "http://b.test/private/", "http://b.test/more/")
    change(made, 10.0, exclude=["private", "more"])
    assert given_urls(made, 10.0) == ["http://h0.test/"]
    change(made, 11.0, exclude=["private", "mor"])
    made.tick(11.0)
    assert given_urls(made, 11.0) == []
    assert made.totals(11.0).group("dead.") == {"scope_changed": 3}
    change(made, 12.0, exclude=["a.test"])
    made.tick(12.0)
    assert given_urls(made, 12.0) == ["http://b.test/more/", "http://b.test/private/"]
    assert made.totals(12.0).group("dead.") == {"scope_changed": 1}
    change(made, 13.0, exclude=[])
    made.tick(13.0)
    assert given_urls(made, 13.0) == ["http://a.test/private/"]
    assert made.totals(13.0).group("dead.") == {}


def test_a_coordinator_that_hears_late_of_a_wider_scope_brings_back_what_it_left_out_meanwhile() -> None:
    made = dispatcher(["http://h0.test/"], scope="any", delay_s=0.0)
    late = second_of(made)
    queue(made, "http://a.test/private/")
    change(made, 1.0, exclude=["private"])
    late.tick(2.0)
    change(made, 3.0, exclude=[])
    made.tick(3.0)
    given_urls(late, 3.5)
    assert late.totals(3.5).dead == 1
    late.tick(4.0)
    assert late.totals(4.0).dead == 0


def test_seeds_and_enqueued_urls_stay_in_every_scope_unless_they_are_excluded() -> None:
    made = dispatcher(["http://h0.test/", "http://h0.test/private/"], scope="any", delay_s=0.0)
    queue(made, "http://asked.test/", depth=0)
    change(made, scope="page", exclude=["/private/"])
    assert given_urls(made, 1.0) == ["http://asked.test/", "http://h0.test/"]


def test_what_pages_show_may_be_anywhere_in_a_crawl_with_assets() -> None:
    made = dispatcher(["http://h0.test/"], scope="any", delay_s=0.0, assets=True)
    queue(made, "http://cdn.test/logo.png", "http://cdn.test/no.png")
    change(made, scope="host", exclude=["no.png"])
    assert given_urls(made, 1.0) == ["http://cdn.test/logo.png", "http://h0.test/"]


def test_a_long_queue_that_is_out_of_scope_does_not_hide_what_is_behind_it() -> None:
    made = dispatcher(["http://h0.test/"], scope="any", delay_s=0.0)
    queue(made, *(f"http://h0.test/private/{n}" for n in range(200)), "http://h0.test/last")
    change(made, exclude=["/private/"])
    (lease,) = Asker(made).work(1.0)
    assert [one.url for one in lease.assignments] == ["http://h0.test/"]

    def renewed(now: float) -> list[str]:
        renewal = WorkRequest(100, max_hosts=0, renew=[(lease.lease_id, lease.host)])
        return [one.url for more in made.work("n0", renewal, now).leases for one in more.assignments]

    assert any("http://h0.test/last" in renewed(2.0 + turn) for turn in range(40))
    assert made.totals(50.0).group("dead.") == {"scope_changed": 200}


def test_a_host_whose_whole_queue_is_out_of_scope_is_emptied_in_one_request() -> None:
    made = dispatcher(["http://h0.test/"], scope="any", delay_s=0.0)
    queue(made, *(f"http://out.test/{n}" for n in range(500)))
    change(made, scope="host")
    assert given_urls(made, 1.0) == ["http://h0.test/"]
    assert made.totals(1.0).group("dead.") == {"scope_changed": 500}
    assert made.totals(1.0).queued == 0


def test_a_crawl_whose_scope_never_changed_looks_at_no_queued_url() -> None:
    made = dispatcher(["http://h0.test/"], scope="host", delay_s=0.0)
    queue(made, "http://let-in.test/")
    change(made, delay_s=1.0)
    assert "http://let-in.test/" in given_urls(made, 1.0)
