"""The two tables of settings: the crawl's, shared by every node of a fleet, and the process's, its own.

Each field's `Key` is the only description of that setting; see `drumlin.config.key`.
"""

import hashlib
import re
from typing import Annotated, Literal, get_args

import msgspec

from drumlin import __version__
from drumlin.config.key import Key, Kind, Setting
from drumlin.robots import product_token

ScopeName = Literal["page", "prefix", "host", "domain", "any"]
SCOPES: tuple[str, ...] = get_args(ScopeName)
Affinity = Literal["sticky", "spread"]
AFFINITIES: tuple[str, ...] = get_args(Affinity)
CookieMode = Literal["chain", "host", "none"]
COOKIE_MODES: tuple[str, ...] = get_args(CookieMode)
COOKIES_CHAIN: CookieMode = "chain"
COOKIES_HOST: CookieMode = "host"
COOKIES_NONE: CookieMode = "none"
DEFAULT_USER_AGENT = f"drumlin/{__version__} (+https://github.com/drumlin-crawler/drumlin)"
CONFIG_HASH_HEX_DIGITS = 16

_HEADER_TEXT = re.compile(r"[ -~]+", re.ASCII)


def check_header_text(text: str) -> None:
    """ValueError unless it can be sent as the value of a header."""
    if _HEADER_TEXT.fullmatch(text) is None:
        raise ValueError("printable ASCII on one line")


def check_user_agent(user_agent: str) -> None:
    """ValueError unless it can be sent as a header and names us to robots.txt."""
    check_header_text(user_agent)
    if not product_token(user_agent):
        raise ValueError("a text that begins with the crawler's name, such as ExampleBot/1.0")


class CrawlConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is crawled and how politely. The whole fleet has the same one, known by its hash."""

    # what
    scope: Annotated[
        ScopeName,
        Key(Kind.CHOICE, "how far from the seeds to go: their pages, paths, hosts or domains", choices=SCOPES),
    ] = "host"
    include: Annotated[tuple[str, ...], Key(Kind.PATTERNS, "follow only links to URLs that match one of these")] = ()
    exclude: Annotated[tuple[str, ...], Key(Kind.PATTERNS, "never follow links to URLs that match one of these")] = ()
    assets: Annotated[bool, Key(Kind.SWITCH, "also fetch what pages show: images, styles, scripts, from anywhere")] = (
        False
    )
    sitemaps: Annotated[bool, Key(Kind.SWITCH, "take URLs from the sitemaps that robots.txt names")] = True
    near_duplicates: Annotated[bool, Key(Kind.SWITCH, "recognise pages with nearly the same text")] = True
    near_overlap_percent: Annotated[
        int,
        Key(
            Kind.COUNT,
            "share of three-word shingles that two texts have in common from which they are nearly the same",
            minimum=50,
            maximum=100,
        ),
    ] = 90
    # how much
    depth: Annotated[int | None, Key(Kind.COUNT, "most links between a seed and a page", minimum=0)] = None
    pages_max: Annotated[int | None, Key(Kind.COUNT, "most pages to fetch", minimum=1)] = None
    bytes_max: Annotated[int | None, Key(Kind.SIZE, "most bytes to fetch", minimum=1)] = None
    time_max_s: Annotated[float | None, Key(Kind.DURATION, "longest time to crawl", minimum=0.001)] = None
    host_urls_max: Annotated[int | None, Key(Kind.COUNT, "most URLs to accept of one host", minimum=1)] = None
    # how politely
    delay_s: Annotated[
        float, Key(Kind.DURATION, "least time between two contacts of a host", minimum=0, maximum=86400)
    ] = 1.0
    per_host: Annotated[int, Key(Kind.COUNT, "concurrent requests to one host", minimum=1, maximum=256)] = 1
    user_agent: Annotated[
        str, Key(Kind.TEXT, "who we say we are; its first word is matched in robots.txt", check=check_user_agent)
    ] = DEFAULT_USER_AGENT
    accept_encoding: Annotated[
        str,
        Key(
            Kind.TEXT,
            "compression that servers may use; br and zstd are understood too, but not by all tools that read WARC",
            check=check_header_text,
        ),
    ] = "gzip, deflate"
    robots_ttl_s: Annotated[float, Key(Kind.DURATION, "how long a robots.txt is believed", minimum=1)] = 86400.0
    # limits of one fetch
    allow_private: Annotated[bool, Key(Kind.SWITCH, "permit loopback and private addresses")] = False
    connect_timeout_s: Annotated[float, Key(Kind.DURATION, "longest time to connect", minimum=0.001)] = 10.0
    fetch_timeout_s: Annotated[float, Key(Kind.DURATION, "longest time for one request", minimum=0.001)] = 60.0
    speed_min_bytes_s: Annotated[
        int, Key(Kind.SIZE, "bytes a second below which a response is cut off; 0: never", minimum=0)
    ] = 100
    speed_window_s: Annotated[
        float, Key(Kind.DURATION, "how long a response may be slower than speed_min", minimum=1)
    ] = 20.0
    header_bytes_max: Annotated[int, Key(Kind.SIZE, "largest response head", minimum=1024)] = 256 * 2**10
    body_bytes_max: Annotated[int, Key(Kind.SIZE, "largest body as sent; sitemaps may have 50 MB", minimum=1024)] = (
        16 * 2**20
    )
    body_decoded_bytes_max: Annotated[int, Key(Kind.SIZE, "largest body when decompressed", minimum=1024)] = 64 * 2**20
    redirects_max: Annotated[int, Key(Kind.COUNT, "longest chain of redirects", minimum=0, maximum=20)] = 5
    cookies: Annotated[
        CookieMode,
        Key(
            Kind.CHOICE,
            "where a cookie is sent back: along the redirects that set it, to its whole host, or nowhere",
            choices=COOKIE_MODES,
        ),
    ] = COOKIES_CHAIN
    # what follows a failure
    retries_max: Annotated[int, Key(Kind.COUNT, "further attempts before a URL is dead", minimum=0, maximum=100)] = 3
    backoff_base_s: Annotated[float, Key(Kind.DURATION, "pause before the first retry", minimum=0)] = 5.0
    backoff_max_s: Annotated[float, Key(Kind.DURATION, "longest pause before a retry", minimum=0)] = 3600.0
    host_patience_s: Annotated[
        float,
        Key(
            Kind.DURATION,
            "how long a host, or its robots.txt, may be out of reach before its URLs are dead",
            minimum=0,
        ),
    ] = 7 * 86400.0
    lease_s: Annotated[float, Key(Kind.DURATION, "how long a node may hold a host", minimum=1, maximum=3600)] = 20.0
    affinity: Annotated[
        Affinity,
        Key(
            Kind.CHOICE,
            "whether a host stays with the node that knows it, or goes to one that has not contacted it lately",
            choices=AFFINITIES,
        ),
    ] = "sticky"

    @property
    def product_token(self) -> str:
        """The name to look for in robots.txt."""
        return product_token(self.user_agent)

    @property
    def attempts_max(self) -> int:
        return 1 + self.retries_max

    def config_hash(self) -> str:
        """The same on every machine for the same settings, and different for different ones."""
        encoded = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(encoded).hexdigest()[:CONFIG_HASH_HEX_DIGITS]


class ProcessConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How this process runs and talks to people; the rest of a fleet need not know."""

    out: Annotated[str, Key(Kind.PATH, "the crawl directory")] = "crawl"
    engine: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "where the frontier lives: redis://HOST:PORT/NAMESPACE or rocksdb:DIR; none: in the crawl directory",
        ),
    ] = None
    nodes: Annotated[int | None, Key(Kind.COUNT, "worker processes; none: one per core", minimum=1, maximum=1024)] = (
        None
    )
    concurrency: Annotated[int, Key(Kind.COUNT, "requests in flight per node", minimum=1, maximum=65536)] = 512
    patience_s: Annotated[
        float,
        Key(
            Kind.DURATION,
            "how long a crawl on one machine waits when nothing is left but hosts that are out of reach",
            minimum=0,
        ),
    ] = 600.0
    sync: Annotated[bool, Key(Kind.SWITCH, "survive power loss too: fsync before a page counts as done")] = False
    json: Annotated[bool, Key(Kind.SWITCH, "print the result as JSON on stdout")] = False
    quiet: Annotated[bool, Key(Kind.SWITCH, "print no progress")] = False
    color: Annotated[
        bool | None, Key(Kind.SWITCH, "colours; none: on a terminal, unless NO_COLOR is set to something")
    ] = None


def _settings_of(section: str, struct: type[CrawlConfig] | type[ProcessConfig]) -> list[Setting]:
    defaults = struct()
    return [
        Setting(section, field, getattr(defaults, field), annotation.__metadata__[0])
        for field, annotation in struct.__annotations__.items()
    ]


SETTINGS: dict[str, Setting] = {
    setting.name: setting for setting in _settings_of("crawl", CrawlConfig) + _settings_of("process", ProcessConfig)
}
