"""From bytes to a page: charset, title, description, language, links with their context, main text; and sitemaps.

How it works. `sniff` says what type a body is. `parse` converts an HTML page to UTF-8 (without a copy if it is UTF-8
already), lets lexbor build the tree, and walks its elements once. It takes the text last, because that destroys the
tree: scripts, navigation and the like are cut out and what is left is read. `parse_all` does the same for many pages,
step by step, which is cheaper per page. `parse_sitemap` reads sitemaps, sitemap indexes, lists of URLs and feeds with
regular expressions, so no XML entity is ever expanded. Hrefs are given as they stand in the page; `queries_in` encodes
their queries as the page's encoding requires, and `drumlin.urls` then resolves them, with `base_href` if there is one.
Read `page` first.

Encodings are those of the WHATWG standard: `labels` (names), `prescan` (declarations), `decoders` (characters; Python's
codecs, corrected), `encoders` (queries), and `charset`, which decides.

Invariants
- No input raises, recurses in Python or takes longer than a second: neither broken markup, NULs, binary data nor
  100,000 nested elements.
- The parallel lists of a `ParsedPage` have equal lengths, in the order of the document.
- `text` is valid UTF-8, one line per block (a table cell is a line too, and `<br>` ends one), without empty lines or
  runs of spaces. The content of `<pre>` or `<textarea>` (`drumlin.parse.preformatted`) and plain text stay as they are.

Limits. `PARSE_BYTES_MAX` of a page are read; `TEXT_BYTES_MAX` of its text and `LINKS_MAX` of its links are kept. Some
HTML makes any parser's work quadratic (`drumlin.parse.hostile`); such a page is cut where that begins. At most
`SITEMAP_BYTES_MAX` and `SITEMAP_URLS_MAX` of a sitemap are read. Of a stylesheet only its addresses are read.
A process that parses many pages should call `keep_freed_memory` once: it nearly halves the cost of small ones.
"""

from drumlin.parse.encoding.charset import UTF8, to_utf8
from drumlin.parse.encoding.encoders import queries_in
from drumlin.parse.language import language_codes
from drumlin.parse.links import ASSET_KINDS, FOLLOWED_KINDS, LINK_TEXT_CHARS_MAX, LINKS_MAX, refresh_url
from drumlin.parse.memory import keep_freed_memory
from drumlin.parse.mime import sniff
from drumlin.parse.page import PARSE_BYTES_MAX, ParsedPage, Source, parse_all
from drumlin.parse.sitemap import (
    SITEMAP_BYTES_MAX,
    SITEMAP_URLS_MAX,
    Sitemap,
    SitemapURL,
    is_gzip,
    looks_like_sitemap,
    may_be_sitemap_type,
    parse_sitemap,
)
from drumlin.parse.style import style_hrefs
from drumlin.parse.text import TEXT_BYTES_MAX

__all__ = [
    "ASSET_KINDS",
    "FOLLOWED_KINDS",
    "LINKS_MAX",
    "LINK_TEXT_CHARS_MAX",
    "PARSE_BYTES_MAX",
    "SITEMAP_BYTES_MAX",
    "SITEMAP_URLS_MAX",
    "TEXT_BYTES_MAX",
    "UTF8",
    "ParsedPage",
    "Sitemap",
    "SitemapURL",
    "Source",
    "is_gzip",
    "keep_freed_memory",
    "language_codes",
    "looks_like_sitemap",
    "may_be_sitemap_type",
    "parse_all",
    "parse_sitemap",
    "queries_in",
    "refresh_url",
    "sniff",
    "style_hrefs",
    "to_utf8",
]
