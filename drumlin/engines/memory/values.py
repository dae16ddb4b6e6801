"""The memory engine's small tables and contents, in dictionaries."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence

LAST_CHARACTER = chr(0x10FFFF)


class DictValues:
    """`embedded.Values` over a dictionary."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}
        self._keys: list[str] = []

    def get(self, key: str) -> bytes | None:
        return self._values.get(key)

    def change(self, put: Mapping[str, bytes], delete: Sequence[str] = ()) -> None:
        for key, value in put.items():
            if key not in self._values:
                insort(self._keys, key)
            self._values[key] = value
        for key in delete:
            if self._values.pop(key, None) is not None:
                del self._keys[bisect_left(self._keys, key)]

    def scan(self, prefix: str) -> Iterator[tuple[str, bytes]]:
        # By place: a slice would copy the keys of all other tables behind this one.
        for place in range(bisect_left(self._keys, prefix), len(self._keys)):
            key = self._keys[place]
            if not key.startswith(prefix):
                return
            yield key, self._values[key]

    def scan_back(self, prefix: str, before: str) -> Iterator[tuple[str, bytes]]:
        for place in range(bisect_left(self._keys, before or prefix + LAST_CHARACTER) - 1, -1, -1):
            key = self._keys[place]
            if not key.startswith(prefix):
                return
            yield key, self._values[key]


class DictKeyValue:
    """`drumlin.dedupe.KeyValue` over a dictionary."""

    def __init__(self) -> None:
        self._values: dict[bytes, bytes] = {}

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        return [self._values.get(key) for key in keys]

    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        self._values.update(pairs)

    def change(self, put: Mapping[bytes, bytes], delete: Sequence[bytes]) -> None:
        for key in delete:
            self._values.pop(key, None)
        self._values.update(put)

    def scan(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        return ((key, self._values[key]) for key in sorted(self._values) if key.startswith(prefix))
