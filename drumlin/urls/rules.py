"""The table of query and path parameters that say nothing about the page, and how it is applied.

Names are matched without regard to case. Adding a name here changes the identity of URLs, so a crawl must be resumed
with the rules it was started with: otherwise the frontier would not recognise pages that it has seen.
"""

from __future__ import annotations

import re

# Names that begin like this are campaign tags of analytics programs (Google and those who copied it; Matomo).
TRACKING_PREFIXES = ("utm_", "mtm_")

# Names that identify a click, a mailing or a visitor, never a page.
TRACKING_NAMES = (
    *("gclid", "gclsrc", "dclid", "gbraid", "wbraid", "srsltid", "_ga", "_gl"),  # Google
    *("fbclid", "igshid", "igsh"),  # Facebook, Instagram
    *("msclkid", "twclid", "ttclid", "li_fat_id", "epik"),  # Microsoft, Twitter, TikTok, LinkedIn, Pinterest
    *("yclid", "ysclid", "_openstat"),  # Yandex
    *("mc_cid", "mc_eid", "mkt_tok", "vero_id", "vero_conv", "oly_anon_id", "oly_enc_id"),  # mailings
    *("_hsenc", "_hsmi", "__hssc", "__hstc", "__hsfp", "hsctatracking"),  # HubSpot
    *("pk_campaign", "pk_kwd", "piwik_campaign", "piwik_kwd"),  # Matomo's older names
)

# Names that never carry anything but a session: PHP, Java, ColdFusion, osCommerce, Zen Cart.
SESSION_NAMES = ("phpsessid", "jsessionid", "cfid", "cftoken", "oscsid", "zenid")

# ASP names its session parameter by this prefix and eight random letters.
SESSION_PREFIXES = ("aspsessionid",)

# Names that often carry a session and often something else: dropped only if the value looks like a session id.
MAYBE_SESSION_NAMES = ("sid", "sess", "sessid", "sessionid", "session", "session_id")

# What a session id looks like: long, one word, digits and letters mixed. "sid=42" and "session=morning" are content.
SESSION_VALUE = re.compile(r"(?=.*[0-9])(?=.*[A-Za-z])[0-9A-Za-z,_-]{16,128}").fullmatch

# Java servers append the session to a path segment: "/shop/cart;jsessionid=1A2B?x=1".
SESSION_PATH_NAMES = ("jsessionid", "phpsessid")

_DROPPED_NAMES = frozenset(TRACKING_NAMES + SESSION_NAMES)
_DROPPED_PREFIXES = TRACKING_PREFIXES + SESSION_PREFIXES
_MAYBE_SESSION_NAMES = frozenset(MAYBE_SESSION_NAMES)

# Not after a dot: the rest could be the segment "." or "..", which would be another path. A run of parameters is
# removed as a whole, so applying this twice changes nothing more.
_PATH_PARAMETERS = re.compile(rf"(?<!\.)(?:;(?:{'|'.join(SESSION_PATH_NAMES)})=[^/;]*)+", re.IGNORECASE)


def is_dropped(parameter: str) -> bool:
    """Whether one "name=value" (or "name") of a query says nothing about the page."""
    name, _, value = parameter.partition("=")
    name = name.lower()
    if name in _DROPPED_NAMES or name.startswith(_DROPPED_PREFIXES):
        return True
    return name in _MAYBE_SESSION_NAMES and SESSION_VALUE(value) is not None


def without_session(path: str) -> str:
    """The path without the session that a server wrote into its segments."""
    return _PATH_PARAMETERS.sub("", path)
