"""The codes of those refusals that drumlin's own programs act on.

Every refusal has a sentence for people and a code for programs; docs/reference/http-api.md lists all codes. A code that
only a person or somebody else's program acts on stands where it is given.
"""

from __future__ import annotations

from enum import StrEnum

NOBODY_BEHIND = frozenset({502, 503, 504})
"""The statuses with which a load balancer says that it reaches none of the servers behind it."""


class RefusalCode(StrEnum):
    """Why a coordinator says no."""

    NO_TOKEN = "no_token"  # noqa: S105  # a code, as the next three
    INVALID_TOKEN = "invalid_token"  # noqa: S105
    TOKEN_EXPIRED = "token_expired"  # noqa: S105
    TOKEN_REVOKED = "token_revoked"  # noqa: S105
    SIGNATURE_MISSING = "signature_missing"
    SIGNATURE_WRONG = "signature_wrong"
    SIGNATURE_OUT_OF_TIME = "signature_out_of_time"
    REPLAYED = "replayed"
    NOT_REGISTERED = "not_registered"
    NODE_ID_TAKEN = "node_id_taken"
    QUARANTINED = "quarantined"
    DAMAGED = "damaged"
    TOO_LARGE = "too_large"
    BAD_BUNDLE_ID = "bad_bundle_id"
    NOT_A_BUNDLE = "not_a_bundle"
    NOT_SETTLED = "not_settled"
    BUNDLE_EXISTS = "exists"


NEEDS_TOKEN = frozenset(
    {RefusalCode.NO_TOKEN, RefusalCode.INVALID_TOKEN, RefusalCode.TOKEN_EXPIRED, RefusalCode.TOKEN_REVOKED}
)
"""The token is not valid, so its bearer needs another one."""
NEEDS_REGISTERING = NEEDS_TOKEN | {
    RefusalCode.SIGNATURE_MISSING,
    RefusalCode.SIGNATURE_WRONG,
    RefusalCode.NOT_REGISTERED,
}
"""The node has to register: for another token, for another key, or because coordinators have forgotten it."""
LOST_ON_THE_WAY = frozenset({RefusalCode.DAMAGED, RefusalCode.REPLAYED, RefusalCode.SIGNATURE_OUT_OF_TIME})
"""Something went wrong on the way: a bundle was damaged, or a signature was sent twice or is too old."""
NEVER_STORED = frozenset(
    {
        RefusalCode.NOT_A_BUNDLE,
        RefusalCode.NOT_SETTLED,
        RefusalCode.BUNDLE_EXISTS,
        RefusalCode.TOO_LARGE,
        RefusalCode.BAD_BUNDLE_ID,
    }
)
"""No coordinator will ever store such a bundle."""
