"""What drumlin ships: the alert rules, the settings of Prometheus, the dashboard, and what helm makes of the chart."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.check import KUBERNETES, NEEDED, Missing, program

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yml"
SETTINGS = DEPLOY / "prometheus" / "prometheus.yml"
DASHBOARD = DEPLOY / "grafana" / "drumlin.json"
ALERTS = re.findall(r"- alert: (\w+)", RULES.read_text())


def panels() -> list[dict[str, Any]]:
    """The panels of the dashboard, and the rows between them."""
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def expressions() -> list[str]:
    """Everything that the dashboard asks of Prometheus."""
    return [target["expr"] for panel in panels() for target in panel.get("targets", [])]


def helm(*values: str) -> subprocess.CompletedProcess[str]:
    """`helm template` with these arguments besides what the chart demands. A test without helm is skipped."""
    try:
        found = program("helm")
    except Missing:
        pytest.skip("needs helm: make deploy-tools")
    command = [found, "template", "news", f"--kube-version={KUBERNETES[-1]}", *NEEDED, *values]
    return subprocess.run(
        [*command, str(DEPLOY / "helm/drumlin")], capture_output=True, text=True, check=False, timeout=60
    )


def rendered(*values: str) -> list[dict[str, Any]]:
    """What Kubernetes would be given."""
    done = helm(*values)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]
