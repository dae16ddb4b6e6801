"""A crawl's settings: `GET /api/v1/settings`, and changing them while it runs: `PATCH /api/v1/crawl`.

The change is in force at this coordinator when the call is answered and at the others within a second; nodes follow it
with their next heartbeat. The message's type is made from the table of settings, so bounds are the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from drumlin.access.tokens import Permission
from drumlin.api.messages.people import WebURL
from drumlin.api.routing import Call, Route
from drumlin.config import SETTINGS, CrawlConfig, settings_of
from drumlin.config.changes import CHANGEABLE, SEEDS
from drumlin.config.key import Kind, Setting
from drumlin.coordinator.dispatch import Dispatcher
from drumlin.coordinator.steering import CONFIG_KEY
from drumlin.engines.base import Added
from drumlin.errors import ConfigError
from drumlin.frontier import priority_of
from drumlin.http.refusal import Refused
from drumlin.model import NewURLs
from drumlin.protocol import paths
from drumlin.urls import by_host, canonical

PATTERNS_MAX = 100
PATTERN_CHARS_MAX = 1_000
SEEDS_MAX = 1_000
COUNT_MAX = 1 << 53
"""The largest whole number that every reader of JSON understands."""
DURATION_S_MAX = 1e10
CHANGE_BYTES_MAX = 4 * 1024 * 1024
FIELDS = tuple(setting.field for setting in CHANGEABLE.values())
HINT = f"These can change while a crawl runs: {', '.join([*FIELDS, SEEDS])}."


_TYPE_NAME = r"[!#$%&'+.^_`|~0-9a-z-]+"
TYPE_RULE_PATTERN = rf"^(\*/\*|{_TYPE_NAME}/(\*|{_TYPE_NAME}))=[0-9]{{1,12}}([kMG]B|[KMG]iB)?\Z"
"""A media type and the most bytes that may be fetched of it, as `drumlin.config.types` reads them."""


def _type_of(setting: Setting) -> Any:
    """What a setting may be set to, with its bounds."""
    key = setting.key
    if key.kind is Kind.CHOICE:
        return Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(key.choices)})]
    if key.kind is Kind.PATTERNS:
        pattern = Annotated[str, msgspec.Meta(max_length=PATTERN_CHARS_MAX, extra_json_schema={"format": "regex"})]
        return Annotated[list[pattern], msgspec.Meta(max_length=PATTERNS_MAX)]
    if key.kind is Kind.TYPES:
        rule = Annotated[str, msgspec.Meta(max_length=PATTERN_CHARS_MAX, pattern=TYPE_RULE_PATTERN)]
        return Annotated[list[rule], msgspec.Meta(max_length=PATTERNS_MAX)]
    number, most = (float, DURATION_S_MAX) if key.kind is Kind.DURATION else (int, COUNT_MAX)
    bounds = msgspec.Meta(ge=key.minimum, le=most if key.maximum is None else key.maximum)
    return Annotated[number, bounds] | None if setting.default is None else Annotated[number, bounds]


CrawlChange = msgspec.defstruct(
    "CrawlChange",
    [(setting.field, _type_of(setting) | msgspec.UnsetType, msgspec.UNSET) for setting in CHANGEABLE.values()]
    + [(SEEDS, Annotated[list[WebURL], msgspec.Meta(max_length=SEEDS_MAX)], msgspec.field(default_factory=list))],
    namespace={
        "__doc__": "Which of the crawl's settings to change; those left out stay as they are. A budget of null means "
        "no limit. `seeds` are further URLs to begin from.",
        "HINT": HINT,
    },
    module=__name__,
    forbid_unknown_fields=True,
)


class SettingChange(msgspec.Struct):
    """The value of a setting before and after a change."""

    before: Any
    after: Any


class SettingView(msgspec.Struct):
    """One setting of the crawl. `shown` and `default` are written as a person may type them. `origin` is `default`,
    `given` (when the crawl was started) or `changed` (since then, while it ran)."""

    name: str
    field: str
    help: str
    kind: str
    value: Any
    shown: str
    default: str
    origin: Literal["default", "given", "changed"]
    changeable: bool


class AllSettings(msgspec.Struct):
    """Every setting of the crawl; `version` counts the changes since it was founded."""

    version: int
    settings: list[SettingView]


class SettingsView(msgspec.Struct):
    """The outcome of a change. `version` counts the changes since the crawl was founded; `seeds_added` is how many of
    the seeds were new. `spent` names a changed budget that is spent already, so a crawl that runs stops; empty if none
    is."""

    version: int
    config_hash: str
    changed: dict[str, SettingChange]
    seeds_added: int = 0
    spent: str = ""


class SettingsCalls:
    """The calls about settings. `work_may_have_come` wakes nodes that wait: a wider scope brings work."""

    def __init__(self, dispatcher: Dispatcher, work_may_have_come: Callable[[], None]) -> None:
        self._dispatcher = dispatcher
        self._work_may_have_come = work_may_have_come

    def routes(self) -> list[Route]:
        return [
            Route(
                method="GET",
                path=paths.SETTINGS,
                summary="Every setting of the crawl, its value and where that comes from",
                answer=self.settings,
                permission=Permission.READ,
                gives=AllSettings,
            ),
            Route(
                method="PATCH",
                path=paths.CRAWL,
                summary="Change budgets, delay, scope or pace while the crawl runs",
                answer=self.change,
                permission=Permission.OPERATE,
                takes=CrawlChange,
                gives=SettingsView,
                body_bytes_max=CHANGE_BYTES_MAX,
                writes="crawl.change",
            ),
        ]

    async def settings(self, call: Call, message: None) -> AllSettings:
        saved = await self._dispatcher.engine.get_meta(CONFIG_KEY)
        now = self._dispatcher.config
        founded = msgspec.json.decode(saved, type=CrawlConfig) if saved else now
        return AllSettings(
            self._dispatcher.steering.version, [setting_view(one, founded, now) for one in settings_of("crawl")]
        )

    async def change(self, call: Call, message: Any) -> SettingsView:
        seeds = _canonical(message.seeds)
        values = {field: value for field in FIELDS if (value := getattr(message, field)) is not msgspec.UNSET}
        try:
            before, after = await self._dispatcher.change_settings(values, call.now)
        except ConfigError as wrong:
            raise Refused(422, "invalid", wrong.message, wrong.hint) from wrong
        changed = differences(before, after)
        call.note = msgspec.json.encode({**changed, **({SEEDS: seeds} if seeds else {})}).decode()
        added = await self._add_seeds(seeds, call.now)
        self._work_may_have_come()
        version, spent = self._dispatcher.steering.version, await self._spent(changed, call.now)
        return SettingsView(version, after.config_hash(), changed, added, spent)

    async def _spent(self, changed: Mapping[str, object], now: float) -> str:
        """The budget among these settings that is spent already; empty if none is."""
        dispatcher, totals = self._dispatcher, await self._dispatcher.totals(now)
        spent = dispatcher.budget.exhausted(totals.pages, totals.bytes, dispatcher.elapsed_s)
        return spent if spent and SETTINGS[spent].field in changed else ""

    async def _add_seeds(self, seeds: list[str], now: float) -> int:
        offered = [NewURLs(host, urls, priority_of(0)) for host, urls in by_host(seeds).items()]
        return (await self._dispatcher.enqueue(offered, now)).count(Added.ADDED) if offered else 0


def setting_view(setting: Setting, founded: CrawlConfig, config: CrawlConfig) -> SettingView:
    began, value = getattr(founded, setting.field), getattr(config, setting.field)
    return SettingView(
        setting.name,
        setting.field,
        setting.key.help,
        setting.key.kind.name.lower(),
        value,
        setting.shown(value),
        setting.shown(setting.default),
        "changed" if value != began else "given" if value != setting.default else "default",
        setting.name in CHANGEABLE,
    )


def differences(before: CrawlConfig, after: CrawlConfig) -> dict[str, SettingChange]:
    was, has = msgspec.to_builtins(before), msgspec.to_builtins(after)
    return {field: SettingChange(was[field], has[field]) for field in has if was[field] != has[field]}


def _canonical(hrefs: list[str]) -> list[str]:
    urls = [(href, canonical(href)) for href in hrefs]
    wrong = next((href for href, url in urls if not url), None)
    if wrong is not None:
        hint = "Write it like https://example.com/."
        raise Refused(422, "invalid", f"The seed {wrong[:200]!r} is not a web address.", hint)
    return [url for _, url in urls if url]
