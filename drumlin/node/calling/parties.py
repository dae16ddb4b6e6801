"""Who talks: the coordinators that a node knows, and how the node proves to them who it is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from drumlin.protocol import Registered


class Credentials(msgspec.Struct):
    """How a node proves who it is: the token to join with, and the token and key that it got when it registered."""

    join_token: str = ""
    token: str = ""
    key: bytes = b""

    def __repr__(self) -> str:
        """Which secrets there are, without them."""
        return f"Credentials(join_token={bool(self.join_token)}, token={bool(self.token)}, key={bool(self.key)})"

    def granted(self, registered: Registered) -> None:
        self.token = registered.token or ""
        self.key = bytes.fromhex(registered.key or "")


class Coordinators:
    """The coordinators that a node knows, and the one that it talks to until that one fails."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.endpoints = list(endpoints)
        self.current = 0

    @property
    def endpoint(self) -> str:
        """The address of the one that is talked to now."""
        return self.endpoints[self.current]

    @property
    def several(self) -> bool:
        return len(self.endpoints) > 1

    def avoid(self, place: int) -> None:
        """Talk to the next one from now on, unless another call has changed to it already."""
        if place == self.current:
            self.current = (place + 1) % len(self.endpoints)
