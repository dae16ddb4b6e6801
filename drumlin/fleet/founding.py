"""Founds a fleet: plan, settings, secrets and certificates before its first process starts, and tokens after its first
coordinator has."""

from __future__ import annotations

import os
import secrets
import time
from pathlib import Path

import msgspec

from drumlin.access.tokens import SECRET_KEY, AccessControl, Role
from drumlin.config import CrawlConfig, FleetConfig, Loaded, load, settings_of
from drumlin.config.changes import CHANGEABLE
from drumlin.config.key import Setting
from drumlin.config.processes import KAFKA_SETTINGS
from drumlin.engines.blocking import open_blocking
from drumlin.errors import BusyError, ConfigError, EngineError
from drumlin.events.options import EventsOptions, SeedsOptions
from drumlin.fleet.cluster import ADDRESS, MASTERS_WITH_REPLICAS_MIN, engine_url, find_program, free_ports
from drumlin.fleet.layout import (
    STARTED,
    FleetPaths,
    FleetPlan,
    FleetRecord,
    FleetState,
    read_secret,
    write_file,
    write_secret,
)
from drumlin.logs import LogSettings
from drumlin.node.limits import allow_open_files
from drumlin.store.objects.address import parse_address
from drumlin.store.opening import note_address, open_store
from drumlin.tls import CertificateFiles, create_certificates

PASSWORD_BYTES = 24
# The hosts of a dead node wait until its leases end, although other nodes of the fleet could take them.
LEASE_S = 20.0


def found_fleet(root: Path, loaded: Loaded, seeds: list[str]) -> FleetPaths:
    """Prepare the directory of a fleet that is new or is brought up again. If that is impossible, an error is raised
    before anything is changed."""
    paths = FleetPaths(root)
    before = paths.read() if paths.exists() else None
    if before is not None:
        os.close(_lock_at_rest(paths))
    config = _config(paths, loaded, founded=before is not None)
    if before is None and not seeds and not loaded.process.seeds_from:
        raise ConfigError("There is nothing to crawl.", "Give one or more URLs, or a file of them with --input.")
    wanted, concurrency = _wanted(before.plan if before else None, loaded)
    allow_open_files(concurrency)
    plan = _new_plan(wanted, concurrency) if before is None else _changed_plan(before.plan, wanted, concurrency)
    plan = _with_kafka(_with_telling(plan, loaded), loaded)
    plan = msgspec.structs.replace(plan, store=_store(before, loaded))
    if before is None and plan.store:
        # A fleet stays with its store, so a mistyped one must not become it.
        open_store(plan.store).probe()
    paths.make()
    # Another command may have been faster, and what it has written is in use.
    lock = _lock_at_rest(paths)
    try:
        if paths.exists() != (before is not None):
            raise BusyError(f"Another command has founded a fleet in {paths.root} meanwhile.", STARTED)
        if plan.store:
            note_address(paths.store, plan.store)
        _write_crawl(paths, config, seeds)
        _write_secrets(paths, plan)
        paths.write(FleetRecord(plan, FleetState.STARTING, time.time()))
    finally:
        os.close(lock)
    return paths


def _lock_at_rest(paths: FleetPaths) -> int:
    """The lock of a fleet, if there is one, that is not at work, on which no command works, and of which a killed
    supervisor has left no processes."""
    lock = paths.take_lock()
    if paths.exists() and paths.read().running:
        os.close(lock)
        hint = f"`drumlin fleet down --out {paths.root}` ends them."
        raise BusyError(f"Processes of the fleet in {paths.root} run.", hint)
    return lock


def fleet_config(loaded: Loaded) -> CrawlConfig:
    """The crawl's settings, with the defaults of a fleet for settings that nobody gave."""
    if loaded.is_given("lease"):
        return loaded.crawl
    return msgspec.structs.replace(loaded.crawl, lease_s=LEASE_S)


def _config(paths: FleetPaths, loaded: Loaded, *, founded: bool) -> CrawlConfig:
    """The settings of this fleet's crawl. They stay those of its founding; ConfigError if other values are asked
    for."""
    asked = fleet_config(loaded)
    if not founded:
        return asked
    stored = load({}, {}, paths.crawl, paths.root).crawl
    for setting in settings_of("crawl"):
        if not loaded.is_given(setting.full_name):
            continue
        before, now = getattr(stored, setting.field), getattr(asked, setting.field)
        if before != now:
            raise _fixed(paths, setting, before, now)
    return stored


def _fixed(paths: FleetPaths, setting: Setting, before: object, now: object) -> ConfigError:
    """The error for a fleet that is started again with another value. A changeable setting may have another value now
    than at the founding, which only the running crawl knows: so the message does not name one."""
    if setting.name in CHANGEABLE:
        hint = f"Leave it out; then `drumlin set {setting.name} {setting.display(now)} --out {paths.root}` changes it."
        return ConfigError(f"{setting.flag} of the crawl in {paths.root} changes while it runs, not here.", hint)
    message = f"The crawl in {paths.root} has {setting.flag} {setting.display(before)}."
    return ConfigError(message, "Leave the option out, or start a fleet in another directory.")


def _wanted(before: FleetPlan | None, loaded: Loaded) -> tuple[FleetConfig, int]:
    """How many processes of each kind the fleet shall have, and how many requests each node may have in flight. A fleet
    that is brought up again keeps the numbers that it had, except for settings that somebody gave."""
    if before is None:
        return loaded.fleet, loaded.process.concurrency
    had = {
        "nodes": before.nodes,
        "coordinators": len(before.coordinator_ports),
        "masters": before.masters,
        "replicas": before.replicas,
        "restart": before.restart,
        "finish": before.finish,
    }
    kept = {field: value for field, value in had.items() if not loaded.is_given(f"fleet_{field}")}
    concurrency = loaded.process.concurrency if loaded.is_given("concurrency") else before.concurrency
    return msgspec.structs.replace(loaded.fleet, **kept), concurrency


def _store(before: FleetRecord | None, loaded: Loaded) -> str:
    """The address of the store, if it is in a bucket. A fleet goes on where it began."""
    asked = str(parse_address(loaded.process.store)) if loaded.process.store else ""
    known = before.plan.store if before is not None else asked
    if asked and asked != known:
        message = f"This fleet stores in {known or 'its own directory'}."
        raise ConfigError(message, "Leave --store out, or start a fleet in another directory.")
    return known


def _with_telling(plan: FleetPlan, loaded: Loaded) -> FleetPlan:
    """The plan with how its processes log and what they trace, if somebody said that; `--quiet` is about the command,
    not about them."""
    process = loaded.process
    log_format = process.log_format if loaded.is_given("log_format") else plan.log.format
    level = process.log_level if loaded.is_given("log_level") else plan.log.level
    trace_every = process.trace_every if loaded.is_given("trace_every") else plan.trace_every
    return msgspec.structs.replace(plan, log=LogSettings(log_format, level), trace_every=trace_every)


def _with_kafka(plan: FleetPlan, loaded: Loaded) -> FleetPlan:
    """The plan with what the fleet has to do with Kafka, if somebody said that. ConfigError if it cannot be."""
    given = {
        setting.field: getattr(loaded.process, setting.field)
        for setting in settings_of("process")
        if setting.name in KAFKA_SETTINGS and loaded.is_given(setting.name)
    }
    if given.get("events_config"):
        given["events_config"] = str(Path(given["events_config"]).absolute())
    kafka = msgspec.structs.replace(plan.kafka, **given)
    asked = msgspec.structs.replace(loaded.process, **msgspec.structs.asdict(kafka))
    EventsOptions.of(asked)
    SeedsOptions.of(asked)
    return msgspec.structs.replace(plan, kafka=kafka)


def _new_plan(wanted: FleetConfig, concurrency: int) -> FleetPlan:
    if wanted.replicas and wanted.masters < MASTERS_WITH_REPLICAS_MIN:
        message = f"A cluster needs {MASTERS_WITH_REPLICAS_MIN} masters to replace a lost one, not {wanted.masters}."
        raise ConfigError(message, "Raise --masters, or use --replicas 0.")
    servers = wanted.masters * (1 + wanted.replicas)
    ports = free_ports(wanted.coordinators + 2 * servers)
    redis = ports[wanted.coordinators :]
    return FleetPlan(
        nodes=wanted.nodes,
        coordinator_ports=ports[: wanted.coordinators],
        redis_ports=list(zip(redis[:servers], redis[servers:], strict=True)),
        masters=wanted.masters,
        replicas=wanted.replicas,
        concurrency=concurrency,
        redis_program=find_program(),
        restart=wanted.restart,
        finish=wanted.finish,
    )


def _changed_plan(before: FleetPlan, wanted: FleetConfig, concurrency: int) -> FleetPlan:
    """The plan with another number of nodes and coordinators. The cluster cannot change, since it holds the crawl."""
    if (before.masters, before.replicas) != (wanted.masters, wanted.replicas):
        message = f"This fleet has {before.masters} masters with {before.replicas} replicas each."
        raise ConfigError(message, f"Give --masters {before.masters} --replicas {before.replicas}.")
    more = max(0, wanted.coordinators - len(before.coordinator_ports))
    ports = [*before.coordinator_ports, *free_ports(more)][: wanted.coordinators]
    return msgspec.structs.replace(
        before,
        nodes=wanted.nodes,
        coordinator_ports=ports,
        concurrency=concurrency,
        redis_program=find_program(),
        restart=wanted.restart,
        finish=wanted.finish,
    )


def _write_crawl(paths: FleetPaths, config: CrawlConfig, seeds: list[str]) -> None:
    lines = [f"{setting.name} = {setting.toml(getattr(config, setting.field))}\n" for setting in settings_of("crawl")]
    write_file(paths.crawl, ("[crawl]\n" + "".join(lines)).encode())
    known = paths.seeds.read_text().splitlines() if paths.seeds.exists() else []
    write_file(paths.seeds, "".join(f"{seed}\n" for seed in dict.fromkeys([*known, *seeds])).encode())


def _write_secrets(paths: FleetPaths, plan: FleetPlan) -> None:
    if not paths.redis_password.exists():
        write_secret(paths.redis_password, secrets.token_hex(PASSWORD_BYTES))
    write_secret(paths.engine_url, engine_url(plan, read_secret(paths.redis_password)))
    if not CertificateFiles.in_folder(paths.certs).authority.exists():
        create_certificates(paths.certs, [ADDRESS, "localhost"], time.time(), force=True)


def make_tokens(paths: FleetPaths) -> None:
    """Make tokens for the fleet's owner and for its nodes. A coordinator must have made the crawl's secret before."""
    if paths.operator_token.exists() and paths.join_token.exists():
        return
    engine = open_blocking(read_secret(paths.engine_url))
    try:
        secret = engine.get_meta(SECRET_KEY)
        if secret is None:
            raise EngineError("The crawl has no secret yet.", "Bring the fleet up again.")
        access = AccessControl(secret)
        for path, role in ((paths.operator_token, Role.OPERATOR), (paths.join_token, Role.JOIN)):
            write_secret(path, engine.run(access.issue(engine.engine, role, "local fleet", time.time())))
    finally:
        engine.close()
