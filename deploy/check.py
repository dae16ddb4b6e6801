"""Checks every file in deploy/ with the program that knows its kind best: `make check-deploy`. None needs a network.

| file | checked by |
|---|---|
| `container/Dockerfile` | hadolint |
| `compose/compose.yaml` | compose-spec, the reference implementation of the Compose Specification |
| `systemd/*.service` | systemd-analyze verify, and its judgement of how much a service may do |
| `helm/drumlin` | helm lint, and kubernetes-validate for what helm renders with several sets of values |
| `prometheus/`, `compose/prometheus.yml` | promtool |

A program that is not installed is named, and its files are not checked. Exit code 1 if anything is wrong with a file.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).parent
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drumlin" / "bin"
TIMEOUT_S = 120
KUBERNETES = ("1.30", "1.33", "1.37")
EXPOSURE_MAX = 2.0
"""What systemd-analyze may say of a service: 0 is a service that can do nothing, 10 is one that can do everything."""
NEEDED = ("--set", "engine.existingSecret=engine,tokens.existingSecret=tokens,tls.existingSecret=tls")
EVERYTHING = (
    *("--set", "store.uri=s3://bucket/news,s3.endpoint=https://s3.example.org,s3.existingSecret=keys"),
    *(
        "--set",
        "kafka.seedsFrom=kafka://kafka:9092/seeds,kafka.existingSecret=kafka",
    ),
    *("--set", "autoscaling.enabled=true,serviceMonitor.enabled=true,crawl.finish=true,image.tag=1.2.3"),
    *("--set", "crawl.seeds[0]=https://example.org/,crawl.settings.contact=you@example.org"),
    *("--set-json", 'networkPolicy.monitoring=[{"namespaceSelector":{"matchLabels":{"name":"monitoring"}}}]'),
    *("--set-json", 'networkPolicy.s3=[{"to":[{"ipBlock":{"cidr":"10.1.2.3/32"}}],"ports":[9000]},{"ports":[443]}]'),
    *("--set-json", 'networkPolicy.people=[{"ipBlock":{"cidr":"192.0.2.0/24"}}]'),
)
VALUES: dict[str, tuple[str, ...]] = {
    "as little as possible": (),
    "everything": EVERYTHING,
    "events": ("--set", "kafka.events=kafka://kafka:9092/news,kafka.existingSecret=kafka"),
    "a claim that exists, no policies": ("--set", "store.existingClaim=pages,networkPolicy.enabled=false"),
}
# Kubernetes itself has no schema for what an operator brings along.
FOREIGN_KINDS = ("ServiceMonitor",)

Problems = Iterator[str]


class Missing(Exception):
    """A program is not installed."""


def program(name: str) -> str:
    """Where a program is: beside this interpreter, in our cache, or where the shell finds it."""
    places = os.pathsep.join((str(Path(sys.executable).parent), str(CACHE), os.environ.get("PATH", ""), "/usr/sbin"))
    found = shutil.which(name, path=places)
    if found is None:
        raise Missing(name)
    return found


def run(name: str, *arguments: str | Path, cwd: Path = HERE) -> subprocess.CompletedProcess[str]:
    command = [program(name), *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def said(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.stdout}\n{done.stderr}".strip()


def check_container() -> Problems:
    done = run("hadolint", "container/Dockerfile")
    if done.returncode:
        yield said(done)


def check_compose() -> Problems:
    """Variables are left as they are: which values they may have is a matter of Compose, and of a unit test."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "compose.yaml")
        # Where a number must stand, Compose has put it in before it looks.
        file.write_text(
            re.sub(r"\$\{\w+:-(\d+)\}$", r"\1", (HERE / "compose/compose.yaml").read_text(), flags=re.MULTILINE)
        )
        done = run("compose-spec", "-no-interpolation", file, cwd=Path(folder))
    if done.returncode:
        yield said(done)


def check_units() -> Problems:
    """Units as they would be installed, except that drumlin is where this interpreter is."""
    with tempfile.TemporaryDirectory() as folder:
        for unit in sorted((HERE / "systemd").glob("*.service")):
            copy = Path(folder, unit.name.replace("@.", "@9464."))
            copy.write_text(unit.read_text().replace("/usr/local/bin/drumlin", sys.executable))
            verified = run("systemd-analyze", "verify", "--man=no", copy)
            if verified.returncode or verified.stderr.strip():
                yield said(verified)
            judged = said(run("systemd-analyze", "security", "--offline=true", "--no-pager", copy))
            exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", judged)
            if exposure is None or float(exposure[1]) > EXPOSURE_MAX:
                yield f"{unit.name} may do too much (more than {EXPOSURE_MAX}):\n{judged}"


def check_chart() -> Problems:
    version = f"--kube-version={KUBERNETES[-1]}"
    linted = run("helm", "lint", "--strict", "--quiet", version, *NEEDED, "helm/drumlin")
    if linted.returncode:
        yield said(linted)
    for what, values in VALUES.items():
        rendered = run("helm", "template", "news", version, *NEEDED, *values, "helm/drumlin")
        if rendered.returncode:
            yield f"values {what!r}: {said(rendered)}"
            continue
        yield from check_manifests(what, rendered.stdout)


def check_manifests(what: str, text: str) -> Problems:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "manifests.yaml")
        file.write_text(text)
        for version in KUBERNETES:
            done = run("kubernetes-validate", "--strict", "--quiet", "-k", version, file)
            lines = [line for line in said(done).splitlines() if not any(kind in line for kind in FOREIGN_KINDS)]
            if done.returncode or lines:
                yield f"values {what!r}, Kubernetes {version}: {said(done)}"


def check_prometheus() -> Problems:
    # The files that it names are elsewhere, so only what it says itself is looked at.
    for settings in ("prometheus/prometheus.yml", "compose/prometheus.yml"):
        done = run("promtool", "check", "config", "--syntax-only", settings)
        if done.returncode:
            yield said(done)
    done = run("promtool", "check", "rules", "prometheus/alerts.yml")
    if done.returncode:
        yield said(done)


CHECKS: dict[str, Callable[[], Problems]] = {
    "container/Dockerfile": check_container,
    "compose/compose.yaml": check_compose,
    "systemd/*.service": check_units,
    "helm/drumlin": check_chart,
    "prometheus": check_prometheus,
}


def main() -> int:
    wrong = False
    for files, check in CHECKS.items():
        try:
            problems = list(check())
        except Missing as missing:
            sys.stdout.write(f"{files}: not checked, because {missing} is not installed\n")
            continue
        wrong = wrong or bool(problems)
        sys.stdout.write(f"{files}: {'WRONG' if problems else 'good'}\n")
        sys.stdout.writelines(f"{problem}\n" for problem in problems)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
