"""A cache of parsed robots.txt files: those that were used last.

A file is needed at every lease of its host. Parsing one of a megabyte takes as long as crawling hundreds of pages, and
prepared for matching it takes up to thirty times its size in memory. So a file is parsed only when a URL is asked
about, and the size of all files in the cache together is bounded: somebody with many hosts has as many files.
"""

from __future__ import annotations

from collections import OrderedDict

from drumlin.robots.packing import unpack
from drumlin.robots.rules import Rules, parse

PREPARED_BYTES_MAX = 4 * 1024 * 1024
"""How many bytes the files in the cache may have, not compressed: thousands of ordinary ones."""
PREPARED_FILES_MAX = 10_000


class PreparedFiles:
    """The rules of files by their content, as it is kept (`packing`). The last one asked for is always kept."""

    def __init__(self, bytes_max: int = PREPARED_BYTES_MAX, files_max: int = PREPARED_FILES_MAX) -> None:
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._rules: OrderedDict[bytes, Rules] = OrderedDict()
        self._sizes: dict[bytes, int] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rules)

    def is_prepared(self, kept: bytes, agent: str) -> bool:
        """Whether URLs can be matched at once, without parsing the file first."""
        rules = self._rules.get(kept)
        return rules is not None and rules.is_prepared(agent)

    def of(self, kept: bytes, packed_from: int = 0) -> Rules:
        """The rules of a file."""
        rules = self._rules.get(kept)
        if rules is not None:
            self._rules.move_to_end(kept)
            return rules
        rules = self._rules[kept] = parse(unpack(kept, packed_from))
        self._sizes[kept] = packed_from or len(kept)
        self._bytes += self._sizes[kept]
        while len(self._rules) > 1 and (self._bytes > self._bytes_max or len(self._rules) > self._files_max):
            forgotten, _ = self._rules.popitem(last=False)
            self._bytes -= self._sizes.pop(forgotten)
        return rules
