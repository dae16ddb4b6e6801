"""Questions that are ready to be asked: `drumlin query NAME`."""

from __future__ import annotations

from typing import Final

import msgspec


class Question(msgspec.Struct, frozen=True):
    """A question in words and in SQL."""

    asks: str
    sql: str


QUESTIONS: Final[dict[str, Question]] = {
    "statuses": Question(
        "How did sites answer?",
        "SELECT fetch_status, count(*) AS answers FROM fetches\n"
        "WHERE fetch_status IS NOT NULL AND outcome <> 'robots' GROUP BY ALL ORDER BY answers DESC",
    ),
    "outcomes": Question(
        "What became of the URLs, and why?",
        "SELECT outcome, kind, count(*) AS attempts FROM fetches GROUP BY ALL ORDER BY attempts DESC",
    ),
    "hosts": Question(
        "Which hosts gave the most pages?",
        "SELECT host, pages, failed, bytes, mean_s FROM hosts ORDER BY pages DESC, host LIMIT 20",
    ),
    "slow-hosts": Question(
        "Which hosts are slow to answer?",
        "SELECT host, mean_s, pages FROM hosts WHERE pages > 0 ORDER BY mean_s DESC LIMIT 20",
    ),
    "failures": Question(
        "Which failures are common, and where?",
        "SELECT kind, count(*) AS attempts, count(DISTINCT host) AS hosts, any_value(url) AS for_instance\n"
        "FROM fetches WHERE outcome = 'failed' GROUP BY kind ORDER BY attempts DESC",
    ),
    "dead": Question(
        "Which URLs could not be fetched in the end?",
        "SELECT kind, url, error FROM dead ORDER BY kind, url LIMIT 100",
    ),
    "denied": Question(
        "What does robots.txt keep us from?",
        "SELECT host, error AS rule, count(*) AS urls FROM fetches WHERE outcome = 'denied'\n"
        "GROUP BY ALL ORDER BY urls DESC, host, rule LIMIT 20",
    ),
    "types": Question(
        "Which types of content are there, and how large?",
        "SELECT content_mime_detected AS type, count(*) AS pages, sum(body_bytes)::BIGINT AS bytes\n"
        "FROM pages GROUP BY ALL ORDER BY pages DESC",
    ),
    "languages": Question(
        "Which languages are the pages in?",
        "SELECT content_languages AS language, count(*) AS pages FROM pages GROUP BY ALL ORDER BY pages DESC LIMIT 20",
    ),
    "largest": Question(
        "Which pages are the largest?",
        "SELECT body_bytes, content_mime_detected AS type, url FROM pages ORDER BY body_bytes DESC LIMIT 20",
    ),
    "duplicates": Question(
        "Which pages have a content that was known?",
        "SELECT duplicate_kind AS kind, url, duplicate_of FROM duplicates ORDER BY url LIMIT 50",
    ),
    "most-linked": Question(
        "Which URLs do most pages link to?",
        "SELECT target, count(DISTINCT url) AS pages FROM links GROUP BY target ORDER BY pages DESC, target LIMIT 20",
    ),
    "broken-links": Question(
        "Which links lead nowhere?",
        "SELECT fetch_status, kind, target, url AS found_on FROM broken_links ORDER BY target, url LIMIT 50",
    ),
    "redirects": Question(
        "What redirects where?",
        "SELECT fetch_status, url, redirect_to FROM redirects ORDER BY url LIMIT 50",
    ),
    "per-minute": Question(
        "How fast was the crawl?",
        "SELECT date_trunc('minute', fetch_time) AS minute, count(*) AS pages, sum(body_bytes)::BIGINT AS bytes\n"
        "FROM pages GROUP BY ALL ORDER BY minute",
    ),
}
