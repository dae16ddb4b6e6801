"""`drumlin node`: one worker of a crawl. `drumlin crawl` starts its own."""

from __future__ import annotations

import os
from pathlib import Path

import click

from drumlin.cli.help import Verb
from drumlin.cli.tokens import path_of, token_of
from drumlin.config import Loaded, config_options, names_of
from drumlin.config.processes import KAFKA_SETTINGS, LOG_SETTINGS, parse_metrics
from drumlin.errors import ConfigError
from drumlin.logs import log_to_stderr


@click.command("node", cls=Verb)
@config_options(
    *names_of("client"), *names_of("node"), "concurrency", "sync", "trace_every", *KAFKA_SETTINGS[:3], *LOG_SETTINGS
)
def command(loaded: Loaded) -> None:
    """Fetch, read and store pages until the crawl has ended.

    Leaves cleanly on SIGTERM; goes on through an outage of its coordinators.
    """
    # One process per core: numpy's own threads would only cost a tenth of a second at the start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from drumlin.events.options import EventsOptions
    from drumlin.node.main import NodeOptions, run_node
    from drumlin.tls import check_endpoint, check_pair
    from drumlin.tracing import check_installed

    check_installed(loaded.process.trace_every)
    client, node = loaded.client, loaded.node
    coordinator = _coordinator(loaded)
    folder, bundled, objects = _folder(loaded)
    certificate, key = path_of(client.cert), path_of(client.key)
    check_pair(certificate, key)
    options = NodeOptions(
        node.name or "",
        coordinator,
        folder,
        loaded.process.concurrency,
        loaded.process.sync,
        bundled=bundled,
        store=objects,
        token=token_of(loaded),
        authority=path_of(client.ca),
        certificate=certificate,
        key=key,
        spool_bytes_max=node.spool_max_bytes,
        memory_bytes_max=node.memory_max_bytes,
        metrics=parse_metrics(node.metrics) if node.metrics else None,
        traces=loaded.process.trace_every > 0,
        events=EventsOptions.of(loaded.process),
    )
    if options.events is not None and bundled:
        hint = "Leave --events out here, and give it to the coordinators."
        where = "whose store is in a bucket" if objects else "without a store"
        raise ConfigError(f"A node {where} produces no events: coordinators tell of its pages.", hint)
    if not options.endpoints:
        raise ConfigError("--coordinator names no coordinator.", "Give https://HOST:PORT, or several with commas.")
    for endpoint in options.endpoints:
        check_endpoint(endpoint, insecure=client.insecure)
    log_to_stderr(loaded.process.log)
    run_node(options)


def _coordinator(loaded: Loaded) -> str:
    if loaded.client.coordinator is None:
        hint = "Give --coordinator https://HOST:PORT, or set it under [client] in drumlin.toml."
        raise ConfigError("A node needs a coordinator, which gives it work.", hint)
    return loaded.client.coordinator


def _folder(loaded: Loaded) -> tuple[Path, bool, str]:
    """Where the node keeps what it fetches, whether it is sent on from there, and the address of a store in a bucket to
    which the node itself sends it."""
    from drumlin.store.objects.address import is_objects, parse_address

    store, spool = loaded.node.store, loaded.node.spool
    if store is not None and is_objects(store):
        if spool is None:
            hint = "Give --spool DIR too: a folder of this machine, from which complete segments are uploaded."
            raise ConfigError("A node with a store in a bucket needs a folder for what is not complete yet.", hint)
        return Path(spool).absolute(), True, str(parse_address(store))
    if store is not None and spool is not None:
        meant = loaded.stronger("node_store", "node_spool")
        if not meant:
            hint = "A node that can write to the store needs no folder of its own."
            raise ConfigError("--store and --spool exclude each other.", hint)
        store, spool = (store, None) if meant == "node_store" else (None, spool)
    folder = store or spool
    if folder is None:
        hint = "Give the crawl's --store or, where it cannot be written, a folder of this machine with --spool."
        raise ConfigError("The node has nowhere to keep what it fetches.", hint)
    return Path(folder).absolute(), store is None, ""
