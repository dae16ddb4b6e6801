"""What drumlin ships for monitoring: the alert rules, the settings of Prometheus and the dashboard."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

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
