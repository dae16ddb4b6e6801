"""A result counts only if its sender had the lease, and what does not count changes nothing."""

from __future__ import annotations

import random
from math import inf, nan
from typing import Any

import msgspec
import pytest

from drumlin.access.misdeeds import Misdeed
from drumlin.access.tokens import SECRET_KEY
from drumlin.coordinator.taking.host_reports import (
    DELAY_MAX_S,
    NEXT_CONTACT_MAX_S,
    NOTE_AHEAD_MAX_S,
    backoffs_of,
)
from drumlin.engines.blocking import drive
from drumlin.model import HostState, Outcome
from drumlin.protocol import Assignment, BackOff, HostNote, HostReport, KnownRequest, Result, Results, WorkRequest
from drumlin.robots import Decision
from tests.harness.dispatching import SEEDS, Asker, Driven, batch_of, dispatcher, release, result

ELSEWHERE = "http://elsewhere.test/"


def state_of(made: Driven) -> object:
    """Everything that the engine knows, but for the hosts' leases."""
    engine, shards = made.made.engine, range(made.made.engine.shard_count)
    stats = drive(engine.stats_all(1.0))
    hosts = [drive(engine.top_hosts(shard, 1_000)) for shard in shards]
    return stats, hosts, made.made.scope_seeds


def host_state(made: Driven, host: str) -> HostState:
    state = drive(made.made.engine.host_state(made.made.engine.shard_of(host), host))
    assert state is not None
    return state


def made_up(task: Assignment, changes: str = ".1.0") -> Assignment:
    """The same URL at another depth, under the same seal."""
    lease_id, _, rest = task.assignment_id.rpartition("/")
    number, _, _, seal = rest.split(".")
    return msgspec.structs.replace(task, assignment_id=f"{lease_id}/{number}{changes}.{seal}")


# Made-up work


def test_a_made_up_lease_changes_nothing_however_much_it_says() -> None:
    made = dispatcher()
    made.register("n0", 0.0)
    before = state_of(made)
    links = [f"http://h0.test/{number}" for number in range(1_000)]
    lies = [
        Result(f"n0:x.0.0.abcdef0123456789/{number}.0.0.abcdef0123456789", url, 200, "ab" * 32, links, 1.0, size=9)
        for number, url in enumerate(SEEDS)
    ]
    reports = [HostReport("n0:x.0.0.abcdef0123456789", "h0.test", True, 1e10, 1e10, b"note", [ELSEWHERE])]
    accepted = made.results(batch_of(lies, reports), 1.0, "n0")
    assert (accepted.accepted_count, {one.reason for one in accepted.rejected}) == (0, {"made_up"})
    assert state_of(made) == before
    assert made.made.misdeeds.take("n0") == {Misdeed.MADE_UP: len(lies) + 1}
    assert made.made.misdeeds.take("n0") == {}


def test_a_result_at_another_depth_is_made_up_and_widens_nothing() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    made.results(batch_of([result(lease.assignments[0], links=["http://h0.test/deep"])], [release(lease)]), 1.0)
    (deeper,) = Asker(made).work(5.0)
    as_seed = made_up(deeper.assignments[0], ".0.0")
    moved = result(as_seed, Outcome.REDIRECTED, status_code=301, redirect_to=ELSEWHERE)
    assert made.results(batch_of([moved]), 6.0, "n0").rejected[0].reason == "made_up"
    assert made.made.scope_seeds == []
    assert made.totals(6.0).leased == 1


def test_a_renewal_is_for_leases_that_the_node_has() -> None:
    made = dispatcher(SEEDS[:2])
    mine, other = Asker(made).work(0.0, hosts=1), Asker(made, "n1").work(0.0, hosts=1)
    lies = [(mine[0].lease_id, other[0].host), (other[0].lease_id, other[0].host), ("n0:x", "h0.test")]
    request = WorkRequest(5, max_hosts=0, request_id="r", renew=[*lies, (mine[0].lease_id, mine[0].host)])
    work = made.work("n0", request, 5.0)
    assert [lease.host for lease in work.leases] == [mine[0].host]
    assert other[0].host in work.lost
    assert made.made.misdeeds.take("n0") == {Misdeed.MADE_UP: 2, Misdeed.FOREIGN_HOST: 1}


def test_a_report_is_for_the_host_that_its_lease_names() -> None:
    made = dispatcher(SEEDS[:2])
    (mine,), (other,) = Asker(made).work(0.0, hosts=1), Asker(made, "n1").work(0.0, hosts=1)
    made.register("n1", 0.0)
    lies = [
        HostReport(mine.lease_id, other.host, True, 100.0, 50.0),
        HostReport(other.lease_id, other.host, True, 100.0, 50.0),
    ]
    before = host_state(made, other.host)
    made.results(batch_of([], lies), 1.0, "n0")
    assert host_state(made, other.host) == before
    assert made.made.misdeeds.take("n0") == {Misdeed.MADE_UP: 1, Misdeed.FOREIGN_HOST: 1}


# What does not count adds nothing


def test_a_repeated_result_with_other_links_and_contents_adds_none() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    first = result(lease.assignments[0], capture_id="one")
    assert made.results(batch_of([first]), 1.0, "n0").accepted_count == 1
    before = state_of(made)
    other: dict[str, Any] = {"links": ["http://h0.test/new"], "content_hash": "cd" * 32, "redirect_to": ELSEWHERE}
    again = result(lease.assignments[0], capture_id="one", **other)
    assert made.results(batch_of([again]), 2.0, "n0").accepted_count == 1, "it is answered as it was before"
    stale = result(lease.assignments[0], capture_id="two", **other)
    assert made.results(batch_of([stale]), 2.0, "n0").rejected[0].reason == "stale"
    assert state_of(made) == before
    assert made.known(KnownRequest([("h0.test", "cd" * 32)])).duplicates == [None]
    assert made.made.misdeeds.take("n0") == {}


def test_a_resend_is_answered_with_the_same_duplicates() -> None:
    made = dispatcher(SEEDS[:1])
    made.seed(["http://h0.test/a", "http://h0.test/b"], 0.0)
    (lease,) = Asker(made).work(0.0)
    same = "ab" * 32
    batch = batch_of([result(task, content_hash=same, capture_id=task.url) for task in lease.assignments])
    first = made.results(batch, 1.0, "n0")
    assert [page.index for page in first.duplicates] == [1, 2]
    assert made.results(batch, 2.0, "n0") == first


def test_a_late_result_of_a_url_that_nobody_holds_counts_with_its_links() -> None:
    made = dispatcher(SEEDS[:1], lease_s=10.0)
    (lease,) = Asker(made).work(0.0)
    made.tick(20.0)
    late = result(lease.assignments[0], links=["http://h0.test/late"])
    sitemaps = HostReport(lease.lease_id, lease.host, sitemaps=["http://h0.test/map.xml"])
    assert made.results(batch_of([late], [sitemaps]), 21.0, "n0").accepted_count == 1
    assert made.totals(21.0).queued == 1, "the link, and not the sitemap: the next holder asks for robots.txt again"
    assert made.made.misdeeds.take("n0") == {}


def test_the_links_of_a_large_sitemap_come_in_several_results_of_one_capture() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    parts = [result(lease.assignments[0], capture_id="one", links=[f"http://h0.test/{part}"]) for part in range(3)]
    other = result(lease.assignments[0], capture_id="two", links=["http://h0.test/other"])
    made.results(batch_of([*parts, other]), 1.0, "n0")
    assert made.totals(1.0).queued == 3


def test_a_dead_neighbours_results_are_no_lie_while_it_may_still_live() -> None:
    made = dispatcher(SEEDS[:1])
    made.register("n1", 0.0)
    (lease,) = Asker(made, "n1").work(0.0)
    left = batch_of([result(lease.assignments[0])])
    assert made.results(left, 1.0, "n0").rejected[0].reason == "not_yours"
    assert made.made.misdeeds.take("n0") == {}


def test_nothing_is_a_lie_after_the_secret_changed() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    drive(made.made.engine.put_meta(SECRET_KEY, b"another secret of thirty-two byte"))
    made.tick(1.0)
    assert made.results(batch_of([result(lease.assignments[0])], [release(lease)]), 2.0, "n0").accepted_count == 1
    assert made.made.misdeeds.take("n0") == {}


# Links are looked at by sample


@pytest.mark.parametrize("link", [ELSEWHERE, "http://h0.test/a/../b", "http://H0.test/", "http://h0.test/a#b"])
def test_a_foreign_link_has_its_whole_batch_refused(link: str) -> None:
    made = dispatcher(SEEDS[:2])
    leases = Asker(made).work(0.0)
    before = state_of(made)
    results = [result(lease.assignments[0], links=["http://h0.test/fine"]) for lease in leases]
    results[-1].links = [link] * 20
    accepted = made.results(batch_of(results, [release(lease) for lease in leases]), 1.0, "n0")
    assert accepted.rejected_at == [0, 1]
    assert {one.reason for one in accepted.rejected} == {"foreign_links"}
    assert state_of(made) == before
    assert made.made.misdeeds.take("n0") == {Misdeed.FOREIGN_LINKS: 1}


def test_a_link_may_lead_where_another_coordinator_has_let_the_scope_grow() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    drive(made.made.engine.put_entries("scope_seeds", {ELSEWHERE: b""}))
    told = result(lease.assignments[0], links=[ELSEWHERE + "page"])
    assert made.results(batch_of([told]), 1.0, "n0").accepted_count == 1


def test_a_node_that_has_not_heard_of_a_narrower_scope_is_no_liar() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    narrower = msgspec.structs.replace(made.made.config, exclude=["/private"])
    made.made.findings.follow(narrower)
    told = result(lease.assignments[0], links=["http://h0.test/private"])
    assert made.results(batch_of([told]), 1.0, "n0").accepted_count == 1


def test_assets_may_be_anywhere() -> None:
    made = dispatcher(SEEDS[:1], assets=True)
    (lease,) = Asker(made).work(0.0)
    shown = result(lease.assignments[0], links=["http://cdn.test/logo.png"])
    assert made.results(batch_of([shown]), 1.0, "n0").accepted_count == 1


def test_links_beyond_the_depth_of_the_crawl_are_not_queued() -> None:
    made = dispatcher(SEEDS[:1], depth=0)
    (lease,) = Asker(made).work(0.0)
    made.results(batch_of([result(lease.assignments[0], links=["http://h0.test/deep"])]), 1.0, "n0")
    assert made.totals(1.0).queued == 0


def test_honest_links_are_never_taken_for_foreign() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    chance = random.Random(3)
    links = [f"http://h0.test/{chance.random()}?a={number}" for number in range(500)]
    assert made.results(batch_of([result(lease.assignments[0], links=links)]), 1.0, "n0").accepted_count == 1


# What a node says of a host


def learnt(made: Driven, **said: Any) -> HostState:
    (lease,) = Asker(made).work(0.0)
    made.results(Results([], [HostReport(lease.lease_id, lease.host, **said)]), 1.0, "n0")
    return host_state(made, lease.host)


def test_absurd_delays_are_cut() -> None:
    state = learnt(dispatcher(SEEDS[:1]), delay_s=1e10, next_contact_s=1e10)
    assert (state.delay_s, state.next_contact) == (DELAY_MAX_S, 1.0 + NEXT_CONTACT_MAX_S)
    slow = learnt(dispatcher(SEEDS[:1], delay_s=1e6), delay_s=1e10)
    assert slow.delay_s == 1e6, "a crawl may be slower than that by itself"


def robots_note(scheme: str = "https", expires: float = 100.0, **more: Any) -> bytes:
    return decision_note(expires=expires, scheme=scheme, **more)


def decision_note(expires: float, scheme: str = "http", said: dict[str, Any] | None = None, **more: Any) -> bytes:
    decision = Decision(b"User-agent: *\n", False, False, expires, False, **({"reason": "rules"} | (said or {})))
    return msgspec.msgpack.encode(HostNote({scheme: msgspec.msgpack.encode(decision)}, **more))


def note_of(**parts: bytes) -> bytes:
    """A note of parts that are encoded already, and may be anything."""
    pairs = (msgspec.msgpack.encode(name) + raw for name, raw in parts.items())
    return bytes([0x80 + len(parts)]) + b"".join(pairs)


NOT_UTF8 = b"\xa2\xff\xfe"


@pytest.mark.parametrize(
    "note",
    [
        b"note",
        robots_note("gopher"),
        robots_note(expires=1e12),
        robots_note(hsts_until=1e12),
        robots_note(slow_s=-1.0),
        robots_note(hsts_until=-inf),
        robots_note(expires=-1.0),
        decision_note(inf, said={"expires_shared": -1.0}),
        decision_note(inf, said={"expires_shared": 50.0}),
        decision_note(nan, said={"expires_shared": 50.0}),
        decision_note(100.0, said={"expires_shared": inf}),
        decision_note(100.0, said={"expires_shared": nan}),
        decision_note(100.0, said={"reason": "x" * 10_000}),
        decision_note(100.0, said={"asked_delay": ("drumlin", nan)}),
        msgspec.msgpack.encode(HostNote({"http": b"no decision"})),
        msgspec.msgpack.encode(HostNote({"http": note_of(reason=NOT_UTF8)})),
        note_of(robots=b"\x81" + NOT_UTF8 + b"\xc4\x00"),
        note_of(unknown=b"\x91" * 100_000 + b"\xc0"),
    ],
)
def test_a_note_that_no_node_writes_is_left_out(note: bytes) -> None:
    assert learnt(dispatcher(SEEDS[:1]), note=note, delay_s=7.0).delay_s == 7.0
    assert learnt(dispatcher(SEEDS[:1]), note=note).note == b""


def test_a_note_as_nodes_write_them_is_kept() -> None:
    note = robots_note(expires=NOTE_AHEAD_MAX_S, hsts_until=86_400.0 * 365, slow_s=3.0)
    assert learnt(dispatcher(SEEDS[:1]), note=note).note == note


def test_sitemaps_of_a_host_are_taken_wherever_they_are() -> None:
    made = dispatcher(SEEDS[:2], scope="prefix")
    (lease,) = Asker(made).work(0.0, hosts=1)
    maps = [f"http://{lease.host}/map.xml", ELSEWHERE + "map.xml"]
    made.results(Results([], [HostReport(lease.lease_id, lease.host, sitemaps=maps)]), 1.0, "n0")
    assert made.totals(1.0).known == 4


# Hosts in back-off


def in_backoff(since: float, tries: int = 1, until: float = 100.0, **more: Any) -> bytes:
    backoff = BackOff("dns", "no such host", since, tries, since, until, until, **more)
    return msgspec.msgpack.encode(HostNote(backoff={"http": backoff}))


def test_since_when_a_host_is_in_backoff_is_not_the_nodes_to_say() -> None:
    """Otherwise one node that lies could have all others give up its hosts."""
    made = dispatcher(SEEDS[:1])
    first = learnt(made, note=in_backoff(since=-1e9, tries=1_000), release=True)
    assert first.in_backoff
    known = backoffs_of(first.note)["http"]
    assert (known.since, known.tries) == (1.0, 1)
    (lease,) = Asker(made, "n1").work(20.0)
    note = in_backoff(since=-1e9, tries=1_000)
    made.results(Results([], [HostReport(lease.lease_id, lease.host, note=note)]), 21.0, "n1")
    known = backoffs_of(host_state(made, lease.host).note)["http"]
    assert (known.since, known.tries) == (1.0, 2)
    assert made.totals(21.0).hosts_in_backoff == 1


@pytest.mark.parametrize(
    "note",
    [
        in_backoff(0.0, until=1e9),
        in_backoff(0.0, tries=-1),
        in_backoff(nan),
        msgspec.msgpack.encode(HostNote(backoff={"gopher": BackOff("dns", "", 0.0, 1, 0.0, 1.0, 1.0)})),
        msgspec.msgpack.encode(HostNote(backoff={"http": BackOff("dns", "x" * 10_000, 0.0, 1, 0.0, 1.0, 1.0)})),
    ],
    ids=["for years", "tries", "no time", "scheme", "long"],
)
def test_a_backoff_that_no_node_writes_puts_no_host_to_sleep(note: bytes) -> None:
    state = learnt(dispatcher(SEEDS[:1]), note=note)
    assert (state.note, state.in_backoff) == (b"", False)


def test_only_the_holder_puts_a_host_into_backoff() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    made.tick(60.0)
    made.results(Results([], [HostReport(lease.lease_id, lease.host, note=in_backoff(0.0))]), 61.0, "n0")
    assert made.totals(61.0).hosts_in_backoff == 0


def test_a_host_that_answers_again_is_no_longer_in_backoff() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    for note, count in ((in_backoff(0.0), 1), (robots_note(), 0)):
        made.results(Results([], [HostReport(lease.lease_id, lease.host, note=note)]), 1.0, "n0")
        assert made.totals(1.0).hosts_in_backoff == count


def test_a_url_that_is_put_off_has_no_attempt_held_against_it_and_one_that_is_given_up_is_dead() -> None:
    made = dispatcher([SEEDS[0], SEEDS[0] + "2"])
    (lease,) = Asker(made).work(0.0)
    first, second = lease.assignments
    off = result(first, Outcome.FAILED, kind="tls", put_off_s=1e9)
    gone = result(second, Outcome.FAILED, kind="dns", gave_up=True)
    made.results(batch_of([off, gone], [release(lease)]), 1.0, "n0")
    totals = made.totals(1.0)
    assert (totals.scheduled, totals.dead, totals.next_event) == (1, 1, 1.0 + NEXT_CONTACT_MAX_S)
    assert totals.group("dead.") == {"dns": 1}
    made.tick(1.0 + NEXT_CONTACT_MAX_S)
    (again,) = Asker(made, "n1").work(2.0 + NEXT_CONTACT_MAX_S)
    assert [task.attempts for task in again.assignments] == [0]


# What a killed node knew


def test_a_slowed_host_waits_at_its_slower_pace_after_its_node_has_died() -> None:
    made = dispatcher(SEEDS[:1])
    note = msgspec.msgpack.encode(HostNote(slow_s=40.0))
    learnt(made, note=note)
    made.leave("n0", 2.0)
    assert host_state(made, "h0.test").next_contact >= 42.0


def test_a_pause_that_a_killed_node_could_only_write_down_is_kept() -> None:
    made = dispatcher(SEEDS[:1])
    (lease,) = Asker(made).work(0.0)
    busy = result(lease.assignments[0], Outcome.FAILED, status_code=503, retry_after_s=600.0)
    made.results(batch_of([busy]), 1.0, "n0")
    assert host_state(made, "h0.test").next_contact >= 601.0


def test_a_lost_lease_waits_for_the_delay_that_the_crawl_got_while_it_was_held() -> None:
    made = dispatcher(SEEDS[:1])
    asker = Asker(made)
    (lease,) = asker.work(0.0)
    drive(made.made.steering.change({"delay_s": 50.0}, 1.0))
    asker.work(2.0, renew=((lease.lease_id, lease.host),))
    made.leave("n0", 3.0)
    assert host_state(made, "h0.test").next_contact >= 53.0
