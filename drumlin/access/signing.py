"""Signed requests: a coordinator can tell that a request comes from its node, is unchanged, and is not a replay.

A request carries `X-Drumlin-Signature: v1 <unix ms> <nonce> <hex HMAC-SHA256>`. The code is made with the node's key
over the method, the target (path and query as sent), the time, the nonce and the SHA-256 of the body as sent, that
is, after compression. `verify` refuses a signature that does not match or whose time is further than `CLOCK_SKEW_S`
from `now`.

`verify` cannot tell whether it has seen the request before. Its caller must therefore claim the name that it returns
for `NONCE_KEPT_S`; after that, the time in the signature is too old anyway. A node that repeats a request signs it
again with a new nonce.
"""

from __future__ import annotations

import hashlib
import hmac
import re

from drumlin.errors import DrumlinError
from drumlin.protocol.paths import SIGNATURE_HEADER, TIME_HEADER
from drumlin.protocol.refusals import RefusalCode

CLOCK_SKEW_S = 300.0
"""How far a signature's time may be from the coordinator's, in either direction."""
NONCE_KEPT_S = 2 * CLOCK_SKEW_S
"""A request that was signed by a fast clock stays acceptable for this long after it was first seen."""
NONCE_BYTES = 16
TIME_DIGITS = 16

_FORM = re.compile(r"v1 ([1-9][0-9]{0,15}) ([0-9a-f]{32}) ([0-9a-f]{64})", re.ASCII)


class SignatureError(DrumlinError):
    """A request whose signature is missing, malformed, wrong or out of time. `code` is the API's name for it."""

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.code = code


def sign(key: bytes, method: str, target: str, body: bytes, now: float, nonce: bytes) -> str:
    """The value of the header for a request sent at `now`; `nonce` is `NONCE_BYTES` random bytes, never used before."""
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce has {NONCE_BYTES} bytes, not {len(nonce)}")
    time_ms, nonce_hex = str(round(now * 1000)), nonce.hex()
    return f"v1 {time_ms} {nonce_hex} {_code(key, method, target, time_ms, nonce_hex, body)}"


def verify(key: bytes, header: str | None, method: str, target: str, body: bytes, now: float) -> str:
    """Check that a request was signed with `key` about now, and return its name, made of time and nonce; otherwise
    raise `SignatureError`.

    Names sort by time, so whoever keeps them can drop the oldest first.
    """
    if not header:
        raise SignatureError(
            RefusalCode.SIGNATURE_MISSING,
            "This request must be signed.",
            f"Send {SIGNATURE_HEADER}; see the API's page.",
        )
    match = _FORM.fullmatch(header)
    if match is None:
        raise SignatureError(
            "signature_malformed", f"{SIGNATURE_HEADER} is not of the form `v1 <unix ms> <nonce> <hex>`."
        )
    time_ms, nonce, code = match.groups()
    if not hmac.compare_digest(code, _code(key, method, target, time_ms, nonce, body)):
        raise SignatureError(
            RefusalCode.SIGNATURE_WRONG, "The signature does not fit the request.", "Register again for a new key."
        )
    ahead_s = int(time_ms) / 1000 - now
    if abs(ahead_s) > CLOCK_SKEW_S:
        side = "ahead of" if ahead_s > 0 else "behind"
        message = f"The request was signed by a clock {abs(ahead_s):.0f} s {side} the coordinator's."
        hint = f"Sign with the time that {TIME_HEADER} of this answer says."
        raise SignatureError(RefusalCode.SIGNATURE_OUT_OF_TIME, message, hint)
    return f"{time_ms:0>{TIME_DIGITS}}:{nonce}"


def _code(key: bytes, method: str, target: str, time_ms: str, nonce: str, body: bytes) -> str:
    # Only the target could contain a line feed, and a fixed number of lines follows it: so two different requests
    # never give the same text.
    text = f"v1\n{method}\n{target}\n{time_ms}\n{nonce}\n{hashlib.sha256(body).hexdigest()}"
    return hmac.digest(key, text.encode("utf-8", "surrogatepass"), "sha256").hex()
