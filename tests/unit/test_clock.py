"""The clock of leases runs while the machine sleeps."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

ASLEEP_S = 100_000
IN_A_NAMESPACE = ("unshare", "--time", "--boottime", str(ASLEEP_S), "--fork")
CLOCKS = "import time; from drumlin.clock import monotonic; print(monotonic() - time.monotonic())"


def test_time_asleep_counts() -> None:
    """In a time namespace whose machine has been suspended, as Linux tells it."""
    if shutil.which("unshare") is None or subprocess.run([*IN_A_NAMESPACE, "true"], check=False).returncode:
        pytest.skip("this machine makes no time namespaces")
    ran = subprocess.run([*IN_A_NAMESPACE, sys.executable, "-c", CLOCKS], capture_output=True, check=True)
    assert float(ran.stdout) == pytest.approx(ASLEEP_S, abs=60)
