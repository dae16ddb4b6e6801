"""A node that lies, over HTTP, with a valid token and valid signatures.

Nothing changes beyond the host that it holds, it is put out within a minute, and an honest node beside it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
import zstandard

from drumlin.access.limits import REQUESTS_BURST
from drumlin.access.tokens import Role
from drumlin.config import CrawlConfig
from drumlin.coordinator.giving.visiting import STRANGERS_PER_SPONSOR, STRANGERS_TABLE
from drumlin.coordinator.taking.host_reports import DELAY_MAX_S, NEXT_CONTACT_MAX_S
from drumlin.coordinator.taking.settling import LINKS_REFUSED_MAX
from drumlin.engines.base import Engine
from drumlin.protocol import COUNT_MAX, LINKS_MAX, SITEMAPS_ELSEWHERE_MAX, VISITS_MAX, HostNote
from drumlin.robots import Decision
from tests.harness.coordinators import Answer, RemoteNode, RunningCoordinator, result_of

HOSTS = [f"h{number}.test" for number in range(6)]
URLS = [f"http://{host}/{page}" for host in HOSTS for page in ("", "a", "b")]
ELSEWHERE = "http://elsewhere.test/"
POISON = "ee" * 32
QUARANTINE_WITHIN_S = 60.0
CALLS_MAX = 120
"""More than any lie needs."""
LATE_S = 600.0
"""Leases must outlast the slowest machine."""


class Scene:
    """A coordinator, an honest node that holds some hosts, and a hostile one that holds one."""

    def __init__(self, coordinator: RunningCoordinator) -> None:
        self.coordinator = coordinator
        coordinator.enqueue(*URLS)
        self.hostile, self.honest = RemoteNode(coordinator, "hostile"), RemoteNode(coordinator, "honest")
        self.own = self._lease(self.hostile)
        self.others = [self._lease(self.honest), self._lease(self.honest)]
        self.before = self.state()

    def _lease(self, node: RemoteNode) -> dict[str, Any]:
        work = node.post("work/request", {"max_tasks": 3, "max_hosts": 1}).json
        lease: dict[str, Any] = work["leases"][0]
        return lease

    def send(self, results: list[dict[str, Any]], hosts: list[dict[str, Any]] | None = None) -> Answer:
        """A message as drumlin's own nodes send it, from the hostile node."""
        message = {"results": results, "hosts": hosts or [], "canonical_links": True, "stored": True}
        return self.hostile.send(zstandard.compress(msgspec.json.encode(message)), {"Content-Encoding": "zstd"})

    def state(self) -> object:
        """Everything that the crawl knows, except about the hostile node's own host."""
        return self.coordinator.do(_state(self.coordinator.dispatcher.engine, self.own["host"]))

    def host_state(self) -> Any:
        path = f"/api/v1/hosts/{self.own['host']}"
        return self.coordinator.get(path, token=self.coordinator.tokens[Role.VIEWER]).json

    def check_nothing_changed(self) -> None:
        assert self.state() == self.before

    def check_honest_node_goes_on(self) -> None:
        task = self.others[0]["assignments"][0]
        body = {"results": [result_of(task, links=[])], "canonical_links": True, "stored": True}
        answer = self.honest.send(msgspec.json.encode(body))
        assert (answer.status, answer.json["accepted_count"]) == (200, 1)
        renew = [[lease["lease_id"], lease["host"]] for lease in self.others]
        work = self.honest.post("work/request", {"max_tasks": 3, "max_hosts": 1, "renew": renew}).json
        assert work["lost"] == []
        assert len(work["leases"]) == 3


async def _state(engine: Engine, but: str) -> object:
    hosts = {host: await engine.host_state(engine.shard_of(host), host) for host in (*HOSTS, "elsewhere.test")}
    stories = {url: await engine.story(engine.shard_of(url.split("/")[2]), url) for url in (*URLS, ELSEWHERE)}
    stats = await engine.stats_all(0.0)
    return (
        {host: state for host, state in hosts.items() if host != but},
        {url: story for url, story in stories.items() if f"//{but}/" not in url},
        [(one.queued, one.scheduled, one.leased, one.done, one.dead, one.counters) for one in stats],
        await engine.get_entries("scope_seeds"),
        await engine.get_entries(STRANGERS_TABLE),
        await engine.contents.known([(host, bytes.fromhex(POISON)) for host in HOSTS]),
    )


@pytest.fixture
def scene() -> Iterator[Scene]:
    config = CrawlConfig(allow_private=True, delay_s=0.0, lease_s=LATE_S, scope="host")
    with RunningCoordinator(controlled=True, config=config) as coordinator:
        yield Scene(coordinator)


# Lies. Each is one call, which is repeated until the node is in quarantine.


def links(count: int, host: str = "h0.test") -> list[str]:
    return [f"http://{host}/flood/{number}" for number in range(count)]


def made_up_leases(scene: Scene) -> Answer:
    """Sequential task ids of URLs that are really queued, with a seal of the right form."""
    seal = "0123456789abcdef"
    lies = [
        {"assignment_id": f"hostile:x.0.0.{seal}/{number}.0.0.{seal}", "url": url} for number, url in enumerate(URLS)
    ]
    return scene.send([result_of(lie, links=links(1_000), content_hash=POISON) for lie in lies])


def sixty_thousand_hosts(scene: Scene) -> Answer:
    lie = {"assignment_id": "hostile:x.0.0.seal/1.0.0.seal", "url": URLS[0]}
    flood = [[f"http://x{part}-{number}.test/" for number in range(LINKS_MAX)] for part in range(3)]
    return scene.send([result_of(lie, links=part) for part in flood])


def a_seal_of_another_assignment(scene: Scene) -> Answer:
    first, second = scene.own["assignments"][:2]
    return scene.send([result_of({**first, "url": second["url"]}, links=links(10), content_hash=POISON)])


def another_depth(scene: Scene) -> Answer:
    """A page deep in the site is returned as if it were a seed, because the target of a seed's redirect joins the
    scope."""
    task = scene.own["assignments"][0]
    lease_id, _, numbers = task["assignment_id"].rpartition("/")
    number, depth, attempts, seal = numbers.split(".")
    forged = f"{lease_id}/{number}.{int(depth) + 1}.{attempts}.{seal}"
    moved = {"outcome": "redirected", "status_code": 301, "redirect_to": ELSEWHERE}
    return scene.send([result_of({**task, "assignment_id": forged}, **moved)])


def foreign_links(scene: Scene) -> Answer:
    task = scene.own["assignments"][0]
    return scene.send([result_of(task, links=[f"{ELSEWHERE}{number}" for number in range(LINKS_MAX)])])


def links_that_are_not_canonical(scene: Scene) -> Answer:
    task = scene.own["assignments"][0]
    return scene.send([result_of(task, links=[f"http://{scene.own['host']}/%61{number}#x" for number in range(500)])])


def one_link_that_cannot_be_sent(scene: Scene) -> Answer:
    """Among so many that a sample would hardly ever find it."""
    task, own = scene.own["assignments"][0], f"http://{scene.own['host']}/"
    return scene.send([result_of(task, links=[*(f"{own}{number}" for number in range(3_000)), own + "\u00e9"])])


def robots_of_others_hosts(scene: Scene) -> Answer:
    deny = Decision(None, False, True, time.time() + 80_000, False, "denied")
    note = msgspec.msgpack.encode(HostNote({"http": msgspec.msgpack.encode(deny)}))
    report = {"lease_id": scene.own["lease_id"], "note": note, "sitemaps": [ELSEWHERE], "release": True}
    return scene.send([], [report | {"host": lease["host"]} for lease in scene.others])


def delays_under_others_leases(scene: Scene) -> Answer:
    """The hostile node knows the ids of an honest node's leases."""
    said = {"delay_s": 1e10, "next_contact_s": 1e10, "release": True}
    return scene.send([], [{"lease_id": one["lease_id"], "host": one["host"], **said} for one in scene.others])


def renewals_of_others_leases(scene: Scene) -> Answer:
    renew = [[lease["lease_id"], lease["host"]] for lease in scene.others]
    return scene.hostile.post("work/request", {"max_tasks": 0, "max_hosts": 0, "renew": renew})


def invented_hosts_for_a_lease_of_its_own_making(scene: Scene) -> Answer:
    invented = [f"invented{number}.test" for number in range(VISITS_MAX)]
    sponsors = [["hostile:1.0.0123456789abcdef", scene.own["host"]]] * VISITS_MAX
    message = {"max_tasks": 0, "max_hosts": 0, "visits": invented, "visits_for": sponsors}
    return scene.hostile.post("work/request", message)


def urls_out_of_scope(scene: Scene) -> Answer:
    message = {"url": ELSEWHERE, "priority": 9}
    return scene.coordinator.post("/v1/frontier/enqueue", message, token=scene.hostile.token)


LIES: list[Callable[[Scene], Answer]] = [
    made_up_leases,
    sixty_thousand_hosts,
    a_seal_of_another_assignment,
    another_depth,
    foreign_links,
    links_that_are_not_canonical,
    one_link_that_cannot_be_sent,
    robots_of_others_hosts,
    delays_under_others_leases,
    renewals_of_others_leases,
    invented_hosts_for_a_lease_of_its_own_making,
    urls_out_of_scope,
]


@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_a_lie_changes_nothing_and_puts_its_node_out(scene: Scene, lie: Callable[[Scene], Answer]) -> None:
    started = time.monotonic()
    answers = [lie(scene)]
    scene.check_nothing_changed()
    while answers[-1].status != 429 and len(answers) < CALLS_MAX:
        answers.append(lie(scene))
    assert answers[-1].code == "quarantined", answers[-1].body
    assert time.monotonic() - started < QUARANTINE_WITHIN_S
    scene.check_nothing_changed()
    assert scene.hostile.post("work/request", {"max_tasks": 1}).code == "quarantined"
    check_people_see_it(scene)
    scene.check_honest_node_goes_on()


def check_people_see_it(scene: Scene) -> None:
    coordinator = scene.coordinator
    viewer, operator = coordinator.tokens[Role.VIEWER], coordinator.tokens[Role.OPERATOR]
    assert coordinator.get("/api/v1/nodes/hostile/status", token=viewer).json["status"] == "quarantined"
    entries = coordinator.get("/api/v1/audit", token=operator).json["entries"]
    [entry] = [one for one in entries if one["action"] == "node.quarantine"]
    assert entry["token_id"] == "hostile"
    assert any(kind in entry["target"] for kind in ("made_up", "foreign_host", "foreign_links", "foreign_url"))
    assert "drumlin_quarantines_total 1" in coordinator.get("/metrics", token=viewer).body.decode()


def test_who_floods_is_put_out(scene: Scene) -> None:
    """Large bodies empty the bucket: so many small requests would take too long."""
    body = msgspec.json.encode({"results": [], "pad": "x" * 8_000_000})
    sent = zstandard.compress(body)
    answers: list[Answer] = []
    while len(answers) < REQUESTS_BURST and (
        not answers or answers[-1].json.get("error", {}).get("code") != "quarantined"
    ):
        answers.append(scene.hostile.send(sent, {"Content-Encoding": "zstd"}))
    assert answers[-1].code == "quarantined"
    scene.check_nothing_changed()
    scene.check_honest_node_goes_on()


# What an honest node may do as well changes nothing beyond the host that it holds


def test_a_settled_result_sent_again_with_other_links_and_contents_changes_nothing(scene: Scene) -> None:
    task = scene.own["assignments"][0]
    assert scene.send([result_of(task, capture_id="one")]).json["accepted_count"] == 1
    scene.before = scene.state()
    own = f"http://{scene.own['host']}/more"
    for capture in ("one", "two"):
        scene.send([result_of(task, capture_id=capture, links=[own], content_hash=POISON, redirect_to=ELSEWHERE)])
    scene.check_nothing_changed()
    assert scene.hostile.post("work/request", {"max_tasks": 0}).status == 200


def test_a_url_that_it_enqueues_is_no_seed_whose_redirect_widens_the_crawl(scene: Scene) -> None:
    mine = f"http://{scene.own['host']}/mine"
    wanted = {"url": mine, "priority": 9}
    assert scene.coordinator.post("/v1/frontier/enqueue", wanted, token=scene.hostile.token).status == 202
    renew = [[scene.own["lease_id"], scene.own["host"]]]
    work = scene.hostile.post("work/request", {"max_tasks": 9, "max_hosts": 0, "renew": renew}).json
    [task] = [one for lease in work["leases"] for one in lease["assignments"] if one["url"] == mine]
    moved = {"outcome": "redirected", "status_code": 301, "redirect_to": ELSEWHERE}
    assert scene.send([result_of(task, **moved)]).json["accepted_count"] == 1
    again = scene.coordinator.post("/v1/frontier/enqueue", {"url": ELSEWHERE}, token=scene.hostile.token)
    assert again.code == "out_of_scope"


def test_results_of_another_nodes_leases_change_nothing_while_it_is_at_work(scene: Scene) -> None:
    stolen = [result_of(task, links=links(10), content_hash=POISON) for task in scene.others[0]["assignments"]]
    for _ in range(20):
        answer = scene.send(stolen)
        assert {one["reason"] for one in answer.json["rejected"]} == {"not_yours"}
    scene.check_nothing_changed()
    scene.check_honest_node_goes_on()


def test_what_it_says_of_its_own_host_is_bounded(scene: Scene) -> None:
    report = {"lease_id": scene.own["lease_id"], "host": scene.own["host"], "note": b"poison"}
    said = {"delay_s": 1e10, "next_contact_s": 1e10}
    assert scene.send([], [report | said]).status == 200
    state = scene.host_state()
    assert (state["delay_s"], state["robots"]) == (DELAY_MAX_S, {})
    assert state["next_contact"] <= time.time() + NEXT_CONTACT_MAX_S + 1
    scene.check_nothing_changed()


def test_it_can_name_only_so_many_sitemaps_out_of_scope(scene: Scene) -> None:
    """Each would mean a request to a site that is not crawled."""
    report = {"lease_id": scene.own["lease_id"], "host": scene.own["host"]}
    for part in range(4):
        named = [f"http://victim{part}-{number}.test/map.xml" for number in range(90)]
        assert scene.send([], [report | {"sitemaps": named}]).status == 200
    stats = scene.coordinator.get("/api/v1/stats", token=scene.coordinator.tokens[Role.VIEWER]).json
    assert stats["totals"]["known"] == len(URLS) + SITEMAPS_ELSEWHERE_MAX


def test_what_it_counts_is_bounded_and_names_no_counters(scene: Scene) -> None:
    """Every look at the crawl reads all counters, and an engine's numbers have an end: past it nothing is settled."""
    first, second, third = scene.own["assignments"]
    invented = {f"invented {number}": COUNT_MAX for number in range(99)}
    told = [
        result_of(first, size=COUNT_MAX, traps={**invented, "depth": COUNT_MAX}),
        result_of(second, size=COUNT_MAX),
        result_of(third, status_code=0, outcome="failed", kind="invented"),
    ]
    assert scene.send(told).json["accepted_count"] == len(told)
    stats = scene.coordinator.get("/api/v1/stats", token=scene.coordinator.tokens[Role.VIEWER]).json
    assert (stats["pages"], stats["bytes"]) == (2, 2 * CrawlConfig().body_bytes_max)
    assert stats["refused"] == {"depth": LINKS_REFUSED_MAX}
    assert stats["retries"] == {"connect": 1}


def test_what_nodes_say_of_themselves_can_be_added_up(scene: Scene) -> None:
    counts = dict.fromkeys(("total_crawled", "hosts", "unstarted", "total_bytes", "unanswered"), COUNT_MAX)
    beat = {"status": "running", "current_load": 1e9, **counts}
    crowd = [RemoteNode(scene.coordinator, f"loud{number}") for number in range(8)]
    assert {node.post("heartbeat", beat).status for node in crowd} == {200}
    assert crowd[0].post("heartbeat", beat | {"unanswered": 1 << 62}).status == 422
    viewer, wants = scene.coordinator.tokens[Role.VIEWER], {"Accept": "application/msgpack"}
    for path in ("/api/v1/stats", "/api/v1/nodes"):
        assert scene.coordinator.get(path, token=viewer, headers=wants).status == 200


def test_what_a_joining_machine_says_of_itself_is_bounded(scene: Scene) -> None:
    """Every listing of nodes would read all of it."""
    join, message = scene.coordinator.tokens[Role.JOIN], {"node_id": "wordy", "capacity": 1}
    for wordy in ({f"key{number}": "x" for number in range(17)}, {"key": "x" * 256}):
        assert scene.coordinator.post("/api/v1/nodes/register", message | {"metadata": wordy}, token=join).status == 422


def test_a_record_id_cannot_begin_a_header_in_another_nodes_archive(scene: Scene) -> None:
    task = scene.own["assignments"][0]
    answer = scene.send([result_of(task, record_id="urn:uuid:1>\r\nWARC-Type: response\r\nX: <1")])
    assert (answer.status, answer.code) == (422, "invalid")
    scene.check_nothing_changed()


def test_a_batch_of_more_links_than_any_node_sends_is_refused(scene: Scene) -> None:
    task = scene.own["assignments"][0]
    many = [f"http://{scene.own['host']}/{number}" for number in range(LINKS_MAX)]
    answer = scene.send([result_of(task, links=many)] * 7)
    assert (answer.status, answer.code) == (413, "too_many_links")
    scene.check_nothing_changed()


def test_it_can_bring_only_a_few_hosts_that_nobody_knows(scene: Scene) -> None:
    sponsor = [scene.own["lease_id"], scene.own["host"]]
    given = 0
    for call in range(20):
        invented = [f"invented{call}-{number}.test" for number in range(VISITS_MAX)]
        message = {"max_tasks": 0, "max_hosts": 0, "visits": invented, "visits_for": [sponsor] * VISITS_MAX}
        given += len(scene.hostile.post("work/request", message).json["leases"])
    engine = scene.coordinator.dispatcher.engine
    kept = scene.coordinator.do(engine.get_entries(STRANGERS_TABLE))
    assert given == len(kept) == STRANGERS_PER_SPONSOR
