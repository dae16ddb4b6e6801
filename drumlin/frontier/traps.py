"""Trap defence: recognises links into endless generated spaces before they enter the frontier.

Some traps show in a single URL (too deep, too long, a path that repeats itself, a date far in the future). Others show
only in the number of their URLs (a calendar, a filter page, a session id in the path), so `TrapFilter` counts distinct
URLs of the same shape. Counters are kept for the shapes seen last, in two generations of bounded size. While a crawl is
in a trap it sees that trap's shape all the time, so its counter is not forgotten; and memory does not grow with the
crawl.

The limits are generous: losing one real page is worse than fetching some thousand generated ones.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from drumlin.urls import URL_LENGTH_MAX

DEPTH = "depth"
URL_LENGTH = "url_length"
PATH_DEPTH = "path_depth"
PATH_REPETITION = "path_repetition"
QUERY_EXPLOSION = "query_explosion"
CALENDAR = "calendar"
SESSION_ID = "session_id"
SOFT_404 = "soft_404"  # for all links of a page that says it does not exist: see `soft_404`
OUT_OF_SCOPE = "out_of_scope"
NOFOLLOW = "nofollow"  # for a link with rel="nofollow", and for all links of a page that asks for it
LINKS_TOO_LONG = "links_too_long"  # for the last links of a page whose URLs have too many characters together

REASONS = (DEPTH, URL_LENGTH, PATH_DEPTH, PATH_REPETITION, QUERY_EXPLOSION, CALENDAR, SESSION_ID)
REFUSALS = frozenset({*REASONS, SOFT_404, OUT_OF_SCOPE, NOFOLLOW, LINKS_TOO_LONG})
"""Every reason why a node does not tell the frontier of a link."""

CYCLE_SEGMENTS_MAX = 3  # repetitions of runs of up to so many segments are looked for
CYCLE_REPEATS = 3
NUMBER_REPEATS = 5  # /11/11/11/ is a date and /0/0/0 a map tile, so numbers must repeat more often
FEW_PARAMETERS = 2  # ?id=7 and ?forum=2&topic=9 name things; queries of more parameters combine filters
_PATH_OFFSET_MIN = 8  # the earliest place where the path of a URL ("http://h/") can start


class TrapLimits(msgspec.Struct, frozen=True):
    """Up to where links are believed to be real. Every limit is the largest value that is accepted."""

    depth_max: int | None = 1_000
    """How many links away from a seed. Chains of "next page" are long; None leaves depth to the crawl's own limit."""
    url_chars_max: int = URL_LENGTH_MAX
    path_segments_max: int = 30
    parameters_max: int = 24
    queries_per_path_max: int = 10_000
    """Distinct queries of more than `FEW_PARAMETERS` parameters on one path."""
    plain_queries_per_path_max: int = 1_000_000
    """Distinct queries of few parameters on one path: a whole forum may be behind one path."""
    years_future_max: int = 2
    years_past_max: int = 500
    dates_per_shape_max: int = 10_000
    """Distinct dates in otherwise equal URLs: 27 years of days."""
    marked_sessions_max: int = 4
    """Distinct session ids that are named as such (`;jsessionid=`), in otherwise equal URLs."""
    sessions_max: int = 1_000
    """Distinct random tokens in the middle of otherwise equal paths."""
    shapes_max: int = 32_768
    """How many counters each of the two generations holds."""


DEFAULT_LIMITS = TrapLimits()

# Only URLs with a number that could be a year, alone or as the head of YYYYMM or YYYYMMDD, are looked at more closely.
_YEAR = "(?:1[0-9]|2[01])[0-9]{2}"
_MONTH = "(?:0[1-9]|1[0-2])"
_DAY = "(?:0[1-9]|[12][0-9]|3[01])"
_YEAR_LIKE = re.compile(rf"(?<![0-9]){_YEAR}(?:[0-9]{{2}}){{0,2}}(?![0-9])").search
_FULL_DATE = re.compile(rf"(?<![0-9])({_YEAR})([-/_.]){_MONTH}\2{_DAY}(?![0-9])").search
# A date without a day counts only beside one of these words: 2024/5 may as well be two numbers.
_CALENDAR_WORD = re.compile(
    r"(?<![a-z])(?:calendars?|cal|events?|archives?|agenda|schedule|kalender|calendrier|calendario|"
    r"date|day|days|month|months|week|weeks|year|years)(?![a-z])",
    re.IGNORECASE,
).search
_PARTIAL_DATE = re.compile(
    rf"(?<![0-9])({_YEAR})(?:[-/_.](?:0?[1-9]|1[0-2])(?![0-9])(?:[-/_.](?:0?[1-9]|[12][0-9]|3[01])(?![0-9]))?"
    rf"|{_MONTH}(?:{_DAY})?(?![0-9]))"
).search
_YEAR_PARAMETER = re.compile(rf"[?&](?:[a-z_-]*[_-])?(?:year|yr|date|month|y)=({_YEAR})(?![0-9])", re.IGNORECASE).search
_DIGITS = re.compile(r"[0-9]+")

# A session id with its name, or one of ASP.NET in double parentheses.
_MARKED_SESSION = re.compile(
    r"(?<![a-z])(?:j?session_?id|phpsessid|aspsessionid[a-z]*|sid|cfid|cftoken|zenid|oscsid)=[0-9a-z._!-]{8,}"
    r"|/\(s\([0-9a-z]{20,}\)\)",
    re.IGNORECASE,
)
# A random token as long as session ids are, with more path after it. Tokens of 40 characters do not count, since those
# are commits on a git host, nor do tokens with a hyphen, since those are UUIDs or titles.
_TOKEN_SEGMENT = re.compile(
    r"(?<=/)(?=[^/]*[0-9][^/]*[0-9])(?=[^/]*[A-Za-z])(?:[0-9A-Za-z]{24,39}|[0-9A-Za-z]{41,128})(?=/.)"
)
_LONG_WORD = re.compile(r"[0-9A-Za-z]{24}").search


class TrapFilter:
    """Judges new links. Each node has one for its crawl. Losing it does no harm: a new one counts from zero."""

    __slots__ = ("_counters", "_limits")

    def __init__(self, limits: TrapLimits = DEFAULT_LIMITS) -> None:
        self._limits = limits
        self._counters = _DistinctCounters(limits.shapes_max)

    def reject(self, url: str, depth: int, now_year: int) -> str:
        """The name of the reason why `url` looks like a trap, or "" if it does not. `url` must be the identity of a
        canonical URL, so the sessions and campaigns that an identity drops are not counted."""
        limits = self._limits
        if limits.depth_max is not None and depth > limits.depth_max:
            return DEPTH
        if len(url) > limits.url_chars_max:
            return URL_LENGTH
        location, _, query = url.partition("?")
        segments = location.split("/")[3:]
        if len(segments) > limits.path_segments_max:
            return PATH_DEPTH
        if len(set(segments)) < len(segments) - 1 and _repeats_itself(segments):
            return PATH_REPETITION
        start = url.find("/", _PATH_OFFSET_MIN)
        if _YEAR_LIKE(url, start) is not None and self._is_calendar(url[:start], url[start:], now_year):
            return CALENDAR
        if self._is_session(location, start):
            return SESSION_ID
        if query and self._explodes(location, query):
            return QUERY_EXPLOSION
        return ""

    def _explodes(self, location: str, query: str) -> bool:
        limits = self._limits
        parameters = query.count("&") + 1
        if parameters > limits.parameters_max:
            return True
        combined = parameters > FEW_PARAMETERS
        limit = limits.queries_per_path_max if combined else limits.plain_queries_per_path_max
        return self._counters.exceeds(hash((QUERY_EXPLOSION, location, combined)), query, limit)

    def _is_calendar(self, site: str, path: str, now_year: int) -> bool:
        date = _date_in(path)
        if date is None:
            return False
        limits = self._limits
        if date.year > now_year + limits.years_future_max:
            return True
        if date.full and date.year < now_year - limits.years_past_max:
            return True
        return self._counters.exceeds(hash((CALENDAR, site, date.shape)), path, limits.dates_per_shape_max)

    def _is_session(self, location: str, start: int) -> bool:
        if ("=" in location or "(" in location) and _MARKED_SESSION.search(location, start) is not None:
            pattern, limit = _MARKED_SESSION, self._limits.marked_sessions_max
        elif _LONG_WORD(location, start) is not None and _TOKEN_SEGMENT.search(location, start) is not None:
            pattern, limit = _TOKEN_SEGMENT, self._limits.sessions_max
        else:
            return False
        return self._counters.exceeds(hash((SESSION_ID, pattern.sub("", location))), location, limit)


class _DistinctCounters:
    """Counts the distinct members of each key, for the keys used last. Holds only hashes, in two generations: when the
    newer one is full it becomes the older one, and the older one is forgotten."""

    __slots__ = ("_counts", "_counts_old", "_members", "_members_old", "_size_max")

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._counts: dict[int, int] = {}
        self._counts_old: dict[int, int] = {}
        self._members: set[int] = set()
        self._members_old: set[int] = set()

    def exceeds(self, key: int, member: str, limit: int) -> bool:
        """Count `member` under `key`. If there would be more than `limit`, it is not counted and the answer is True."""
        mark = hash((key, member))
        if mark in self._members or mark in self._members_old:
            return False
        # A key that is used again moves into the newer generation, with its count: so a trap is not forgotten.
        count = self._counts.get(key)
        if count is None:
            count = self._counts_old.get(key, 0)
        exceeded = count >= limit
        self._counts[key] = count if exceeded else count + 1
        if not exceeded:
            self._members.add(mark)
        self._rotate()
        return exceeded

    def _rotate(self) -> None:
        if len(self._counts) >= self._size_max:
            self._counts_old, self._counts = self._counts, {}
        if len(self._members) >= self._size_max:
            self._members_old, self._members = self._members, set()


def _repeats_itself(segments: list[str]) -> bool:
    """Whether a segment, a pair or a triple of segments follows itself again and again."""
    return any(_has_cycle(segments, length) for length in range(1, CYCLE_SEGMENTS_MAX + 1))


def _has_cycle(segments: list[str], length: int) -> bool:
    """Whether some run of `length` segments stands `CYCLE_REPEATS` times in a row (numbers: `NUMBER_REPEATS`)."""
    run = 0  # how many segments in a row equal the one `length` before them
    for place in range(length, len(segments)):
        run = run + 1 if segments[place] == segments[place - length] else 0
        repeats = run // length + 1
        if repeats >= CYCLE_REPEATS and (
            repeats >= NUMBER_REPEATS or not all(map(str.isdigit, segments[place - length + 1 : place + 1]))
        ):
            return True
    return False


class _Date(NamedTuple):
    """A date in a path or query. `shape` is the rest of the URL, which all URLs of a calendar have in common."""

    year: int
    full: bool
    shape: str


def _date_in(path: str) -> _Date | None:
    found = _FULL_DATE(path)
    if found is not None:
        return _Date(int(found[1]), True, _without_date(path, found))
    if _CALENDAR_WORD(path) is None:
        return None
    found = _PARTIAL_DATE(path) or _YEAR_PARAMETER(path)
    return None if found is None else _Date(int(found[1]), False, _without_date(path, found))


def _without_date(path: str, date: re.Match[str]) -> str:
    """The shape of a URL with a date. /2024/05/17/title keeps its title: so every article has a shape of its own, and
    never counts as one of too many dates."""
    query = path.find("?")
    if 0 <= query < date.end():
        # Year, month and day may be separate parameters, so all numbers of such a query are taken for parts of a date.
        return path[:query] + _DIGITS.sub("0", path[query:])
    return path[: date.start()] + path[date.end() :]


# Matches a whole title, or a whole part of one, in the languages of most pages.
_NOT_FOUND_TITLE = re.compile(
    r"(?:oops|sorry|whoops)?[!.,… ]*(?:"
    r"(?:(?:http )?status |error |erreur |fehler |errore )?(?:code )?404"
    r"(?: error| page| not found| page not found| \(not found\))?"
    r"|(?:the |this |requested )*(?:page|file|document|content|url)(?: (?:was|could|can))?(?: ?not|n't)(?: be)? found"
    r"|(?:page|file) (?:does not|doesn't) exist|not found|error 404[:,]? (?:page )?not found"
    r"|seite (?:wurde )?nicht gefunden|page (?:non trouvée|introuvable)|página no encontrada|página não encontrada"
    r"|pagina non trovata|pagina niet gevonden|nie znaleziono strony|страница не найдена"
    r"|ページが見つかりません|页面不存在|找不到页面"
    r")[!.… ]*",
    re.IGNORECASE,
).fullmatch
_TITLE_PARTS = re.compile(r"\s*(?:[|·»«•]|\s[-–—:]|: )\s*").split
_NOT_FOUND_TEXT = re.compile(
    rb"404|not (?:be )?found|n[o']t exist|no longer (?:available|exists?)|nicht gefunden|introuvable|non trouv"
    rb"|no encontrada|encontrada|non trovata|niet gevonden|nie znaleziono|"
    + "не найдена|見つかりません|不存在|找不到".encode(),
    re.IGNORECASE,
).search

SOFT_404_TITLE_CHARS_MAX = 200
SOFT_404_TEXT_BYTES_MAX = 3_000  # a page that only says "not found" says little else


def soft_404(title: str, text: bytes, status: int) -> bool:
    """Whether a page that was answered with success says that it does not exist. Title and text must both say so, and
    the page must be short."""
    if not 200 <= status < 300 or len(title) > SOFT_404_TITLE_CHARS_MAX or len(text) > SOFT_404_TEXT_BYTES_MAX:
        return False
    parts = [" ".join(title.split()), *_TITLE_PARTS(title)]
    if not any(_NOT_FOUND_TITLE(part) for part in parts if part):
        return False
    return not text.strip() or _NOT_FOUND_TEXT(text) is not None
