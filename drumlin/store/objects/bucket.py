"""What drumlin asks of an S3-compatible service, in the few calls that it needs. Every name is below the prefix.

obstore does the requests: it signs, repeats what failed, and sends large objects in parts. It is an extra, and takes a
tenth of a second to load, so only those who use a bucket load it. Its errors become `StorageError` here.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple, cast

from drumlin.errors import Cause, ConfigError, StorageError
from drumlin.store.objects.address import Access, Address, find_access

if TYPE_CHECKING:
    from typing import Self

REQUEST_S_MAX: Final = 60.0
CONNECT_S_MAX: Final = 5.0
RETRIES_MAX: Final = 4
RETRY_S_MAX: Final = 20.0
"""For how long one request is repeated. Whoever uploads has the file on disk and tries again later anyway."""
PROBES: Final = "probes"
"""The folder of objects that are written to see whether the service answers, or which time it has."""
PART_BYTES: Final = 16 * 1024**2
PARTS_AT_ONCE: Final = 2
COPY_BYTES: Final = 1024**2
READ_BYTES: Final = 128 * 1024
"""How much is read ahead. A page's record, or the footer of a Parquet file, mostly fits."""
WHOLE_BYTES: Final = 32 * 1024**2
"""Files up to this size are read at once: asking for a part at a time costs the library twice the CPU."""


_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_REFUSALS: Final = ("403 Forbidden", "401 Unauthorized", "AccessDenied", "SignatureDoesNotMatch", "InvalidAccessKeyId")
_MISTAKES: Final = {
    "NoSuchBucket": "Make the bucket, or correct its name.",
    "AuthorizationHeaderMalformed": "Check AWS_REGION: the service is in another region.",
    "PermanentRedirect": "Check AWS_REGION: the bucket is in another region.",
    "RequestTimeTooSkewed": "Correct the clock of this machine.",
}
"""What has another cause than a service that is away, by the service's own code."""
_FULL: Final = ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "507 Insufficient Storage")
_TIMEOUT: Final = "kind: Timeout"
_BUSY: Final = ("SlowDown", "RequestLimitExceeded", "429 Too Many Requests", "503 Service Unavailable")
AUTHORITY_HINT: Final = "Name the file of the authority that vouches for it with AWS_CA_BUNDLE."
_UNTRUSTED: Final = re.compile(r"InvalidCertificate\(\s*(\w+)")


class Listed(NamedTuple):
    """An object in a listing; `written` is by the service's clock."""

    name: str
    bytes: int
    written: float


class Bucket:
    """A bucket below one prefix. Calls block; several threads may make them."""

    def __init__(self, address: Address, access: Access) -> None:
        obstore, store = _library()
        self.address, self.access = address, access
        self._calls = obstore
        self.trouble: StorageError | None = None
        """Why an object could not be read by somebody who took it for a file, if one could not."""
        config: dict[str, Any] = {"region": access.region, "virtual_hosted_style_request": False}
        if access.endpoint:
            config["endpoint"] = access.endpoint
        if access.key_id:
            config |= {"access_key_id": access.key_id, "secret_access_key": access.secret}
        if access.session:
            config["session_token"] = access.session
        self._store = store.S3Store(
            address.bucket,
            prefix=address.prefix or None,
            client_options={
                "allow_http": access.endpoint.startswith("http://"),
                "timeout": timedelta(seconds=REQUEST_S_MAX),
                "connect_timeout": timedelta(seconds=CONNECT_S_MAX),
                **_trusted(access.authority),
            },
            retry_config={"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=RETRY_S_MAX)},
            **config,
        )

    @classmethod
    def open(cls, address: Address) -> Self:
        """The bucket with the credentials of this process."""
        return cls(address, find_access(os.environ, Path.home()))

    def __repr__(self) -> str:
        return f"<Bucket {self.address}>"

    def put(self, name: str, content: bytes) -> None:
        with self._told("write"):
            self._calls.put(self._store, name, content)

    def put_file(self, name: str, path: Path) -> None:
        """Write a file as an object: in parts, if it is large. It exists as a whole or not at all."""
        with path.open("rb") as file:
            self.put_open(name, file, path.stat().st_size)

    def put_open(self, name: str, file: BinaryIO, size: int) -> None:
        """The same of an open file of this size."""
        content = file.read(size) if size <= WHOLE_BYTES else file
        with self._told("write"):
            self._calls.put(self._store, name, content, chunk_size=PART_BYTES, max_concurrency=PARTS_AT_ONCE)

    def create(self, name: str, content: bytes) -> bool:
        """Write an object unless there is one of this name. Returns whether the object there has this content: a
        request that was repeated may find what it has written itself."""
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        with self._told("write"):
            try:
                self._calls.put(self._store, name, content, mode="create")
            except (AlreadyExistsError, PreconditionError):
                return self.get(name) == content
        return True

    def get(self, name: str) -> bytes:
        """`FileNotFoundError` if there is no such object."""
        with self._told("read"):
            return bytes(self._calls.get(self._store, name).bytes())

    def head(self, name: str) -> Listed | None:
        with self._told("read"):
            try:
                return _listed(self._calls.head(self._store, name))
            except FileNotFoundError:
                return None

    def time(self) -> float:
        """The service's own time, by which objects are dated: clocks of other machines may be wrong by days."""
        name = f"{PROBES}/time-{secrets.token_hex(8)}"
        self.put(name, b"")
        written = self.head(name)
        self.delete([name])
        if written is None:
            raise StorageError(f"Cannot read in {self.address} what was just written.", code=Cause.STORE_FAILED)
        return written.written

    def listed(self, folder: str, after: str = "") -> Iterator[Listed]:
        """The objects below a folder, in the order of their names, only those that come after `after`."""
        with self._told("list"):
            for some in self._calls.list(self._store, folder, offset=after or None):
                yield from map(_listed, some)

    def delete(self, names: Sequence[str]) -> None:
        if names:
            with self._told("delete"):
                self._calls.delete(self._store, list(names))

    def fetch(self, name: str, path: Path, bytes_max: int) -> str:
        """Write an object to a file, and return its SHA-256. `StorageError` if it is larger than this."""
        digest, received = hashlib.sha256(), 0
        with path.open("xb") as file:
            for chunk in self.chunks(name):
                received += len(chunk)
                if received > bytes_max:
                    raise StorageError(f"{name} is larger than {bytes_max} bytes.")
                digest.update(chunk)
                file.write(chunk)
        return digest.hexdigest()

    def chunks(self, name: str) -> Iterator[bytes]:
        """The content of an object, a piece at a time."""
        with self._told("read"):
            for chunk in self._calls.get(self._store, name).stream(min_chunk_size=COPY_BYTES):
                yield bytes(chunk)

    def reader(self, name: str, size: int) -> BinaryIO:
        """An object of this size to read from at any place."""
        return io.BufferedReader(cast("io.RawIOBase", _Ranges(self, name, size)), READ_BYTES)

    def range(self, name: str, start: int, end: int) -> bytes:
        with self._told("read"):
            return bytes(self._calls.get_range(self._store, name, start=start, end=end))

    def missing(self, name: str) -> StorageError:
        """The error for an object that is not there, although the manifest names it."""
        hint = f"Run `drumlin store check --store {self.address}`, which names everything that is missing."
        return StorageError(f"The object {name} is missing in {self.address}.", hint, code=Cause.STORE_FAILED)

    @contextlib.contextmanager
    def needs(self, name: str) -> Iterator[None]:
        """For reading an object without which nothing can be done."""
        try:
            yield
        except FileNotFoundError:
            raise self.missing(name) from None

    @contextlib.contextmanager
    def _told(self, doing: str) -> Iterator[None]:
        """Make one sentence of what the library says; its own text has everything that it knows, on many lines."""
        from obstore.exceptions import BaseError

        try:
            yield
        except FileNotFoundError as gone:
            if doing == "read":
                raise FileNotFoundError(f"There is no such object in {self.address}.") from gone
            hint = "Make it, or correct --store."
            raise StorageError(f"There is no bucket {self.address.bucket}.", hint, code=Cause.STORE_FAILED) from None
        except BaseError as failed:
            raise _failure(f"Cannot {doing} in {self.address}", str(failed)) from None


def _failure(what: str, said: str) -> StorageError:
    """What the library says is long. The service's own code is enough or, without one, the end of the first line."""
    code = _CODE.search(said)
    if untrusted := _UNTRUSTED.search(said):
        hint = AUTHORITY_HINT if untrusted[1] == "UnknownIssuer" else "Have the service's certificate mended."
        message = f"{what}: the certificate of the service is not trusted ({untrusted[1]})."
        return StorageError(message, hint, code=Cause.STORE_FAILED)
    if _TIMEOUT in said:
        hint = "Check the service and the way to it; what is not stored yet is kept and sent again."
        return StorageError(f"{what}: the service does not answer.", hint, code=Cause.STORE_SILENT)
    message = f"{what}: {code[1] if code else said.partition(chr(10))[0].rpartition(' - ')[2][:200].rstrip('.')}."
    if code and code[1] in _MISTAKES:
        return StorageError(message, _MISTAKES[code[1]], code=Cause.STORE_FAILED)
    if any(word in said for word in _FULL):
        hint = "Make room there; what is not stored yet is kept and sent again."
        return StorageError(message, hint, code=Cause.STORE_FULL)
    if any(word in said for word in _REFUSALS):
        hint = "Check the AWS variables or files, and what this key may do with the bucket."
        return StorageError(message, hint, code=Cause.STORE_FAILED)
    if any(word in said for word in _BUSY):
        hint = "The service is too busy, or limits what it is asked; what is not stored yet is kept and sent again."
        return StorageError(message, hint, code=Cause.STORE_SILENT)
    hint = "Check AWS_ENDPOINT_URL and that the service runs; what is not stored yet is kept and sent again."
    return StorageError(message, hint, code=Cause.STORE_SILENT)


class _Ranges(io.RawIOBase):
    """An object as a file: each read asks for the bytes that are wanted."""

    def __init__(self, bucket: Bucket, name: str, size: int) -> None:
        self._bucket, self._name, self._size, self._at = bucket, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        try:
            content = self._bucket.range(self._name, self._at, end)
        except (StorageError, FileNotFoundError) as failed:
            # Those who read files expect this of a file that cannot be read.
            trouble = self._bucket.missing(self._name) if isinstance(failed, FileNotFoundError) else failed
            self._bucket.trouble = StorageError(trouble.message, trouble.hint, code=trouble.code)
            raise OSError(trouble.message) from self._bucket.trouble
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)


def _listed(found: Any) -> Listed:
    return Listed(found["path"], found["size"], found["last_modified"].timestamp())


def _trusted(authority: str) -> dict[str, bytes]:
    """The authority that is trusted besides those of the system; nothing if there is none."""
    if not authority:
        return {}
    try:
        return {"root_certificate": Path(authority).read_bytes()}
    except OSError as cause:
        raise ConfigError(f"Cannot read {authority}: {cause.strerror}.", "Check AWS_CA_BUNDLE.") from None


def _library() -> tuple[Any, Any]:
    try:
        import obstore
        import obstore.store
    except ImportError:
        hint = "Install it: `pip install '.[s3]'` in drumlin's clone."
        raise ConfigError("A store in a bucket needs the extra `s3`, which is not installed.", hint) from None
    return obstore, obstore.store
