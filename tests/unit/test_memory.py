"""How much memory a process may count on."""

from __future__ import annotations

from pathlib import Path

import pytest

from drumlin import memory
from drumlin.dedupe import near


@pytest.fixture
def limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the kernel says what a container may use."""
    file = tmp_path / "memory.max"
    monkeypatch.setattr(memory, "CONTAINER_LIMIT", file)
    memory.machine_bytes.cache_clear()
    return file


def test_a_container_with_a_limit_has_no_more_than_that(limit: Path) -> None:
    limit.write_text("536870912\n")
    assert memory.machine_bytes() == 512 << 20


def test_a_limit_above_the_memory_of_the_machine_says_nothing(limit: Path) -> None:
    unlimited = memory.machine_bytes()
    memory.machine_bytes.cache_clear()
    limit.write_text(f"{unlimited * 2}\n")
    assert memory.machine_bytes() == unlimited > 0


def test_a_container_without_a_limit_has_the_whole_machine(limit: Path) -> None:
    unlimited = memory.machine_bytes()
    memory.machine_bytes.cache_clear()
    limit.write_text("max\n")
    assert memory.machine_bytes() == unlimited


def test_sketches_get_a_share_of_the_machine_but_not_too_little(limit: Path) -> None:
    limit.write_text(f"{1 << 30}\n")
    assert near.memory_bytes_max() == near.MEMORY_BYTES_MIN
    memory.machine_bytes.cache_clear()
    limit.write_text("max\n")
    assert near.memory_bytes_max() == max(near.MEMORY_BYTES_MIN, memory.machine_bytes() // near.MEMORY_SHARE)
