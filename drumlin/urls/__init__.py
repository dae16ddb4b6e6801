"""URLs: canonical form and identity, the host and the registrable domain, scope rules, and a fast resolver of links.

Everything behind this package speaks of canonical URLs; a raw string from a page is an `href`.

How it works: ada-url parses by the WHATWG standard; `canonical` then drops credentials, fragment and the root's dot.
What is left is what was linked, and what is asked, stored and shown. `identity` decides which URLs are the same page:
it drops the parameters that the table in `rules` names, decodes escapes of unreserved characters, writes the others in
upper case, and sorts the query by name. The first spelling that is found of a page is the one that is asked.
`LinkResolver` remembers what hrefs mean per origin and per directory.
Hrefs that no rule can change are recognised by a pattern and never reach the parser.

Invariants (property-tested in tests/unit/test_urls*.py):
- canonical(canonical(x)) == canonical(x), and a WHATWG parser leaves a canonical URL as it is;
- identity(identity(u)) == identity(u), and it is a canonical URL of the same host;
- canonical(h, b) == canonical(h, canonical(b)) where the base has a canonical form;
- LinkResolver().resolve(b, [h]) == [canonical(h, b)], whatever was resolved before.

Limits: a canonical URL has at most URL_LENGTH_MAX characters. A host is an address or a name that DNS could hold
(WHATWG also allows "http://{x}/"). Queries are encoded as UTF-8 here; on pages in other encodings
`drumlin.parse.queries_in` comes before.
"""

from drumlin.urls.canonical import HREF_LENGTH_MAX, URL_LENGTH_MAX, canonical, identities, identity, is_too_long
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
    "identities",
    "identity",
    "is_host",
    "is_too_long",
]
