"""Contact with hosts that the node has no URLs of: the robots.txt of a host may redirect to another.

RFC 9309 wants such a redirect followed, and the other host wants to be asked by one node at a time and at its own pace
like any other. So the contact happens under that host's own lease, as a guest among its URLs: the lease that this node
holds, or else one that is asked for. Where others hold the host, what they have learnt of its robots.txt will do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from drumlin.node.hosts import HostWork, read_note, robots_of
from drumlin.protocol import Work

if TYPE_CHECKING:
    from drumlin.node.agent import Agent
    from drumlin.node.contact import RobotsContact
    from drumlin.node.leases import Leases


class Visits:
    """The guests of a node, those that wait for a lease and those that wait for a host's next contact."""

    def __init__(self, agent: Agent, leases: Leases) -> None:
        self._agent = agent
        self._leases = leases
        self._asking: dict[str, list[RobotsContact]] = {}

    def ask(self, host: str, guest: RobotsContact) -> None:
        """Have `guest` hear what is known of the host, be let in at its next contact, or be turned away."""
        held = self._agent.hosts.by_name.get(host)
        if held is not None:
            self._receive(held, guest)
        elif host in self._asking:
            self._asking[host].append(guest)
        else:
            self._asking[host] = [guest]
            self._leases.visit(host, lambda work: self._answered(host, work), lambda: self._turn_away(host))

    def _answered(self, host: str, work: Work) -> None:
        held = self._agent.hosts.by_name.get(host)
        if held is None:
            robots = robots_of(read_note(work.notes.get(host, b"")), self._agent.settings.agent)
            self._asking[host] = [guest for guest in self._asking[host] if not guest.finds(host, robots)]
            self._turn_away(host)
            return
        for guest in self._asking.pop(host):
            self._receive(held, guest)

    def _receive(self, held: HostWork, guest: RobotsContact) -> None:
        if not guest.finds(held.host, held.robots):
            held.guests.append(guest)
        self._agent.hosts.wait(held)

    def _turn_away(self, host: str) -> None:
        for guest in self._asking.pop(host):
            guest.turned_away()
