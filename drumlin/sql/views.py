"""The names that a question may use, and what each stands for."""

from __future__ import annotations

from typing import Final

import msgspec

from drumlin.store.tables.schema import TABLE_MEANINGS


class View(msgspec.Struct, frozen=True):
    """A name for a question over the tables, with the meaning of its columns."""

    meaning: str
    columns: dict[str, str]
    sql: str


TABLES: Final = TABLE_MEANINGS
"""The tables themselves, and what each holds."""

VIEWS: Final[dict[str, View]] = {
    "dead": View(
        "A row for each URL whose last attempt failed. If the crawl still runs, some of them will be tried again.",
        {
            "url": "the URL",
            "host": "its host",
            "kind": "the kind of the last failure",
            "error": "what went wrong, in words",
            "fetch_status": "the status code of the last answer, if there was one",
            "attempts": "how often it was tried",
            "last_tried": "when it was tried last",
        },
        """
        SELECT url, any_value(host) AS host, max_by(kind, fetch_time) AS kind, max_by(error, fetch_time) AS error,
            max_by(fetch_status, fetch_time) AS fetch_status, count(attempt) AS attempts, max(fetch_time) AS last_tried
        FROM fetches WHERE outcome <> 'robots' GROUP BY url HAVING max_by(outcome, fetch_time) = 'failed'
        """,
    ),
    "hosts": View(
        "A row for each host that was contacted, or that has URLs which robots.txt denies.",
        {
            "host": "the host, with the port if its URLs name one",
            "pages": "pages fetched",
            "failed": "attempts that failed",
            "denied": "URLs that robots.txt denies",
            "bytes": "bytes of bodies received",
            "mean_s": "how long a request took on average, in seconds",
            "first_contact": "when it was asked first",
            "last_contact": "when it was asked last",
        },
        """
        SELECT host, count(*) FILTER (outcome = 'fetched') AS pages, count(*) FILTER (outcome = 'failed') AS failed,
            count(*) FILTER (outcome = 'denied') AS denied, coalesce(sum(wire_bytes), 0)::BIGINT AS bytes,
            round(avg(duration_s) FILTER (attempt IS NOT NULL), 3) AS mean_s,
            min(fetch_time) FILTER (attempt IS NOT NULL) AS first_contact,
            max(fetch_time) FILTER (attempt IS NOT NULL) AS last_contact
        FROM fetches GROUP BY host
        """,
    ),
    "redirects": View(
        "A row for each redirect.",
        {
            "url": "the URL that redirects",
            "redirect_to": "where it leads",
            "fetch_status": "the status code; 307 without an attempt is a site that wants HTTPS (HSTS)",
            "fetch_time": "when",
        },
        "SELECT url, redirect_to, fetch_status, fetch_time FROM fetches WHERE outcome = 'redirected'",
    ),
    "duplicates": View(
        "A row for each page whose content, or nearly whose text, was known before.",
        {
            "url": "the page",
            "duplicate_of": "the earlier one",
            "duplicate_kind": "`exact` or `near`",
            "duplicate_overlap": "the share of the text in common, 0 to 1; NULL for `exact`",
        },
        "SELECT url, duplicate_of, duplicate_kind, duplicate_overlap FROM pages WHERE duplicate_of IS NOT NULL",
    ),
    "broken_links": View(
        "A row for each link to a page of this crawl that does not exist, or could not be fetched.",
        {
            "url": "the page that has the link",
            "target": "where the link leads",
            "fetch_status": "the status code of the target, if it answered",
            "kind": "why the target failed, if it did not answer with a page",
            "text": "the text of the link",
        },
        """
        SELECT links.url, links.target, ended.fetch_status, ended.kind, links.text FROM links
        JOIN (
            SELECT url, max_by(outcome, fetch_time) AS outcome, max_by(fetch_status, fetch_time) AS fetch_status,
                max_by(kind, fetch_time) AS kind
            FROM fetches WHERE outcome <> 'robots' GROUP BY url
        ) AS ended ON ended.url = links.target
        WHERE ended.outcome = 'failed' OR ended.fetch_status BETWEEN 400 AND 599
        """,
    ),
}
"""The views over them, in the order in which they are made."""
