"""Where each call of the API is, and the names of our own headers.

Paths with a part in braces are templates: the coordinator's routes are made of them, and a client fills in the part
with `.format(node_id=...)`. A value that a person typed (a host, a node's name from a command line) must be
percent-encoded first.
"""

from __future__ import annotations

API = "/api/v1"

# For drumlin's nodes, and nodes that others write
NODES = f"{API}/nodes"
REGISTER = f"{NODES}/register"
NODE = f"{NODES}/{{node_id}}"
WORK = f"{NODE}/work/request"
KNOWN = f"{NODE}/known"
RESULTS = f"{NODE}/results"
HEARTBEAT = f"{NODE}/heartbeat"
FAILED = f"{NODE}/failed"
STATUS = f"{NODE}/status"
BUNDLE = f"{NODE}/bundles/{{bundle_id}}"
BUNDLE_PLACE = f"{BUNDLE}/place"
BUNDLE_ARRIVED = f"{BUNDLE}/arrived"

# For people
CRAWL = f"{API}/crawl"
PAUSE = f"{CRAWL}/pause"
RESUME = f"{CRAWL}/resume"
STOP = f"{CRAWL}/stop"
CHECKPOINT = f"{CRAWL}/checkpoint"
DRAIN = f"{NODE}/drain"
QUARANTINE = f"{NODE}/quarantine"
RELEASE = f"{NODE}/release"
STATS = f"{API}/stats"
WHY_IDLE = f"{API}/why-idle"
HOSTS = f"{API}/hosts"
HOST = f"{HOSTS}/{{host}}"
URLS = f"{API}/urls"
DEAD_LETTERS = f"{API}/dead-letters"
DEAD_LETTER_GROUPS = f"{DEAD_LETTERS}/groups"
RETRY_DEAD_LETTERS = f"{DEAD_LETTERS}/retry"
DROP_DEAD_LETTERS = f"{DEAD_LETTERS}/drop"
AUDIT = f"{API}/audit"
EVENTS = f"{API}/events"
SETTINGS = f"{API}/settings"
PAGE_CODE = f"{API}/page"
HISTORY = f"{API}/history"
CONTENT = f"{API}/content"
SQL = f"{API}/sql"
CAPTURE = f"{API}/captures"
CAPTURE_BODY = f"{CAPTURE}/body"
CAPTURE_RECORD = f"{CAPTURE}/record"
TABLES = f"{API}/tables"
TABLE_FILE = f"{TABLES}/file"
EXPORT = f"{API}/export"
OPENAPI = f"{API}/openapi.json"
METRICS = "/metrics"
HEALTH = "/healthz"
READINESS = "/readyz"

# The dashboard. Its own addresses are relative, so it also works behind a prefix.
PAGE = "/"
PAGE_FILES = "/ui"
SESSION = "/session"
"""Beside the page and not below it: a cookie without a path is sent to where it was set, so a prefix that a proxy adds
need not be known."""

# One URL at a time, for scripts
SINGLE = "/v1"
ENQUEUE = f"{SINGLE}/frontier/enqueue"
REPRIORITIZE = f"{SINGLE}/frontier/reprioritize"
FETCH_NEXT = f"{SINGLE}/fetch/next"
FETCH_RESULT = f"{SINGLE}/fetch/result"
ROBOTS_CACHE = f"{SINGLE}/robots/cache"

SIGNATURE_HEADER = "X-Drumlin-Signature"
"""Proves that a message comes from the node that it names (`access/signing.py`)."""
TIME_HEADER = "X-Drumlin-Time"
"""Coordinators send their time with every answer, in unix ms. A node signs with that time, whatever its own clock
says."""
REQUEST_HEADER = "X-Drumlin-Request"
"""The id of a request, in its answer. The coordinator's log names it wherever the request led to an entry."""
PAGE_HEADER = "X-Drumlin-Page"
"""The dashboard sends this with each change. A page of another site cannot, unless we permit it, and we never do."""
SHA256_HEADER = "X-Drumlin-Sha256"
"""The SHA-256 of a bundle's bytes, in hexadecimal, by which the coordinator knows that all of them arrived."""
