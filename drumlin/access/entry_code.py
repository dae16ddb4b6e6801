"""A code that opens the page of a crawl on one machine, once.

The terminal shows it as part of an address, which others may read later: in a browser's history, over a shoulder, in a
screenshot. Since the code works once, they have nothing from it.
"""

from __future__ import annotations

import hmac
import secrets

from drumlin.access.tokens import Identity, Role

CODE_BYTES = 16


class EntryCode:
    """A code that works once. `name` is the name and port of the page; `role` says what its sessions may do."""

    def __init__(self, name: str, role: Role) -> None:
        self.name = name
        self.identity = Identity(role, "local")
        self.text = ""

    def __repr__(self) -> str:
        return f"<EntryCode of {self.name}, {'unused' if self.text else 'used'}>"

    def address(self) -> str:
        """The address of the page with a new code; an earlier one that was not used is void. Browsers do not send what
        stands behind a `#`."""
        self.text = secrets.token_urlsafe(CODE_BYTES)
        return f"http://{self.name}/#code={self.text}"

    def take(self, offered: str) -> bool:
        """Whether this is the code and nobody has used it before."""
        if not self.text or not hmac.compare_digest(offered.encode(), self.text.encode()):
            return False
        self.text = ""
        return True
