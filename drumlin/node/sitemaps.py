"""Which URLs may be sitemaps, known before they are fetched: these may be larger than the crawl's pages."""

from __future__ import annotations

from drumlin.protocol import NAMED_BY_ROBOTS, Assignment

PARTS_DEPTH = 1
"""The parts of a sitemap are one link away from it."""


def may_be_sitemap(task: Assignment) -> bool:
    """Whether robots.txt names it, or it is called a sitemap and near enough to one that is."""
    if task.found_on == NAMED_BY_ROBOTS:
        return True
    return task.depth == PARTS_DEPTH and "sitemap" in task.url
