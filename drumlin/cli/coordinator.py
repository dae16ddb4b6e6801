"""`drumlin coordinator`: one coordinator of a fleet, on an address of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import say
from drumlin.cli.node import Size
from drumlin.config import SETTINGS, Loaded, config_options
from drumlin.errors import ConfigError
from drumlin.lines import log_to_stderr

if TYPE_CHECKING:
    from drumlin.config import CrawlConfig
    from drumlin.coordinator.service import Listen

PORT_MAX = 65_535
CRAWL_SETTINGS = [name for name, setting in SETTINGS.items() if setting.section == "crawl"]

_PATH = click.Path(path_type=Path)


@click.command("coordinator")
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option("-i", "--input", "input_file", metavar="FILE", help="read seed URLs from FILE, one a line; - for stdin")
@click.option("--listen", required=True, metavar="HOST:PORT|unix:PATH", help="where nodes and people find it")
@click.option("--public", default="", metavar="URL", help="the address told to nodes, behind a load balancer")
@click.option(
    "--store",
    type=_PATH,
    metavar="DIR",
    help="where captures go of nodes that cannot write there themselves, or store nothing",
)
@click.option(
    "--bundle-quota", type=Size(), default="1TiB", show_default=True, help="what one node may send in bundles, in all"
)
@click.option("--cert", type=_PATH, metavar="FILE", help="the certificate to speak TLS with")
@click.option("--key", type=_PATH, metavar="FILE", help="the certificate's key")
@click.option("--client-ca", type=_PATH, metavar="FILE", help="let only clients in that this authority has certified")
@click.option(
    "--trusted-proxy", multiple=True, metavar="ADDRESS", help="believe X-Forwarded-For from there; repeatable"
)
@click.option("--insecure", is_flag=True, help="permit plain HTTP, or no tokens, beyond this machine")
@click.option("--no-auth", is_flag=True, help="ask for no tokens")
@click.option(
    "--finish/--no-finish",
    default=None,
    help="end the crawl when nothing is left, or wait for more URLs; left out, as other coordinators were told",
)
@config_options("engine", "sync", "quiet", "color", *CRAWL_SETTINGS)
def command(
    loaded: Loaded,
    urls: tuple[str, ...],
    input_file: str | None,
    listen: str,
    public: str,
    store: Path | None,
    bundle_quota: int,
    cert: Path | None,
    key: Path | None,
    client_ca: Path | None,
    trusted_proxy: tuple[str, ...],
    insecure: bool,
    no_auth: bool,
    finish: bool | None,
) -> None:
    """Give work to nodes and answer people, until SIGTERM.

    Any number of coordinators may share one engine. The first founds the crawl with its options; the others take them
    from the engine and need none.
    """
    import uvloop

    from drumlin.cli.crawl import read_seeds
    from drumlin.coordinator.dispatch import Dispatcher
    from drumlin.coordinator.service import ServiceOptions, serve, shards_to_found

    place = read_listen(listen, cert, key, insecure=insecure, auth=not no_auth)
    place = with_doors(place, client_ca, trusted_proxy)
    seeds = read_seeds(urls, input_file) if urls or input_file else []
    spec = _engine(loaded)
    options = ServiceOptions(
        spec,
        place,
        store,
        public,
        auth=not no_auth,
        finish=finish,
        shard_count=shards_to_found(spec),
        sync=loaded.process.sync,
        bundle_quota_bytes=bundle_quota,
    )
    log_to_stderr()

    def on_ready(dispatcher: Dispatcher) -> None:
        say(loaded.process, ready_line(place, spec, auth=not no_auth))

    uvloop.run(serve(options, _asked_config(loaded), seeds, on_ready))


def read_listen(text: str, cert: Path | None, key: Path | None, *, insecure: bool, auth: bool) -> Listen:
    """Where to listen; ConfigError when it is no such place, or not one to listen on like this."""
    from drumlin.coordinator.service import Listen
    from drumlin.tls import check_listen, check_pair

    check_pair(cert, key)
    if text.startswith("unix:"):
        return Listen(unix=text.removeprefix("unix:"), certificate=cert, key=key)
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= PORT_MAX:
        raise ConfigError(f"--listen must be HOST:PORT or unix:PATH, not {text!r}.", "127.0.0.1:8700, say.")
    host = host.removeprefix("[").removesuffix("]")
    check_listen(host, tls=cert is not None, insecure=insecure, auth=auth)
    return Listen(host, int(port), certificate=cert, key=key)


def with_doors(place: Listen, client_ca: Path | None, proxies: tuple[str, ...]) -> Listen:
    """The same place, for clients with a certificate only, and behind these proxies."""
    import ipaddress

    import msgspec

    if client_ca is not None and place.certificate is None:
        raise ConfigError("--client-ca needs TLS.", "Give --cert and --key too.")
    for proxy in proxies:
        try:
            ipaddress.ip_network(proxy)
        except ValueError:
            message = f"--trusted-proxy must be an address or a network, not {proxy!r}."
            raise ConfigError(message, "10.0.0.7 or 10.0.0.0/24, say.") from None
    return msgspec.structs.replace(place, client_authority=client_ca, trusted_proxies=proxies)


def ready_line(place: Listen, spec: str, *, auth: bool) -> str:
    """One line that says what runs here and how to join; never the engine's password."""
    secured = "TLS" if place.certificate else "no TLS"
    needed = " --token-file FILE" if auth else ""
    needed += " --ca FILE" if place.certificate else ""
    needed += " --cert FILE --key FILE" if place.client_authority else ""
    engine = f"{spec.partition('://')[0]}://{spec.rpartition('@')[2]}" if "@" in spec else spec
    join = f"drumlin node --coordinator {place.endpoint}{needed} --store DIR"
    return f"Ready at {place.endpoint} ({secured}, engine {engine}). To join: {join}"


def _engine(loaded: Loaded) -> str:
    spec = loaded.process.engine
    if not spec:
        hint = "Give --engine redis://HOST:PORT/NAMESPACE, or rocksdb:DIR for a single coordinator."
        raise ConfigError("A coordinator needs an engine.", hint)
    return spec


def _asked_config(loaded: Loaded) -> CrawlConfig | None:
    """The crawl's settings, if anybody gave one; None takes those that the crawl was founded with."""
    from drumlin.fleet.founding import fleet_config

    asked = any(loaded.origins[name].source != "default" for name in CRAWL_SETTINGS)
    return fleet_config(loaded) if asked else None
