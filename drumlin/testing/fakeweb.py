"""`FakeWeb`: a web on loopback with the bundled hosts, or an empty one."""

from __future__ import annotations

from drumlin.testing import sites
from drumlin.testing.scripted import HOSTS_MAX, ScriptedWeb

HOSTS_DEFAULT = 30


class FakeWeb(ScriptedWeb):
    """A web on loopback: the bundled one with `hosts` hosts, or with `hosts=0` an empty one to script."""

    def __init__(self, hosts: int = HOSTS_DEFAULT, seed: int = 1, port: int = 0) -> None:
        if not 0 <= hosts <= HOSTS_MAX:
            raise ValueError(f"hosts must be between 0 and {HOSTS_MAX}, not {hosts}")
        super().__init__(port)
        sites.fill(self, hosts, seed)
