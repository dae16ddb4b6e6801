"""Sessions that were logged out of before their time, for as long as they would have lasted.

To forget one would make it valid again, for whoever has a copy of its cookie. So they are bounded for each token, and
never by forgetting: if more than `ENDED_EACH_MAX` of a token were ended, all its sessions that last no longer than the
earliest of these are over, also those that nobody has ended. Whoever has one of them logs in again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

ENDED_EACH_MAX = 100
KEY_PREFIX = "session/"


class Ended(NamedTuple):
    """A session of a token that is over, by its MAC, and when it would have ended by itself. Without a MAC: all of the
    token's that end by then."""

    token_id: str
    ends: int
    mac: str

    @property
    def key(self) -> str:
        """Its key in the engine. All that is known stands in it, so two coordinators never overwrite each other."""
        return f"{KEY_PREFIX}{self.token_id}/{self.ends}/{self.mac}"


class EndedSessions:
    """The sessions that are over before their time."""

    def __init__(self) -> None:
        self.known: frozenset[Ended] = frozenset()
        self._all_until: dict[str, int] = {}

    def __contains__(self, session: Ended) -> bool:
        return session in self.known or session.ends <= self._all_until.get(session.token_id, 0)

    def add(self, ended: Iterable[Ended], now: float = 0.0) -> None:
        """Note further ones, and drop those that would have ended by themselves by now."""
        of_tokens: dict[str, list[Ended]] = defaultdict(list)
        for one in self.known.union(ended):
            if one.ends > now:
                of_tokens[one.token_id].append(one)
        self.known = frozenset(chain.from_iterable(map(_bounded, of_tokens.values())))
        self._all_until = {one.token_id: one.ends for one in self.known if not one.mac}


def _bounded(ended: list[Ended]) -> list[Ended]:
    """The same of one token, or more, in few entries."""
    until = max((one.ends for one in ended if not one.mac), default=0)
    single = sorted((one for one in ended if one.mac), key=lambda one: one.ends, reverse=True)
    if len(single) > ENDED_EACH_MAX:
        until = max(until, single[ENDED_EACH_MAX].ends)
    kept = [one for one in single if one.ends > until]
    return [*kept, Ended(ended[0].token_id, until, "")] if until else kept


def ended_in(keys: Iterable[str]) -> frozenset[Ended]:
    """The sessions that are over by these keys of the engine; others among them mean something else."""
    parts = (key.removeprefix(KEY_PREFIX).split("/") for key in keys if key.startswith(KEY_PREFIX))
    return frozenset(Ended(one[0], int(one[1]), one[2]) for one in parts if len(one) == len(Ended._fields))
