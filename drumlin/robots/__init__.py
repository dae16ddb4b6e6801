"""What a site asks of crawlers: robots.txt (RFC 9309), meta robots and X-Robots-Tag. Pure: no clock, no network.

How it works. `parse` (`rules`) reads a robots.txt into `Rules`: groups, delays and sitemaps. That is cheap, since
nothing is prepared for matching yet. `Rules.for_agent` merges the groups of one crawler into a `Matcher` (`match`),
once; `Matcher.allowed(url)` is then called for every URL. `decide` (`policy`) says what the *response* to a request for
robots.txt means (no answer, 403, a redirect too many), and `directives` (`meta`) what a page says about itself.
`PreparedFiles` keeps the files used last, `noted` carries decisions between nodes, `packing` keeps long rules short.
Read `policy` first, then `rules`.

Invariants
- The longest matching rule wins, and allow wins a tie. `/robots.txt` itself is always allowed.
- Path and pattern are compared in one normal form of percent-encoding, so an escape never evades a rule.
- No input makes matching backtrack: a rule costs at most one pass over the URL.
- If the rules are not known (no contact, 5xx, 429, a body cut short), nothing is allowed and the host is asked again.

Limits. A file that is longer than `BODY_BYTES_MAX`, has more than `LINES_MAX` lines, or has more than `KEPT_BYTES_MAX`
or `RULES_MAX` of rules for us, denies everything. Of a line only the first `LINE_BYTES_MAX` are read, and a Crawl-delay
is at most `CRAWL_DELAY_MAX_S`. docs/reference/robots.md has the policy for every ambiguous case.
"""

from drumlin.robots.agent import product_token
from drumlin.robots.match import ROBOTS_PATH, Matcher, Rule
from drumlin.robots.meta import Directives, directives
from drumlin.robots.noted import as_noted, decisions_in, named_sitemaps, sitemaps_in
from drumlin.robots.packing import NOTED_BYTES_MAX
from drumlin.robots.policy import REDIRECTS_MAX, Decision, decide
from drumlin.robots.prepared import PreparedFiles
from drumlin.robots.rules import (
    BODY_BYTES_MAX,
    CRAWL_DELAY_MAX_S,
    KEPT_BYTES_MAX,
    LINE_BYTES_MAX,
    Rules,
    parse,
)

__all__ = [
    "BODY_BYTES_MAX",
    "CRAWL_DELAY_MAX_S",
    "KEPT_BYTES_MAX",
    "LINE_BYTES_MAX",
    "NOTED_BYTES_MAX",
    "REDIRECTS_MAX",
    "ROBOTS_PATH",
    "Decision",
    "Directives",
    "Matcher",
    "PreparedFiles",
    "Rule",
    "Rules",
    "as_noted",
    "decide",
    "decisions_in",
    "directives",
    "named_sitemaps",
    "parse",
    "product_token",
    "sitemaps_in",
]
