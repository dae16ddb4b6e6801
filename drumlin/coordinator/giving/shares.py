"""How many hosts are a node's fair share, in a crawl with a delay.

With a delay the number of hosts limits the speed, and a single node could work on all of them: the first node to ask
would get every host and the others nothing. So a node is given at once no more than its share, which is the hosts that
can be worked on divided by the nodes. Beyond its share it gets only hosts that have been due for a while, so no other
node wanted them. (After a pause of the crawl that conclusion must wait until all nodes have heard, with a heartbeat,
that the pause is over.)

A node that asks in vain and has less than half its share lacks hosts. Nodes above their share then give some back:
together no more than are lacking, and none goes below its share. So hosts come to rest: nothing is given back while
every node has at least half its share, and what is given back goes to the nodes that lack hosts.
"""

from __future__ import annotations

from drumlin.engines.base import Engine
from drumlin.protocol import HOSTS_MAX, NodeRecord, WorkRequest

LACKS_BELOW = 0.5
"""A node lacks hosts if it has less than this part of its share. It is far below 1, so one move of hosts does not cause
further moves."""
COUNT_AGAIN_S = 0.25
COUNT_AGAIN_LARGE_S = 2.0
LARGE_NODES = 16
"""With more nodes than this, hosts are counted less often: a few more or less hardly change a share."""
GIVE_AGAIN_S = 2.0
"""About as long as a host takes to change nodes. If asked sooner, nodes would give back more than are lacking."""
LACKED_LATELY_S = 2.0
NOBODY_WANTED_S = 1.0
HEARD_OF_RESUMING_S = 2.0
"""One heartbeat and this long after a pause, all nodes have heard that it is over and have asked for hosts."""
TABLE = "lacking_hosts"
TOLD_LATELY_S = 5.0
FORGOTTEN_AFTER_S = 60.0


class Shares:
    """Which nodes have too few hosts and which too many, as far as this coordinator knows."""

    def __init__(self) -> None:
        self._hosts = 0
        self._nodes = 1
        self._counted = float("-inf")
        self._lacking: dict[str, tuple[float, int]] = {}
        """When each node last asked in vain, and how many hosts it lacks; oldest first."""
        self._lacking_here = 0
        self._lacking_elsewhere = 0
        self._to_give = 0
        self._given = float("-inf")
        self._wait_s = 0.0
        self._resumed = float("-inf")

    def count(self, hosts: int, nodes: int, wait_s: float, now: float) -> None:
        """Note how many hosts can be worked on, by how many nodes, and how long a node waits that got nothing."""
        self._hosts, self._nodes, self._wait_s, self._counted = hosts, max(1, nodes), wait_s, now

    def count_nodes(self, nodes: int) -> None:
        """Note how many nodes there are now."""
        self._nodes = max(1, nodes)

    def begin_count(self, now: float) -> bool:
        """Whether hosts should be counted again before a node is refused one. A caller that gets True must count; the
        others meanwhile get False."""
        due = now - self._counted >= (COUNT_AGAIN_S if self._nodes <= LARGE_NODES else COUNT_AGAIN_LARGE_S)
        if due:
            self._counted = now
        return due

    def paused(self, now: float, heartbeat_s: float) -> None:
        """Note that the crawl is paused at this moment."""
        self._resumed = now + heartbeat_s + HEARD_OF_RESUMING_S

    def unwanted_s(self, now: float) -> float | None:
        """How long a host must have been due before a node above its share may get it; None while some nodes may not
        have heard yet that a pause is over."""
        return None if now < self._resumed else NOBODY_WANTED_S + self._wait_s

    @property
    def _least(self) -> int:
        """The number of hosts below which no node has to give any back."""
        return max(1, self._hosts // self._nodes)

    def room(self, held: int, now: float) -> int:
        """How many further hosts a node that holds `held` may be given at once; a single node may have all."""
        if self._nodes < 2:
            return HOSTS_MAX
        most = self._least if self.lacking(now) else max(1, -(-self._hosts // self._nodes))
        return max(0, most - held)

    # Lacking

    def answered(self, node: str, held: int, given: int, now: float) -> None:
        """Note that a node that `held` so many hosts asked for more and was `given` so many."""
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
        """Note how many hosts are lacking at other coordinators."""
        self._lacking_elsewhere = lacking_elsewhere

    def lacking(self, now: float) -> int:
        return self.lacking_here(now) + self._lacking_elsewhere

    # Giving back

    def take_back(self, node: str, held: int, most: int, now: float) -> int:
        """How many hosts a node that holds `held` should give back now; `most` is how many it could."""
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
    """How coordinators tell each other where hosts are lacking: a small table of the engine with one row for each."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._engine = engine
        self._name = name
        self._told = False

    async def exchange(self, lacking: int, now: float) -> int:
        """Tell the others how many hosts are lacking here; returns how many are lacking there."""
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
    """How many hosts a node has, by its request or else by its last heartbeat."""
    return record.leases if request.hosts is None else request.hosts
