"""Getting bytes from sites: HTTP/1.1 and HTTP/2 over libcurl, decoding, the address guard. Read `http` first.

How it works. `Fetcher` (`http`) drives any number of transfers on one thread with an epoll loop of its own. A
`Transfer` (`transfer`) is one request and its answer. `kept` decides which idle connection may be used again, `budget`
pauses long bodies before they fill the memory, `guard` refuses private addresses, `failures` translates libcurl's
errors, and `decode` undoes Content-Encoding, later and by itself.

Invariants
- The fetcher knows nothing of leases or politeness: its caller must have the right to contact the host. But it sends a
  request at most once, and not after its `send_by`, so what the caller was allowed to do stays true (`transfer`).
- Every way in which a site can fail is one `FailureKind`; no exception of libcurl leaves this package.
- Redirects are not followed and no proxy is used: a request goes to the host that was asked for, and to no other.

Limits: connect and total time, body bytes, header bytes and the least speed are from `FetchLimits`; all bodies under
way together from `budget`.
"""

from drumlin.fetch.http import Fetcher, FetchLimits, default_ca_file, request_target
from drumlin.fetch.transfer import Transfer

__all__ = ["FetchLimits", "Fetcher", "Transfer", "default_ca_file", "request_target"]
