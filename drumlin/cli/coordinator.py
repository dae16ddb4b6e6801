"""`drumlin coordinator`: one coordinator of a fleet, on an address of its own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.help import Verb
from drumlin.cli.tokens import path_of
from drumlin.config import Loaded, config_options, names_of
from drumlin.config.processes import KAFKA_SETTINGS, LOG_SETTINGS, parse_listen, without_password
from drumlin.errors import ConfigError
from drumlin.logs import Event, event, log_to_stderr

if TYPE_CHECKING:
    from drumlin.config import CoordinatorConfig, CrawlConfig
    from drumlin.serving.service import Listen

log = logging.getLogger("drumlin.coordinator")


@click.command("coordinator", cls=Verb)
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("-i", "--input", "input_file", metavar="FILE", help="read seed URLs from FILE, one a line; - for stdin")
@config_options(
    *names_of("coordinator"),
    *("engine", "sync", "trace_every", "quiet", "color"),
    *LOG_SETTINGS,
    *KAFKA_SETTINGS,
    *names_of("crawl"),
)
def command(loaded: Loaded, urls: tuple[str, ...], input_file: str | None) -> None:
    """Give work to nodes and answer people, until SIGTERM.

    Any number of coordinators may share one engine. The first founds the crawl with its options; the others take them
    from the engine and need none.
    """
    import uvloop

    from drumlin.cli.crawl import read_seeds
    from drumlin.coordinator.dispatch import Dispatcher
    from drumlin.events.options import EventsOptions, SeedsOptions
    from drumlin.serving.service import ServiceOptions, serve, shards_to_found
    from drumlin.tracing import check_installed

    check_installed(loaded.process.trace_every)
    told = loaded.coordinator
    place = _place(told)
    seeds = read_seeds(urls, input_file) if urls or input_file else []
    spec = _engine(loaded)
    folder, objects = _store(told)
    options = ServiceOptions(
        spec,
        place,
        folder,
        objects,
        told.public or "",
        auth=told.auth,
        finish=told.finish,
        shard_count=shards_to_found(spec),
        sync=loaded.process.sync,
        bundle_quota_bytes=told.bundle_quota_bytes,
        lost_after_s=told.lost_after_s,
        trace_every=loaded.process.trace_every,
        events=EventsOptions.of(loaded.process),
        seeds=SeedsOptions.of(loaded.process),
    )
    if options.events is not None and options.store is None:
        hint = "Give its --store too: what the broker has not confirmed is kept there."
        raise ConfigError("A coordinator with --events needs a store.", hint)
    log_to_stderr(loaded.process.log)

    def on_ready(dispatcher: Dispatcher) -> None:
        log.info("%s", ready_line(place, spec, auth=told.auth, public=told.public or ""), extra=event(Event.STARTED))

    uvloop.run(serve(options, _asked_config(loaded), seeds, on_ready))


def _store(told: CoordinatorConfig) -> tuple[Path | None, str]:
    """The folder of this machine that the coordinator writes to, and the address of a store that is in a bucket."""
    from drumlin.store.objects.address import is_objects, parse_address

    if told.store is None or not is_objects(told.store):
        return path_of(told.store), ""
    if told.spool is None:
        hint = "Give --spool DIR too: a folder of this machine, which is small and must survive a restart."
        raise ConfigError("A coordinator with a store in a bucket needs a folder for what is not complete yet.", hint)
    return Path(told.spool).absolute(), str(parse_address(told.store))


def _place(told: CoordinatorConfig) -> Listen:
    """Where to listen. ConfigError if no address was given, or if it may not be used without TLS or tokens."""
    from drumlin.serving.service import Listen
    from drumlin.tls import check_listen, check_pair

    certificate, key, client_authority = map(path_of, (told.cert, told.key, told.client_ca))
    check_pair(certificate, key)
    if told.listen is None:
        hint = "Give --listen 127.0.0.1:8700, say, or set it under [coordinator] in drumlin.toml."
        raise ConfigError("A coordinator needs an address to listen on.", hint)
    if client_authority is not None and certificate is None:
        raise ConfigError("--client-ca needs TLS.", "Give --cert and --key too.")
    address = parse_listen(told.listen)
    if not address.unix:
        check_listen(address.host, tls=certificate is not None, insecure=told.insecure, auth=told.auth)
    return Listen(
        *address,
        certificate=certificate,
        key=key,
        client_authority=client_authority,
        trusted_proxies=told.trusted_proxy,
    )


def ready_line(place: Listen, spec: str, *, auth: bool, public: str = "") -> str:
    """One line that says what runs here and how to join. It never contains the engine's password."""
    secured = "TLS" if place.certificate else "no TLS"
    needed = " --token-file FILE" if auth else ""
    needed += " --ca FILE" if place.certificate else ""
    needed += " --cert FILE --key FILE" if place.client_authority else ""
    join = f"drumlin node --coordinator {public or place.endpoint}{needed} --store DIR"
    return f"Ready at {place.endpoint} ({secured}, engine {without_password(spec)}). To join: {join}"


def _engine(loaded: Loaded) -> str:
    spec = loaded.process.engine
    if not spec:
        hint = "Give --engine redis://HOST:PORT/NAMESPACE, or rocksdb:DIR for a single coordinator."
        raise ConfigError("A coordinator needs an engine, where the crawl is kept.", hint)
    return spec


def _asked_config(loaded: Loaded) -> CrawlConfig | None:
    """The crawl's settings, if the user gave any; None for those with which the crawl was founded."""
    from drumlin.fleet.founding import fleet_config

    asked = any(map(loaded.is_given, names_of("crawl")))
    return fleet_config(loaded) if asked else None
