"""What a site asks of crawlers: robots.txt (RFC 9309), meta robots and X-Robots-Tag. Pure: no clock, no network.

How it works. `parse` reads a robots.txt into `Rules`: groups, delays and sitemaps, unmatched and cheap. For one crawler
`Rules.for_agent` merges that crawler's groups into a `Matcher`, once; the hot path is `Matcher.allowed(url)`. What the
*response* to a request for robots.txt means (no answer, 403, a redirect too many) is decided by `decide`; what a page
says about itself by `directives`.

Invariants
- The longest matching rule wins, and allow wins a tie. `/robots.txt` itself is always allowed.
- Path and pattern are compared in one normal form of percent-encoding, so an escape never evades a rule.
- No input makes matching backtrack: a rule costs at most one pass over the URL.
- Whenever the answer is unknown (no contact, 5xx, 429, a body cut short) the answer is "denied, ask again".

Limits. A file longer than `BODY_BYTES_MAX`, of more than `LINES_MAX` lines, or with more than `KEPT_BYTES_MAX` or
`RULES_MAX` of rules for us, denies everything. Of a
line at most `LINE_BYTES_MAX` are read, and a Crawl-delay counts for at most `CRAWL_DELAY_MAX_S`.
docs/reference/robots.md has the policy for every ambiguous case.
"""

from drumlin.robots.agent import product_token
from drumlin.robots.match import Matcher, Rule
from drumlin.robots.meta import Directives, directives
from drumlin.robots.policy import REDIRECTS_MAX, Decision, Policy, decide
from drumlin.robots.prepared import PreparedFiles
from drumlin.robots.rules import (
    BODY_BYTES_MAX,
    CRAWL_DELAY_MAX_S,
    KEPT_BYTES_MAX,
    LINE_BYTES_MAX,
    Rules,
    condensed,
    parse,
)

__all__ = [
    "BODY_BYTES_MAX",
    "CRAWL_DELAY_MAX_S",
    "KEPT_BYTES_MAX",
    "LINE_BYTES_MAX",
    "REDIRECTS_MAX",
    "Decision",
    "Directives",
    "Matcher",
    "Policy",
    "PreparedFiles",
    "Rule",
    "Rules",
    "condensed",
    "decide",
    "directives",
    "parse",
    "product_token",
]
