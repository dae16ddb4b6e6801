"""The commands that call the functions of `frontier.lua`, as they go over the wire."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any, NamedTuple, cast

import hiredis

from drumlin.engines.redis_topology import slot_of

ARGUMENTS_CACHED_MAX = 4
"""Calls with more arguments have any number of them: their beginnings are not kept."""

_READING = frozenset(("find", "story", "dead_letters", "host_state", "hosts", "stats"))


class Command(NamedTuple):
    """What to send where; `writes` is any key of its slot if it may change something."""

    slot: int
    payload: bytes
    writes: str = ""


def packed(*words: str | bytes | float) -> bytes:
    """A command as it goes over the wire."""
    # The library's stub says that a command has one word.
    command: bytes = hiredis.pack_command(cast("Any", words))
    return command


def load_library() -> tuple[str, str]:
    """The version of the functions, and their source: versions do not meet, so that several can be in use at a time."""
    source = resources.files("drumlin.engines").joinpath("frontier.lua").read_text(encoding="utf-8")
    version = hashlib.sha256(source.encode()).hexdigest()[:12]
    return version, source.replace("@VERSION@", version)


class ShardCommands:
    """Commands on the shards of one namespace."""

    def __init__(self, namespace: str, shard_count: int, version: str) -> None:
        self._prefix = f"drumlin_{version}_"
        self.tags = [f"{{{namespace}:{shard}}}" for shard in range(shard_count)]
        self._slots = [slot_of(tag[1:-1]) for tag in self.tags]
        self._heads: dict[tuple[str, int, int], bytes] = {}

    def call(self, name: str, shard: int, *arguments: bytes | str | float) -> Command:
        """A function of the library."""
        parts = [argument if isinstance(argument, bytes) else str(argument).encode() for argument in arguments]
        tail = [b"$%d\r\n%b\r\n" % (len(part), part) for part in parts]
        payload = b"".join((self._head(name, shard, len(parts)), *tail))
        return Command(self._slots[shard], payload, "" if name in _READING else self.tags[shard])

    def _head(self, name: str, shard: int, arguments_count: int) -> bytes:
        """The beginning of the command, which is always the same."""
        key = (name, shard, arguments_count)
        head = self._heads.get(key)
        if head is None:
            tag = self.tags[shard]
            words = ("FCALL", self._prefix + name, 2, tag, tag + "-")
            head = packed(*words).partition(b"\r\n")[2]
            head = b"*%d\r\n%b" % (len(words) + arguments_count, head)
            if arguments_count <= ARGUMENTS_CACHED_MAX:
                self._heads[key] = head
        return head

    def keep_time(self, key: str, mine: float) -> bytes:
        """The one function on a key that is no shard's."""
        return packed("FCALL", self._prefix + "keep_time", 1, key, mine)

    def read(self, shard: int, *words: bytes | str | int) -> Command:
        """A command of Redis's own that reads a key of the shard."""
        return Command(self._slots[shard], packed(*words))
