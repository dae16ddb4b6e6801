"""Parsed robots.txt files, those that were used last.

A file is needed at every lease of its host, and to parse one of a megabyte takes as long as to crawl hundreds of pages;
prepared for matching it takes up to thirty times its size. So files are parsed when a URL is asked about, not when they
become known, and what is kept of them is bounded in sum: who has many hosts has as many files.
"""

from __future__ import annotations

from collections import OrderedDict

from drumlin.robots.rules import Rules, parse

PREPARED_BYTES_MAX = 4 * 1024 * 1024
"""Of the files themselves: thousands of common ones."""
PREPARED_FILES_MAX = 10_000


class PreparedFiles:
    """The rules of files by their content. The last one asked for is always kept."""

    def __init__(self, bytes_max: int = PREPARED_BYTES_MAX, files_max: int = PREPARED_FILES_MAX) -> None:
        self._bytes_max = bytes_max
        self._files_max = files_max
        self._rules: OrderedDict[bytes, Rules] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._rules)

    def of(self, body: bytes) -> Rules:
        """What a file says."""
        rules = self._rules.get(body)
        if rules is not None:
            self._rules.move_to_end(body)
            return rules
        rules = self._rules[body] = parse(body)
        self._bytes += len(body)
        while len(self._rules) > 1 and (self._bytes > self._bytes_max or len(self._rules) > self._files_max):
            forgotten, _ = self._rules.popitem(last=False)
            self._bytes -= len(forgotten)
        return rules
