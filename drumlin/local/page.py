"""The page of a crawl on one machine, for whoever started it: at a random port of 127.0.0.1, while the crawl lasts.

The port serves the page and the calls of people, and no call of a node. Other users of this machine can reach it too,
so it asks for a session: the address that the terminal shows has a code that opens one, once. Sessions are signed with
a secret of this process and so end with it. The code stands behind a `#`, which browsers do not send: it is in no
log.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable

from drumlin.access.entry_code import EntryCode
from drumlin.access.tokens import SECRET_BYTES, AccessControl, Role
from drumlin.api.app import Adapted, CoordinatorApp
from drumlin.api.listening import listening_on
from drumlin.serving.service import CONNECTIONS_WAITING_MAX, Listen, run_server

LOOPBACK = "127.0.0.1"
ANY_PORT = 0


@contextlib.asynccontextmanager
async def page_served(
    app: CoordinatorApp,
    on_page: Callable[[str], None] | None,
    *,
    role: Role = Role.OPERATOR,
    adapted: Adapted | None = None,
) -> AsyncIterator[None]:
    """Serve the page for as long as the context lasts, and call `on_page` with its address; None: no page. `role` is
    what may be done there. `adapted` is for a crawl that does not run: see `CoordinatorApp.page_door`."""
    if on_page is None:
        yield
        return
    with listening_on(LOOPBACK, ANY_PORT, "", CONNECTIONS_WAITING_MAX) as sockets:
        port = sockets[0].getsockname()[1]
        code = EntryCode(f"{LOOPBACK}:{port}", role)
        door = app.page_door(AccessControl(secrets.token_bytes(SECRET_BYTES)), code, adapted)
        # Drained, so whoever looks still gets the last figures.
        async with run_server(door, Listen(LOOPBACK, port), sockets, app.close, drain=True):
            on_page(code.address())
            yield
