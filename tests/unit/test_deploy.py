"""The files in deploy/ name flags, variables and metrics that exist, and agree with each other. What they mean to the
programs that read them is checked by `make check-deploy`."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from deploy import release
from deploy.compose import prepare
from drumlin import __version__
from drumlin.cli.main import drumlin
from drumlin.config import SETTINGS
from drumlin.metrics.registry import METRICS
from tests.harness.composed import FILE, FOLDER, composed, filled_in, services
from tests.harness.shipped import DEPLOY, helm, rendered

ROOT = DEPLOY.parent
CHART = DEPLOY / "helm" / "drumlin"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
LOCKS = ROOT / "requirements"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
CONTACT = {"FLEET_CONTACT": "you@example.org"}
# What HorizontalPodAutoscalers call the metric that the adapter's rule makes of ours.
ALIASES = {"drumlin_backlog_hosts"}
PASSED_THROUGH = re.compile(r"FLEET_\w+")


def name_of(path: Path) -> str:
    return str(path.relative_to(DEPLOY))


def flags_of(verb: str) -> set[str]:
    """The flags of a verb."""
    found = drumlin.get_command(click.Context(drumlin), verb)
    assert found is not None, f"there is no verb {verb}"
    return {flag for one in found.params for flag in (*one.opts, *one.secondary_opts)} | {"--config"}


def commands() -> Iterator[tuple[str, str, list[str]]]:
    """Every command of drumlin in these files: where it stands, the verb, and its flags."""
    for name, service in composed(**CONTACT)["services"].items():
        words = [str(word) for word in service.get("command", [])]
        if words and words[0] in ("coordinator", "node"):
            yield f"compose {name}", words[0], [word.partition("=")[0] for word in words[1:]]
    for unit in UNITS:
        [line] = re.findall(r"^ExecStart=/usr/local/bin/drumlin (.+)$", unit.read_text(), re.MULTILINE)
        verb, *words = line.split()
        yield name_of(unit), verb, [word for word in words if word.startswith("--")]
    for verb in ("coordinator", "node"):
        template = (CHART / "templates" / f"{verb}.yaml").read_text()
        yield f"{verb}.yaml", verb, re.findall(r"^ +- .*?(--[a-z-]+)", template, re.MULTILINE)


@pytest.mark.parametrize(
    ("where", "verb", "flags"), list(commands()), ids=lambda part: part if isinstance(part, str) else ""
)
def test_every_flag_exists(where: str, verb: str, flags: list[str]) -> None:
    assert flags, where
    assert set(flags) - flags_of(verb) == set()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_variable_is_a_setting_and_every_metric_is_told(path: Path) -> None:
    text = path.read_text()
    variables = {setting.variable for setting in SETTINGS.values()}
    assert set(re.findall(r"\bDRUMLIN_[A-Z_]+", text)) - variables == set()
    metrics = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bdrumlin_[a-z_]+\b(?!\.)", text)}
    assert metrics - set(METRICS) - ALIASES == set()


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix in (".yml", ".yaml", ".json")], ids=name_of)
def test_every_file_can_be_read(path: Path) -> None:
    if "templates" not in path.parts:
        assert list(yaml.safe_load_all(path.read_text()))


# Compose


def test_compose_demands_a_contact_and_knows_every_variable_that_can_be_chosen() -> None:
    with pytest.raises(ValueError, match="how site owners reach you"):
        filled_in(FILE.read_text(), {})
    used = set(PASSED_THROUGH.findall(FILE.read_text()))
    offered = set(re.findall(r"^#?(FLEET_\w+)=", (FOLDER / ".env.example").read_text(), re.MULTILINE))
    assert offered <= used
    assert {name for name in used - offered if not name.endswith("_IMAGE")} == {"FLEET_S3_ENDPOINT", "FLEET_S3_REGION"}


def test_object_storage_and_kafka_run_only_if_asked_for() -> None:
    plain, whole = services(**CONTACT), services("s3", "kafka", **CONTACT)
    assert set(whole) - set(plain) == {"s3", "kafka"}
    for name in ("coordinator-1", "coordinator-2"):
        assert plain[name]["environment"]["DRUMLIN_EVENTS"] is None
        told = services("kafka", FLEET_EVENTS="kafka://kafka:9092/x", **CONTACT)[name]
        assert told["environment"]["DRUMLIN_EVENTS"] == "kafka://kafka:9092/x"
        stored = services("s3", FLEET_STORE="s3://crawl/fleet", **CONTACT)[name]
        assert stored["environment"]["DRUMLIN_COORDINATOR_SPOOL"] == "/var/lib/drumlin/spool"
        assert "--store=s3://crawl/fleet" in stored["command"]
        both = services("s3", "kafka", FLEET_STORE="s3://crawl/fleet", FLEET_EVENTS="kafka://kafka:9092/x", **CONTACT)
        assert "--store=s3://crawl/fleet" in both[name]["command"]
        assert both[name]["environment"]["DRUMLIN_EVENTS"] == "kafka://kafka:9092/x"


def test_nodes_in_containers_have_no_keys_and_reach_neither_redis_nor_kafka() -> None:
    told = {"FLEET_STORE": "s3://crawl/fleet", "FLEET_SEEDS_FROM": "kafka://kafka:9092/seeds"}
    whole = services("s3", "kafka", **told, **CONTACT)
    node = whole["node"]
    assert set(node["environment"]) == {"HEALTH_URL"}
    assert [volume.split(":")[0] for volume in node["volumes"]] == ["node-secrets", "spool"]
    assert not any(word.startswith("--store") for word in node["command"])
    reached = {name for name, one in whole.items() if set(one.get("networks", [])) & set(node["networks"])}
    assert reached == {"node", "coordinator-1", "coordinator-2", "s3", "prometheus", "grafana"}


def test_only_coordinators_are_given_the_key_of_the_object_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Files are given to users that this machine does not have, which takes root: tests/slow looks at that.
    monkeypatch.setattr("os.chown", lambda path, user, group: None)
    monkeypatch.setattr(prepare, "drumlin", made_by_this_process)
    for folder in ("redis", "coordinator", "node", "s3", "prometheus", "operator"):
        (tmp_path / folder).mkdir()
    prepare.make_secrets(tmp_path, "127.0.0.1:6379")
    assert [path.name for path in (tmp_path / "node").iterdir()] == ["ca.pem"]
    [key] = re.findall(r"ROOT_SECRET_KEY=(\w+)", (tmp_path / "s3" / "keys").read_text())
    readers = {path.parent.name for path in tmp_path.rglob("*") if path.is_file() and key in path.read_text()}
    assert readers == {"s3", "coordinator"}


def made_by_this_process(*arguments: str) -> None:
    drumlin.main(args=list(arguments), standalone_mode=False)


def test_nobody_can_log_in_to_grafana() -> None:
    settings = composed(**CONTACT)["services"]["grafana"]["environment"]
    assert settings["GF_AUTH_BASIC_ENABLED"] == "false"
    assert settings["GF_AUTH_DISABLE_LOGIN_FORM"] == settings["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"
    assert settings["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"


def test_containers_may_do_little_and_only_this_machine_reaches_them() -> None:
    for name, service in composed(**CONTACT)["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", [])), name
        if "drumlin" in service["image"] and "entrypoint" not in service:
            assert service["read_only"], name
            assert "user" not in service, "the image's own user has no rights"


def test_every_volume_is_declared_and_used() -> None:
    whole = composed(**CONTACT)
    mounted = {str(volume).split(":")[0] for one in whole["services"].values() for volume in one.get("volumes", [])}
    assert {name for name in mounted if not name.startswith(".")} == set(whole["volumes"])
    assert all((FOLDER / name).resolve().is_file() for name in mounted if name.startswith("."))


def test_redis_never_forgets_and_survives_its_process() -> None:
    settings = dict(line.split(" ", 1) for line in prepare.REDIS_CONF.splitlines())
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["appendonly"] == settings["cluster-enabled"] == "yes"


# Services of systemd


def test_services_share_neither_a_user_nor_a_folder_and_no_secret_is_in_an_environment() -> None:
    told = {unit.name: dict(re.findall(r"^(\w+)=(.*)$", unit.read_text(), re.MULTILINE)) for unit in UNITS}
    coordinator, node = told["drumlin-coordinator.service"], told["drumlin-node@.service"]
    for one in ("User", "Group", "StateDirectory", "WorkingDirectory"):
        assert coordinator[one] != node[one]
    users = re.findall(r"^u (\S+)", (DEPLOY / "systemd" / "drumlin.sysusers").read_text(), re.MULTILINE)
    assert users == [coordinator["User"], node["User"]]
    assert "--config %d/engine.toml" in coordinator["ExecStart"]
    for file in (DEPLOY / "systemd").glob("*.env.example"):
        assert "PASSWORD" not in file.read_text()
        assert "DRUMLIN_ENGINE" not in file.read_text()


# Images and charts


def test_one_user_is_meant_everywhere() -> None:
    dockerfile = (DEPLOY / "container" / "Dockerfile").read_text()
    [user] = re.findall(r"^USER (\d+):\d+$", dockerfile, re.MULTILINE)
    assert f"--uid {user} " in dockerfile
    assert int(user) == prepare.DRUMLIN
    assert f"runAsUser: {user}" in (CHART / "templates" / "_helpers.tpl").read_text()


def test_what_the_image_is_made_of_is_sent_to_the_builder() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", (DEPLOY / "container" / "Dockerfile").read_text(), re.MULTILINE)
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(sent) == sorted(name for names in copied for name in names.split())


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def paths_of(values: dict[str, Any], schema: dict[str, Any], at: str = "") -> Iterator[str]:
    """The values that a schema does not know, and what it knows that is no value."""
    known = schema["properties"]
    yield from (f"{at}{name}" for name in set(values) ^ set(known) if f"{at}{name}" != "global")
    for name in set(values) & set(known):
        if "properties" in known[name]:
            yield from paths_of(values[name], known[name], f"{at}{name}.")


def test_the_schema_knows_exactly_the_values() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert list(paths_of(values, schema)) == []


BUCKET = "store.uri=s3://bucket/news,s3.existingSecret=keys,serviceAccount.annotations.role=bucket"
SEEDS = "kafka.seedsFrom=kafka://kafka:9092/seeds,kafka.existingSecret=kafka"
NAMED = '[{"to":[{"ipBlock":{"cidr":"10.1.2.3/32"}}],"ports":[9000]},{"to":[],"ports":[443]}]'


def of_kind(manifests: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in manifests if one["kind"] == kind}


def test_nodes_in_pods_have_no_keys_of_object_storage_and_kafka() -> None:
    made = rendered("--set", BUCKET, "--set", SEEDS)
    pods = {name: one["spec"]["template"]["spec"] for name, one in of_kind(made, "StatefulSet").items()}
    node, coordinator = pods["news-drumlin-node"], pods["news-drumlin-coordinator"]
    assert "envFrom" in coordinator["containers"][0]
    assert "envFrom" not in node["containers"][0]
    assert [one["name"] for one in node["containers"][0]["env"]] == ["POD_NAME"]
    assert {one["name"] for one in node["volumes"]} == {"token", "ca", "tmp"}
    assert not any(word.startswith("--store") for word in node["containers"][0]["args"])
    accounts = of_kind(made, "ServiceAccount")
    assert "annotations" in accounts[coordinator["serviceAccountName"]]["metadata"]
    assert "annotations" not in accounts[node["serviceAccountName"]]["metadata"]


def test_a_private_authority_of_object_storage_is_given_to_coordinators_and_nodes() -> None:
    made = rendered("--set", BUCKET, "--set", SEEDS, "--set", "s3.ca.existingSecret=news-s3-ca")
    for owner in of_kind(made, "StatefulSet").values():
        pod = owner["spec"]["template"]["spec"]
        [container] = pod["containers"]
        assert {"name": "AWS_CA_BUNDLE", "value": "/run/s3-ca/ca.crt"} in container["env"]
        [mount] = [one for one in container["volumeMounts"] if one["name"] == "s3-ca"]
        assert (mount["mountPath"], mount["readOnly"]) == ("/run/s3-ca", True)
        [volume] = [one for one in pod["volumes"] if one["name"] == "s3-ca"]
        assert volume["secret"]["secretName"] == "news-s3-ca"


@pytest.mark.parametrize(("more", "named"), [((), []), (("--set-json", f"networkPolicy.s3={NAMED}"), [9000])])
def test_nodes_in_pods_reach_no_address_that_nobody_named(more: tuple[str, ...], named: list[int]) -> None:
    policies = of_kind(rendered("--set", BUCKET, "--set", SEEDS, *more), "NetworkPolicy")
    rules = policies["news-drumlin-node"]["spec"]["egress"]
    anywhere = [port["port"] for rule in rules if "to" not in rule for port in rule["ports"]]
    assert anywhere == [53, 53], "only names are asked for everywhere"
    assert [port["port"] for rule in rules[3:] for port in rule["ports"]] == named
    coordinators = policies["news-drumlin-coordinator"]["spec"]["egress"]
    assert {443, 9092} <= {port["port"] for rule in coordinators for port in rule["ports"]}


def test_coordinators_alone_tell_of_a_store_in_a_bucket() -> None:
    done = helm("--set", "store.uri=s3://bucket/news,kafka.events=kafka://kafka:9092/news")
    assert done.returncode == 0, done.stderr
    told = [one for one in yaml.safe_load_all(done.stdout) if one and "DRUMLIN_EVENTS" in str(one)]
    assert [one["metadata"]["name"] for one in told] == ["news-drumlin-coordinator"]


# Releases


def pinned(name: str) -> dict[str, str]:
    return dict(re.findall(r"^([\w.-]+)==([^\s;\\]+)", (LOCKS / name).read_text(), re.MULTILINE))


def test_extras_are_locked_in_the_versions_that_the_tests_have() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [one for extra in project["optional-dependencies"].values() for one in extra] + project["dependencies"]
    names = {re.split(r"[^\w.-]", one, maxsplit=1)[0].lower() for one in wanted}
    extras, tested = pinned("extras.lock"), pinned("dev.lock")
    assert names - set(extras) == set(), "run `make constraints`"
    assert pinned("constraints.txt") == extras
    assert {name: at for name, at in extras.items() if tested.get(name, at) != at} == {}


CHANGELOG = "# Changelog\n\n## Unreleased\n- later\n\n## 1.2.0 (2026-01-02)\n- new\n\n## 1.1.0 (2025-01-02)\n- old\n"


def test_release_notes_are_those_of_one_version() -> None:
    assert release.notes(CHANGELOG, "1.2.0") == "# drumlin 1.2.0 (2026-01-02)\n\n- new\n"
    assert release.notes(CHANGELOG, "1.1.0") == "# drumlin 1.1.0 (2025-01-02)\n\n- old\n"
    assert release.notes(CHANGELOG, "9.9.9") == "# drumlin Unreleased\n\n- later\n"
    with pytest.raises(ValueError, match=r"9\.9\.9"):
        release.notes("# Changelog\n", "9.9.9")
