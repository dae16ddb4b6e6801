"""What a fleet needs before its first process starts, and the tokens it needs after its first coordinator has."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import msgspec

from drumlin.config import SETTINGS, CrawlConfig, Loaded, ProcessConfig, load
from drumlin.coordinator.auth import SECRET_KEY, Access, Role
from drumlin.engines.blocking import open_blocking
from drumlin.errors import BusyError, ConfigError, EngineError
from drumlin.fleet.cluster import ADDRESS, MASTERS_WITH_REPLICAS_MIN, engine_url, find_program, free_ports
from drumlin.fleet.layout import (
    FleetPaths,
    FleetPlan,
    FleetRecord,
    FleetState,
    read_secret,
    write_secret,
    write_whole,
)
from drumlin.node.limits import allow_open_files
from drumlin.tls import CertificateFiles, create_certificates

PASSWORD_BYTES = 24
# A dead node's hosts wait until its leases end; in a fleet others are there to take them.
LEASE_S = 20.0


class FleetShape(msgspec.Struct, frozen=True):
    """How many of what a fleet is to have."""

    nodes: int = 2
    coordinators: int = 2
    masters: int = 3
    replicas: int = 0
    concurrency: int = ProcessConfig().concurrency
    restart: bool = True
    finish: bool = True


def found(root: Path, loaded: Loaded, seeds: list[str], **asked: int | bool | None) -> FleetPaths:
    """Prepare the directory of a fleet, new or brought up again. Nothing is changed when that cannot be. `asked` are
    fields of a `FleetShape`."""
    paths = FleetPaths(root)
    before = paths.read() if paths.exists() else None
    if before is not None and before.running:
        raise BusyError(f"A fleet is at work in {root}.", f"`drumlin fleet down --out {root}` ends it.")
    config = _config(paths, loaded, founded=before is not None)
    if before is None and not seeds:
        raise ConfigError("There is nothing to crawl.", "Give one or more URLs, or a file of them with --input.")
    shape = _shape(before.plan if before else None, asked)
    allow_open_files(shape.concurrency)
    plan = _new_plan(shape) if before is None else _changed_plan(before.plan, shape)
    paths.make()
    _write_crawl(paths, config, seeds)
    _write_secrets(paths, plan)
    paths.write(FleetRecord(plan, FleetState.STARTING, time.time()))
    return paths


def fleet_config(loaded: Loaded) -> CrawlConfig:
    """The crawl's settings, with the defaults of a fleet where nobody said otherwise."""
    if loaded.origins["lease"].source != "default":
        return loaded.crawl
    return msgspec.structs.replace(loaded.crawl, lease_s=LEASE_S)


def _config(paths: FleetPaths, loaded: Loaded, *, founded: bool) -> CrawlConfig:
    """The settings of this fleet's crawl, which stay what they were when it was founded."""
    asked = fleet_config(loaded)
    if not founded:
        return asked
    stored = load({}, {}, paths.crawl, paths.root).crawl
    for name, setting in SETTINGS.items():
        if setting.section != "crawl" or loaded.origins[name].source == "default":
            continue
        before, now = getattr(stored, setting.field), getattr(asked, setting.field)
        if before != now:
            message = f"The crawl in {paths.root} has {setting.flag} {setting.display(before)}."
            raise ConfigError(message, "Leave the option out, or start a fleet in another directory.")
    return stored


def _shape(before: FleetPlan | None, asked: dict[str, int | bool | None]) -> FleetShape:
    """What was asked for; where nothing was (None), what the fleet had, or a new one's defaults."""
    had = FleetShape() if before is None else _shape_of(before)
    return msgspec.structs.replace(had, **{name: value for name, value in asked.items() if value is not None})


def _shape_of(plan: FleetPlan) -> FleetShape:
    return FleetShape(
        nodes=plan.nodes,
        coordinators=len(plan.coordinator_ports),
        masters=plan.masters,
        replicas=plan.replicas,
        concurrency=plan.concurrency,
        restart=plan.restart,
        finish=plan.finish,
    )


def _new_plan(shape: FleetShape) -> FleetPlan:
    if shape.replicas and shape.masters < MASTERS_WITH_REPLICAS_MIN:
        message = f"A cluster needs {MASTERS_WITH_REPLICAS_MIN} masters to replace a lost one, not {shape.masters}."
        raise ConfigError(message, "Raise --masters, or use --replicas 0.")
    servers = shape.masters * (1 + shape.replicas)
    ports = free_ports(shape.coordinators + 2 * servers)
    redis = ports[shape.coordinators :]
    return FleetPlan(
        nodes=shape.nodes,
        coordinator_ports=ports[: shape.coordinators],
        redis_ports=list(zip(redis[:servers], redis[servers:], strict=True)),
        masters=shape.masters,
        replicas=shape.replicas,
        concurrency=shape.concurrency,
        redis_program=find_program(),
        restart=shape.restart,
        finish=shape.finish,
    )


def _changed_plan(before: FleetPlan, shape: FleetShape) -> FleetPlan:
    """Nodes and coordinators come and go as one likes; the cluster holds the crawl and stays."""
    if (before.masters, before.replicas) != (shape.masters, shape.replicas):
        message = f"This fleet has {before.masters} masters with {before.replicas} replicas each."
        raise ConfigError(message, f"Give --masters {before.masters} --replicas {before.replicas}.")
    more = max(0, shape.coordinators - len(before.coordinator_ports))
    ports = [*before.coordinator_ports, *free_ports(more)][: shape.coordinators]
    return msgspec.structs.replace(
        before,
        nodes=shape.nodes,
        coordinator_ports=ports,
        concurrency=shape.concurrency,
        redis_program=find_program(),
        restart=shape.restart,
        finish=shape.finish,
    )


def _write_crawl(paths: FleetPaths, config: CrawlConfig, seeds: list[str]) -> None:
    crawl = [setting for setting in SETTINGS.values() if setting.section == "crawl"]
    lines = [f"{setting.name} = {setting.toml(getattr(config, setting.field))}\n" for setting in crawl]
    write_whole(paths.crawl, ("[crawl]\n" + "".join(lines)).encode())
    known = paths.seeds.read_text().splitlines() if paths.seeds.exists() else []
    write_whole(paths.seeds, "".join(f"{seed}\n" for seed in dict.fromkeys([*known, *seeds])).encode())


def _write_secrets(paths: FleetPaths, plan: FleetPlan) -> None:
    if not paths.redis_password.exists():
        write_secret(paths.redis_password, secrets.token_hex(PASSWORD_BYTES))
    write_secret(paths.engine_url, engine_url(plan, read_secret(paths.redis_password)))
    if not CertificateFiles.in_folder(paths.certs).authority.exists():
        create_certificates(paths.certs, [ADDRESS, "localhost"], time.time(), force=True)


def make_tokens(paths: FleetPaths) -> None:
    """The tokens of the fleet's owner and of its nodes, once a coordinator has founded the crawl's secret."""
    if paths.operator_token.exists() and paths.join_token.exists():
        return
    engine = open_blocking(read_secret(paths.engine_url))
    try:
        secret = engine.get_meta(SECRET_KEY)
        if secret is None:
            raise EngineError("The crawl has no secret yet.", "Bring the fleet up again.")
        access = Access(secret)
        for path, role in ((paths.operator_token, Role.OPERATOR), (paths.join_token, Role.JOIN)):
            write_secret(path, engine.run(access.issue(engine.engine, role, "local fleet", time.time())))
    finally:
        engine.close()
