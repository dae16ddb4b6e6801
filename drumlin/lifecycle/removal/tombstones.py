"""Tombstones: what was removed on request, by a keyed hash of its name, and when.

They are a table of the engine, and so is the key, which is made for the crawl at its first removal. Whoever reads the
table cannot tell what was removed without trying out names with the key. A coordinator reads them when it begins, since
nothing is removed while one runs. In a crawl without tombstones `Tombstones` is false, and nothing is hashed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from drumlin.engines.base import Engine
from drumlin.errors import Cause, StorageError
from drumlin.lifecycle.removal.targets import Target, What
from drumlin.model import NewURLs
from drumlin.store.files import StoreFiles
from drumlin.store.names import TOMBSTONES
from drumlin.urls import domain_of, host_of, host_or_nothing, identity, meant

KEY: Final = "removal_key"
TABLE: Final = "removed"
LAST_KEY: Final = "removal_last"
"""Another value after each removal, by which a coordinator that was frozen meanwhile notices it."""
KEY_BYTES: Final = 32
DIGEST_BYTES: Final = 16
HOSTS_CACHED_MAX: Final = 65_536
IN_STORE: Final = TOMBSTONES
"""Where a store in a bucket has them too."""


class Tombstone(msgspec.Struct, frozen=True):
    """When something was removed. That of a URL has the hash of its host, so URLs of other hosts need not be hashed."""

    at: float
    host: str = ""


_decode = msgspec.msgpack.Decoder(Tombstone).decode


class Tombstones:
    """What must not come back."""

    def __init__(self, key: bytes = b"", entries: Mapping[str, bytes] | None = None) -> None:
        self._key = key
        self._entries = {name: _decode(value) for name, value in (entries or {}).items()}
        self._with_pages = {stone.host for stone in self._entries.values() if stone.host}
        self._hosts: dict[str, tuple[Tombstone | None, bool]] = {}
        """For each host that was looked at: its tombstone, and whether URLs of it have some."""

    def __bool__(self) -> bool:
        return bool(self._entries)

    @classmethod
    async def read(cls, engine: Engine) -> Tombstones:
        key = await engine.get_meta(KEY)
        return cls(key, await engine.get_entries(TABLE)) if key else cls()

    def digest(self, what: What, name: str) -> str:
        return blake2b(f"{what} {name}".encode(), key=self._key, digest_size=DIGEST_BYTES).hexdigest()

    def name_of(self, target: Target) -> str:
        """How a target is named in tombstones, reports and the audit log."""
        return f"{target.what}:{self.digest(target.what, target.identity)}"

    def stone_of(self, target: Target, at: float) -> Tombstone:
        host = self.digest(What.HOST, host_of(target.name)) if target.what is What.URL else ""
        return Tombstone(at, host)

    def of_host(self, host: str) -> Tombstone | None:
        """The tombstone of a host or of its domain."""
        return self._look(host)[0] if self._entries else None

    def _look(self, host: str) -> tuple[Tombstone | None, bool]:
        known = self._hosts.get(host)
        if known is None:
            if len(self._hosts) >= HOSTS_CACHED_MAX:
                self._hosts.clear()
            hashed, domain = self.digest(What.HOST, host), self.digest(What.DOMAIN, domain_of(host))
            stone = self._entries.get(f"{What.HOST}:{hashed}") or self._entries.get(f"{What.DOMAIN}:{domain}")
            known = self._hosts[host] = (stone, hashed in self._with_pages)
        return known

    def of(self, url: str) -> Tombstone | None:
        """The tombstone of a URL, of its host or of its domain. Nodes of strangers may write one as we never do."""
        url = meant(url) if self._entries else ""
        host = host_or_nothing(url)
        if not host:
            return None
        stone, has_pages = self._look(host)
        if stone is not None or not has_pages:
            return stone
        return self._entries.get(f"{What.URL}:{self.digest(What.URL, identity(url))}")

    def covers(self, url: str | None) -> bool:
        return bool(url) and self.of(url or "") is not None

    def without(self, urls: Iterable[str]) -> list[str]:
        return [url for url in urls if self.of(url) is None]

    def refuse(self, offered: Sequence[NewURLs]) -> list[NewURLs]:
        """What is left of URLs that are offered to the frontier."""
        left: list[NewURLs] = []
        for new in offered:
            stone, has_pages = self._look(new.host)
            if stone is None:
                urls = self.without(new.urls) if has_pages else new.urls
                origin = "" if self.covers(new.found_on) else new.found_on
                changed = len(urls) != len(new.urls) or origin != new.found_on
                left.append(msgspec.structs.replace(new, urls=urls, found_on=origin) if changed else new)
        return left


class _Stored(msgspec.Struct):
    key: bytes
    entries: dict[str, bytes]
    removal: str = ""
    """Another for each removal, so the file differs too if a removal adds no tombstone (`StoreFiles.removals`)."""


async def packed(engine: Engine, removal: str = "") -> bytes:
    """All tombstones and their key, for `IN_STORE`."""
    return msgspec.json.encode(_Stored(await engine.get_meta(KEY) or b"", await engine.get_entries(TABLE), removal))


async def copy_to(engine: Engine, content: bytes) -> None:
    """Write all tombstones of another engine of the same crawl."""
    found = msgspec.json.decode(content, type=_Stored)
    await engine.put_meta(KEY, found.key)
    await engine.put_entries(TABLE, found.entries)


def stored(files: StoreFiles) -> Tombstones:
    """The tombstones that a store in a bucket has: those who write to it may have been away when something was removed.
    `StorageError` if they cannot be read: then nobody may write there."""
    try:
        with files.open(IN_STORE) as file:
            found = msgspec.json.decode(file.read(), type=_Stored)
    except FileNotFoundError:
        return Tombstones()
    except OSError as away:
        raise StorageError(f"Cannot read what was removed from {files}: {away}", code=Cause.STORE_SILENT) from away
    return Tombstones(found.key, found.entries)


async def with_key(engine: Engine, candidate: bytes) -> Tombstones:
    """No tombstones yet, but the key that names them; `candidate` becomes the key of the crawl if it has none."""
    return Tombstones(await engine.put_meta_if_absent(KEY, candidate))


async def put(engine: Engine, targets: Sequence[Target], candidate: bytes, today: float) -> Tombstones:
    """Write the tombstones of these targets; those that are there keep their times."""
    stones = await with_key(engine, candidate)
    known = await engine.get_entries(TABLE)
    new = {stones.name_of(one): msgspec.msgpack.encode(stones.stone_of(one, today)) for one in targets}
    await engine.put_entries(TABLE, {name: value for name, value in new.items() if name not in known})
    return await Tombstones.read(engine)
