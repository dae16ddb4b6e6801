"""Reads a single page; the product always reads many at a time."""

from __future__ import annotations

from drumlin.parse import ParsedPage, Source, parse_all


def parse(body: bytes, content_type: str, url: str, content_language: str = "", *, agent: str = "") -> ParsedPage:
    return parse_all([Source(body, content_type, url, content_language)], agent=agent)[0]
