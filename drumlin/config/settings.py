"""The settings of a crawl, which all its nodes share, and the table of all settings.

What one process needs is in `drumlin.config.processes`. Each field's `Key` is the only description of that setting; see
`drumlin.config.key`.
"""

import hashlib
import re
from typing import Annotated, Literal, get_args

import msgspec

from drumlin import __version__
from drumlin.config.key import Key, Kind, Setting
from drumlin.config.processes import ClientConfig, CoordinatorConfig, FleetConfig, NodeConfig, ProcessConfig
from drumlin.model import ScopeMode
from drumlin.robots import product_token

SCOPES: tuple[str, ...] = get_args(ScopeMode)
Affinity = Literal["sticky", "spread"]
AFFINITIES: tuple[str, ...] = get_args(Affinity)
CookieMode = Literal["chain", "host", "none"]
COOKIE_MODES: tuple[str, ...] = get_args(CookieMode)
COOKIES_CHAIN: CookieMode = "chain"
COOKIES_HOST: CookieMode = "host"
COOKIES_NONE: CookieMode = "none"
PRODUCT = f"drumlin/{__version__}"
DEFAULT_USER_AGENT = f"{PRODUCT} (+https://github.com/drumlin-crawler/drumlin)"
CONFIG_HASH_HEX_DIGITS = 16

_HEADER_TEXT = re.compile(r"[ -~]+", re.ASCII)


def check_header_text(text: str) -> None:
    """ValueError unless it can be sent as the value of a header."""
    if _HEADER_TEXT.fullmatch(text) is None:
        raise ValueError("printable ASCII on one line")


def check_contact(contact: str) -> None:
    """ValueError unless the owner of a site can write there, and it can stand in brackets in the user agent."""
    check_header_text(contact)
    if "(" in contact or ")" in contact or not ("@" in contact or contact.startswith(("http://", "https://"))):
        raise ValueError("an e-mail address or a web page, such as you@example.org")


def check_user_agent(user_agent: str) -> None:
    """ValueError unless it can be sent as a header and names us to robots.txt."""
    check_header_text(user_agent)
    if not product_token(user_agent):
        raise ValueError("a text that begins with the crawler's name, such as ExampleBot/1.0")


class CrawlConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is crawled and how politely. The whole fleet has the same one, known by its hash."""

    # what
    scope: Annotated[
        ScopeMode,
        Key(Kind.CHOICE, "how far from the seeds to go: their pages, paths, hosts or domains", choices=SCOPES),
    ] = "host"
    include: Annotated[tuple[str, ...], Key(Kind.PATTERNS, "follow only links to URLs that match one of these")] = ()
    exclude: Annotated[tuple[str, ...], Key(Kind.PATTERNS, "never follow links to URLs that match one of these")] = ()
    assets: Annotated[bool, Key(Kind.SWITCH, "also fetch what pages show: images, styles, scripts, from anywhere")] = (
        False
    )
    types: Annotated[
        tuple[str, ...],
        Key(Kind.TYPES, "largest body of a type, 0: not fetched at all; comes before the built-in rules"),
    ] = ()
    sitemaps: Annotated[bool, Key(Kind.SWITCH, "take URLs from the sitemaps that robots.txt names")] = True
    near_duplicates: Annotated[bool, Key(Kind.SWITCH, "recognise pages with nearly the same text")] = True
    near_overlap_percent: Annotated[
        int,
        Key(
            Kind.COUNT,
            "percentage of three-word sequences that two texts must share to count as nearly the same",
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
    contact: Annotated[
        str | None,
        Key(
            Kind.TEXT,
            "your e-mail address or web page, for owners of sites; it is sent in the user agent",
            check=check_contact,
        ),
    ] = None
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
    retries_max: Annotated[
        int, Key(Kind.COUNT, "further attempts before a URL is given up", minimum=0, maximum=100)
    ] = 3
    backoff_base_s: Annotated[float, Key(Kind.DURATION, "pause before the first retry", minimum=0)] = 5.0
    backoff_max_s: Annotated[float, Key(Kind.DURATION, "longest pause before a retry", minimum=0)] = 3600.0
    host_patience_s: Annotated[
        float,
        Key(
            Kind.DURATION,
            "how long a host, or its robots.txt, may be out of reach before its URLs are given up",
            minimum=0,
        ),
    ] = 7 * 86400.0
    lease_s: Annotated[
        float,
        Key(Kind.DURATION, "how long a node has a host to itself before it must ask again", minimum=1, maximum=3600),
    ] = 20.0
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
    def follows_sitemaps(self) -> bool:
        """Whether sitemaps are read. What one lists is one link away from it, and out of scope in a crawl of single
        pages."""
        return self.sitemaps and self.depth != 0 and self.scope != "page"

    @property
    def sent_user_agent(self) -> str:
        """The user agent as it is sent. With a contact it names that one, and not the home page of drumlin."""
        if self.contact is None or self.contact in self.user_agent:
            return self.user_agent
        named = PRODUCT if self.user_agent == DEFAULT_USER_AGENT else self.user_agent
        return f"{named} (+{self.contact})"

    @property
    def names_contact(self) -> bool:
        """Whether the owner of a site can tell from the user agent whom to write to."""
        return self.contact is not None or (
            self.user_agent != DEFAULT_USER_AGENT and ("@" in self.user_agent or "://" in self.user_agent)
        )

    def config_hash(self) -> str:
        """A hash that is the same on every machine for the same settings, and different for different settings."""
        encoded = msgspec.json.encode(self, order="sorted")
        return hashlib.sha256(encoded).hexdigest()[:CONFIG_HASH_HEX_DIGITS]


SECTIONS: dict[str, type[msgspec.Struct]] = {
    "crawl": CrawlConfig,
    "process": ProcessConfig,
    "client": ClientConfig,
    "node": NodeConfig,
    "coordinator": CoordinatorConfig,
    "fleet": FleetConfig,
}
"""The sections of `drumlin.toml`, each with the struct that holds its values."""


def _settings_of(section: str, struct: type[msgspec.Struct]) -> list[Setting]:
    defaults = struct()
    return [
        Setting(section, field, getattr(defaults, field), annotation.__metadata__[0])
        for field, annotation in struct.__annotations__.items()
    ]


SETTINGS: dict[str, Setting] = {
    setting.full_name: setting for section, struct in SECTIONS.items() for setting in _settings_of(section, struct)
}
"""Every setting of every verb, by its full name."""


def settings_of(section: str) -> list[Setting]:
    """The settings of one section, in their order."""
    return [setting for setting in SETTINGS.values() if setting.section == section]


def names_of(section: str) -> list[str]:
    """The full names of the settings of one section."""
    return [setting.full_name for setting in settings_of(section)]
