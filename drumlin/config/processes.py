"""The settings of processes: each concerns one process, and other processes of a fleet may have other values.

Each struct is one section of `drumlin.toml`. `drumlin crawl` reads `[process]`, `drumlin node` reads `[process]`,
`[client]` and `[node]`, and so on; `drumlin.config.reference` has the whole list.
"""

import re
from typing import Annotated, NamedTuple

import msgspec

from drumlin.config.kafka import parse_kafka
from drumlin.config.key import Key, Kind
from drumlin.logs import LOG_FORMATS, LOG_LEVELS, LogFormat, LogLevel, LogSettings

PORT_MAX = 65_535
UNIX_PREFIX = "unix:"
ADDRESSES = "URL[,URL...]"
KAFKA_SETTINGS = ("events", "events_config", "events_max", "seeds_from", "seeds_idle")
"""The settings of every process that talks to Kafka; a node has the first three."""
LOG_SETTINGS = ("log_format", "log_level")
"""The settings of every process that logs."""

_PASSWORD = re.compile(r"(?<=://).*@")


class ListenAddress(NamedTuple):
    """Where a server listens: at `unix`, the path of a socket, or else at `host` and `port`."""

    host: str = ""
    port: int = 0
    unix: str = ""


def parse_listen(text: str) -> ListenAddress:
    """Read an address to listen on; ValueError says how one is written."""
    if text.startswith(UNIX_PREFIX):
        return ListenAddress(unix=text.removeprefix(UNIX_PREFIX))
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 1 <= int(port) <= PORT_MAX:
        raise ValueError("HOST:PORT or unix:PATH, such as 127.0.0.1:8700")
    return ListenAddress(host.removeprefix("[").removesuffix("]"), int(port))


def parse_metrics(text: str) -> ListenAddress:
    """Read where to serve metrics: a port alone means on this machine only. ValueError says how one is written."""
    try:
        address = parse_listen(text if ":" in text else f"127.0.0.1:{text}")
    except ValueError:
        address = ListenAddress()
    if not address.port:
        raise ValueError("PORT or HOST:PORT, such as 9464")
    return address


def without_password(engine: str) -> str:
    """The address of an engine, without the user and the password that it may contain."""
    return _PASSWORD.sub("***@", engine)


class ProcessConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this process runs and talks to people. Other processes of a fleet may have other values."""

    out: Annotated[str, Key(Kind.PATH, "the crawl directory")] = "crawl"
    store: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "where captures and tables end up: s3://BUCKET/PREFIX; none: in --out",
            metavar="s3://BUCKET/PREFIX",
        ),
    ] = None
    engine: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "where the crawl keeps its queue: redis://HOST:PORT/NAMESPACE or rocksdb:DIR; none: in --out",
            masked=without_password,
        ),
    ] = None
    nodes: Annotated[int | None, Key(Kind.COUNT, "worker processes; none: one per core", minimum=1, maximum=1024)] = (
        None
    )
    concurrency: Annotated[int, Key(Kind.COUNT, "requests in flight per node", minimum=1, maximum=100_000)] = 512
    patience_s: Annotated[
        float,
        Key(
            Kind.DURATION,
            "how long a crawl on one machine waits when nothing is left but hosts that are out of reach",
            minimum=0,
        ),
    ] = 600.0
    ui: Annotated[
        bool | None,
        Key(Kind.SWITCH, "a page to watch and steer the crawl, at a port of 127.0.0.1; none: on a terminal"),
    ] = None
    trace_every: Annotated[
        int,
        Key(
            Kind.COUNT,
            "trace one URL in so many with OpenTelemetry, to where OTEL_EXPORTER_OTLP_ENDPOINT says; 0: none",
            minimum=0,
            maximum=10**9,
        ),
    ] = 0
    events: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "produce events to Kafka, to topics whose names begin with PREFIX; none: nowhere",
            check=parse_kafka,
            metavar="kafka://HOST:PORT[,...]/PREFIX",
        ),
    ] = None
    events_config: Annotated[
        str | None,
        Key(Kind.FILE, "how to reach Kafka, credentials too: librdkafka's properties, name=value, one a line"),
    ] = None
    events_max_bytes: Annotated[
        int,
        Key(Kind.SIZE, "how much of the tables may wait while the broker is away; then nothing is fetched", minimum=1),
    ] = 4 * 2**30
    seeds_from: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "take seed URLs from a topic of Kafka, as they come; the crawl then waits for more",
            check=parse_kafka,
            metavar="kafka://HOST:PORT[,...]/TOPIC",
        ),
    ] = None
    seeds_idle_s: Annotated[
        float | None,
        Key(
            Kind.DURATION,
            "end when nothing is left and the topic has had no URL, or could not be read, for so long; none: wait",
            minimum=0,
        ),
    ] = None
    sync: Annotated[bool, Key(Kind.SWITCH, "survive power loss too: a page counts as done when the disk has it")] = (
        False
    )
    json: Annotated[bool, Key(Kind.SWITCH, "print the result as JSON on stdout")] = False
    quiet: Annotated[bool, Key(Kind.SWITCH, "print neither progress nor report nor hints: only what is wrong")] = False
    color: Annotated[
        bool | None, Key(Kind.SWITCH, "colours; none: on a terminal, unless NO_COLOR is set to something")
    ] = None
    log_format: Annotated[
        LogFormat,
        Key(Kind.CHOICE, "the log as lines for people or of JSON; auto: for people on a terminal", choices=LOG_FORMATS),
    ] = "auto"
    log_level: Annotated[LogLevel, Key(Kind.CHOICE, "least important entries that are logged", choices=LOG_LEVELS)] = (
        "info"
    )

    @property
    def log(self) -> LogSettings:
        """How this process logs. One that should be quiet says only what is wrong."""
        quiet = self.quiet and self.log_level == "info"
        return LogSettings(self.log_format, "warning" if quiet else self.log_level)


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a node, or a verb that a person calls, reaches a coordinator and proves who it is."""

    coordinator: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "where coordinators listen: https://HOST:PORT, http://127.0.0.1:PORT or unix:PATH; any of them will do",
            metavar=ADDRESSES,
        ),
    ] = None
    token: Annotated[str | None, Key(Kind.SECRET, "proves who we are; better kept in DRUMLIN_TOKEN or a file")] = None
    token_file: Annotated[str | None, Key(Kind.FILE, "read the token from a file, which is stronger than --token")] = (
        None
    )
    ca: Annotated[str | None, Key(Kind.FILE, "the authority that signed the coordinators' certificates")] = None
    cert: Annotated[str | None, Key(Kind.FILE, "our certificate, if coordinators ask for one")] = None
    key: Annotated[str | None, Key(Kind.FILE, "the certificate's key; may be the same file")] = None
    insecure: Annotated[bool, Key(Kind.SWITCH, "send the token and pages over plain HTTP to other machines")] = False

    def __repr__(self) -> str:
        return f"<ClientConfig of {self.coordinator}, {'with a token' if self.token else 'no token'}>"


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of one `drumlin node`."""

    store: Annotated[
        str | None,
        Key(
            Kind.PATH,
            "the crawl's store, which this machine can write to: a directory, or s3://BUCKET/PREFIX with --spool",
            aliases=("--out",),
        ),
    ] = None
    spool: Annotated[
        str | None,
        Key(Kind.PATH, "without a directory as store: a folder of this machine, from which everything is sent"),
    ] = None
    spool_max_bytes: Annotated[int, Key(Kind.SIZE, "how much may wait on disk to be sent", minimum=0)] = 4 * 2**30
    name: Annotated[str | None, Key(Kind.TEXT, "this node's name in the crawl; none: it finds one by itself")] = None
    memory_max_bytes: Annotated[int, Key(Kind.SIZE, "most memory of this process; 0: no limit", minimum=0)] = 4 * 2**30
    metrics: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "serve metrics for Prometheus here, to anybody who asks; a port alone: to this machine only; none: nowhere",
            check=parse_metrics,
            metavar="PORT|HOST:PORT",
        ),
    ] = None


class CoordinatorConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How clients reach one `drumlin coordinator`, and who may connect."""

    listen: Annotated[
        str | None,
        Key(Kind.TEXT, "where nodes and people find it", check=parse_listen, metavar="HOST:PORT|unix:PATH"),
    ] = None
    public: Annotated[
        str | None, Key(Kind.TEXT, "the address that nodes use, if there is a load balancer", metavar="URL")
    ] = None
    store: Annotated[
        str | None,
        Key(
            Kind.PATH,
            "where to store pages of nodes that cannot write there themselves: a directory, or s3://BUCKET/PREFIX",
        ),
    ] = None
    spool: Annotated[
        str | None,
        Key(Kind.PATH, "with a store in a bucket: a folder of this machine for what is not complete yet"),
    ] = None
    bundle_quota_bytes: Annotated[int, Key(Kind.SIZE, "how much one node may send to be stored, in all", minimum=0)] = (
        2**40
    )
    lost_after_s: Annotated[
        float,
        Key(
            Kind.DURATION,
            "after how long pages that were fetched and never arrived in the store are fetched again",
            minimum=60,
        ),
    ] = 86_400.0
    cert: Annotated[str | None, Key(Kind.FILE, "the certificate to speak TLS with")] = None
    key: Annotated[str | None, Key(Kind.FILE, "the certificate's key")] = None
    client_ca: Annotated[str | None, Key(Kind.FILE, "accept only clients with a certificate of this authority")] = None
    trusted_proxy: Annotated[tuple[str, ...], Key(Kind.NETWORKS, "accept X-Forwarded-For from these addresses")] = ()
    insecure: Annotated[bool, Key(Kind.SWITCH, "permit plain HTTP, or no tokens, beyond this machine")] = False
    auth: Annotated[bool, Key(Kind.SWITCH, "ask for tokens")] = True
    finish: Annotated[
        bool | None,
        Key(
            Kind.SWITCH,
            "end the crawl when nothing is left, or wait for more URLs; none: leave it as it is",
        ),
    ] = None


class FleetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `drumlin fleet up` starts on this machine."""

    out: Annotated[str, Key(Kind.PATH, "the fleet's directory")] = "fleet"
    nodes: Annotated[int, Key(Kind.COUNT, "nodes", minimum=1, maximum=256)] = 2
    coordinators: Annotated[int, Key(Kind.COUNT, "coordinators", minimum=1, maximum=32)] = 2
    masters: Annotated[int, Key(Kind.COUNT, "Redis masters", minimum=1, maximum=32)] = 3
    replicas: Annotated[int, Key(Kind.COUNT, "replicas of each Redis master", minimum=0, maximum=5)] = 0
    restart: Annotated[bool, Key(Kind.SWITCH, "start processes again that die")] = True
    finish: Annotated[bool, Key(Kind.SWITCH, "end when nothing is left, or wait for more URLs")] = True
