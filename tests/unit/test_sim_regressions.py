"""Scenarios in which the simulator once found a promise broken, made small: none of them is broken again.

A seed may be drawn differently from one version to the next; a scenario stays what it was.
"""

from __future__ import annotations

import pytest

from drumlin.sim.faults import Fault
from drumlin.sim.running import run
from drumlin.sim.scenario import Scenario

REGRESSIONS = {
    # Long seed 2, lag_is_bounded: what a liar had said while its coordinator was frozen was held against the honest
    # node that took its place, which was then in quarantine for good.
    "calls of a node that was replaced count as its own": Scenario(
        seed=1,
        nodes=8,
        hosts=40,
        page_s=4.0,
        duration_s=200.0,
        heartbeat_s=10.0,
        faults=(Fault("nodes_lie", 60.0, 20.0, 1.0, 1), Fault("coordinator_frozen", 65.0, 30.0, 0.0, 2)),
    ),
    # pages_are_kept: a coordinator was frozen with a result of a lost lease. The node sent it to another one, which
    # refused it because a second node had the URL, and threw the page away. Both leases were over when the first
    # coordinator went on, and the result counted. (Short seeds 26 and 55, with messages that came twice, had this end.)
    "what was refused once does not count later": Scenario(
        seed=4,
        nodes=24,
        coordinators=3,
        duration_s=420.0,
        hosts=36,
        urls_per_host=5_000.0 / 9,
        page_s=8.879,
        heartbeat_s=10.0,
        faults=(
            Fault("coordinator_frozen", 280.0 / 3, 40.0, 0.6, 401),
            Fault("nodes_cut_off", 580.0 / 3, 40.0, 0.6, 404),
            Fault("coordinator_frozen", 580.0 / 3, 40.0, 0.6, 404),
            Fault("nodes_cut_off", 680.0 / 3, 40.0, 0.6, 405),
            Fault("coordinator_frozen", 680.0 / 3, 40.0, 0.6, 405),
        ),
    ),
    # speed_returns: towards the end of a crawl half of the nodes had nothing to do for minutes, while one with a single
    # connection held three hosts. A share was what it had been when hosts were last counted, in the first seconds.
    "few hosts are left, and some nodes hold several": Scenario(
        seed=2,
        nodes=8,
        hosts=24,
        urls_per_host=30.0,
        page_s=3.0,
        duration_s=270.0,
        heartbeat_s=10.0,
        faults=(Fault("nodes_frozen", 20.0, 3.0, 0.2, 2),),
    ),
}


@pytest.mark.parametrize("scenario", REGRESSIONS.values(), ids=REGRESSIONS.keys())
def test_what_was_once_broken_holds(scenario: Scenario) -> None:
    outcome = run(scenario)
    assert outcome.broken is None
    assert outcome.figures["pages"] > 50
