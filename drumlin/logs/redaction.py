"""Cutting secrets out of what is logged.

No code hands a secret to the log on purpose. But an entry may repeat what others said: an error of a library, a URL
that a site or a person gave, a message of a node. So every entry passes `without_secrets`, which knows the forms that
secrets have: our own tokens, passwords in URLs, the headers that carry credentials, and the parameters of signed URLs.
A secret without such a form, for instance a key in hexadecimal, cannot be recognised: no code may log one.

Strangers choose these texts, so the time that a form takes must grow no faster than the text. Hence each form begins
with fixed words, and after them it either stops where the next match could begin, or reads a bounded number of
characters.
"""

from __future__ import annotations

import re

CUT = "***"

# The role, id and time of expiry of a token may be seen; what proves it is the last part.
_TOKEN = re.compile(r"(drumlin_[a-z]{1,20}_[\w.+-]{1,200}_)[a-z2-7]{32}", re.ASCII)
_PASSWORD_IN_URL = re.compile(r"(://)[^\s/?#]*@")
# Some credentials have several words, with quotes and commas between them, so the rest of the line is cut.
_CREDENTIALS = re.compile(
    r"(authorization['\"]?\s*[:=]\s*['\"]?(?:(?:bearer|basic|digest|token|aws4-hmac-sha256)\s+)?)\S.*",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\bbearer\s+)(?!tokens?\b)[^\s'\"`,;]{8,}", re.IGNORECASE)
_COOKIE = re.compile(r"(\b(?:set-)?cookie['\"]?\s*[:=]\s*).*", re.IGNORECASE)
_SIGNATURE = re.compile(r"(x-drumlin-signature['\"]?\s*[:=]\s*)\S+", re.IGNORECASE)
# Parameters that prove a right: those of signed URLs (S3, CloudFront, Azure, Google) and what sites call their own.
_PARAMETER = re.compile(
    r"([?&;](?:[\w.~-]*[-_.])?(?:signature|sig|token|access_?token|secret|password|passwd|pwd|api_?key|key-pair-id|"
    r"credential|policy|jwt|(?:php|j)?sess(?:ion)?_?(?:id)?|sid|auth|code)=)[^&;#\s'\"]+",
    re.IGNORECASE,
)
_FORMS = (_TOKEN, _PASSWORD_IN_URL, _CREDENTIALS, _BEARER, _COOKIE, _SIGNATURE, _PARAMETER)


def without_secrets(text: str) -> str:
    """The text with `***` in the place of every secret that can be recognised by its form."""
    for form in _FORMS:
        text = form.sub(lambda found: found[1] + (CUT + "@" if found[0].endswith("@") else CUT), text)
    return text
