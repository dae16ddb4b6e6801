"""Who may do what: bearer tokens with roles, the keys of nodes, and revocation.

A token is `drumlin_<role>_<id>_<expires>_<mac>`: readable, easy to find in a leak, and verified without a look-up,
because the MAC over everything before it is made with the crawl's secret. `<expires>` is in Unix seconds, 0 for
never. The secret is 32 random bytes in the engine. The engine records which tokens people have, never a token itself.
The id in a node's token is `<node>+<id of the token it joined with>`: revoking a join token can so revoke every node
that joined with it, including those that a coordinator has not heard of yet.

Guarantees:
- any change to a token makes it invalid; comparison takes the same time wherever it differs;
- a node's token is good for that node only, for `NODE_TOKEN_S`; in the second half of that time the answer to a
  heartbeat brings a new one. Node tokens and keys depend on the node's epoch, which `revoke_node` raises: the old ones
  are then void, and the node must join again;
- every coordinator refuses what is revoked from its next `refresh` on.

A browser that shows a token gets a session, `<role>.<token id>.<expires>.<number>.<mac>`, made with a key of its own
from the same secret. So every coordinator knows it without a look-up, and it is refused as soon as its token is. The
random number tells it from others of that token, so logging out ends one session; the engine records that it is over
(`ended_sessions.py`).

Every crawl has a secret, even one without tokens. If several coordinators start a new crawl at once, the first one's
secret becomes that of all. If an engine loses its last second of data, and the secret with it, a coordinator that still
knows the secret writes it again.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from drumlin.access import signing
from drumlin.access.ended_sessions import Ended, EndedSessions, ended_in
from drumlin.engines.base import Engine
from drumlin.errors import ConfigError
from drumlin.http.refusal import Refused
from drumlin.protocol import NODE_NAME
from drumlin.protocol.refusals import RefusalCode

SECRET_BYTES = 32
SECRET_KEY = "secret"  # noqa: S105  # the name of the place, not what is in it
TOKENS_TABLE = "tokens"
REVOKED_TABLE = "revoked"
TOKENS_MAX = 10_000
TOKEN_CHARS_MAX = 200
TOKEN_ID_BYTES = 5
NAME_CHARS_MAX = 100
MAC_BYTES = 20
NODE_TOKEN_S = 86_400.0
"""How long a node's token is valid: a leaked one is useless after a day."""
JOIN_REMEMBERED_S = 365 * 86_400.0
"""How long an expired join token stays on record. Nodes that joined with it go on, and it names them for revocation."""

SESSION_S = 43_200.0
"""How long a browser's session lasts, unless its token expires before."""
SESSION_SCHEME = "Session"
"""Stands before a session where a header would say `Bearer`. No client sends it: the cookie is turned into it."""
LOG_IN_HINT = "Log in again."
SESSION_NUMBER_BYTES = 8

# A node's name is part of paths, tokens and file names.
NODE_ID = re.compile(NODE_NAME, re.ASCII)
_TOKEN = re.compile(
    r"(drumlin_(viewer|reader|operator|node|join)_([A-Za-z0-9][A-Za-z0-9._-]*)(?:\+([a-z2-7]+))?_(0|[1-9][0-9]{0,11}))"
    r"_([a-z2-7]{32})",
    re.ASCII,
)
_SESSION = re.compile(
    r"((viewer|reader|operator)\.([a-z0-9]+)\.([1-9][0-9]{0,11})\.[0-9a-f]{16})\.([a-z2-7]{32})", re.ASCII
)
_NODE_PREFIX = "node/"
_NODES_OF_PREFIX = "nodes of/"


class Role(StrEnum):
    VIEWER = "viewer"
    READER = "reader"
    OPERATOR = "operator"
    NODE = "node"
    JOIN = "join"


PEOPLE = (Role.VIEWER, Role.READER, Role.OPERATOR, Role.JOIN)
"""The roles whose tokens people make and revoke; a node's token is issued when it registers."""


class Permission(StrEnum):
    """What an endpoint asks for."""

    READ = "read"
    """See figures, hosts, URLs, nodes, and single stored pages."""
    TAKE = "take"
    """Take stored data away as it is: a record, a table, an export."""
    OPERATE = "operate"
    """Change the crawl."""
    JOIN = "join"
    """Register a node. A join token does not prove which node its bearer is, so it must not take over an existing
    node's id."""
    NODE = "node"
    """Act as the node that the request names."""
    WORK = "work"
    """Take and return single URLs as the worker that the request names. A person may do so too, to try it out."""
    WATCH_NODE = "watch_node"
    """See the node that the request names."""
    LOOK_UP = "look_up"
    """See what every node may know, such as the robots rules of a host."""


ROLES: dict[Permission, frozenset[Role]] = {
    Permission.READ: frozenset({Role.VIEWER, Role.READER, Role.OPERATOR}),
    Permission.TAKE: frozenset({Role.READER, Role.OPERATOR}),
    Permission.OPERATE: frozenset({Role.OPERATOR}),
    Permission.JOIN: frozenset({Role.JOIN, Role.OPERATOR, Role.NODE}),
    Permission.NODE: frozenset({Role.NODE}),
    Permission.WORK: frozenset({Role.NODE, Role.OPERATOR}),
    Permission.WATCH_NODE: frozenset({Role.NODE, Role.VIEWER, Role.READER, Role.OPERATOR}),
    Permission.LOOK_UP: frozenset({Role.NODE, Role.VIEWER, Role.READER, Role.OPERATOR}),
}
# For every other permission a node's token is good only for requests that name this node.
ANY_NODE = frozenset({Permission.LOOK_UP})


class Identity(msgspec.Struct, frozen=True):
    """Who sent a request: a role, and the id of a person's token or of a node. `joined_by` is the id of the token that
    a node joined with."""

    role: Role
    id: str
    joined_by: str = ""

    @property
    def subject(self) -> str:
        """One name for limits and logs."""
        return f"{self.role}/{self.id}"


class Session(msgspec.Struct, frozen=True):
    """A browser's proof of who uses it: `text` is its cookie. It names the token that it was opened with, so it ends
    when that token is revoked."""

    text: str
    identity: Identity
    expires: int

    def __repr__(self) -> str:
        return f"<Session of {self.identity.subject}>"


class TokenRecord(msgspec.Struct, frozen=True):
    """What is known of a token that a person made. `expires` and `revoked` are 0 when they never happen."""

    id: str
    role: Role
    name: str
    created: float
    expires: int = 0
    revoked: float = 0.0


class AccessControl:
    """Checks tokens and signatures, and issues tokens. Holds the secret and what is revoked; reads no clock."""

    signed = True
    """Whether nodes must sign their results."""

    def __init__(self, secret: bytes) -> None:
        self._use(secret)
        self._revoked: frozenset[str] = frozenset()
        self._nodes_revoked: frozenset[str] = frozenset()
        """Tokens that were revoked together with the nodes that they brought."""
        self._epochs: dict[str, int] = {}
        self._ended = EndedSessions()

    def _use(self, secret: bytes) -> None:
        if len(secret) != SECRET_BYTES:
            raise ValueError(f"a secret has {SECRET_BYTES} bytes, not {len(secret)}")
        self._secret = secret
        self._token_key = hmac.digest(secret, b"drumlin token v1", "sha256")
        self._session_key = hmac.digest(secret, b"drumlin session v1", "sha256")

    async def refresh(self, engine: Engine) -> None:
        """Learn what was revoked, here or through another coordinator."""
        await self._refresh_secret(engine)
        entries = await engine.get_entries(REVOKED_TABLE)
        self._revoked = frozenset(key for key in entries if "/" not in key)
        self._nodes_revoked = frozenset(_named(entries, _NODES_OF_PREFIX))
        self._epochs = {node: int(epoch) for node, epoch in _named(entries, _NODE_PREFIX).items()}
        self._ended.add(ended_in(entries))

    async def _refresh_secret(self, engine: Engine) -> None:
        secret = await engine.get_meta(SECRET_KEY)
        if secret is None:
            secret = await crawl_secret(engine, self._secret)
        if secret != self._secret:
            self._use(secret)

    # Identifying the sender

    def check(self, header: str | None, needed: Permission, node_id: str | None, now: float) -> Identity:
        """Return the sender of a request with this Authorization header; `Refused` if it may not do what is `needed`.

        `node_id` is the node that the request names, None when it names none.
        """
        identity = self._identify(header, now)
        if identity.role not in ROLES[needed]:
            message = f"A {identity.role} token does not permit this."
            raise Refused(403, "wrong_role", message, f"It takes {_one_of(ROLES[needed])}.")
        if identity.role is Role.NODE and needed not in ANY_NODE and identity.id != node_id:
            raise Refused(403, "other_node", f"The token of node {identity.id} serves for that node only.")
        return identity

    def check_unnamed(self, header: str | None, needed: Permission, now: float) -> Identity:
        """Like `check`, before the body is read that names the node: a node's token is checked for its own node."""
        identity = self._identify(header, now)
        return self.check(header, needed, identity.id if identity.role is Role.NODE else None, now)

    def _identify(self, header: str | None, now: float) -> Identity:
        if not header:
            hint = "Send `Authorization: Bearer TOKEN`; `drumlin tokens create` makes tokens."
            raise Refused(401, RefusalCode.NO_TOKEN, "This needs a token.", hint)
        identity, expires = self._verified(header)
        if expires and now >= expires:
            raise Refused(401, RefusalCode.TOKEN_EXPIRED, "The token has expired.", "Ask for a new one.")
        of_a_node = identity.role is Role.NODE
        if identity.joined_by in self._nodes_revoked if of_a_node else identity.id in self._revoked:
            raise Refused(401, RefusalCode.TOKEN_REVOKED, "The token was revoked.", "Ask for a new one.")
        return identity

    def _verified(self, header: str) -> tuple[Identity, int]:
        """Whose token an Authorization header holds, and when it expires."""
        scheme, _, rest = header.partition(" ")
        if scheme == SESSION_SCHEME:
            return self._verified_session(rest)
        if scheme.lower() != "bearer":
            raise Refused(401, RefusalCode.NO_TOKEN, "The Authorization header holds no bearer token.")
        token = rest.strip()
        match = _TOKEN.fullmatch(token) if len(token) <= TOKEN_CHARS_MAX else None
        if match is None:
            raise _invalid_token()
        identity = Identity(Role(match[2]), match[3], match[4] or "")
        if not hmac.compare_digest(match[6], self._mac(match[1], identity)):
            raise _invalid_token()
        return identity, int(match[5])

    def _mac(self, text: str, identity: Identity) -> str:
        """A node's epoch is part of the MAC but not of the token: only tokens of the present epoch are valid."""
        epoch = self._epochs.get(identity.id, 0) if identity.role is Role.NODE else 0
        code = hmac.digest(self._token_key, f"{text}\n{epoch}".encode(), "sha256")
        return base64.b32encode(code[:MAC_BYTES]).decode().lower()

    # Browsers

    def open_session(self, header: str, now: float) -> Session:
        """A session for the bearer of a token: it may do what the token may, and ends no later than the token."""
        identity = self._identify(header, now)
        if identity.role not in ROLES[Permission.READ]:
            hint = f"It takes {_one_of(ROLES[Permission.READ])}."
            raise Refused(403, "wrong_role", f"A {identity.role} token does not open this page.", hint)
        _, token_expires = self._verified(header)
        ends = int(now + SESSION_S)
        return self.session(identity, min(ends, token_expires) if token_expires else ends)

    def session(self, identity: Identity, expires: int) -> Session:
        """A session of this identity, which must have been checked."""
        text = f"{identity.role}.{identity.id}.{expires}.{secrets.token_hex(SESSION_NUMBER_BYTES)}"
        return Session(f"{text}.{self._session_mac(text)}", identity, expires)

    def _verified_session(self, text: str) -> tuple[Identity, int]:
        match = _SESSION.fullmatch(text) if len(text) <= TOKEN_CHARS_MAX else None
        if match is None or not hmac.compare_digest(match[5], self._session_mac(match[1])):
            raise Refused(401, RefusalCode.INVALID_TOKEN, "This session is not valid for this crawl.", LOG_IN_HINT)
        if Ended(match[3], int(match[4]), match[5]) in self._ended:
            raise Refused(401, RefusalCode.INVALID_TOKEN, "This session has ended.", LOG_IN_HINT)
        return Identity(Role(match[2]), match[3]), int(match[4])

    def session_expires(self, header: str | None) -> int | None:
        """When a session, which must have been checked, ends by itself; None if nothing was shown that does."""
        return self._verified(header)[1] or None if header else None

    def end_session(self, header: str, now: float) -> None:
        """End a session, which must have been checked, at this coordinator."""
        identity, expires = self._verified(header)
        self._ended.add([Ended(identity.id, expires, header.rpartition(".")[2])], now)

    async def share_ended(self, engine: Engine, now: float) -> None:
        """Have every coordinator refuse the ended sessions, from its next `refresh` on."""
        written = ended_in(await engine.get_entries(REVOKED_TABLE))
        self._ended.add(written, now)
        await engine.put_entries(REVOKED_TABLE, {one.key: b"1" for one in self._ended.known - written})
        await engine.delete_entries(REVOKED_TABLE, [one.key for one in written - self._ended.known])

    def _session_mac(self, text: str) -> str:
        code = hmac.digest(self._session_key, text.encode(), "sha256")
        return base64.b32encode(code[:MAC_BYTES]).decode().lower()

    # Nodes

    def node_token(self, node_id: str, now: float, joined_by: str = "") -> str:
        """The bearer token of a node, for the answer to its registration."""
        check_node_id(node_id)
        return self._token(Identity(Role.NODE, node_id, joined_by), int(now + NODE_TOKEN_S))

    def renewed(self, header: str | None, now: float) -> str | None:
        """A new token for the node that sent this Authorization header, if more than half of the old one's time is
        over; otherwise None. The header must have been checked before."""
        if not header or not self.signed:
            return None
        identity, expires = self._verified(header)
        if identity.role is not Role.NODE or expires - now > NODE_TOKEN_S / 2:
            return None
        return self.node_token(identity.id, now, identity.joined_by)

    def node_key(self, node_id: str) -> bytes:
        """The key with which a node signs its results, for the answer to its registration."""
        text = f"drumlin node key v1\n{node_id}\n{self._epochs.get(node_id, 0)}"
        return hmac.digest(self._secret, text.encode(), "sha256")

    async def revoke_node(self, engine: Engine, node_id: str) -> None:
        """Make the token and key of a node void; when it registers again it gets others."""
        check_node_id(node_id)
        stored = await engine.get_entry(REVOKED_TABLE, _NODE_PREFIX + node_id)
        epoch = int(stored or 0) + 1
        await engine.put_entries(REVOKED_TABLE, {_NODE_PREFIX + node_id: b"%d" % epoch})
        self._epochs[node_id] = epoch

    async def verify(
        self, engine: Engine, node_id: str, header: str | None, method: str, target: str, body: bytes, now: float
    ) -> None:
        """Refuse a request that the node did not sign, or that was seen before by any coordinator of the crawl."""
        try:
            request = signing.verify(self.node_key(node_id), header, method, target, body, now)
        except signing.SignatureError as wrong:
            raise Refused(401, wrong.code, wrong.message, wrong.hint) from wrong
        # Each request claims its name with a random holder, so a second request of the same name never gets the claim.
        name = f"nonce:{request}:{node_id}"
        if not await engine.claim(name, secrets.token_hex(8), now, until=now + signing.NONCE_KEPT_S):
            raise Refused(401, RefusalCode.REPLAYED, "This very request was sent before.", "Sign each request anew.")

    # People

    async def issue(self, engine: Engine, role: Role, name: str, now: float, *, expires: float | None = None) -> str:
        """Make a token for a person and record that it exists. The token itself is only in the return value."""
        if role not in PEOPLE:
            raise ConfigError(f"A {role} token cannot be made by hand.", "A node gets its own when it registers.")
        if len(name) > NAME_CHARS_MAX or not name.isprintable():
            raise ConfigError(f"A token's name is at most {NAME_CHARS_MAX} printable characters.")
        await forget_expired(engine, now)
        if len(await engine.get_entries(TOKENS_TABLE)) >= TOKENS_MAX:
            raise ConfigError(f"There are {TOKENS_MAX} tokens already.", "Give tokens an expiry, so they go away.")
        record = TokenRecord(new_token_id(), role, name, now, 0 if expires is None else max(1, int(expires)))
        await engine.put_entries(TOKENS_TABLE, {record.id: msgspec.msgpack.encode(record)})
        return self._token(Identity(role, record.id), record.expires)

    def _token(self, identity: Identity, expires: int) -> str:
        joined_by = f"+{identity.joined_by}" if identity.joined_by else ""
        text = f"drumlin_{identity.role}_{identity.id}{joined_by}_{expires}"
        return f"{text}_{self._mac(text, identity)}"


class OpenAccess(AccessControl):
    """Everybody may do everything. For a Unix socket that only its owner can open, and for loopback if an operator says
    so."""

    signed = False

    async def refresh(self, engine: Engine) -> None:
        """Nothing is ever revoked here, but all coordinators must have the same secret."""
        await self._refresh_secret(engine)

    def check(self, header: str | None, needed: Permission, node_id: str | None, now: float) -> Identity:
        # A request that names a node is taken to come from that node, so limits and logs can tell nodes apart.
        acts_as_node = node_id is not None and Role.NODE in ROLES[needed]
        return Identity(Role.NODE, node_id or "") if acts_as_node else Identity(Role.OPERATOR, "local")

    def check_unnamed(self, header: str | None, needed: Permission, now: float) -> Identity:
        return self.check(header, needed, None, now)

    def session_expires(self, header: str | None) -> int | None:
        """Nobody needs a session here."""
        return None

    async def verify(
        self, engine: Engine, node_id: str, header: str | None, method: str, target: str, body: bytes, now: float
    ) -> None:
        """Requests need not be signed here."""


async def crawl_secret(engine: Engine, candidate: bytes) -> bytes:
    """Return the crawl's secret. If there is none yet, `candidate` (`SECRET_BYTES` random bytes) becomes it."""
    return await engine.put_meta_if_absent(SECRET_KEY, candidate)


async def token_records(engine: Engine) -> list[TokenRecord]:
    """All tokens that people have made, oldest first."""
    revoked = await engine.get_entries(REVOKED_TABLE)
    entries = (await engine.get_entries(TOKENS_TABLE)).values()
    records = [msgspec.msgpack.decode(entry, type=TokenRecord) for entry in entries]
    shown = [msgspec.structs.replace(record, revoked=float(revoked.get(record.id, 0))) for record in records]
    return sorted(shown, key=lambda record: (record.created, record.id))


async def revoke_token(engine: Engine, token_id: str, now: float, *, with_nodes: bool = False) -> bool:
    """Record that a person's token is void, and with `with_nodes` also the tokens of all nodes that joined with it;
    False when no token has this id."""
    if await engine.get_entry(TOKENS_TABLE, token_id) is None:
        return False
    moment = repr(now).encode()
    if await engine.get_entry(REVOKED_TABLE, token_id) is None:
        await engine.put_entries(REVOKED_TABLE, {token_id: moment})
    if with_nodes:
        await engine.put_entries(REVOKED_TABLE, {_NODES_OF_PREFIX + token_id: moment})
    return True


async def forget_expired(engine: Engine, now: float) -> None:
    """Drop the records of expired tokens, so the tables stay small. Revocations of a token's nodes are remembered until
    the tokens of those nodes have certainly expired."""
    revoked = _named(await engine.get_entries(REVOKED_TABLE), _NODES_OF_PREFIX)
    expired = [record for record in await token_records(engine) if record.expires and record.expires <= now]
    gone = [record.id for record in expired if record.id in revoked or _forgotten_at(record) <= now]
    await engine.delete_entries(TOKENS_TABLE, gone)
    old = [_NODES_OF_PREFIX + token for token, moment in revoked.items() if now - float(moment) > 2 * NODE_TOKEN_S]
    await engine.delete_entries(REVOKED_TABLE, [*gone, *old])


def _forgotten_at(record: TokenRecord) -> float:
    return record.expires + (JOIN_REMEMBERED_S if record.role is Role.JOIN else 0.0)


def _named(entries: Mapping[str, bytes], prefix: str) -> dict[str, bytes]:
    """The entries whose keys begin with `prefix`, by the rest of their keys."""
    return {key.removeprefix(prefix): value for key, value in entries.items() if key.startswith(prefix)}


def new_token_id() -> str:
    return base64.b32encode(secrets.token_bytes(TOKEN_ID_BYTES)).decode().lower()


def check_node_id(node_id: str) -> None:
    if NODE_ID.fullmatch(node_id) is None:
        message = "A node's id is 1 to 64 letters, digits, dots, dashes and underscores, the first a letter or digit."
        raise Refused(400, "bad_node_id", message)


def _invalid_token() -> Refused:
    return Refused(
        401, RefusalCode.INVALID_TOKEN, "The token is not valid for this crawl.", "Ask for one, or register again."
    )


def _one_of(roles: frozenset[Role]) -> str:
    return "a token of role " + " or ".join(sorted(roles))
