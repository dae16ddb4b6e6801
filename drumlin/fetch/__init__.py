"""Getting bytes from sites: HTTP/1.1 and HTTP/2 over libcurl, decoding, the address guard.

`Fetcher` drives any number of transfers on one thread with an epoll loop of its own. It knows nothing of leases or
politeness: whoever starts a transfer has the right to contact that host. Every way a site can fail comes back as one
`FailureKind`; no exception of libcurl leaves this package.

Limits: connect and total time, body bytes, header bytes, slow-drip speed, all from `FetchLimits`.
"""

from drumlin.fetch.http import Fetcher, FetchLimits, default_ca_file, request_target
from drumlin.fetch.transfer import Transfer

__all__ = ["FetchLimits", "Fetcher", "Transfer", "default_ca_file", "request_target"]
