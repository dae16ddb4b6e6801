"""`drumlin tokens`: make, list and revoke the tokens of people and of nodes that want to join. This file also has the
functions by which every command takes a secret without showing it.

Every user of a machine can read the command lines of all processes. So `hide_argument`, called before anything else,
starts the program again with the secret moved into the environment, which only its owner can read. It is still safer to
use the environment (`DRUMLIN_TOKEN`) or `--token-file` in the first place.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from drumlin.cli.console import write_json
from drumlin.cli.help import VerbFamily
from drumlin.config import SETTINGS, Loaded, config_options
from drumlin.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from drumlin.access.tokens import TokenRecord
    from drumlin.engines.blocking import BlockingEngine

TOKEN_FILE_BYTES_MAX = 4_096
TOKEN_VARIABLE = SETTINGS["token"].variable
ENGINE_VARIABLE = SETTINGS["engine"].variable
EXPIRY_S_MAX = 100 * 365 * 86400.0

_TOKEN = re.compile(r"drumlin_[a-z]+_([a-z0-9]+)_")

# Secrets on a command line


def hide_argument(flag: str, variable: str, is_secret: Callable[[str], bool] = bool) -> None:
    """If the value of `flag` is on the command line and is a secret, start this program again with the value in the
    environment as `variable`. Returns only if there is nothing to hide."""
    moved = without_argument(sys.argv[1:], os.environ, flag, variable, is_secret)
    if moved is None:
        return
    arguments, environment = moved
    # The part of the command line before our own arguments: `python -m drumlin`, or the script.
    start = sys.orig_argv[: len(sys.orig_argv) - len(sys.argv[1:])]
    os.execve(sys.executable, [sys.executable, *start[1:], *arguments], environment)  # noqa: S606  # our own program


def without_argument(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    flag: str,
    variable: str,
    is_secret: Callable[[str], bool] = bool,
) -> tuple[list[str], dict[str, str]] | None:
    """The command line without `flag VALUE` or `flag=VALUE`, and the environment with VALUE. None if the flag is not
    there or its value is not a secret. A variable that names a file with such a secret is removed, because a flag is
    stronger."""
    kept: list[str] = []
    value = None
    rest = iter(arguments)
    for argument in rest:
        name, equals, given = argument.partition("=")
        if argument == "--":
            kept += [argument, *rest]
        elif name != flag:
            kept.append(argument)
        elif (given := given if equals else next(rest, "")) and is_secret(given):
            value = given
        else:
            # Not a secret, or without a value: the command reads it, or complains about it.
            kept += [argument] if equals or not given else [argument, given]
    others = {name: text for name, text in environment.items() if name != f"{variable}_FILE"}
    return None if value is None else (kept, {**others, variable: value})


def has_password(url: str) -> bool:
    """Whether an engine's URL holds a password, as in redis://user:password@host."""
    authority = url.partition("://")[2].partition("/")[0]
    return "@" in authority and ":" in authority.rpartition("@")[0]


def token_of(loaded: Loaded) -> str:
    """The token that the settings give, empty when they give none. A file is stronger than a token from the same
    source."""
    client = loaded.client
    from_file = client.token_file is not None and loaded.stronger("token", "token_file") != "token"
    return read_token(client.token or "", path_of(client.token_file) if from_file else None)


def path_of(text: str | None) -> Path | None:
    """A setting that names a file, as a path."""
    return None if text is None else Path(text)


def read_token(token: str, token_file: Path | None) -> str:
    """The token from `token_file` if that is given, otherwise `token`."""
    if token_file is None:
        return token.strip()
    try:
        with token_file.open("rb") as file:
            content = file.read(TOKEN_FILE_BYTES_MAX + 1)
    except OSError as wrong:
        raise ConfigError(f"Cannot read {token_file}: {wrong.strerror}.") from wrong
    found = content.decode("ascii", "replace").strip()
    if not found.startswith("drumlin_") or len(content) > TOKEN_FILE_BYTES_MAX or len(found.split()) != 1:
        raise ConfigError(f"{token_file} does not hold a token.", "`drumlin tokens create … --out FILE` writes one.")
    return found


# The verbs


@click.group("tokens", cls=VerbFamily)
def command() -> None:
    """Make, list and revoke the tokens that a crawl's coordinators accept."""


def _engine_of(loaded: Loaded) -> str:
    if loaded.process.engine is None:
        hint = f"Give --engine rocksdb:DIR or redis://HOST:PORT/NAMESPACE, or set {ENGINE_VARIABLE}."
        raise ConfigError("The crawl's engine is not named, and tokens are kept there.", hint)
    return loaded.process.engine


@command.command("create")
@click.option(
    "--role",
    required=True,
    type=click.Choice(["viewer", "reader", "operator", "join"]),
    help="see, take stored data away too, steer, or bring nodes",
)
@click.option("--name", default="", help="whose token it is, for lists and the audit log")
@click.option("--expires", metavar="DURATION", help="how long it is valid, such as 30d [default: until revoked]")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="write it there, readable by its owner alone"
)
@config_options("engine", "json")
def create(loaded: Loaded, role: str, name: str, expires: str | None, out: Path | None) -> None:
    """Make a token and print it, this once."""
    import time

    from drumlin.access.tokens import AccessControl, Role
    from drumlin.disk import plain_target

    engine = _engine_of(loaded)
    now = time.time()
    until = None if expires is None else now + _duration(expires)
    # Before the token is made: one that is recorded but cannot be written would be lost.
    target = plain_target(out) if out is not None else None
    replaced = _token_in(target)
    with open_crawl(engine, founds=True) as opened:
        access = AccessControl(_secret(opened))
        token = opened.run(access.issue(opened.engine, Role(role), name, now, expires=until))
    if target is not None:
        _write(target, token)
    if loaded.process.json:
        shown_once = {"token": token} if out is None else {"file": str(out)}
        write_json({"role": role, "name": name, "expires": until, **shown_once})
        return
    if out is None:
        sys.stdout.write(f"{token}\n")
        sys.stdout.flush()
    limit = "until it is revoked" if until is None else f"until {_moment(until)}"
    shown = "It is shown only now" if out is None else f"It is in {out}"
    sys.stderr.write(f"This {role} token is valid {limit}. {shown}; keep it like a password.\n")
    if replaced:
        sys.stderr.write(f"The token that was there is still valid; `drumlin tokens revoke {replaced}` ends it.\n")


def _token_in(path: Path | None) -> str:
    """The id of the token in a file; "" if it has none."""
    try:
        written = path.read_text()[:TOKEN_FILE_BYTES_MAX] if path is not None else ""
    except (OSError, UnicodeDecodeError):
        return ""
    found = _TOKEN.match(written)
    return found[1] if found else ""


def _write(path: Path, token: str) -> None:
    """Replace the file as a whole. So nobody who has the old file open, or was allowed to read it, can read the
    token."""
    from drumlin.disk import PRIVATE, write_whole

    try:
        write_whole(path, f"{token}\n".encode(), sync=True, mode=PRIVATE)
    except StorageError as wrong:
        hint = "Revoke the token (`drumlin tokens list` shows it), and make another."
        raise StorageError(wrong.message, hint) from wrong


@command.command("list")
@config_options("engine", "json")
def list_tokens(loaded: Loaded) -> None:
    """Show who has which token. The tokens themselves are not stored."""
    import time

    from drumlin.access.tokens import token_records

    with open_crawl(_engine_of(loaded)) as opened:
        records = opened.run(token_records(opened.engine))
    if loaded.process.json:
        write_json(records)
        return
    now = time.time()
    for record in records:
        name = f"  {record.name}" if record.name else ""
        sys.stdout.write(f"{record.id}  {record.role:8}  {_moment(record.created)}  {_standing(record, now)}{name}\n")


@command.command("revoke")
@click.argument("token_id", metavar="[ID]", default="")
@click.option("--node", default="", metavar="NAME", help="revoke what a node got when it joined, instead of a token")
@click.option("--with-nodes", is_flag=True, help="revoke all nodes that joined with this token too")
@config_options("engine", "json")
def revoke(loaded: Loaded, token_id: str, node: str, with_nodes: bool) -> None:
    """Revoke a token by its id, or that of a node; coordinators refuse it within seconds.

    A node whose own token is revoked joins again if its join token is still valid; otherwise it ends.
    """
    if bool(token_id) == bool(node) or (node and with_nodes):
        hint = "`drumlin tokens list` shows the ids of tokens, `drumlin nodes` the names of nodes."
        raise ConfigError("Name either a token by its ID, also --with-nodes, or a node with --node NAME.", hint)
    with open_crawl(_engine_of(loaded)) as opened:
        said = _revoke_node(opened, node) if node else _revoke_token(opened, token_id, with_nodes)
    if loaded.process.json:
        write_json({"revoked": node or _id_of(token_id), "message": said})
    else:
        sys.stderr.write(f"{said}\n")


def _revoke_token(engine: BlockingEngine, token_id: str, with_nodes: bool) -> str:
    import time

    from drumlin.access.tokens import revoke_token

    wanted = _id_of(token_id)
    if not engine.run(revoke_token(engine.engine, wanted, time.time(), with_nodes=with_nodes)):
        raise ConfigError(f"There is no token with the id {wanted!r}.", "`drumlin tokens list` shows the ids.")
    return f"Token {wanted} is revoked{', and with it every node that joined with it' if with_nodes else ''}."


def _id_of(token_id: str) -> str:
    """People may paste the whole token: take the id out of it, also because nothing must show the token."""
    return token_id.split("_")[2] if token_id.startswith("drumlin_") and token_id.count("_") >= 4 else token_id


def _revoke_node(engine: BlockingEngine, node: str) -> str:
    from drumlin.access.tokens import AccessControl
    from drumlin.coordinator.nodes import TABLE

    if engine.get_entry(TABLE, node) is None:
        raise ConfigError(f"No node called {node!r} has registered.", "`drumlin nodes` shows their names.")
    engine.run(AccessControl(_secret(engine)).revoke_node(engine.engine, node))
    return f"The token of node {node} is revoked; the node can join again with a valid join token."


@contextmanager
def open_crawl(spec: str, *, founds: bool = False) -> Iterator[BlockingEngine]:
    """The crawl's engine. Tokens may be made before the first coordinator starts: with `founds` the frontier is then
    founded in the same way as by a coordinator."""
    from drumlin.engines.blocking import open_blocking
    from drumlin.serving.service import shards_to_found

    if spec == "memory":
        raise ConfigError("The memory engine is gone when this command ends.", "Use rocksdb:DIR or redis://….")
    place = Path(spec.removeprefix("rocksdb:")) if spec.startswith("rocksdb:") else None
    if place is not None and not founds and not place.exists():
        raise ConfigError(f"There is no crawl in {place}.", "Name its engine with --engine rocksdb:DIR.")
    engine = open_blocking(spec, shard_count=shards_to_found(spec) if founds else None, founds=founds)
    try:
        yield engine
    finally:
        engine.close()


def _secret(engine: BlockingEngine) -> bytes:
    import secrets

    from drumlin.access.tokens import SECRET_BYTES, crawl_secret

    return engine.run(crawl_secret(engine.engine, secrets.token_bytes(SECRET_BYTES)))


def _duration(text: str) -> float:
    from drumlin.config import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as wrong:
        raise ConfigError(f"--expires must be a duration such as 12h or 30d, not {text!r}.") from wrong
    if not 1 <= seconds <= EXPIRY_S_MAX:
        raise ConfigError("--expires must be between 1 second and 100 years.")
    return seconds


def _standing(record: TokenRecord, now: float) -> str:
    if record.revoked:
        return f"revoked {_moment(record.revoked)}"
    if not record.expires:
        return "never expires"
    return f"{'expired' if record.expires <= now else 'expires'} {_moment(record.expires)}"


def _moment(time: float) -> str:
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
