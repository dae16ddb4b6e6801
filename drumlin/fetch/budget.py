"""How many bytes all bodies under way may hold together. Without this limit, somebody with hundreds of hosts could fill
the memory with hundreds of bodies, each as long as one may be.

The first `BODY_BYTES_FREE` of each body do not count, so ordinary pages are never delayed. The bytes beyond them count,
and so do bodies that have arrived and wait to be read (`held_beside`). When the budget is used up, libcurl is told to
pause the transfer, which makes the sender stop. One body always goes on, the one that was first to become long: else
all could wait for each other for ever. A pause may last `PAUSED_S_MAX`; the transfer's own time limit does not run
during it, and begins anew afterwards.
"""

from __future__ import annotations

from collections.abc import Callable

import pycurl

from drumlin.fetch.transfer import Transfer

BODIES_BYTES_MAX = 256 * 1024 * 1024
"""How much long bodies may hold together. The body that always goes on may exceed it by its own size."""
BODY_BYTES_FREE = 256 * 1024
"""The part of each body that is not counted: nearly every page is shorter."""
PIECE_BYTES_MAX = 64 * 1024
"""The most that libcurl hands over in one call."""
PAUSED_S_MAX = 600.0


class BodyBudget:
    """Counts the bytes of long bodies, pauses transfers, and lets them go on."""

    def __init__(self, bytes_max: int, timeout_s: float) -> None:
        self.held_beside: Callable[[], int] = int
        """How many bytes of bodies have arrived and wait to be read. They count as well."""
        self._bytes_max = bytes_max
        self._timeout_s = timeout_s
        self._long: dict[Transfer, int] = {}
        self._bytes = 0
        self._refused: list[Transfer] = []
        self._paused: dict[Transfer, None] = {}

    def taker(self, transfer: Transfer) -> Callable[[bytes], int]:
        """The function to which libcurl gives the pieces of this transfer's body."""
        body = transfer.body
        write, tell = body.write, body.tell

        def take(piece: bytes) -> int:
            if tell() + len(piece) > BODY_BYTES_FREE and not self._admits(transfer, len(piece)):
                self._refused.append(transfer)
                return int(pycurl.WRITEFUNC_PAUSE)
            return write(piece)

        return take

    def _admits(self, transfer: Transfer, more: int) -> bool:
        first = next(iter(self._long), transfer)
        if transfer is not first and not self._has_room(more):
            return False
        self._long[transfer] = self._long.get(transfer, 0) + more
        self._bytes += more
        return True

    def _has_room(self, more: int) -> bool:
        return self._bytes + self.held_beside() + more <= self._bytes_max

    def ended(self, transfer: Transfer) -> None:
        """Give back what a transfer held, whether it succeeded or failed."""
        self._bytes -= self._long.pop(transfer, 0)
        self._paused.pop(transfer, None)
        if transfer in self._refused:
            self._refused.remove(transfer)

    def step(self, now: float) -> None:
        """Extend the time limits of transfers that were just paused, and let others go on if there is room now. Must
        not be called within a callback of libcurl, where the options of a transfer may not be changed."""
        for transfer in self._refused:
            self._paused[transfer] = None
            self._allow_s(transfer, now - transfer.started + PAUSED_S_MAX)
        self._refused.clear()
        for transfer in list(self._paused):
            if transfer is not next(iter(self._long), transfer) and not self._has_room(PIECE_BYTES_MAX):
                continue
            self._paused.pop(transfer, None)
            self._allow_s(transfer, now - transfer.started + self._timeout_s)
            transfer.curl.pause(pycurl.PAUSE_CONT)

    def _allow_s(self, transfer: Transfer, seconds: float) -> None:
        transfer.curl.setopt(pycurl.TIMEOUT_MS, int(seconds * 1000))
        transfer.own_timeout = True
