"""A list of hosts stays small, however large what is known of each."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import msgspec

from drumlin.api.calls.hosts import NOTES_SHOWN_BYTES_MAX, HostCalls
from drumlin.api.explaining.host_views import RUNS, CrawlStands, host_view
from drumlin.api.explaining.store_answers import StoreAnswers
from drumlin.api.messages.hosts import HostsQuery, HostView
from drumlin.api.routing import NOBODY, Call
from drumlin.engines.blocking import drive
from drumlin.model import HostState
from drumlin.protocol import HostNote
from drumlin.robots import Decision
from drumlin.robots.packing import pack
from tests.harness.dispatching import Asker, batch_of, dispatcher, release
from tests.harness.recent import NothingRecent

RULES_BYTES = 512 * 1024


def test_a_list_shows_robots_rules_up_to_a_bound_and_one_host_always() -> None:
    count = 2 * NOTES_SHOWN_BYTES_MAX // RULES_BYTES
    made = dispatcher([f"http://r{number}.test/" for number in range(count)], delay_s=0.0)
    kept, packed_from = pack(b"#" * RULES_BYTES)
    rules = Decision(kept, False, False, 100.0, False, "rules", packed_from=packed_from)
    note = msgspec.msgpack.encode(HostNote({"http": msgspec.msgpack.encode(rules)}, slow_s=30.0))
    leases = Asker(made).work(0.0, hosts=100)
    made.results(batch_of([], [release(lease, note=note) for lease in leases]), 1.0, "n0")
    calls = HostCalls(made.made, StoreAnswers(None, NothingRecent()))
    call = cast(Call, SimpleNamespace(now=2.0, parameters={"host": leases[-1].host}, identity=NOBODY))
    views = drive(calls.hosts(call, HostsQuery(limit=1_000))).hosts
    assert len(views) == len(leases) == count
    assert 0 < sum(bool(view.robots) for view in views) < count
    assert {view.delay_s for view in views} == {30.0}, "only the rules are left out, not what else is known"
    assert drive(calls.host(call, None)).robots


def view_of(state: HostState, stands: CrawlStands = RUNS) -> HostView:
    crawl = {"delay_default_s": 0.5, "product_token": "drumlin", "blocked": False, "budget": None, "per_host": 1}
    return host_view(state, 0, 100.0, **cast(Any, crawl), crawl=stands)


def test_the_pace_of_a_host_that_was_asked_too_often_is_shown() -> None:
    note = msgspec.msgpack.encode(HostNote(slow_s=30.0))
    waiting = view_of(HostState("a.test", 120.0, None, 9, 9, 0, 0, note=note))
    assert (waiting.delay_s, waiting.min_delay_ms) == (30.0, 30_000)
    assert waiting.why == "It may be contacted in 20 s, every 30 s since it was asked too often (status 429)."
    held = view_of(HostState("a.test", 120.0, None, 9, 9, 0, 0, "t", "n0", 115.0, note))
    assert held.why == "n0 may contact it for another 15 s, every 30 s since it was asked too often (status 429)."


def test_a_wait_is_said_to_be_the_delay_or_a_pause() -> None:
    assert view_of(HostState("a.test", 100.4, None, 9, 9, 0, 0)).why.endswith(": every 0.5 s.")
    assert view_of(HostState("a.test", 700.0, None, 9, 9, 0, 0)).why == (
        "It may be contacted in 10 min: it asked for a pause, seemed overloaded, or had a longer delay before."
    )


def test_what_a_host_waits_for_is_true_of_a_crawl_that_is_paused_or_does_not_run() -> None:
    ready, waiting = HostState("a.test", 0.0, None, 9, 9, 0, 0), HostState("a.test", 103.0, None, 9, 9, 0, 0)
    done = HostState("a.test", 0.0, None, 0, 9, 0, 0)
    at_rest, paused = CrawlStands(gives=False, passes=False), CrawlStands(gives=False)
    for stands in (at_rest, paused):
        assert view_of(ready, stands).why == "It is given to the first node when the crawl goes on."
    assert view_of(waiting, at_rest).why.startswith("It may be contacted 3 s after the crawl goes on:")
    assert view_of(waiting, paused).why.startswith("It may be contacted in 3 s:")
    assert "some may wait to be tried again" in view_of(done).why
    assert view_of(done, CrawlStands(finished=True)).why == "All of its URLs are done or given up."


def test_a_delay_says_who_asked_for_it() -> None:
    note = msgspec.msgpack.encode(HostNote(slow_s=30.0))
    asking = Decision(b"", False, False, 1e12, False, "rules", asked_delay=("drumlin", 5.0))
    rules = msgspec.msgpack.encode(HostNote({"http": msgspec.msgpack.encode(asking)}))
    assert "--delay" in view_of(HostState("a.test", 0.0, None, 9, 9, 0, 0)).delay_why
    assert "status 429" in view_of(HostState("a.test", 0.0, 2.0, 9, 9, 0, 0, note=note)).delay_why
    assert "(Crawl-delay)." in view_of(HostState("a.test", 0.0, 5.0, 9, 9, 0, 0, note=rules)).delay_why
    assert view_of(HostState("a.test", 0.0, 7.0, 9, 9, 0, 0, note=rules)).delay_why.startswith("An operator has set it")
