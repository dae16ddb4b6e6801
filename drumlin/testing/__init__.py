"""A fake web on loopback, for `drumlin demo` and for tests of programs that crawl.

    from drumlin.testing import FakeWeb, Response

    with FakeWeb() as web:                      # the bundled web: about thirty hosts full of surprises
        crawl(web.seeds)
        assert web.expected.fetched <= web.requested
        assert not web.expected.never & web.requested

    with FakeWeb(hosts=0) as web:               # an empty web, to script
        web.page("shop", "/", '<a href="/cart">cart</a>')
        web.respond("shop", "/cart", Response(status=503, headers={"Retry-After": "1"}))
        web.respond("shop", "/item/*", lambda request: Response(body=f"item {request.path}, visit {request.number}"))
        crawl([web.url("shop", "/")])
        assert web.min_gap("shop") >= 1.0

How it works. A host has a name for people and an address of its own in 127.0.0.0/8 for crawlers; all listen on the same
port. One thread with an asyncio loop answers (`scripted`). `sites` fills the bundled web. It has one function for each
host, which also says what a correct crawler does with that host: this becomes `web.expected`.

Invariants
- Every request is logged, with its time, before it is answered.
- The same seed gives the same pages; only the port differs from run to run.
- Leaving the `with` block ends the thread and closes every socket.

Limits. HTTP/1.1 over plain TCP; requests without bodies; heads of up to `HEAD_BYTES_MAX`; the last `REQUESTS_MAX`
requests are kept. This web answers a few thousand requests a second; `bench.web` is a faster one.
"""

from drumlin.testing.expectations import DEMO_OPTIONS, Expected
from drumlin.testing.fakeweb import FakeWeb
from drumlin.testing.messages import HEAD_BYTES_MAX, Ending, Request, Response
from drumlin.testing.scripted import REQUESTS_MAX, LoggedRequest

__all__ = [
    "DEMO_OPTIONS",
    "HEAD_BYTES_MAX",
    "REQUESTS_MAX",
    "Ending",
    "Expected",
    "FakeWeb",
    "LoggedRequest",
    "Request",
    "Response",
]
