"""The alert rules and the dashboard: each rule fires by its cause and clears, has its entry in the runbook, and all of
them go by metrics that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumlin.metrics.registry import METRICS, Teller
from tests.harness.prometheus import promtool
from tests.harness.shipped import ALERTS, RULES, SETTINGS, expressions, panels

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
RUNBOOK, MONITOR = HOW_TO / "runbook.md", HOW_TO / "monitor.md"
NAME = re.compile(r"\b(?:drumlin|process)_[a-z_]+")
SUFFIXES = re.compile(r"_(bucket|sum|count)$")
STEP_S = 15
C1, C2 = 'job="drumlin-coordinators",instance="c1"', 'job="drumlin-coordinators",instance="c2"'
N1 = 'job="drumlin-nodes",instance="n1"'


OF_CRAWL = "|".join(name for name, metric in METRICS.items() if metric.told_by is Teller.CRAWL)
LARGEST = re.compile(r"max(?: without \(instance\))? ?\(\s*(?:\w+\()?$")
"""What stands before the name of a metric of the crawl: the largest is taken, of the values or of their rates."""


class Case(msgspec.Struct):
    """Series with a value for every 15 s: at first all is well, for an hour all is not, then it is again."""

    series: dict[str, str]

    def told(self) -> dict[str, str]:
        """The series as Prometheus has them: what the first coordinator tells of the crawl, the second tells too."""
        of_crawl = [name for name in self.series if re.match(rf"(?:{OF_CRAWL})\b", name)]
        return self.series | {name.replace(C1, C2): self.series[name] for name in of_crawl}


def bad_for_an_hour(well: str, ill: str) -> str:
    """A gauge that is well for 20 minutes, ill for 60, and well again for 60."""
    return f"{well}x80 {ill}x240 {well}x240"


def grows(by: int, start: int = 0, steps: int = 80) -> str:
    return f"{start}+{by}x{steps}"


def counter(well: int, ill: int) -> str:
    """A counter that grows by so much each step while all is well, and by so much while it is not."""
    first, second = 81 * well, 81 * well + 241 * ill
    return f"{grows(well)} {grows(ill, first + ill, 240)} {grows(well, second + well, 240)}"


RUNNING = {f"drumlin_crawl_running{{{C1}}}": "1x600", f'drumlin_urls{{{C1},state="queued"}}': "9x600"}
CASES = {
    "DrumlinCoordinatorDown": Case({f"up{{{C1}}}": "1x600", f"up{{{C2}}}": bad_for_an_hour("1", "0")}),
    "DrumlinNoLeader": Case({f"drumlin_leader{{{C1}}}": "0x600", f"drumlin_leader{{{C2}}}": bad_for_an_hour("1", "0")}),
    "DrumlinTrouble": Case(
        {f'drumlin_trouble{{{C1},code="engine_silent"}}': "_x80 1x240 stale _x240", f"drumlin_ready{{{C1}}}": "1x600"}
    ),
    "DrumlinCoordinatorErrors": Case(
        {
            f'drumlin_requests_total{{{C1},route="GET /a",status="200"}}': grows(50, 0, 600),
            f'drumlin_requests_total{{{C1},route="GET /a",status="503"}}': counter(0, 10),
        }
    ),
    "DrumlinEngineSlow": Case(
        {
            f'drumlin_engine_call_seconds_bucket{{{C1},call="lease",le="0.1"}}': counter(100, 50),
            f'drumlin_engine_call_seconds_bucket{{{C1},call="lease",le="0.5"}}': counter(100, 100),
            f'drumlin_engine_call_seconds_bucket{{{C1},call="lease",le="+Inf"}}': counter(100, 100),
        }
    ),
    "DrumlinNodeDown": Case({f"up{{{N1}}}": bad_for_an_hour("1", "0")}),
    "DrumlinNodesSilent": Case({f'drumlin_nodes{{{C1},status="failed"}}': bad_for_an_hour("0", "2")}),
    "DrumlinNodesQuarantined": Case({f'drumlin_nodes{{{C1},status="quarantined"}}': bad_for_an_hour("0", "1")}),
    "DrumlinNodeCutOff": Case({f"drumlin_node_cut_off_seconds{{{N1}}}": bad_for_an_hour("0", "100")}),
    "DrumlinBrokerAway": Case({f"drumlin_events_broker_away_seconds{{{N1}}}": bad_for_an_hour("0", "100")}),
    "DrumlinBundleOverdue": Case({f"drumlin_bundles_owed_oldest_seconds{{{C1}}}": bad_for_an_hour("30", "2000")}),
    "DrumlinNoActiveNode": Case(
        {**RUNNING, f'drumlin_nodes{{{C1},status="active"}}': bad_for_an_hour("3", "0")},
    ),
    "DrumlinStandstill": Case({**RUNNING, f"drumlin_pages_total{{{C1}}}": counter(5, 0)}),
    "DrumlinManyFailures": Case(
        {
            f'drumlin_outcomes_total{{{C1},outcome="fetched"}}': grows(80, 0, 600),
            f'drumlin_outcomes_total{{{C1},outcome="denied"}}': grows(500, 0, 600),
            f'drumlin_outcomes_total{{{C1},outcome="failed"}}': counter(4, 20),
        }
    ),
    "DrumlinHostsOutOfReach": Case(
        {
            f'drumlin_hosts{{{C1},state="ready"}}': "4x600",
            f'drumlin_hosts{{{C1},state="waiting"}}': "26x600",
            f"drumlin_hosts_in_backoff{{{C1}}}": bad_for_an_hour("11", "16"),
        }
    ),
    "DrumlinSettlingSlow": Case({f"drumlin_settling_lag_seconds{{{C1}}}": bad_for_an_hour("0.3", "2")}),
}
"""What makes each alert fire. Where a rule has two conditions, one of them holds all the time."""

MONITOR_SPEED, MONITOR_PAGES = re.findall(
    r"^(max without \(instance\) \(.*\)) +# pages", MONITOR.read_text(), re.MULTILINE
)
"""What the guide says to ask for pages a second, and for pages in the last hour."""
LABELS = '{job="drumlin-coordinators"}'


def test_every_alert_has_a_case_here() -> None:
    assert sorted(ALERTS) == sorted(CASES)
    assert len(set(ALERTS)) == len(ALERTS)


def expectation(alert: str, minute: int, count: int) -> dict[str, Any]:
    firing = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    samples = [{"labels": "{}", "value": count}] if count else []
    return {"expr": firing, "eval_time": f"{minute}m", "exp_samples": samples}


def suite() -> dict[str, Any]:
    tests = [
        {
            "interval": f"{STEP_S}s",
            "input_series": [{"series": name, "values": values} for name, values in case.told().items()],
            "promql_expr_test": [expectation(alert, minute, count) for minute, count in ((19, 0), (75, 1), (135, 0))],
        }
        for alert, case in CASES.items()
    ]
    return {"rule_files": [str(RULES)], "evaluation_interval": f"{STEP_S}s", "tests": tests}


def test_every_alert_fires_once_by_its_cause_and_clears(tmp_path: Path) -> None:
    run_suite(tmp_path, suite())


def run_suite(folder: Path, tests: dict[str, Any]) -> None:
    file = folder / "alerts-test.yml"
    # JSON is YAML.
    file.write_text(json.dumps(tests))
    done = promtool("test", "rules", str(file))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("coordinators", [1, 2])
def test_pages_are_counted_once_whoever_leads_or_is_down(tmp_path: Path, coordinators: int) -> None:
    """Ten pages every 15 s. The second coordinator is down for ten minutes, twice; the lead went back and forth."""
    series = {f"drumlin_pages_total{{{C1}}}": grows(10, 1000, 240)}
    if coordinators == 2:
        parts = [grows(10, 1000, 40), "stale", "_x39", grows(10, 1800, 40), "stale", "_x39", grows(10, 2600, 78)]
        series[f"drumlin_pages_total{{{C2}}}"] = " ".join(parts)
    pages, speed = MONITOR_PAGES, MONITOR_SPEED
    asked = [
        {"expr": f"round({pages})", "eval_time": "60m", "exp_samples": [{"labels": LABELS, "value": 2400}]},
        {"expr": f"round(3 * {speed})", "eval_time": "35m", "exp_samples": [{"labels": LABELS, "value": 2}]},
    ]
    input_series = [{"series": name, "values": values} for name, values in series.items()]
    test = {"interval": f"{STEP_S}s", "input_series": input_series, "promql_expr_test": asked}
    run_suite(tmp_path, {"rule_files": [], "evaluation_interval": f"{STEP_S}s", "tests": [test]})


def test_what_every_coordinator_tells_is_never_added_up() -> None:
    texts = [RULES.read_text(), MONITOR.read_text(), RUNBOOK.read_text(), *expressions()]
    used = [(text[: found.start()], found[0]) for text in texts for found in re.finditer(rf"\b(?:{OF_CRAWL})\b", text)]
    assert len(used) > 25
    assert [name for before, name in used if not LARGEST.search(before)] == []


def test_promtool_takes_the_rules_and_the_settings(tmp_path: Path) -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr
    for source in (RULES, SETTINGS):
        (tmp_path / source.name).write_text(source.read_text())
    for secret in ("ca.pem", "viewer.token"):
        (tmp_path / secret).write_text("")
    done = promtool("check", "config", "--syntax-only", str(tmp_path / SETTINGS.name))
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_its_entry_in_the_runbook_and_names_it() -> None:
    entries = re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.MULTILINE)
    assert sorted(entries) == sorted(ALERTS)
    named = re.findall(r"runbook_url: \S+/docs/how-to/runbook\.md#(\w+)", RULES.read_text())
    assert named == [alert.lower() for alert in ALERTS]
    for entry in re.split(r"^## ", RUNBOOK.read_text(), flags=re.MULTILINE)[1:]:
        assert "**It means**" in entry
        assert "**Do**" in entry


@pytest.mark.parametrize("text", [RULES.read_text(), *expressions(), RUNBOOK.read_text()])
def test_only_metrics_that_exist_are_named(text: str) -> None:
    named = {SUFFIXES.sub("", name) if name not in METRICS else name for name in NAME.findall(text)}
    assert named - METRICS.keys() == set()


def test_the_dashboard_shows_every_metric_but_limits_and_moments() -> None:
    shown = {SUFFIXES.sub("", name) for text in expressions() for name in NAME.findall(text)}
    left_out = {
        *(
            "drumlin_crawl_running",
            "drumlin_requests_in_flight",
            "drumlin_pages_unanswered",
            "drumlin_links_refused_total",
        ),
        *("drumlin_node_spool_max_bytes", "drumlin_node_memory_max_bytes", "drumlin_node_look_age_seconds"),
        *("drumlin_trouble", "process_start_time_seconds"),
    }
    assert METRICS.keys() - shown == left_out


def test_the_panels_of_the_dashboard_have_a_place_and_a_number_of_their_own() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
    assert all(panel["description"] and panel["targets"] for panel in panels() if panel["type"] != "row")
