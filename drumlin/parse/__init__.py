"""From bytes to a page: charset, title, description, language, links with their context, main text; and sitemaps.

How it works. `sniff` says what a body is. `parse` brings an HTML page to UTF-8 (not touching it when it is UTF-8
already), lets lexbor build the tree, walks its elements once, and takes the text last, because taking it destroys the
tree: scripts, navigation and the like are cut out and what is left is read. `parse_all` does the same for many pages,
step by step, and is cheaper per page. `parse_sitemap` reads sitemaps, sitemap indexes, lists of URLs and feeds with
regular expressions, so that no XML entity is ever expanded. An href is given as found; resolving it is for
`drumlin.urls`, with `base_href` where there is one; `queries_in` writes their queries in the page's own encoding first.

Encodings are those of the WHATWG standard: `labels` (names), `prescan` (declarations), `decoders` (characters; Python's
codecs, corrected), `encoders` (queries), and `charset`, which decides.

Invariants
- No input raises, recurses in Python or takes longer than a second: not broken markup, NULs, bytes that are no text,
  or 100,000 nested elements.
- The parallel lists of a `ParsedPage` have equal lengths, in the order of the document.
- `text` is valid UTF-8, one line per block (a table's cell and what `<br>` ends are lines too), no empty lines, no runs
  of spaces; but what stands in `<pre>` or `<textarea>` (`drumlin.parse.preformatted`), and a plain text, as it is.

Limits. `PARSE_BYTES_MAX` of a page are read, `TEXT_BYTES_MAX` of its text and `LINKS_MAX` of its links kept. Some HTML
makes any parser's work quadratic (`drumlin.parse.hostile`): such a page is read up to where it begins. At most
`SITEMAP_BYTES_MAX` and `SITEMAP_URLS_MAX` of a sitemap are read, and of a stylesheet only the addresses in it.
A process that parses many pages should call `keep_freed_memory` once: it nearly halves the cost of small ones.
"""

from drumlin.parse.charset import UTF8, to_utf8
from drumlin.parse.encoders import queries_in
from drumlin.parse.language import language_codes
from drumlin.parse.links import ASSET_KINDS, FOLLOWED_KINDS, LINK_TEXT_CHARS_MAX, LINKS_MAX
from drumlin.parse.memory import keep_freed_memory
from drumlin.parse.mime import sniff
from drumlin.parse.page import PARSE_BYTES_MAX, ParsedPage, Source, parse, parse_all
from drumlin.parse.sitemap import (
    SITEMAP_BYTES_MAX,
    SITEMAP_URLS_MAX,
    Sitemap,
    SitemapURL,
    looks_like_sitemap,
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
    "keep_freed_memory",
    "language_codes",
    "looks_like_sitemap",
    "parse",
    "parse_all",
    "parse_sitemap",
    "queries_in",
    "sniff",
    "style_hrefs",
    "to_utf8",
]
