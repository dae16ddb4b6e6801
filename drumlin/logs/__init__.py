"""What a process says of itself: for people on a terminal, as lines of JSON in files, and never a secret.

Code logs with Python's `logging`, to a logger named `drumlin.` and what it is part of. Something that an operator or a
program may wait for is an `Event`; it is given with its ids, as in `log.info("joined", extra=event(Event.JOINED))`.
Each process sets its log up once: `log_to_stderr` for a coordinator or a node, `logging_to` for a crawl on one machine,
`log_for_people` for any other verb. `identify` notes the ids that hold for all of the process (the crawl, the node or
the coordinator); `current_request` holds the id of the request that is being answered.

Invariants: an entry is one line, whatever strangers said (`drumlin.lines`); what looks like a secret is cut out of
every entry (`redaction.py`), though no code should hand one over; nothing is logged for each page or each request that
was answered, so logging costs nothing.

Levels: INFO for what happens a few times an hour, WARNING for what somebody should look at, ERROR for what keeps the
process from its work, DEBUG for the rest. Read `events.py` first, then `formats.py`. This package uses the standard
library alone: every start of `drumlin` loads it.
"""

from drumlin.logs.destinations import log_for_people, log_last_words, log_to_stderr, logging_to
from drumlin.logs.events import Event, current_request, event, identify
from drumlin.logs.formats import message_of, safe_lines, unforgeable
from drumlin.logs.redaction import without_secrets
from drumlin.logs.settings import LOG_FORMATS, LOG_LEVELS, LogFormat, LogLevel, LogSettings

__all__ = [
    "LOG_FORMATS",
    "LOG_LEVELS",
    "Event",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "current_request",
    "event",
    "identify",
    "log_for_people",
    "log_last_words",
    "log_to_stderr",
    "logging_to",
    "message_of",
    "safe_lines",
    "unforgeable",
    "without_secrets",
]
