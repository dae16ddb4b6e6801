"""Python's cyclic garbage collector in long-lived processes: run it seldom, and not over what was loaded at the start.

Modules and tables that are loaded once live until the process ends, and drumlin's own objects hardly ever form cycles.
So the time in which the collector looks at them is wasted.
"""

from __future__ import annotations

import gc


def set_apart_what_is_loaded() -> None:
    """Make the collector ignore all objects that exist now. This also saves memory in forked children: the collector
    writes to the header of each object that it looks at, which copies the memory page shared with the parent."""
    gc.collect()
    gc.freeze()


def collect_seldom(*thresholds: int) -> None:
    """Ignore what exists now, and look at newer objects only as often as `thresholds` says (see `gc.set_threshold`)."""
    set_apart_what_is_loaded()
    gc.set_threshold(*thresholds)
