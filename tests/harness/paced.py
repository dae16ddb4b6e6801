"""Asking many hosts for pages with a fetcher, each at its own pace, and counting what was asked in vain."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from drumlin.clock import monotonic
from drumlin.fetch import Fetcher, FetchLimits, Transfer
from drumlin.fetch.guard import Guard

LIMITS = FetchLimits(5.0, 5.0, 1_000_000, 0, 60)
APART_S = 0.013


class Contacts(NamedTuple):
    """How many requests were sent, how many got no answer, and over which protocols the others came."""

    sent: int
    wasted: int
    protocols: set[str]


def ask(origins: list[str], delay_s: float, pages: int, ca_file: str = "") -> Contacts:
    """Ask each origin for so many pages, one after the other and a delay apart; what is lost is asked for again."""
    fetcher = Fetcher(LIMITS, user_agent="test", guard=Guard(allow_private=True), ca_file=ca_file)
    due = [(monotonic() + place * APART_S, place) for place in range(len(origins))]
    left = [pages] * len(origins)
    ended: list[str] = []

    def arrived(transfer: Transfer) -> None:
        (place,) = transfer.context
        ended.append("" if transfer.failure else transfer.protocol)
        left[place] -= not transfer.failure
        if left[place]:
            heapq.heappush(due, (transfer.first_byte + delay_s, place))

    while any(left) and len(ended) < 2 * pages * len(origins):
        while due and due[0][0] <= monotonic():
            place = heapq.heappop(due)[1]
            fetcher.start(f"{origins[place]}/{left[place]}.html", arrived, (place,))
        fetcher.run_once(max(0.0, due[0][0] - monotonic()) if due else 1.0)
    fetcher.close()
    return Contacts(len(ended), ended.count(""), {protocol for protocol in ended if protocol})
