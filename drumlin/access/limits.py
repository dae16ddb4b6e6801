"""How much one sender may ask of a coordinator, and when its conduct ends in quarantine.

Each subject (a node, a worker, a person's token) has a bucket of requests that refills at a steady rate. A subject
whose bucket is empty is refused with 429 and told when to come back. One that does not wait, or does what no honest
node does (`misdeeds.py`), collects points. Points fade, and too many of them mean quarantine.

The rates are well above what a busy node of drumlin needs. It asks for work every 50 ms, sends results and asks for
known contents every 20 ms and beats twice a second: about 125 requests a second, with bursts when a coordinator comes
back after an outage.

Each coordinator judges only the requests that it sees itself. Memory is bounded: the subjects that were seen least
recently are forgotten first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import msgspec

from drumlin.access.misdeeds import Misdeed
from drumlin.http.refusal import Refused
from drumlin.protocol import paths
from drumlin.protocol.refusals import RefusalCode

RELEASE_HINT = f"An operator can release it: POST {paths.RELEASE.format(node_id='{id}')}."
SUBJECTS_MAX = 20_000
REQUESTS_PER_S = 400.0
"""The lasting rate of one subject: three times what the busiest honest node asks."""
RELEASED_WITHIN_S = 10.0
"""How long a node in quarantine is told to wait before it asks again, so it notices its release within this time."""
RETRY_AFTER_S_MIN = 1.0
"""Retry-After counts in whole seconds; after one, hundreds of requests are possible again."""
REQUESTS_BURST = 2_000.0
"""How many requests may come at once after a pause: after an outage a node sends all its waiting results."""

POINTS_MAX = 100.0
"""A subject with this many points is put into quarantine."""
POINTS_HALF_LIFE_S = 60.0
POINTS_TOO_FAST = 0.5
"""For each request while the bucket is empty. A sender that waits each time as it is told never reaches half of
`POINTS_MAX`, because points fade."""
POINTS_FOREIGN = 1.0
"""For each result of a lease or URL that the sender was never given."""
POINTS_FOREIGN_CALL_MAX = 25.0
"""One call alone never leads to quarantine, so a bug on our side shows in the logs before it puts nodes out."""
POINTS_LIE = 25.0
"""For each call that does what no honest node does: the fourth within a few seconds means quarantine."""
POINTS_LATE = 5.0
"""For each batch while far more of the sender's results are late than count."""

LATE_GRACE = 20_000
"""How many late results are always forgiven: a node that was frozen or cut off sends everything that waited."""
LATE_PER_SETTLED = 4.0
COUNTS_HALF_LIFE_S = 600.0

QUARANTINE_S = 600.0
REASONS = {
    Misdeed.MADE_UP: "returned or renewed what it was never given",
    Misdeed.FOREIGN_HOST: "spoke for hosts that it does not hold",
    Misdeed.FOREIGN_LINKS: "sent links that are out of scope or not canonical",
    Misdeed.MALFORMED: "sent results that make no sense",
    Misdeed.BAD_BUNDLE: "sent bundles that no node makes",
    Misdeed.FOREIGN_URL: "wanted URLs queued that are out of scope",
}


class Conduct(msgspec.Struct):
    """What is remembered of one subject."""

    tokens: float
    updated: float
    points: float = 0.0
    settled: float = 0.0
    late: float = 0.0
    quarantined_until: float = 0.0
    reason: str = ""
    refused: int = 0
    """How many requests came while the bucket was empty."""
    misdeeds: dict[str, int] = {}


class Limits:
    """Judges subjects. Every method takes `now`, which must not run backwards by much."""

    def __init__(
        self,
        *,
        requests_per_s: float = REQUESTS_PER_S,
        burst: float = REQUESTS_BURST,
        subjects_max: int = SUBJECTS_MAX,
        quarantine_s: float = QUARANTINE_S,
    ) -> None:
        self._rate = requests_per_s
        self._burst = burst
        self._subjects_max = subjects_max
        self._quarantine_s = quarantine_s
        self._conducts: OrderedDict[str, Conduct] = OrderedDict()

    def __len__(self) -> int:
        return len(self._conducts)

    # Requests

    def admit(self, subject: str, now: float, *, cost: float = 1.0) -> None:
        """Let a request pass, or raise `Refused` 429 with the time to wait."""
        conduct = self._conduct(subject, now)
        self._refuse_quarantined(conduct, now)
        if conduct.tokens >= cost:
            conduct.tokens -= cost
            return
        conduct.refused += 1
        self._add_points(conduct, POINTS_TOO_FAST, "asked too fast, and went on when told to wait", now)
        self._refuse_quarantined(conduct, now)
        wait_s = max(RETRY_AFTER_S_MIN, (cost - conduct.tokens) / self._rate)
        message = f"More than {self._rate:.0f} requests a second is too fast."
        raise Refused(429, "too_fast", message, "Wait as Retry-After says.", retry_after_s=wait_s)

    def _refuse_quarantined(self, conduct: Conduct, now: float) -> None:
        if conduct.quarantined_until > now:
            wait_s = min(conduct.quarantined_until - now, RELEASED_WITHIN_S)
            raise Refused(
                429, RefusalCode.QUARANTINED, f"In quarantine: {conduct.reason}.", RELEASE_HINT, retry_after_s=wait_s
            )

    # Conduct

    def reported(self, subject: str, now: float, *, settled: int = 0, late: int = 0, foreign: int = 0) -> None:
        """Judge a batch of results by how many of them counted, now or earlier (`settled`), how many were of leases
        that the sender had lost (`late`), and how many of leases or URLs that it was never given (`foreign`)."""
        conduct = self._conduct(subject, now)
        conduct.settled += settled
        conduct.late += late
        if late and conduct.late > LATE_GRACE + LATE_PER_SETTLED * conduct.settled:
            self._add_points(conduct, POINTS_LATE, "nearly all of its results came too late", now)
        if foreign:
            points = min(POINTS_FOREIGN_CALL_MAX, POINTS_FOREIGN * foreign)
            self._add_points(conduct, points, "returned results of work that it never had", now)

    def lied(self, subject: str, now: float, misdeeds: Mapping[Misdeed, int]) -> None:
        """The subject did, in one call, what no honest node does."""
        conduct = self._conduct(subject, now)
        for misdeed, count in misdeeds.items():
            conduct.misdeeds[misdeed] = conduct.misdeeds.get(misdeed, 0) + count
            grave = misdeed is not Misdeed.FOREIGN_URL
            points = POINTS_LIE if grave else min(POINTS_FOREIGN_CALL_MAX, POINTS_FOREIGN * count)
            self._add_points(conduct, points, REASONS[misdeed], now)

    def charge(self, subject: str) -> str:
        """Why a subject is in quarantine, with numbers, for the audit log."""
        conduct = self._conducts.get(subject)
        if conduct is None:
            return ""
        counts = conduct.misdeeds | ({str(Misdeed.FLOOD): conduct.refused} if conduct.refused else {})
        told = ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
        return f"{conduct.reason} ({told})" if told else conduct.reason

    # Quarantine

    def release(self, subject: str) -> None:
        """Forget everything held against a subject."""
        self._conducts.pop(subject, None)

    def _add_points(self, conduct: Conduct, points: float, reason: str, now: float) -> None:
        conduct.points += points
        if conduct.points >= POINTS_MAX and conduct.quarantined_until <= now:
            conduct.quarantined_until, conduct.reason = now + self._quarantine_s, reason
            # After the quarantine the subject starts with a clean slate.
            conduct.points = 0.0

    def _conduct(self, subject: str, now: float) -> Conduct:
        """What is remembered of the subject, brought up to `now`."""
        conduct = self._conducts.get(subject)
        if conduct is None:
            conduct = self._conducts[subject] = Conduct(self._burst, now)
            if len(self._conducts) > self._subjects_max:
                self._conducts.popitem(last=False)
            return conduct
        self._conducts.move_to_end(subject)
        passed_s = now - conduct.updated
        if passed_s > 0:
            conduct.updated = now
            conduct.tokens = min(self._burst, conduct.tokens + passed_s * self._rate)
            if conduct.points:
                conduct.points *= 0.5 ** (passed_s / POINTS_HALF_LIFE_S)
            fading = 0.5 ** (passed_s / COUNTS_HALF_LIFE_S)
            conduct.settled *= fading
            conduct.late *= fading
        return conduct
