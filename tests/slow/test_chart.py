"""The Helm chart, run without Kubernetes: what helm renders is started as pods would be, with their arguments,
variables, secrets, volumes and read-only roots, and asked by their probes. Nodes send pages to the coordinators."""

from __future__ import annotations

import shutil
import signal
import ssl
import sys
import threading
import urllib.error
import urllib.request
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from deploy.check import CACHE
from drumlin.errors import EXIT_OK
from tests.harness.containers import BRIDGE, Container, Engine, Spec, inside, needs_namespaces, tell, wait_for
from tests.harness.images import Image, built, do
from tests.harness.sealed import ADDRESS, Site
from tests.harness.shipped import rendered

ROOT = Path(__file__).parents[2]
HELM = shutil.which("helm") or shutil.which("helm", path=str(CACHE))
NET = "10.79.0"
REDIS = f"{NET}.5"
USER = 10001
READY_S_MAX = 120.0
VALUES = (
    *("--set", "crawl.seeds[0]=http://example.org/,crawl.settings.delay=0.05s,crawl.settings.contact=you@example.org"),
    *("--set", "node.memoryMax=2GiB"),
)
SERVICE = "news-drumlin-coordinator"


class Cluster:
    """Secrets, volumes and pods, as far as the chart uses them."""

    def __init__(self, world: Path, image: Image, engine: Engine) -> None:
        self._world = world
        self._image = image
        self._engine = engine
        self._addresses = (f"{NET}.{number}" for number in range(20, 99))
        self.secrets: dict[str, dict[str, str]] = {}
        self.maps: dict[str, dict[str, str]] = {}

    def pod(self, owner: dict[str, Any], number: int) -> Container:
        """One pod of a StatefulSet."""
        template = owner["spec"]["template"]["spec"]
        [container] = template["containers"]
        name = f"{owner['metadata']['name']}-{number}"
        claims = {one["metadata"]["name"]: None for one in owner["spec"].get("volumeClaimTemplates", [])}
        volumes = {one["name"]: one for one in template["volumes"]} | claims
        variables = {one["name"]: self._value(one, name) for one in container["env"]}
        address = next(self._addresses)
        spec = Spec(
            name,
            self._image,
            [*self._image.entrypoint, *(word.replace("$(POD_NAME)", name) for word in container["args"])],
            variables,
            f"{template['securityContext']['runAsUser']}:{template['securityContext']['runAsGroup']}",
            [self._mount(one, volumes[one["name"]], name) for one in container["volumeMounts"]],
            read_only=container["securityContext"]["readOnlyRootFilesystem"],
            address=address,
        )
        if "coordinator" in name:
            self._engine.name(address, SERVICE)
        return self._engine.start(spec)

    def _value(self, variable: dict[str, Any], pod: str) -> str:
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            return self.secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
        return pod if "fieldRef" in source else str(variable["value"])

    def _mount(self, mount: dict[str, Any], volume: dict[str, Any] | None, pod: str) -> tuple[Path, str, bool]:
        claim = (volume or {}).get("persistentVolumeClaim")
        folder = self._world / "volumes" / (claim["claimName"] if claim else f"{pod}-{mount['name']}")
        if not folder.exists():
            folder.mkdir(parents=True)
            self._fill(folder, volume or {})
            folder.chmod(0o2770)
            shutil.chown(folder, 0, USER)
        # What is not empty keeps its owner; an empty one would get that of the image's folder.
        (folder / ".kept").touch()
        return folder, mount["mountPath"], mount.get("readOnly", False)

    def _fill(self, folder: Path, volume: dict[str, Any]) -> None:
        secret, mapped = volume.get("secret"), volume.get("configMap")
        files = self.secrets[secret["secretName"]] if secret else self.maps[mapped["name"]] if mapped else {}
        wanted = {one["key"] for one in (secret or {}).get("items", [])} or set(files)
        for name in wanted:
            (folder / name).write_text(files[name])
            (folder / name).chmod((secret or {}).get("defaultMode", 0o644))
            shutil.chown(folder / name, 0, USER)

    def probe(self, owner: dict[str, Any], pod: Container, kind: str) -> bool:
        """Whether a probe of a pod finds it well."""
        assert pod.process.poll() is None, pod.words()
        [container] = owner["spec"]["template"]["spec"]["containers"]
        asked = container[kind]["httpGet"]
        port = next(one["containerPort"] for one in container["ports"] if one["name"] == asked["port"])
        url = f"{asked.get('scheme', 'HTTP').lower()}://{pod.spec.address}:{port}{asked['path']}"
        try:
            with urllib.request.urlopen(url, timeout=5, context=ssl._create_unverified_context()) as answer:  # noqa: S323
                return bool(answer.status == 200)
        except OSError:
            return False


def prepared(world: Path, base: Image, image: Image, engine: Engine) -> Cluster:
    """A cluster with a Redis, and the secrets that docs/how-to/deploy.md has people make."""
    redis = ["redis-server", "--requirepass", "hunter2", "--bind", "0.0.0.0", "--appendonly", "yes", "--dir", "/tmp"]
    server = engine.start(Spec("redis", base, redis, tmpfs=["/tmp"], address=REDIS))
    asked = ["redis-cli", "-a", "hunter2", "ping"]
    wait_for(lambda: "PONG" in server.run(asked).stdout, READY_S_MAX, server.words)
    cluster = Cluster(world, image, engine)
    made = world / "made"
    made.mkdir()
    (made / ".kept").touch()
    shutil.chown(made, USER, USER)
    spot = f"redis://:hunter2@{REDIS}:6379/news"
    for number, command in enumerate(
        (
            ("certs", "create", "/made/certs", "--host", SERVICE),
            ("tokens", "create", "--role", "join", "--out", "/made/join.token"),
        )
    ):
        told, mounts = {"DRUMLIN_ENGINE": spot}, [(made, "/made", False)]
        run = Spec("me", image, ["drumlin", *command], told, "", mounts, ["/tmp"], address=f"{NET}.{10 + number}")
        done = engine.start(run)
        assert done.wait(READY_S_MAX) == EXIT_OK, done.words()
    certs = {"tls.crt": "server.pem", "tls.key": "server-key.pem", "ca.crt": "ca.pem"}
    cluster.secrets = {
        "engine": {"engine-url": spot},
        "tokens": {"join.token": (made / "join.token").read_text()},
        "tls": {name: (made / "certs" / file).read_text() for name, file in certs.items()},
    }
    return cluster


def main(folder: Path) -> None:
    """Runs inside."""
    world = folder / "world"
    world.mkdir()
    base, image = built(world, ROOT)
    engine = Engine(world, NET)
    do("ip", "address", "add", f"{ADDRESS}/32", "dev", BRIDGE)
    engine.name(ADDRESS, "example.org")
    threading.Thread(target=ThreadingHTTPServer((ADDRESS, 80), Site).serve_forever, daemon=True).start()
    cluster = prepared(world, base, image, engine)
    manifests = rendered(*VALUES)
    cluster.maps = {one["metadata"]["name"]: one["data"] for one in manifests if one["kind"] == "ConfigMap"}
    sets = {one["metadata"]["name"]: one for one in manifests if one["kind"] == "StatefulSet"}
    pods: dict[str, list[Container]] = {}
    for name, probe in ((SERVICE, "readinessProbe"), ("news-drumlin-node", "livenessProbe")):
        pods[name] = [cluster.pod(sets[name], number) for number in range(sets[name]["spec"]["replicas"])]
        for pod in pods[name]:
            wait_for(partial(cluster.probe, sets[name], pod, probe), READY_S_MAX, pod.words)
    assert all(cluster.probe(sets[SERVICE], pod, "livenessProbe") for pod in pods[SERVICE])
    nodes = pods["news-drumlin-node"]
    wait_for(lambda: pages(nodes) >= 8, READY_S_MAX, lambda: "".join(pod.words() for pod in nodes)[-2000:])
    for pod in nodes:
        pod.signal(signal.SIGTERM)
    left = [pod.wait(READY_S_MAX) for pod in nodes]
    stored = len(list((world / "volumes" / "news-drumlin-store" / "warc").glob("*.warc.gz")))
    tell(
        {"left": left, "stored": stored, "pods": {name: len(some) for name, some in pods.items()}}, folder / "seen.json"
    )


def pages(nodes: list[Container]) -> int:
    """How many pages the nodes have fetched, by their metrics."""
    counted = 0
    for pod in nodes:
        with urllib.request.urlopen(f"http://{pod.spec.address}:9464/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        counted += sum(int(float(line.split()[-1])) for line in lines if 'urls_total{outcome="fetched"}' in line)
    return counted


@needs_namespaces
@pytest.mark.skipif(HELM is None, reason="needs helm: make deploy-tools")
def test_the_pods_of_the_chart_crawl_and_leave_with_everything_sent(tmp_path: Path) -> None:
    seen = inside(__file__, tmp_path)
    assert seen["pods"] == {SERVICE: 2, "news-drumlin-node": 2}
    assert seen["left"] == [EXIT_OK, EXIT_OK]
    assert seen["stored"] > 0


if __name__ == "__main__":
    main(Path(sys.argv[1]))
