"""Whether the drumlin in this container is well, for the container's health check: exit code 0 if it is.

`HEALTH_URL` is where to ask: a coordinator's `https://127.0.0.1:8700/readyz`, or a node's
`http://127.0.0.1:9464/metrics`. A coordinator is well if it answers 200. A node is well if its loop has made its
figures a short while ago: one that hangs still serves the old ones. The image needs no curl for this, only Python.
"""

from __future__ import annotations

import os
import re
import ssl
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 8.0
ANSWER_BYTES_MAX = 4 * 2**20
LOOK_AGE_S_MAX = 120.0
LOOK_AGE = re.compile(r"^drumlin_node_look_age_seconds ([0-9.e+-]+)$", re.MULTILINE)


def trouble(url: str) -> str:
    """What is wrong with the process behind a URL; empty if nothing is."""
    # A process asks itself over loopback: its certificate is for the names that others know it by, so none is compared.
    context = ssl._create_unverified_context()  # noqa: S323
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S, context=context) as answer:  # noqa: S310
            text = answer.read(ANSWER_BYTES_MAX).decode(errors="replace")
    except urllib.error.HTTPError as refused:
        return f"{url} answers {refused.code}: {refused.read(500).decode(errors='replace')}"
    except OSError as broken:
        return f"{url} does not answer: {broken}"
    age = LOOK_AGE.search(text)
    if age is not None and float(age[1]) > LOOK_AGE_S_MAX:
        return f"The node's loop has not been round for {float(age[1]):.0f} s."
    return ""


def main() -> int:
    url = os.environ.get("HEALTH_URL", "")
    wrong = trouble(url) if url else ""
    if wrong:
        sys.stderr.write(f"{wrong}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
