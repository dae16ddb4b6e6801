"""What a fleet needs for a given pace and size: cores, servers, memory, network and disk.

What it is for. Somebody who plans a fleet knows how many pages a second it should fetch and how many URLs it will know.
`make_plan` turns these and the measured costs of a page and of a URL into what to rent.

How it works. `costs` is the table of what was measured, each cost with its source; `measured` reads a user's own
measurements in its place. `pace` finds how fast the fleet can be at all: politeness or too few nodes may be the bound.
`needs` multiplies. Every figure of a plan carries the sentence that says what it is made of; `notes` are the sentences
about the whole.

Invariants:
- the same wish and costs give the same plan: there is no clock, no chance and no look at this machine;
- a plan is for the pace that can be reached, not for the one that was asked for, and says so where they differ;
- headroom is never hidden: the shares that parts may be busy are part of the wish and of the sentences.

Limits: costs are taken as proportional, which was measured up to 10,000 pages/s and a few million URLs.
"""

from drumlin.plan.costs import MEASURED, Cost, Costs, replaced
from drumlin.plan.measured import read_measurements
from drumlin.plan.needs import Need, Plan, make_plan
from drumlin.plan.pace import PACE_MAX, PACE_MIN, Wish

__all__ = [
    "MEASURED",
    "PACE_MAX",
    "PACE_MIN",
    "Cost",
    "Costs",
    "Need",
    "Plan",
    "Wish",
    "make_plan",
    "read_measurements",
    "replaced",
]
