"""How much may be said at once, and in what characters.

Both sides keep to these: a coordinator refuses what is beyond them, and a node cuts its messages before. The types are
those of fields that strangers fill in; decoding checks them.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from drumlin.model import PRIORITY_MAX, PRIORITY_MIN

BODY_BYTES_MAX = 64 * 1024 * 1024
URL_CHARS_MAX = 8_200
"""Slightly more than a canonical URL may have. A full list of such long links would exceed `BODY_BYTES_MAX`, so nodes
send fewer."""
RESULTS_MAX = 5_000
LINKS_MAX = 20_000
LINKS_BATCH_MAX = 120_000
"""Links of all results of a batch. A node closes a parcel at half of this, and no page has more than the other half."""
LINK_CHARS_MIN = len("http://a/")
HOSTS_MAX = 10_000
HOST_REPORTS_MAX = 2_500
SITEMAPS_MAX = 100
SITEMAPS_ELSEWHERE_MAX = 100
"""How many out-of-scope sitemaps a host may name, and how many out-of-scope parts one of them may list. Each means a
request to a site that is not being crawled, only because that host said so."""
RENEWALS_MAX = 10_000
VISITS_MAX = 16
NOTE_BYTES_MAX = (2 << 20) + (1 << 16)
"""Room for the robots rules of both schemes of a host, up to a MiB each."""
SKETCH_BYTES_MAX = 128
NODE_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
"""What a node may be called. Its files and leases carry the name, so it has no slash, colon or plus."""
NODE_ID_PATTERN = rf"^{NODE_NAME}\Z"

BASE64 = {"pattern": "^(?:[A-Za-z0-9+/]{4})*$"}
NodeId = Annotated[str, msgspec.Meta(pattern=NODE_ID_PATTERN)]
URLText = Annotated[str, msgspec.Meta(max_length=URL_CHARS_MAX)]
LinkText = Annotated[str, msgspec.Meta(min_length=LINK_CHARS_MIN, max_length=URL_CHARS_MAX)]
"""A canonical URL has a scheme and a host. The minimum keeps a body from holding millions of tiny strings."""
HostText = Annotated[str, msgspec.Meta(max_length=300)]
ShortText = Annotated[str, msgspec.Meta(max_length=1_000)]
MetadataText = Annotated[str, msgspec.Meta(max_length=255)]
"""Long enough for a host name, and short because each listing of the nodes reads the metadata of all of them."""
LeaseId = Annotated[str, msgspec.Meta(max_length=300)]
TraceParent = Annotated[str, msgspec.Meta(max_length=55, pattern=r"^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\Z")]
"""A W3C `traceparent`: `00-TRACE-SPAN-FLAGS`, all in lower-case hexadecimal."""
Sponsor = tuple[LeaseId, HostText]
"""The lease, and its host, for whose sake a node visits another host."""
Priority = Annotated[int, msgspec.Meta(ge=PRIORITY_MIN, le=PRIORITY_MAX)]
COUNT_MAX = 1 << 50
"""Small enough that the sum over ten thousand nodes still fits into the 64 bits of a MessagePack integer."""
Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]
LATEST_BOOT = COUNT_MAX
"""Stands for the latest process of a node, whichever that is."""
RECORD_ID_CHARACTER = "[A-Za-z0-9:._-]"
RECORD_ID_CHARS_MAX = 200
RecordId = Annotated[str, msgspec.Meta(pattern=rf"^{RECORD_ID_CHARACTER}{{0,{RECORD_ID_CHARS_MAX}}}\Z")]
"""Other nodes write it into headers of their own WARC records, so it must not contain anything that starts a new
header."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e10)]
