"""URLs: the canonical form, the host and the registrable domain, scope rules, and a fast resolver of links.

Everything behind this package speaks of canonical URLs; a raw string from a page is an `href`.

How it works: ada-url parses by the WHATWG standard; `canonical` then drops credentials, fragment, the root's dot and
the parameters that the table in `rules` names, decodes escapes of unreserved characters, writes the others in upper
case, and sorts the query. `LinkResolver` remembers what hrefs mean per origin and per directory.
Hrefs that no rule can change are recognised by a pattern and never reach the parser.

Invariants (property-tested in tests/unit/test_urls*.py):
- canonical(canonical(x)) == canonical(x), and a WHATWG parser leaves a canonical URL as it is;
- canonical(h, b) == canonical(h, canonical(b)) where the base has a canonical form;
- LinkResolver().resolve(b, [h]) == [canonical(h, b)], whatever was resolved before.

Limits: a canonical URL has at most URL_LENGTH_MAX characters. A host is an address or a name that DNS could hold
(WHATWG also allows "http://{x}/"). Queries are encoded as UTF-8 here; on pages in other encodings
`drumlin.parse.queries_in` comes before.
"""

from drumlin.urls.canonical import HREF_LENGTH_MAX, URL_LENGTH_MAX, canonical, spelled
from drumlin.urls.host import domain_of, host_of, is_host
from drumlin.urls.resolver import LinkResolver
from drumlin.urls.scope import Scope, ScopeMode

__all__ = [
    "HREF_LENGTH_MAX",
    "URL_LENGTH_MAX",
    "LinkResolver",
    "Scope",
    "ScopeMode",
    "canonical",
    "domain_of",
    "host_of",
    "is_host",
    "spelled",
]
