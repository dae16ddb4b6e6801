"""A real S3 server for tests: versitygw on loopback, with its objects in a folder; ended with the test.

It is built once by Go and kept in the user's cache, outside the repository: building takes about 100 s of CPU.
`python -m tests.harness.s3` does it, which `make test` calls; tests that find no server are skipped.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drumlin.store.files import StoreFiles
from drumlin.store.objects.address import Access, parse_address
from drumlin.store.objects.bucket import Bucket
from drumlin.store.objects.files import ObjectFiles
from tests.harness.redis import free_port, wait_for

MODULE = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BIN = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "drumlin" / "bin"
PROGRAM = BIN / "versitygw"
BUILD_S_MAX = 900
START_S_MAX = 30.0
STOP_S_MAX = 20.0
BUCKET = "crawls"
KEY_ID, SECRET = "drumlin-tests", "a secret of these tests"


def build() -> None:
    """Have Go build the server program, unless it is there; OSError or CalledProcessError if that is not possible."""
    if not PROGRAM.exists():
        new = BIN / "new"
        command = ["nice", "-n", "10", "go", "install", MODULE]
        subprocess.run(command, env={**os.environ, "GOBIN": str(new)}, check=True, timeout=BUILD_S_MAX)
        # A build that was broken off leaves no program that looks whole.
        (new / PROGRAM.name).replace(PROGRAM)


def program() -> Path:
    """The server program. Without it the test is skipped, with a sentence that says how to get it."""
    pytest.importorskip("obstore", reason="obstore is not installed: pip install '.[s3]'")
    if not PROGRAM.exists():
        pytest.skip(f"versitygw is not in {BIN}: `python -m tests.harness.s3` builds it, with Go")
    return PROGRAM


class S3Server:
    """One server process with one bucket. It may be killed and started again; its objects are in its folder."""

    def __init__(self, folder: Path) -> None:
        self._program = program()
        self.folder = folder
        (folder / BUCKET).mkdir(parents=True)
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The usual variables, for processes that use this server."""
        nowhere = str(self.folder / "none")
        return {
            "AWS_ACCESS_KEY_ID": KEY_ID,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_CONFIG_FILE": nowhere,
            "AWS_SHARED_CREDENTIALS_FILE": nowhere,
        }

    @property
    def access(self) -> Access:
        return Access(self.endpoint, "us-east-1", KEY_ID, SECRET)

    def bucket(self, prefix: str) -> Bucket:
        return Bucket(parse_address(f"s3://{BUCKET}/{prefix}"), self.access)

    def store(self, prefix: str, by: str = "test") -> ObjectFiles:
        return ObjectFiles(self.bucket(prefix), by)

    def start(self) -> None:
        environment = {**os.environ, "ROOT_ACCESS_KEY": KEY_ID, "ROOT_SECRET_KEY": SECRET}
        command = [str(self._program), "--quiet", "--port", f"127.0.0.1:{self.port}", "posix", str(self.folder)]
        with (self.folder.parent / f"{self.folder.name}.log").open("ab") as log:
            self._process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        wait_for(self._answers, START_S_MAX, "the start of versitygw")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(STOP_S_MAX)

    def freeze(self) -> None:
        """It keeps its connections and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self.kill()

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "versitygw has ended"
        try:
            urllib.request.urlopen(f"{self.endpoint}/", timeout=2)
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False
        return True


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    server = S3Server(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def downloaded(files: StoreFiles, folder: Path) -> Path:
    """Everything that the manifest names, as a directory, for those who check stores."""
    assert isinstance(files, ObjectFiles)
    for item in files.manifest.contents().items():
        target = folder / item.path
        target.parent.mkdir(parents=True, exist_ok=True)
        digest = files.bucket.fetch(item.name, target, 1 << 40)
        assert digest in item.name
        assert target.stat().st_size == item.bytes
    return folder


if __name__ == "__main__":
    try:
        build()
    except (OSError, subprocess.SubprocessError) as failed:
        print(f"There will be no S3 server, and its tests are skipped: {failed}", file=sys.stderr)
