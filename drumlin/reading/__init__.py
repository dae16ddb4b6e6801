"""From a response to what it says: a record of it, what its page says, and the links worth telling the frontier.

How it works. `capture_of` makes a `Capture` of a transfer that has ended. `PageReader` puts into it what parsing has
shown, with every link resolved. `Discovery` picks the links that the frontier should hear of. `drumlin.pipeline` calls
these in order; begin there, and then read `discovery.py`.

Invariants
- Whether a link is told depends on the crawl's scope and depth, on what the page asks of crawlers, and on what was told
  lately. Nothing else decides, and nothing here opens a connection.
- A link that is not told is counted with the reason, once, unless the frontier has heard of it already.
- Forgetting what was told is always safe: the frontier knows its URLs, so telling twice costs time and changes nothing.

Limits. `ToldLinks` remembers up to twice `RECENT_URLS_MAX` links. The parser bounds the number of a page's links and
the resolver their characters; what is left out is counted in `Capture.links_left_out`.
"""

from drumlin.reading.captures import capture_of, redirect_target
from drumlin.reading.discovery import Discovered, Discovery
from drumlin.reading.pages import LINKS_MANY, PageReader, Reading, is_page, source_of

__all__ = [
    "LINKS_MANY",
    "Discovered",
    "Discovery",
    "PageReader",
    "Reading",
    "capture_of",
    "is_page",
    "redirect_target",
    "source_of",
]
