"""Runs containers where no engine runs: each process has mount, network and host-name namespaces of its own, a root
that is the image's (read-only if asked), the volumes that it names, and no rights beyond those that it is given.

An `Engine` must be made in a namespace where it may mount; it takes a network of its own, in which it gives addresses.
What it starts ends with that namespace: `inside` runs a module in one, for a test.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumlin.errors import EXIT_OK
from tests.harness.images import PYTHON, Image, do, overlay

CLONE_NEWNET = 0x40000000
BRIDGE = "bridge0"
START_S_MAX = 20.0
POLL_S = 0.2
ROOT = Path(__file__).parents[2]
ALONE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
RUN_S_MAX = 1500
RIGHTS = {"CHOWN": "+chown", "DAC_OVERRIDE": "+dac_override"}
PREPARE = """set -e
read -r network
hostname "$NAME"
for mount in $MOUNTS; do
    IFS=: read -r source target mode <<END
$mount
END
    mount --bind "$source" "$ROOT$target"
    [ "$mode" != ro ] || mount -o remount,bind,ro "$ROOT$target"
done
for place in $TMPFS; do mount -t tmpfs -o mode=1777 tmpfs "$ROOT$place"; done
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount --bind "$HOSTS" "$ROOT/etc/hosts"
[ "$READ_ONLY" != yes ] || mount -o remount,ro "$ROOT"
exec chroot "$ROOT" setpriv --reuid "$USER_ID" --regid "$GROUP_ID" --clear-groups --no-new-privs --inh-caps=-all \\
    --bounding-set="-all$CAPABILITIES" env -i --chdir="$FOLDER" $VARIABLES "$@"
"""


needs_namespaces = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(PYTHON).exists() or subprocess.run([*ALONE, "true"], check=False).returncode != 0,
    reason="needs root, namespaces and Debian 12's Python, to carry out a Dockerfile without an engine",
)


def inside(module: str, folder: Path, *more: str) -> dict[str, Any]:
    """Run the `main` of a module in namespaces of its own. Returns what it has seen."""
    seen = folder / "seen.json"
    code = (
        f"import runpy, sys; sys.argv = {['', str(folder), *more]!r}; runpy.run_path({module!r}, run_name='__main__')"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*ALONE, sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S_MAX,
        check=False,
    )
    assert done.returncode == EXIT_OK, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    found: dict[str, Any] = json.loads(seen.read_text())
    return found


class Spec(msgspec.Struct):
    """How to run one container."""

    name: str
    image: Image
    command: list[str]
    variables: dict[str, str] = {}
    user: str = ""
    mounts: list[tuple[Path, str, bool]] = []
    """A place on this machine, one in the container, and whether it is read-only there."""
    tmpfs: list[str] = []
    read_only: bool = False
    rights: list[str] = []
    address: str = ""
    """None: it has no network."""


class Container:
    def __init__(self, spec: Spec, process: subprocess.Popen[bytes], log: Path) -> None:
        self.spec = spec
        self.process = process
        self.log = log

    def words(self) -> str:
        return self.log.read_text(errors="replace")

    def wait(self, seconds: float) -> int:
        return self.process.wait(seconds)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def run(self, command: list[str], timeout_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """A further command in the container, as an engine's health checks do."""
        user, group = (self.spec.user or self.spec.image.user).split(":")
        variables = [f"{name}={value}" for name, value in variables_of(self.spec).items()]
        enter = ["nsenter", "--target", str(self.process.pid), "--mount", "--net", "--uts", "--root", "--wd"]
        become = ["setpriv", "--reuid", user, "--regid", group, "--clear-groups", "--no-new-privs"]
        whole = [*enter, "--", *become, "env", "-i", *variables, *command]
        return subprocess.run(whole, capture_output=True, text=True, timeout=timeout_s, check=False)


def variables_of(spec: Spec) -> dict[str, str]:
    return {"HOME": "/tmp", **spec.image.variables, **spec.variables}


def wait_for(condition: Callable[[], bool], seconds: float, what: Callable[[], str]) -> None:
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what())
        time.sleep(POLL_S)


class Engine:
    """Starts containers on one network. `net` has the first three numbers of its addresses."""

    def __init__(self, world: Path, net: str) -> None:
        if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "cannot have a network of our own")
        self._world = world
        self._numbers = itertools.count(1)
        self._hosts = world / "hosts"
        self._hosts.write_text("127.0.0.1 localhost\n")
        do("ip", "link", "set", "lo", "up")
        do("ip", "link", "add", BRIDGE, "type", "bridge")
        do("ip", "address", "add", f"{net}.1/24", "dev", BRIDGE)
        do("ip", "link", "set", BRIDGE, "up")
        self._gateway = f"{net}.1"

    def name(self, address: str, *names: str) -> None:
        """Let all containers know an address by these names."""
        with self._hosts.open("a") as file:
            file.writelines(f"{address} {name}\n" for name in names)

    def start(self, spec: Spec) -> Container:
        number = next(self._numbers)
        folder = self._world / "containers" / f"{spec.name}-{number}"
        root = overlay(spec.image.layers, folder / "upper", folder / "root")
        for source, target, _ in spec.mounts:
            _place(root / target.lstrip("/"), source)
        for target in spec.tmpfs:
            (root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        log = folder / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["unshare", "--mount", "--uts", "--net", "sh", "-c", PREPARE, "sh", *spec.command],
                env=self._told(spec, root),
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._connect(process.pid, number, spec.address)
        assert process.stdin is not None
        process.stdin.write(b"ready\n")
        process.stdin.close()
        return Container(spec, process, log)

    def _told(self, spec: Spec, root: Path) -> dict[str, str]:
        user, group = (spec.user or spec.image.user).split(":")
        variables = variables_of(spec)
        assert not any(set(value) & set(" \t\n*?[") for value in variables.values()), variables
        return {
            "PATH": os.environ["PATH"],
            "NAME": spec.name,
            "ROOT": str(root),
            "HOSTS": str(self._hosts),
            "MOUNTS": " ".join(f"{source}:{target}:{'ro' if fixed else 'rw'}" for source, target, fixed in spec.mounts),
            "TMPFS": " ".join(spec.tmpfs),
            "READ_ONLY": "yes" if spec.read_only else "no",
            "USER_ID": user,
            "GROUP_ID": group,
            "CAPABILITIES": "".join(f",{RIGHTS[right]}" for right in spec.rights),
            "FOLDER": spec.image.folder,
            "VARIABLES": " ".join(f"{name}={value}" for name, value in variables.items()),
        }

    def _connect(self, pid: int, number: int, address: str) -> None:
        """Give a container its end of a cable. It waits for that before it begins."""
        wait_for(lambda: _own_network(pid), START_S_MAX, lambda: f"process {pid} has no network of its own")
        inside = ("nsenter", "--target", str(pid), "--net", "ip")
        do(*inside, "link", "set", "lo", "up")
        if not address:
            return
        do("ip", "link", "add", f"veth{number}", "type", "veth", "peer", "name", "eth0", "netns", str(pid))
        do("ip", "link", "set", f"veth{number}", "master", BRIDGE, "up")
        do(*inside, "address", "add", f"{address}/24", "dev", "eth0")
        do(*inside, "link", "set", "eth0", "up")
        do(*inside, "route", "add", "default", "via", self._gateway)


def _place(target: Path, source: Path) -> None:
    """What a volume or a file is mounted on. A new volume gets the owner of the folder that it covers."""
    if source.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        return
    target.mkdir(parents=True, exist_ok=True)
    if not any(source.iterdir()):
        told = target.stat()
        os.chown(source, told.st_uid, told.st_gid)
        source.chmod(told.st_mode & 0o7777)


def _own_network(pid: int) -> bool:
    return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")


def tell(values: Mapping[str, object], file: Path) -> None:
    """Write down what was seen, for the test that started all this."""
    file.write_bytes(msgspec.json.encode(values))
