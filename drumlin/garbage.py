"""Python's garbage collector in processes that live long: what is loaded stays, and hardly anything forms cycles."""

from __future__ import annotations

import gc


def set_apart_what_is_loaded() -> None:
    """Have the collector look at nothing of what is there now. In a forked child it would copy every page it is on."""
    gc.collect()
    gc.freeze()


def collect_seldom(*thresholds: int) -> None:
    """The same, and look at what comes now and then only. The thresholds are those of `gc.set_threshold`."""
    set_apart_what_is_loaded()
    gc.set_threshold(*thresholds)
