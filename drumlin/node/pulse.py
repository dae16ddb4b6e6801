"""Heartbeats: a node that is silent for a few of them counts as failed, so it beats until its last word.

That includes its leaving, when its last results and bundles are on their way: a coordinator takes the store for
complete once nobody is present who sends bundles.
"""

from __future__ import annotations

from collections.abc import Callable

from drumlin.clock import monotonic
from drumlin.node.client import FOREVER, PROBE_TIMEOUT_S, CoordinatorClient
from drumlin.protocol import Heartbeat, HeartbeatReply


class Pulse:
    """Sends a heartbeat when one is due, one at a time. `beat` says how the node does, `at` when the first is due."""

    def __init__(
        self,
        node: str,
        client: CoordinatorClient,
        beat: Callable[[float], Heartbeat],
        on_reply: Callable[[HeartbeatReply], None],
        at: float = 0.0,
    ) -> None:
        self._node = node
        self._client = client
        self._beat = beat
        self._on_reply = on_reply
        self._at = at
        self.beating = False
        """One is on its way."""

    def handed_on(self, client: CoordinatorClient) -> Pulse:
        """The same heartbeats through another client, for a node that leaves and so follows no reply any more."""
        return Pulse(self._node, client, self._beat, lambda reply: None, self._at)

    def due(self) -> float:
        return FOREVER if self.beating else self._at

    def step(self, now: float) -> None:
        if now < self._at or self.beating:
            return
        self.beating = True
        path = f"/api/v1/nodes/{self._node}/heartbeat"
        self._client.post(path, self._beat(now), HeartbeatReply, self._answered, timeout_s=PROBE_TIMEOUT_S)

    def _answered(self, reply: HeartbeatReply) -> None:
        self.beating = False
        self._at = monotonic() + reply.next_heartbeat
        self._client.renewed(reply.token)
        self._on_reply(reply)
