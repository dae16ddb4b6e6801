"""Debian's Prometheus for tests: `promtool`, which checks pages of metrics and rules, and the server itself."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.harness.crawls import wait_until
from tests.harness.standing import free_port

PROMTOOL = shutil.which("promtool")
PROMETHEUS = shutil.which("prometheus")
CHECK_S_MAX = 60.0
START_S_MAX = 60.0
ASK_S_MAX = 20.0
EVERY = "1s"


def promtool(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run promtool; the test is skipped where there is none."""
    if PROMTOOL is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    return subprocess.run(
        [PROMTOOL, *arguments], input=text, capture_output=True, text=True, timeout=CHECK_S_MAX, check=False
    )


def check_page(page: str) -> None:
    """A page of metrics is well-formed and follows the conventions that promtool knows."""
    done = promtool("check", "metrics", text=page)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def samples(page: str) -> dict[str, float]:
    """The values of a page by name and labels, as they are written there."""
    lines = [line for line in page.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def total(page: str, name: str) -> float:
    """The sum of all series of a metric."""
    return sum(value for series, value in samples(page).items() if series.partition("{")[0] == name)


def families(page: str) -> dict[str, str]:
    """The metrics of a page, and the kind of each."""
    return dict(line.split()[2:4] for line in page.splitlines() if line.startswith("# TYPE "))


# The server


class Prometheus:
    """A running server."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=ASK_S_MAX):
                return True
        except OSError:
            return False

    def ask(self, path: str, **parameters: str) -> Any:
        query = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self._url}/api/v1/{path}?{query}", timeout=ASK_S_MAX) as answer:
            return json.load(answer)["data"]

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def shortened(rules: str, for_s: int, range_s: int) -> str:
    """Rules that wait for seconds where the originals wait for minutes, and look back as little."""
    return re.sub(r"\[\d+m\]", f"[{range_s}s]", re.sub(r"for: \d+[ms]", f"for: {for_s}s", rules))


@contextmanager
def prometheus(folder: Path, jobs: Mapping[str, Sequence[int]], rules: str) -> Iterator[Prometheus]:
    """A server that scrapes these ports every second, and goes by these rules."""
    if PROMETHEUS is None:
        pytest.skip("prometheus is not installed: apt-get install prometheus")
    (folder / "alerts.yml").write_text(rules)
    scraped = [
        {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}" for port in ports]}]}
        for job, ports in jobs.items()
    ]
    settings = {
        "global": {"scrape_interval": EVERY, "evaluation_interval": EVERY},
        "rule_files": [str(folder / "alerts.yml")],
        "scrape_configs": scraped,
    }
    # JSON is YAML.
    (folder / "prometheus.yml").write_text(json.dumps(settings))
    port = free_port()
    command = [PROMETHEUS, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    command += [f"--web.listen-address=127.0.0.1:{port}"]
    with (folder / "prometheus.log").open("wb") as log:
        with subprocess.Popen(command, stdout=log, stderr=log, cwd=folder) as server:
            try:
                made = Prometheus(port)
                wait_until(made.is_ready, START_S_MAX, "Prometheus")
                yield made
            finally:
                server.kill()
