"""URLs: canonical form and identity, the host and the registrable domain, scope rules, and a fast resolver of links.

Everything behind this package speaks of canonical URLs; a raw string from a page is an `href`.

How it works. ada-url parses by the WHATWG standard; `canonical` then drops the credentials, the fragment and the dot at
the end of a host. The result is what was linked, and it is what drumlin requests, stores and shows. `identity` decides
which URLs are the same page: it drops the parameters that the table in `rules` names, decodes escapes of unreserved
characters, writes the other escapes in upper case, and sorts the query by name. Of several spellings of a page the
first one found is requested. In a link from another site, the parameters that the identity drops are left out, or that
site could choose a false spelling for everybody (`without_dropped`). `LinkResolver` remembers what hrefs mean, for each
origin and each directory. Hrefs that the parser would not change are recognised by a pattern and skip it.

Read `canonical` first, then `scope` (which URLs a crawl may follow) and `resolver` (speed).

Invariants (property-tested in tests/unit/test_urls*.py):
- canonical(canonical(x)) == canonical(x), and a WHATWG parser leaves a canonical URL as it is;
- identity(identity(u)) == identity(u), and it is a canonical URL of the same host;
- canonical(h, b) == canonical(h, canonical(b)) where the base has a canonical form;
- LinkResolver().resolve(b, [h]) == [canonical(h, b)], whatever was resolved before;
- are_well_spelled([u], [origin_of(u)]) for every canonical URL.

Limits: a canonical URL has at most URL_LENGTH_MAX characters. A host is an address or a name that DNS could hold
(WHATWG also allows "http://{x}/"). Queries are encoded as UTF-8 here; for pages in other encodings
`drumlin.parse.queries_in` must be called first.
"""

from drumlin.urls.canonical import (
    HREF_LENGTH_MAX,
    URL_LENGTH_MAX,
    canonical,
    identities,
    identity,
    is_too_long,
    without_dropped,
)
from drumlin.urls.host import by_host, domain_of, host_of, host_or_nothing, is_host, name_of
from drumlin.urls.resolver import LinkResolver
from drumlin.urls.scope import Scope
from drumlin.urls.spelling import are_well_spelled, meant, origin_of

__all__ = [
    "HREF_LENGTH_MAX",
    "URL_LENGTH_MAX",
    "LinkResolver",
    "Scope",
    "are_well_spelled",
    "by_host",
    "canonical",
    "domain_of",
    "host_of",
    "host_or_nothing",
    "identities",
    "identity",
    "is_host",
    "is_too_long",
    "meant",
    "name_of",
    "origin_of",
    "without_dropped",
]
