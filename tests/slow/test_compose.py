"""deploy/compose/compose.yaml, run without a container engine: every service with its command, variables, user, rights,
volumes and address, in the order of the file's conditions. The fleet crawls a site, loses a coordinator, and leaves."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import socket
import sys
import threading
import urllib.request
from contextlib import suppress
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.check import CACHE
from drumlin.config import SETTINGS
from drumlin.errors import EXIT_OK
from tests.harness.composed import FOLDER, services
from tests.harness.containers import BRIDGE, Container, Engine, Spec, inside, needs_namespaces, tell, wait_for
from tests.harness.images import Image, built, do
from tests.harness.kafka import kafka_program
from tests.harness.sealed import ADDRESS, Site

ROOT = Path(__file__).parents[2]
NET = "10.77.0"
NODES = 2
PLAIN, BOTH, EVENTS = "plain", "with object storage and Kafka", "with Kafka"
READY_S_MAX = 180.0
CRAWL_S_MAX = 120.0
VERSITYGW = CACHE / "versitygw"
KAFKA = CACHE.parent.with_name("drumlin-tests") / "kafka-4.1.0"
# What images bring along: their programs, how they start, and whose their data is.
PROGRAMS = {
    "versity/versitygw": [(VERSITYGW, "/usr/local/bin/versitygw", True)],
    "apache/kafka": [(KAFKA, "/opt/kafka", True)],
}
JAVA = "java -cp '/opt/kafka/lib/*'"
FORMAT = f"{JAVA} kafka.tools.StorageTool format --ignore-formatted -t 5L6g3nShT-eMCtK--X86sw -c /tmp/server.properties"
# Its image makes a property of every variable: of KAFKA_NODE_ID node.id, and so on.
KAFKA_START = f"""env | sed -n 's/^KAFKA_//p' | while IFS== read -r name value; do
    printf '%s=%s\\n' "$(printf %s "$name" | tr A-Z_ a-z.)" "$value"
done > /tmp/server.properties
{FORMAT} && exec {JAVA} kafka.Kafka /tmp/server.properties
"""
STARTS = {"prom/prometheus": ["prometheus"], "apache/kafka": ["sh", "-eu", "-c", KAFKA_START]}
USERS = {"prom/prometheus": "65534:65534", "apache/kafka": "1000:1000"}
# Of these, images have tools of their own to ask whether they are well.
PORTS = {"s3": 7070, "kafka": 9092}
# It cannot be had here.
LEFT_OUT = {"grafana"}
# Object storage as .env turns it on.
STORED = {"FLEET_STORE": "s3://crawl/fleet"} if "coordinator_spool" in SETTINGS and VERSITYGW.exists() else {}
RESULTS = "drumlin.results"
READ_TOPICS = """
import collections, confluent_kafka, json, uuid
place = {"bootstrap.servers": "kafka:9092", "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
consumer = confluent_kafka.Consumer(place)
topics = [name for name in consumer.list_topics(timeout=30).topics if name.startswith("drumlin")]
consumer.subscribe(topics)
counts = collections.Counter()
while (message := consumer.poll(20)) is not None:
    counts[message.topic()] += not message.error()
print(json.dumps(counts))
"""


def told() -> dict[str, str]:
    """The same of Kafka; nothing where it could not be had."""
    return {"FLEET_EVENTS": "kafka://kafka:9092/drumlin"} if "events" in SETTINGS and KAFKA.exists() else {}


class Composed:
    """What `docker compose up` would start."""

    def __init__(self, world: Path, variables: dict[str, str], profiles: tuple[str, ...]) -> None:
        base, drumlin = built(world, ROOT)
        self._images = {"base": base, "drumlin": drumlin}
        self._volumes = world / "volumes"
        self._services = services(*profiles, "people", **variables)
        self._addresses = (f"{NET}.{number}" for number in range(20, 250))
        self.engine = Engine(world, NET)
        self.running: dict[str, list[Container]] = {}

    def up(self) -> None:
        for name, service in self._services.items():
            if "people" not in service.get("profiles", []):
                self._start(name)

    def _start(self, name: str) -> None:
        if name in self.running or name in LEFT_OUT or name not in self._services:
            return
        service = self._services[name]
        needed = service.get("depends_on", {})
        for other, condition in needed.items() if isinstance(needed, dict) else [(one, {}) for one in needed]:
            self._start(other)
            self._await(other, condition.get("condition", "service_started"))
        count = int(service.get("deploy", {}).get("replicas", 1))
        self.running[name] = [self.run(name) for _ in range(count)]

    def run(self, name: str, *command: str) -> Container:
        """One container of a service, with another command if one is given."""
        service = self._services[name]
        image, kind = self._image(service), service["image"].split(":")[0]
        start = service.get("entrypoint", STARTS.get(kind, image.entrypoint))
        return self.engine.start(
            Spec(
                name,
                image,
                [*start, *(command or map(str, service.get("command") or []))],
                {key: str(value) for key, value in (service.get("environment") or {}).items() if value is not None},
                str(service.get("user", USERS.get(kind, ""))),
                [
                    *PROGRAMS.get(kind, []),
                    *(self._mount(volume, service, kind) for volume in service.get("volumes", [])),
                ],
                service.get("tmpfs", []),
                read_only=service.get("read_only", False),
                rights=service.get("cap_add", []),
                address=self._address(name, service),
            )
        )

    def _image(self, service: dict[str, Any]) -> Image:
        return self._images["drumlin" if service["image"].startswith("drumlin") else "base"]

    def _mount(self, volume: str, service: dict[str, Any], kind: str) -> tuple[Path, str, bool]:
        source, target, *mode = volume.split(":")
        place = (FOLDER / source).resolve() if source.startswith((".", "/")) else self._volumes / source
        if not place.exists():
            place.mkdir(parents=True)
            user = str(service.get("user", USERS.get(kind, "0:0"))).split(":")[0]
            if not service["image"].startswith("drumlin") and user != "0":
                shutil.chown(place, int(user), int(user))
                (place / ".owned").touch()
        return place, target, mode == ["ro"]

    def _address(self, name: str, service: dict[str, Any]) -> str:
        if service.get("network_mode") == "none":
            return ""
        networks = service["networks"]
        fixed = networks["inside"].get("ipv4_address") if isinstance(networks, dict) else None
        address = fixed or next(self._addresses)
        self.engine.name(address, name)
        return str(address)

    def _await(self, name: str, condition: str) -> None:
        for one in self.running.get(name, []):
            if condition == "service_completed_successfully":
                assert one.wait(READY_S_MAX) == EXIT_OK, f"{name}: {one.words()}"
            elif condition == "service_healthy":
                wait_for(partial(self._healthy, name, one), READY_S_MAX, one.words)

    def _healthy(self, name: str, one: Container) -> bool:
        assert one.process.poll() is None, f"{name} has ended: {one.words()}"
        if name in PORTS:
            with socket.socket() as asking:
                return asking.connect_ex((one.spec.address, PORTS[name])) == 0
        test = self._services[name].get("healthcheck", {}).get("test")
        command = ["sh", "-c", *test[1:]] if test else self._image(self._services[name]).health
        return one.run(command).returncode == EXIT_OK

    def ask(self, *command: str) -> Any:
        """What `docker compose run drumlin …` prints."""
        done = self.run("drumlin", *command, "--json")
        assert done.wait(CRAWL_S_MAX) == EXIT_OK, done.words()
        # A hint may stand before it, that a coordinator does not answer.
        words = done.words()
        found = re.search(r"^[\[{]", words, re.MULTILINE)
        assert found is not None, words
        return json.loads(words[found.start() :])

    def topics(self) -> Any:
        """How many events each topic has."""
        spec = Spec("reader", self._images["drumlin"], ["python", "-c", READ_TOPICS], address=next(self._addresses))
        reader = self.engine.start(spec)
        assert reader.wait(CRAWL_S_MAX) == EXIT_OK, reader.words()
        return json.loads(reader.words())

    def sums(self) -> dict[str, str]:
        """What is in the files of every secret."""
        files = sorted(path for path in self._volumes.glob("*-secrets/**/*") if path.is_file())
        return {str(path.relative_to(self._volumes)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def modes(self) -> dict[str, str]:
        files = sorted(path for path in self._volumes.glob("*-secrets/**/*") if path.is_file())
        return {
            str(path.relative_to(self._volumes)): f"{path.stat().st_uid} {path.stat().st_mode & 0o777:o}"
            for path in files
        }


def main(folder: Path, how: str) -> None:
    """Runs inside."""
    world = folder / "world"
    world.mkdir()
    (folder / "seeds.txt").write_text("http://example.org/\n")
    variables = {"FLEET_CONTACT": "you@example.org", "FLEET_SEEDS": str(folder / "seeds.txt"), "FLEET_DELAY": "0.05s"}
    variables |= {"FLEET_NODES": str(NODES)} | {PLAIN: {}, BOTH: STORED | told(), EVENTS: told()}[how]
    profiles = [name for name, there in (("s3", VERSITYGW.exists()), ("kafka", KAFKA.exists())) if there]
    fleet = Composed(world, variables, tuple(profiles) if how != PLAIN else ())
    serve(fleet.engine)
    fleet.up()
    wait_for(lambda: fleet.ask("status")["pages"] >= 8, CRAWL_S_MAX, lambda: str(fleet.ask("status")))
    seen: dict[str, Any] = {"stats": fleet.ask("status"), "nodes": fleet.ask("nodes"), "modes": fleet.modes()}
    before = fleet.sums()
    for again in ("secrets", "tokens"):
        assert fleet.run(again).wait(READY_S_MAX) == EXIT_OK
    seen["kept"] = before == fleet.sums()
    fleet.running["coordinator-1"][0].signal(signal.SIGKILL)
    fleet.ask("enqueue", "http://example.org/later/")
    pages = seen["stats"]["pages"]
    wait_for(lambda: fleet.ask("status")["pages"] > pages, CRAWL_S_MAX, lambda: str(fleet.ask("status")))
    seen["targets"] = scraped(fleet.running["prometheus"][0])
    for node in fleet.running["node"]:
        node.signal(signal.SIGTERM)
    seen["left"] = [node.wait(READY_S_MAX) for node in fleet.running["node"]]
    seen["warcs"] = len(list((world / "volumes").glob("s*/**/*.warc.gz")))
    seen["stored"] = sorted({path.parts[0] for path in under(world / "volumes") if path.suffix == ".gz"})
    if how != PLAIN and told():
        # The coordinator that told of the bucket may be the one that was killed: another takes its turn.
        wait_for(lambda: RESULTS in topics_seen(fleet, seen), CRAWL_S_MAX, lambda: str(seen))
    seen["running"] = sorted(fleet.running)
    tell(seen, folder / "seen.json")


def topics_seen(fleet: Composed, seen: dict[str, Any]) -> dict[str, int]:
    topics: dict[str, int] = fleet.topics()
    seen["topics"] = topics
    return topics


def under(folder: Path) -> list[Path]:
    return [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]


def serve(engine: Engine) -> None:
    """A site, at an address that is none of ours."""
    do("ip", "address", "add", f"{ADDRESS}/32", "dev", BRIDGE)
    engine.name(ADDRESS, "example.org")
    threading.Thread(target=ThreadingHTTPServer((ADDRESS, 80), Site).serve_forever, daemon=True).start()


def scraped(prometheus: Container) -> dict[str, list[str]]:
    """The targets by how they do, and the alert rules that Prometheus has read."""
    at = f"http://{prometheus.spec.address}:9090/api/v1"

    def get(path: str) -> Any:
        with urllib.request.urlopen(f"{at}/{path}", timeout=10) as answer:
            return json.load(answer)["data"]

    def healths() -> dict[str, str]:
        return {one["labels"]["instance"]: one["health"] for one in get("targets")["activeTargets"]}

    wait_for(lambda: sorted(healths().values()) == ["down", "up"], CRAWL_S_MAX, lambda: str(healths()))
    rules = [rule["name"] for group in get("rules")["groups"] for rule in group["rules"]]
    return {"up": [name for name, health in healths().items() if health == "up"], "rules": rules}


@needs_namespaces
@pytest.mark.parametrize("how", [PLAIN, BOTH, EVENTS])
def test_a_fleet_in_containers_crawls_and_survives_a_coordinator(tmp_path: Path, how: str) -> None:
    if how != PLAIN:
        with suppress(pytest.skip.Exception):
            kafka_program()
    seen = inside(__file__, tmp_path, how)
    assert seen["stats"]["state"] == "running"
    assert len(seen["nodes"]) == NODES
    assert seen["left"] == [EXIT_OK] * NODES
    assert seen["warcs"] > 0
    assert seen["kept"], "a second `up` makes no new secrets"
    assert seen["targets"]["up"] == ["coordinator-2:8700"]
    assert "DrumlinCoordinatorDown" in seen["targets"]["rules"]
    secrets = {name: mode for name, mode in seen["modes"].items() if not name.endswith(("/ready", "/.owned"))}
    assert {mode.split()[1] for mode in secrets.values()} == {"400"}
    owners = {name.split("/")[0]: mode.split()[0] for name, mode in secrets.items()}
    assert owners["node-secrets"] == owners["coordinator-secrets"] == owners["operator-secrets"] == "10001"
    assert (owners["redis-secrets"], owners["prometheus-secrets"]) == ("999", "65534")
    if how == PLAIN:
        assert not {"s3", "kafka"} & set(seen["running"])
        assert seen["stored"] == ["store"]
        return
    assert seen["stored"] == (["s3"] if how == BOTH and STORED else ["store"])
    assert ("topics" in seen) == bool(told())
    assert all(count > 0 for count in seen.get("topics", {}).values())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
