"""How many hosts are a node's fair share, in a crawl with a delay.

With a delay the number of hosts bounds the speed, and any node could hold all of them. So the first to ask would have
every host and the others nothing. Each node is therefore given at once no more than its share: the hosts that can be
worked on, divided by the nodes. Beyond it a node gets only hosts that have been due for a while, which no other wanted.
After a pause nodes hear with their heartbeats that it is over, so only then can they have wanted any.

A node that asks in vain and has less than half its share lacks hosts. Those above their share then give some back:
together no more than are lacking, and none goes below its share. So hosts come to rest: nobody gives while nobody has
less than half, and what was given goes to those who lack.
"""

from __future__ import annotations

from drumlin.engines.base import Engine
from drumlin.protocol import HOSTS_MAX, NodeRecord, WorkRequest

LACKS_BELOW = 0.5
"""Of its share: a node with fewer hosts lacks some. So much less than one that moves do not call for further moves."""
COUNT_AGAIN_S = 0.25
COUNT_AGAIN_LARGE_S = 2.0
LARGE_NODES = 16
"""With more nodes than these one host more or less is little to each, and counting takes as long as it always does."""
GIVE_AGAIN_S = 2.0
"""About as long as a host takes to change hands. Asked for again sooner, more would be given back than are lacking."""
LACKED_LATELY_S = 2.0
NOBODY_WANTED_S = 1.0
HEARD_OF_RESUMING_S = 2.0
"""Within a heartbeat and this all nodes have heard that a pause is over and have asked for hosts."""
TABLE = "lacking_hosts"
TOLD_LATELY_S = 5.0
FORGOTTEN_AFTER_S = 60.0


class Shares:
    """Who has too few hosts and who too many, as far as this coordinator knows."""

    def __init__(self) -> None:
        self._hosts = 0
        self._nodes = 1
        self._counted = float("-inf")
        self._lacking: dict[str, tuple[float, int]] = {}
        """When each node last asked in vain, and how many hosts it lacks; in the order of time."""
        self._lacking_here = 0
        self._lacking_elsewhere = 0
        self._to_give = 0
        self._given = float("-inf")
        self._wait_s = 0.0
        self._resumed = float("-inf")

    def count(self, hosts: int, nodes: int, wait_s: float, now: float) -> None:
        """So many hosts can be worked on by so many nodes, each of which waits so long when it got none."""
        self._hosts, self._nodes, self._wait_s, self._counted = hosts, max(1, nodes), wait_s, now

    def count_nodes(self, nodes: int) -> None:
        """So many nodes are there by now."""
        self._nodes = max(1, nodes)

    def begin_count(self, now: float) -> bool:
        """Whether hosts should be counted again before a node is refused one. Who hears so counts for all."""
        due = now - self._counted >= (COUNT_AGAIN_S if self._nodes <= LARGE_NODES else COUNT_AGAIN_LARGE_S)
        if due:
            self._counted = now
        return due

    def paused(self, now: float, heartbeat_s: float) -> None:
        """Nothing is given out at this moment."""
        self._resumed = now + heartbeat_s + HEARD_OF_RESUMING_S

    def unwanted_s(self, now: float) -> float | None:
        """For how long a host must have been due before it may go to a node that has its share already; None while not
        all nodes need have heard that there is work."""
        return None if now < self._resumed else NOBODY_WANTED_S + self._wait_s

    @property
    def _least(self) -> int:
        """What nobody is made to go below."""
        return max(1, self._hosts // self._nodes)

    def room(self, held: int, now: float) -> int:
        """How many further hosts a node that has so many may be given at once: alone, as many as it asks for."""
        if self._nodes < 2:
            return HOSTS_MAX
        most = self._least if self.lacking(now) else max(1, -(-self._hosts // self._nodes))
        return max(0, most - held)

    # Lacking

    def answered(self, node: str, held: int, given: int, now: float) -> None:
        """A node that held so many hosts asked for more and was given so many."""
        self._forget(node)
        if not given and held < LACKS_BELOW * self._hosts / self._nodes:
            self._lacking[node] = (now, self._least - held)
            self._lacking_here += self._least - held

    def _forget(self, node: str) -> None:
        self._lacking_here -= self._lacking.pop(node, (0.0, 0))[1]

    def lacking_here(self, now: float) -> int:
        """How many hosts the nodes that ask this coordinator lack."""
        since = now - LACKED_LATELY_S - self._wait_s
        while self._lacking and (first := next(iter(self._lacking.items())))[1][0] < since:
            self._forget(first[0])
        return self._lacking_here

    def heard(self, lacking_elsewhere: int) -> None:
        """So many hosts are lacking at other coordinators."""
        self._lacking_elsewhere = lacking_elsewhere

    def lacking(self, now: float) -> int:
        return self.lacking_here(now) + self._lacking_elsewhere

    # Giving back

    def take_back(self, node: str, held: int, most: int, now: float) -> int:
        """How many hosts a node that holds so many shall give back now, of `most` that it could."""
        beyond = 0 if node in self._lacking else held - self._least
        if beyond <= 0 or self._nodes < 2:
            return 0
        if now - self._given >= GIVE_AGAIN_S:
            self._to_give = self.lacking(now)
        count = min(beyond, most, self._to_give)
        if count > 0:
            self._to_give -= count
            self._given = now
        return count


class Lacks:
    """What coordinators tell each other: a small table of the engine with a row for each where hosts are lacking."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._told = False

    async def exchange(self, lacking: int, now: float) -> int:
        """Tell how many hosts are lacking here; returns how many are elsewhere."""
        if lacking:
            await self._engine.put_entries(TABLE, {self._name: f"{lacking} {now!r}".encode()})
        elif self._told:
            await self._engine.delete_entries(TABLE, [self._name])
        self._told = bool(lacking)
        elsewhere, forgotten = 0, []
        for name, value in (await self._engine.get_entries(TABLE)).items():
            count, _, told = value.decode().partition(" ")
            if name != self._name and now - float(told) <= TOLD_LATELY_S:
                elsewhere += int(count)
            elif now - float(told) > FORGOTTEN_AFTER_S:
                forgotten.append(name)
        if forgotten:
            await self._engine.delete_entries(TABLE, forgotten)
        return elsewhere


def held_by(record: NodeRecord, request: WorkRequest) -> int:
    """How many hosts a node has: as it says now, or as it said in its last heartbeat."""
    return record.leases if request.hosts is None else request.hosts
