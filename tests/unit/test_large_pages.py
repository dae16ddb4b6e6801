"""Large memory pages for simulations: which regions are asked for, and that asking does no harm."""

from __future__ import annotations

from drumlin.sim.large_pages import _regions, use_large_pages

MAPS = """\
00400000-00800000 r-xp 00000000 08:01 42 /usr/bin/python3
00a00000-01200000 rw-p 00000000 08:01 42 /usr/bin/python3
01400000-01c00000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000800000 rw-p 00000000 00:00 0
7f0001000000-7f0001001000 rw-p 00000000 00:00 0
7f0002000000-7f0002800000 rw-s 00000000 00:00 0
7ffc00000000-7ffc00800000 rw-p 00000000 00:00 0 [stack]
"""


def test_own_data_in_large_regions_is_asked_for() -> None:
    assert list(_regions(MAPS)) == [(0x01400000, 0x800000), (0x7F0000000000, 0x800000)]


def test_asking_changes_nothing_that_is_in_memory() -> None:
    data = bytearray(b"drumlin" * 4_000_000)
    use_large_pages()
    assert data == b"drumlin" * 4_000_000
