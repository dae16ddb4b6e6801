"""The ids of requests, and what the log says of those that were refused.

Every request has an id, which its answer names too, so the log can be searched for what an answer was about. Most
refusals are ordinary: a node is told to wait, a person mistypes a path. Those are for debugging. A request of somebody
who may not make it is a warning, because a token may have expired or leaked. But strangers must not be able to fill the
log, so of each kind one such request a minute is told, with how many were not.
"""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Iterator
from itertools import count

from drumlin.api.routing import PATH_SHOWN_CHARS, Call
from drumlin.http.refusal import Refused
from drumlin.logs import Event, event

WITHOUT_RIGHT = frozenset({401, 403})
TOLD_EVERY_S = 60.0

log = logging.getLogger("drumlin.coordinator")


def request_ids() -> Iterator[str]:
    """Ids that no other coordinator gives, and no later process of this one."""
    process = secrets.token_hex(3)
    return (f"{process}-{number}" for number in count(1))


class RefusalLog:
    """Writes refusals to the log. `now` must be a time that never goes back."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}
        self._untold: Counter[str] = Counter()

    def note(self, call: Call, refused: Refused, now: float) -> None:
        level = logging.WARNING if self._is_news(refused, now) else logging.DEBUG
        if not log.isEnabledFor(level):
            return
        untold = self._untold.pop(refused.code, 0) if level == logging.WARNING else 0
        others = f" (and {untold} others like it)" if untold else ""
        what = f"{call.method} {call.path[:PATH_SHOWN_CHARS]} from {call.address or 'here'}"
        node = call.parameters.get("node_id", "")[:PATH_SHOWN_CHARS]
        extra = event(Event.REFUSED, node=node, status=refused.status, code=refused.code, address=call.address)
        log.log(level, "refused %s: %s%s", what, refused.message, others, extra=extra)

    def _is_news(self, refused: Refused, now: float) -> bool:
        """Whether this is a request without a right to it, and the first such one for a while."""
        if refused.status not in WITHOUT_RIGHT:
            return False
        if now - self._told.get(refused.code, -TOLD_EVERY_S) < TOLD_EVERY_S:
            self._untold[refused.code] += 1
            return False
        self._told[refused.code] = now
        return True
