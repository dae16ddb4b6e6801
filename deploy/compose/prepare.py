"""Makes what the containers of compose.yaml must know of each other, once: it leaves alone what is there.

`prepare.py secrets` runs before anything else: passwords, the settings of Redis, certificates, the engine's address.
`prepare.py tokens` runs when the Redis Cluster is there: one token for nodes, one for Prometheus, one for the operator.

Every container has a volume of its own under /secrets, with the files that it needs and no others. They belong to the
user that it runs as, and nobody else can read them.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import sys
from pathlib import Path

DRUMLIN, REDIS, ROOT_USER, NOBODY = 10001, 999, 0, 65534
PASSWORD_BYTES = 24
TOKENS_S_MAX = 120
COORDINATORS = ("coordinator-1", "coordinator-2", "localhost", "127.0.0.1")
ADDRESSES_VARIABLE = "REDIS_ADDRESSES"

REDIS_CONF = """port 6379
requirepass {password}
masterauth {password}
dir /data
cluster-enabled yes
cluster-require-full-coverage no
cluster-node-timeout 5000
appendonly yes
appendfsync everysec
maxmemory 1gb
maxmemory-policy noeviction
"""
COORDINATOR_TOML = """[process]
engine = "redis://:{password}@{addresses}/fleet?replicas=1"
"""
S3_KEYS = "ROOT_ACCESS_KEY={access}\nROOT_SECRET_KEY={secret}\n"
S3_CREDENTIALS = "[default]\naws_access_key_id = {access}\naws_secret_access_key = {secret}\n"


def put(path: Path, text: str, owner: int) -> None:
    """Write a secret whole, for one user: a container that is ended in the middle leaves none that is cut off."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.draft")
    draft.touch(mode=0o600)
    draft.write_text(text)
    give(draft, owner)
    draft.rename(path)


def give(path: Path, owner: int) -> None:
    """Let one user, and nobody else, read a file or see what is in a folder."""
    path.chmod(0o500 if path.is_dir() else 0o400)
    os.chown(path, owner, owner)


def drumlin(*arguments: str) -> None:
    subprocess.run(["drumlin", *arguments], check=True, timeout=TOKENS_S_MAX)


def make_secrets(root: Path, addresses: str) -> None:
    """Passwords and certificates, and the files that hold them."""
    done = root / "operator" / "ready"
    if done.exists():
        return
    password, access, secret = (secrets.token_hex(PASSWORD_BYTES) for _ in range(3))
    put(root / "redis" / "password", password, REDIS)
    put(root / "redis" / "redis.conf", REDIS_CONF.format(password=password), REDIS)
    settings = COORDINATOR_TOML.format(password=password, addresses=addresses)
    put(root / "coordinator" / "coordinator.toml", settings, DRUMLIN)
    put(root / "s3" / "keys", S3_KEYS.format(access=access, secret=secret), ROOT_USER)
    # Nodes get no key: coordinators sign an address for each of their uploads.
    put(root / "coordinator" / "s3.credentials", S3_CREDENTIALS.format(access=access, secret=secret), DRUMLIN)
    make_certificates(root)
    for folder, owner in (("redis", REDIS), ("coordinator", DRUMLIN), ("node", DRUMLIN), ("prometheus", NOBODY)):
        os.chown(root / folder, owner, owner)
    done.touch()


def make_certificates(root: Path) -> None:
    """An authority that only this fleet trusts. Its key is deleted: nobody needs another certificate of it."""
    made = root / "operator" / "certs"
    shutil.rmtree(made, ignore_errors=True)
    drumlin("certs", "create", str(made), *(word for host in COORDINATORS for word in ("--host", host)))
    (made / "ca-key.pem").unlink()
    authority = (made / "ca.pem").read_text()
    for name in ("server.pem", "server-key.pem"):
        put(root / "coordinator" / "certs" / name, (made / name).read_text(), DRUMLIN)
    give(root / "coordinator" / "certs", DRUMLIN)
    put(root / "node" / "ca.pem", authority, DRUMLIN)
    put(root / "prometheus" / "ca.pem", authority, NOBODY)
    put(root / "operator" / "ca.pem", authority, DRUMLIN)
    shutil.rmtree(made)


def make_tokens(root: Path) -> None:
    """The tokens that are not there yet. The crawl is founded by the first, since it keeps a list of them."""
    tokens = (("join", "node", DRUMLIN), ("viewer", "prometheus", NOBODY), ("operator", "operator", DRUMLIN))
    for role, reader, owner in tokens:
        file = root / reader / f"{role}.token"
        if file.exists():
            continue
        draft = file.with_suffix(".draft")
        draft.unlink(missing_ok=True)
        settings = str(root / "coordinator" / "coordinator.toml")
        drumlin("tokens", "create", "--config", settings, "--role", role, "--name", reader, "--out", str(draft))
        give(draft, owner)
        draft.rename(file)
    os.chown(root / "operator", DRUMLIN, DRUMLIN)


def main(what: str, root: Path = Path("/secrets")) -> None:
    if what == "secrets":
        make_secrets(root, os.environ[ADDRESSES_VARIABLE])
    else:
        make_tokens(root)


if __name__ == "__main__":
    main(sys.argv[1])
