"""The container image: its Dockerfile is carried out without a container engine, and what it makes crawls the demo's
web as a user without rights, on a root that nobody can write to."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from drumlin import __version__
from drumlin.errors import EXIT_OK
from tests.harness.containers import Engine, Spec, inside, needs_namespaces, tell, wait_for
from tests.harness.images import built

ROOT = Path(__file__).parents[2]
END_S_MAX = 300.0
LOOKS = (
    "id -u; touch /opt/drumlin/mine 2>&1; touch /etc/mine 2>&1; cat /proc/self/status | grep -E '^(CapEff|NoNewPrivs)'"
)
ADDRESS = "10.78.0.10"


def main(folder: Path) -> None:
    """Runs inside."""
    world = folder / "world"
    world.mkdir()
    _, image = built(world, ROOT)
    engine = Engine(world, "10.78.0")
    data = world / "data"
    data.mkdir()

    def run(*command: str, **more: str) -> Any:
        mounts = [(data, "/var/lib/drumlin", False)]
        spec = Spec(
            "drumlin", image, list(command), more, mounts=mounts, tmpfs=["/tmp"], read_only=True, address=ADDRESS
        )
        return engine.start(spec)

    looked = run("sh", "-c", LOOKS)
    looked.wait(END_S_MAX)
    version = run(*image.entrypoint, "--version")
    demo = run(*image.entrypoint, "demo", "--out", "/var/lib/drumlin/demo", "--json")
    codes = [version.wait(END_S_MAX), demo.wait(END_S_MAX)]
    listening = ("--listen=127.0.0.1:8700", "--no-auth", "--engine=rocksdb:/var/lib/drumlin/queue")
    coordinator = run(*image.entrypoint, "coordinator", *listening, HEALTH_URL="http://127.0.0.1:8700/readyz")
    wait_for(lambda: coordinator.run(image.health).returncode == EXIT_OK, END_S_MAX, coordinator.words)
    coordinator.signal(signal.SIGSTOP)
    hanging = coordinator.run(image.health).returncode
    coordinator.signal(signal.SIGCONT)
    coordinator.signal(signal.SIGTERM)
    seen = {"looks": looked.words(), "version": version.words(), "demo": demo.words(), "codes": codes}
    seen |= {"hanging": hanging, "ended": coordinator.wait(END_S_MAX), "volumes": image.volumes, "labels": image.labels}
    seen["report"] = json.loads((data / "demo" / "report.json").read_text())
    seen["owner"] = (data / "demo" / "report.json").stat().st_uid
    tell(seen, folder / "seen.json")


@needs_namespaces
def test_the_image_crawls_without_rights_on_a_root_that_is_read_only(tmp_path: Path) -> None:
    seen = inside(__file__, tmp_path)
    assert seen["looks"].splitlines()[0] == "10001"
    assert seen["looks"].count("Read-only file system") == 2
    assert "CapEff:\t0000000000000000" in seen["looks"]
    assert "NoNewPrivs:\t1" in seen["looks"]
    assert __version__ in seen["version"]
    assert seen["codes"] == [EXIT_OK, EXIT_OK], seen["demo"]
    assert seen["report"]["pages"] > 0
    assert seen["owner"] == 10001
    assert seen["volumes"] == ["/var/lib/drumlin", "/tmp"]
    assert seen["labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert (seen["hanging"], seen["ended"]) == (1, EXIT_OK), "the health check tells that a coordinator hangs"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
