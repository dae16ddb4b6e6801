"""When to ask for leases, and when to have them renewed. One call of each kind is under way at most."""

from __future__ import annotations

from drumlin.contact.actions import AskWork, Renew
from drumlin.contact.desk import Desk
from drumlin.contact.hosts import HostWork
from drumlin.contact.terms import Moment

HOSTS_MAX = 8_192
HOSTS_PER_REQUEST = 128
TASKS_LOW = 3
SOON_S = 0.2
RENEW_SCAN_S = 1.0
NEVER = float("inf")


class Leases:
    """Which calls about leases are due."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._asking = False
        self._ask_at = 0.0
        self._renewing: list[HostWork] = []
        self._to_renew: dict[str, HostWork] = {}
        self._renew_at = 0.0
        self._scan_at = 0.0

    @property
    def asking(self) -> bool:
        """Whether a call for hosts is under way."""
        return self._asking

    def ask_due(self, room: int, now: float) -> float:
        """When to ask for further hosts, if there is `room` for contacts: never while hosts that can be contacted soon
        fill it, since the next tick is due with the first of them."""
        if self._asking or (self._ask_at <= now and self._lacks(room, now) <= 0):
            return NEVER
        return self._ask_at

    def _lacks(self, room: int, now: float) -> int:
        """How many further hosts there is room for, besides those that can be contacted soon."""
        hosts = self._desk.hosts
        return room - hosts.due_within(now + SOON_S) if len(hosts) < HOSTS_MAX else 0

    def ask(self, room: int, now: Moment) -> None:
        """Ask for hosts if there is room for more than those that can be contacted soon."""
        if self._asking or now.boot < self._ask_at or room <= 0:
            return
        lacking = self._lacks(room, now.boot)
        if lacking > 0:
            self._asking = True
            self._desk.actions.append(AskWork(min(lacking, HOSTS_PER_REQUEST)))

    def asked(self, again_s: float, now: Moment) -> None:
        """A call for hosts has ended."""
        self._asking = False
        self._ask_at = now.boot + again_s

    def scan(self, now: Moment) -> list[HostWork]:
        """Look once a second for leases that run out. Those that have run out are returned."""
        if now.boot < self._scan_at:
            return []
        self._scan_at = now.boot + RENEW_SCAN_S
        given_back = self._desk.given_back
        for lease_id in [one for one, expires in given_back.items() if expires <= now.boot]:
            del given_back[lease_id]
        hosts = list(self._desk.hosts.by_name.values())
        for host in hosts:
            self.check(host, now)
        return [host for host in hosts if now.boot >= host.expires]

    def look_due(self) -> float:
        """When a look at the leases will find something to do. It takes a look at all of them to know."""
        found_at = NEVER
        for host in self._desk.hosts.by_name.values():
            look_at = host.look_due(TASKS_LOW)
            if look_at < found_at:
                found_at = look_at
        return max(found_at, self._scan_at)

    def renew_due(self, *, further: bool) -> float:
        """When leases that were found to run out may be renewed. Without `further` URLs, the next look finds those that
        lack time."""
        return self._renew_at if further and self._to_renew and not self._renewing else NEVER

    def check(self, host: HostWork, now: Moment) -> None:
        """Have a lease renewed soon if it runs out of time or URLs."""
        if host.wanted and now.boot < host.expires and host.wants_renewal(now.boot, TASKS_LOW):
            host.renewing = True
            self._to_renew[host.host] = host

    def renew(self, now: Moment, *, further: bool) -> None:
        """Have all leases renewed that run out, with `further` URLs or with time alone."""
        if not self._to_renew or self._renewing or now.boot < self._renew_at:
            return
        held = self._desk.hosts.by_name
        wanting = [host for host in self._to_renew.values() if held.get(host.host) is host]
        # Those that lack URLs alone wait until there may be some.
        self._renewing = [host for host in wanting if further or host.runs_out(now.boot)]
        self._to_renew = {host.host: host for host in wanting if not (further or host.runs_out(now.boot))}
        if any(host.runs_out(now.boot) for host in self._renewing):
            self._renewing += self._joining(now)
        if self._renewing:
            self._desk.actions.append(Renew([(host.lease_id, host.host) for host in self._renewing], further))

    def _joining(self, now: Moment) -> list[HostWork]:
        """Leases that can be renewed in the same call as those that run out of time."""
        joining = [host for host in self._desk.hosts.by_name.values() if host.joins_renewal(now.boot)]
        for host in joining:
            host.renewing = True
        return joining

    def renewed(self, again_s: float | None, now: Moment) -> list[HostWork]:
        """A call for renewals has ended: the hosts that it was about. If it failed, they are asked for again at the
        next look, as long as their time lasts."""
        hosts, self._renewing = self._renewing, []
        for host in hosts:
            host.renewing = False
        if again_s is not None:
            self._renew_at = now.boot + again_s
        return hosts
