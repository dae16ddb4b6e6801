"""What coordinators, nodes and crawls say of themselves: lines of JSON that a program can read, with the ids of the
crawl, node and request; and in all that a fleet logs, however it is hurt, no secret."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import ssl
from pathlib import Path
from typing import Any

import msgspec

from drumlin.access.seals import KEYS_TABLE
from drumlin.access.tokens import SECRET_KEY, AccessControl
from drumlin.engines.blocking import open_blocking
from drumlin.errors import EXIT_OK
from drumlin.fleet.layout import ProcessRole, read_secret
from drumlin.node.main import ABORT_HOOK
from drumlin.testing import FakeWeb, Response
from drumlin.tls import CertificateFiles
from tests.acceptance.commands import crawl, environment
from tests.harness.crawls import benchmark_web, wait_until
from tests.harness.fleet import Fleet, drumlin, fleet, kill, needs_redis
from tests.harness.logs import entries, events, of_event
from tests.harness.standing import Standing, standing

HOSTS = 10
PAGES = 200
STEP_S_MAX = 120.0
SLOW = ("--delay", "1s", "--lease", "5s")
EVERY_ENTRY = {"time", "level", "logger", "message"}
MAC = re.compile(r"drumlin_[a-z]+_[\w.+-]+_[a-z2-7]{32}")


def wait_for_event(place: Standing, process: str, event: str, **fields: object) -> dict[str, Any]:
    """The first entry of this event and with these fields in the log of a process."""

    def found() -> list[dict[str, Any]]:
        told = of_event(place.log(process), event)
        return [entry for entry in told if fields.items() <= entry.items()]

    wait_until(lambda: bool(found()), STEP_S_MAX, f"{event} {fields} in the log of {process}")
    return found()[0]


def test_a_coordinator_and_its_nodes_say_what_happens_to_them_with_the_ids(tmp_path: Path) -> None:
    with (
        benchmark_web(tmp_path, HOSTS, PAGES) as web,
        standing(tmp_path, "-i", str(web.seeds), *SLOW) as place,
    ):
        told_to_leave = place.node("n0")
        joined = wait_for_event(place, "n0", "joined")
        wait_for_event(place, "coordinator", "joined", node="n0")
        place.remote.patch("/api/v1/crawl", {"delay_s": 2.0})
        changed = wait_for_event(place, "n0", "settings_changed")
        told_to_leave.send_signal(signal.SIGTERM)
        assert told_to_leave.wait(STEP_S_MAX) == EXIT_OK
        wait_for_event(place, "coordinator", "left", node="n0")
        drained = place.node("n1")
        wait_for_event(place, "n1", "joined")
        place.remote.post("/api/v1/nodes/n1/drain")
        assert drained.wait(STEP_S_MAX) == EXIT_OK
        killed = place.node("n2")
        wait_for_event(place, "n2", "joined")
        place.remote.post("/api/v1/nodes/n2/quarantine")
        kept_out = wait_for_event(place, "n2", "quarantined")
        place.remote.post("/api/v1/nodes/n2/release")
        wait_for_event(place, "coordinator", "released", node="n2")
        killed.kill()
        silent = wait_for_event(place, "coordinator", "silent", node="n2")
        os.kill(place.pid, signal.SIGTERM)
        wait_for_event(place, "coordinator", "stopped")
    assert events(place.log("n0")) == ["joined", "settings_changed", "draining", "drained", "left"]
    assert events(place.log("n1")) == ["joined", "drained", "left"]
    assert changed["settings"] == "delay"
    assert "--delay was 1s and is 2s" in changed["message"]
    assert (silent["level"], kept_out["level"], bool(kept_out["request"])) == ("warning", "warning", True)
    said = events(place.log("coordinator"))
    happened = {"started", "leads", "joined", "left", "settings_changed", "draining", "quarantined", "released"}
    assert {*happened, "silent"} <= set(said)
    assert said[-2:] == ["stopping", "stopped"]
    check_ids(place, crawl_id=joined["crawl"])


def check_ids(place: Standing, crawl_id: str) -> None:
    """Every line is an entry, and from its first event on each says which crawl it is about and who says it."""
    names = {"n0": "node", "n1": "node", "n2": "node", "coordinator": "coordinator"}
    for name, kind in names.items():
        told = entries(place.log(name))
        assert all(entry.keys() >= EVERY_ENTRY for entry in told)
        assert {entry.get("crawl") for entry in told if entry.get("event") not in (None, "leads")} == {crawl_id}
        assert len({entry[kind] for entry in told}) == 1
    audited = of_event(place.log("coordinator"), "audit")
    assert [entry["action"] for entry in audited] == ["crawl.change", "node.drain", "node.quarantine", "node.release"]
    assert all(entry["request"] for entry in audited)


def test_a_crawl_keeps_its_logs_in_its_directory_and_a_node_that_died_is_in_them(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web:
        home = web.page("shop", "/", '<a href="/a.html">a</a> <a href="/poison.html">poison</a>')
        web.page("shop", "/a.html", "<title>a</title>")
        web.page("shop", "/poison.html", "<title>poison</title>")
        done = crawl(tmp_path, home, env=environment(tmp_path, {ABORT_HOOK: "/poison.html"}))
    assert done.returncode == EXIT_OK, done.stderr
    assert '"event"' not in done.stderr + done.stdout
    logs = tmp_path / "crawl" / "logs"
    coordinator, node = (logs / "coordinator.log").read_text(), (logs / "n0.log").read_text()
    (restarted, *_) = of_event(coordinator, "restarted")
    assert (restarted["node"], restarted["ended"], restarted["level"]) == ("n0", "SIGABRT", "warning")
    assert {"joined", "drained", "left"} <= set(events(node))
    assert {entry["crawl"] for entry in of_event(coordinator + node, "joined")} == {restarted["crawl"]}


def test_people_may_have_the_log_of_a_crawl_as_they_read(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web:
        crawl(tmp_path, web.page("shop", "/", "<title>shop</title>"), "--log-format", "human")
    lines = (tmp_path / "crawl" / "logs" / "n0.log").read_text().splitlines()
    assert re.fullmatch(r"[-\d]+ [:,\d]+ INFO drumlin\.node \[crawl=[0-9a-f]{8} node=n0\]: joined .*", lines[0])


# Secrets


@needs_redis
def test_no_log_of_a_fleet_holds_a_secret_whatever_happens_to_the_fleet(tmp_path: Path) -> None:
    with FakeWeb(hosts=0) as web:
        signed = web.page("shop", "/signed?X-Amz-Signature=5ec2e7&token=5ec2e7b", "<title>signed</title>")
        cookie = {"Set-Cookie": "sid=5ec2e7c00c1e"}
        home = web.respond("shop", "/", Response(headers=cookie, body=f'<a href="{signed}">signed</a>'))
        shape = ("--nodes", "1", "--coordinators", "2", "--masters", "1", "--delay", "0", "--no-finish")
        with fleet(tmp_path, *shape, "--log-level", "debug", home) as one:
            wait_until(lambda: one.stats()["pages"] >= 2, STEP_S_MAX, "both pages")
            secrets = secrets_of(one) | {"5ec2e7"}
            forged = read_secret(one.paths.operator_token)[:-4] + "aaaa"
            refused = ask_as(one, {"Authorization": f"Bearer {forged}", "Cookie": "sid=5ec2e7c00c1e"})
            assert refused.status == 401
            hurt(one)
            wait_until(lambda: told(one, "refused", "restarted"), STEP_S_MAX, "what was done to it in its logs")
            node = one.paths.log("node-0")
            wait_until(lambda: events(node.read_text()).count("joined") >= 2, STEP_S_MAX, "its node at work again")
            request = refused.headers["X-Drumlin-Request"]
        logs = {path.name: path.read_text(errors="replace") for path in one.paths.logs.iterdir()}
    assert {"supervisor.log", "coordinator-0.log", "coordinator-1.log", "node-0.log"} <= logs.keys()
    (said,) = [entry for entry in of_event(logs["coordinator-0.log"], "refused") if entry["request"] == request]
    assert (said["code"], said["level"]) == ("invalid_token", "warning")
    for name, log in logs.items():
        assert [secret for secret in secrets if secret in log] == [], name
        assert MAC.search(log) is None, name
        assert "PRIVATE KEY" not in log, name


def secrets_of(one: Fleet) -> set[str]:
    """Everything in a fleet that somebody could misuse, in every form in which it might be written."""
    password, url = read_secret(one.paths.redis_password), read_secret(one.paths.engine_url)
    found = {password, url, read_secret(one.paths.operator_token), read_secret(one.paths.join_token)}
    with contextlib.closing(open_blocking(url)) as engine:
        secret = engine.get_meta(SECRET_KEY)
        assert secret is not None
        keys = [secret, *engine.get_entries(KEYS_TABLE).values()]
    keys += [AccessControl(secret).node_key(f"node-{number}") for number in range(2)]
    found |= {form for key in keys for form in (key.hex(), repr(key), msgspec.json.encode(key).decode().strip('"'))}
    instances = one.store.glob("nodes/*/instance")
    return found | {path.read_text().split()[0] for path in instances}


def ask_as(one: Fleet, headers: dict[str, str]) -> http.client.HTTPResponse:
    """An answer of the first coordinator to a request with these headers."""
    context = ssl.create_default_context(cafile=CertificateFiles.in_folder(one.paths.certs).authority)
    address = one.record.coordinators[0].removeprefix("https://")
    connection = http.client.HTTPSConnection(address, context=context, timeout=STEP_S_MAX)
    connection.request("GET", "/api/v1/crawl?token=5ec2e7", headers=headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer


def hurt(one: Fleet) -> None:
    """Kill one of everything, change a setting, and order what people can order."""
    for verb in (("set", "delay", "1s"), ("nodes", "quarantine", "node-0"), ("nodes", "release", "node-0")):
        done = drumlin(one.root.parent, *verb, "--out", str(one.root))
        assert done.returncode == EXIT_OK, done.stderr
    kill(one.of(ProcessRole.REDIS)[0])
    kill(one.of(ProcessRole.NODE)[0])
    kill(one.of(ProcessRole.COORDINATOR)[1])


def told(one: Fleet, in_coordinators: str, in_supervisor: str) -> bool:
    """Whether the logs have these events, the second one of every process that was killed."""
    coordinators = "".join(one.paths.log(f"coordinator-{number}").read_text() for number in range(2))
    supervisor = one.paths.log("supervisor").read_text()
    return in_coordinators in events(coordinators) and events(supervisor).count(in_supervisor) >= 3
