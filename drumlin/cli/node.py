"""`drumlin node`: one worker of a crawl. `drumlin crawl` starts its own."""

from __future__ import annotations

import os
from pathlib import Path

import click

from drumlin.cli.tokens import TOKEN_VARIABLE, hide_argument, token_options
from drumlin.config.quantities import parse_size
from drumlin.errors import ConfigError

FOLDER = click.Path(path_type=Path)
REQUESTS = click.IntRange(1, 100_000)


class Size(click.ParamType[int]):
    """Bytes as people write them."""

    name = "size"

    def convert(self, value: object, parameter: click.Parameter | None, context: click.Context | None) -> int:
        try:
            return value if isinstance(value, int) else parse_size(str(value))
        except ValueError:
            self.fail(f"{value!r} is no size; write it like 500MB or 4GiB.", parameter, context)


@click.command("node")
@click.option(
    "--coordinator",
    required=True,
    envvar="DRUMLIN_COORDINATOR",
    metavar="URL[,URL...]",
    help="where coordinators listen: https://HOST:PORT, http://127.0.0.1:PORT or unix:PATH; any that answers will do",
)
@token_options
@click.option("--ca", type=FOLDER, metavar="FILE", help="trust coordinators that this authority has certified")
@click.option("--cert", type=FOLDER, metavar="FILE", help="our certificate, where coordinators ask for one")
@click.option("--key", type=FOLDER, metavar="FILE", help="the certificate's key; may be the same file")
@click.option("--insecure", is_flag=True, help="allow plain HTTP to other machines")
@click.option("--store", "--out", type=FOLDER, metavar="DIR", help="the crawl's store, which this machine can write to")
@click.option("--spool", type=FOLDER, metavar="DIR", help="without a store: a folder here; a coordinator stores")
@click.option("--spool-max", type=Size(), default="4GiB", show_default=True, help="what may wait on disk to be sent")
@click.option("--name", default="", help="this node's name in the crawl; found by itself when left out")
@click.option("--concurrency", default=512, show_default=True, type=REQUESTS, help="requests in flight")
@click.option("--memory-max", type=Size(), default="4GiB", show_default=True, help="memory for this process; 0: any")
@click.option("--sync", is_flag=True, help="fsync before a page counts as done")
@click.option("--parent-pid", default=0, hidden=True, help="end when this process ends")
def command(
    coordinator: str,
    token: str,
    ca: Path | None,
    cert: Path | None,
    key: Path | None,
    insecure: bool,
    store: Path | None,
    spool: Path | None,
    spool_max: int,
    name: str,
    concurrency: int,
    memory_max: int,
    sync: bool,
    parent_pid: int,
) -> None:
    """Lease, fetch, parse, store and settle until the crawl has ended.

    Leaves cleanly on SIGTERM; goes on through an outage of its coordinators.
    """
    hide_argument("--token", TOKEN_VARIABLE)
    # One process per core: numpy's own threads would only cost a tenth of a second at the start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from drumlin.node.main import NodeOptions, run_node
    from drumlin.tls import check_endpoint, check_pair

    check_pair(cert, key)

    options = NodeOptions(
        name,
        coordinator,
        _folder(store, spool),
        concurrency,
        sync,
        parent_pid,
        bundled=store is None,
        token=token,
        authority=ca,
        certificate=cert,
        key=key,
        spool_bytes_max=spool_max,
        memory_bytes_max=0 if parent_pid else memory_max,
    )
    if not options.endpoints:
        raise ConfigError("--coordinator names no coordinator.", "Give https://HOST:PORT, or several with commas.")
    for endpoint in options.endpoints:
        check_endpoint(endpoint, insecure=insecure)
    run_node(options)


def _folder(store: Path | None, spool: Path | None) -> Path:
    if store is not None and spool is not None:
        raise ConfigError(
            "--store and --spool exclude each other.", "A node that can write to the store needs no spool."
        )
    folder = store or spool
    if folder is None:
        hint = "Give the crawl's --store or, where it cannot be written, a folder of this machine with --spool."
        raise ConfigError("The node has nowhere to keep what it fetches.", hint)
    return folder.absolute()
