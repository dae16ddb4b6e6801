"""How much memory this process may count on."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Final

CONTAINER_LIMIT: Final = Path("/sys/fs/cgroup/memory.max")


@cache
def machine_bytes() -> int:
    """The memory of this machine or, if that is less, what its container may use."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        said = CONTAINER_LIMIT.read_text().strip()
    except OSError:
        return physical
    # Without a limit the file says "max".
    return min(physical, int(said)) if said.isdecimal() else physical
