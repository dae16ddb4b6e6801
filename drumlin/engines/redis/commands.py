"""The commands that call the functions in `lua/`, as they go over the wire."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import Any, NamedTuple, cast

import hiredis

from drumlin.engines.redis.topology import slot_of

ARGUMENTS_CACHED_MAX = 4
"""The beginnings of calls are cached up to this many arguments. Calls with more can have any number of them, and would
fill the cache."""

LUA_FILES = (
    *("layout", "hosts", "records", "queues", "leases"),
    *("adding", "leasing", "settling", "upkeep", "letters", "known", "contents", "filling", "removing"),
    "functions",
)
"""The parts of the program in the order in which they are joined: a part uses only those before it."""

_READING = frozenset(("find", "story", "dead_letters", "dead_groups", "host_state", "hosts", "stats"))


class Command(NamedTuple):
    """A command and the slot it goes to. If it may change something, `writes` is a key of that slot."""

    slot: int
    payload: bytes
    writes: str = ""


def packed(*words: str | bytes | float) -> bytes:
    """A command as it goes over the wire."""
    # hiredis's type stub wrongly says that a command has one word; hence the cast.
    command: bytes = hiredis.pack_command(cast("Any", words))
    return command


def load_library() -> tuple[str, str]:
    """The version of the functions, and their source. Their names contain the version, so several versions of drumlin
    can use one server at the same time."""
    folder = resources.files("drumlin.engines.redis").joinpath("lua")
    source = "\n".join(folder.joinpath(f"{part}.lua").read_text(encoding="utf-8") for part in LUA_FILES)
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
        """The beginning of the command, which is the same for all calls with so many arguments."""
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
        """The one function whose key does not belong to a shard."""
        return packed("FCALL", self._prefix + "keep_time", 1, key, mine)

    def read(self, shard: int, *words: bytes | str | int) -> Command:
        """A command of Redis's own that reads a key of the shard."""
        return Command(self._slots[shard], packed(*words))
