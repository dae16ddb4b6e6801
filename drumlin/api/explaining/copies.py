"""The stored copy of a page, for people: out of its WARC record, with what the tables say of it.

The body is a stranger's. It is decoded within bounds and never parsed here; those who show it must expect anything.
"""

from __future__ import annotations

import asyncio
import codecs
import re
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from drumlin.api.explaining.store_answers import StoreAnswers
from drumlin.api.messages.data import CaptureView
from drumlin.errors import SiteError, StorageError
from drumlin.fetch.decode import decode_body, decoded_bytes_max
from drumlin.http.refusal import Refused
from drumlin.model import Capture
from drumlin.parse import to_utf8
from drumlin.parse.mime import sniff
from drumlin.store.tables.lookup import StoredFetch
from drumlin.store.warc.records import UNSPECIFIED
from drumlin.urls import canonical

RECORD_BYTES_MAX: Final = 32 * 1024 * 1024
BODY_BYTES_MAX: Final = 32 * 1024 * 1024
SHOWN_CHARS_MAX: Final = 500_000
HTML: Final = "text/html"
_HTML_TYPES: Final = frozenset({HTML, "application/xhtml+xml"})
# What browsers show as a picture and nothing else. SVG is not among them: it is a document.
_PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"})
_TEXTS: Final = frozenset({"application/json", "application/javascript", "application/xml", "image/svg+xml"})
# Chromium connects to where a `<link rel=preconnect>`, an `<iframe>` or a link that is clicked leads, before it asks
# any policy. The other elements are left out as well, because nobody needs them to look at a copy.
_REACHING_OUT: Final = re.compile(
    rb"<(?=link|i?frame|fencedframe|portal|object|embed|base|meta|area|a[\s/>])", re.IGNORECASE
)
SHOWN_TYPES: Final = (HTML, *sorted(_PICTURES))


class Copy(msgspec.Struct):
    """A capture and its decoded body. `told` is its row in the table of pages, empty if that is not to be seen yet."""

    capture: Capture
    body: bytes
    told: dict[str, Any]
    type: str
    truncated: str
    same_as: str = ""
    has_body: bool = True

    @property
    def charset(self) -> str:
        return self.told.get("content_charset") or ""

    @property
    def shown_as(self) -> str | None:
        """The media type under which a browser may show it."""
        if not self.has_body:
            return None
        if self.type in _HTML_TYPES:
            return HTML
        return self.type if self.type in _PICTURES else None

    @property
    def is_text(self) -> bool:
        kind = self.type
        return self.has_body and (kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+xml", "+json")))


async def stored_copy(answers: StoreAnswers, url: str, record: str, asker: str) -> Copy:
    """The newest copy of a page, or that of one record; `Refused` if there is none. Whoever calls this takes care that
    few do so at once: a page is held in memory while the rest is looked up."""
    attempts = await answers.attempts(url, asker)
    if not attempts.has_store:
        hint = "Ask a coordinator that was started with --store."
        raise Refused(409, "no_store", "This coordinator has no store, so it has no copy of a page.", hint)
    # Journals also know where the records of redirects and failures are. Tables do not, so these would come and go.
    stored = [one for one in attempts.fetches if one.page and one.warc_filename and record in ("", one.record_id)]
    if not stored:
        raise Refused(404, "no_copy", "No page of this URL is stored.", "`drumlin why URL` tells what happened to it.")
    refuse_deleted(stored[0])
    try:
        return await _copy_of(answers, stored[0], asker)
    except (OSError, StorageError, SiteError) as wrong:
        raise unreadable(stored[0]) from wrong


def refuse_deleted(stored: StoredFetch) -> None:
    """`Refused` if retention has deleted the record of this attempt."""
    if stored.retired is not None and not stored.retired.to:
        when = datetime.fromtimestamp(stored.retired.at, UTC).strftime("%Y-%m-%d")
        hint = "`drumlin why URL` tells what is still known of it."
        raise Refused(410, "copy_deleted", f"The copy of this page was deleted by retention on {when}.", hint)


def unreadable(stored: StoredFetch) -> Refused:
    """The refusal if the record of an attempt cannot be read."""
    moved = stored.retired.to if stored.retired is not None else ""
    hint = f"It should be in {moved or f'warc/{stored.warc_filename}'}, at byte {stored.warc_offset}."
    return Refused(404, "copy_unreadable", "The copy of this page cannot be read.", hint)


async def _copy_of(answers: StoreAnswers, stored: StoredFetch, asker: str) -> Copy:
    capture = await answers.capture(stored, RECORD_BYTES_MAX, asker)
    told = await answers.page(stored, asker)
    original, same_as = capture, ""
    if capture.duplicate is not None:
        # A record of a page that repeats another one has no body, and names the record that has it.
        # It is what a node wrote, of any length: what is no web address is not looked for, nor told.
        same_as = canonical(capture.duplicate.url) or ""
        original = await _original(answers, same_as, capture.duplicate.record_id, asker) or capture
    copy = await asyncio.to_thread(_decoded, original, told)
    copy.capture, copy.same_as, copy.has_body = capture, same_as, original.duplicate is None
    return copy


async def _original(answers: StoreAnswers, url: str, record: str, asker: str) -> Capture | None:
    """The capture with the body of this record, if it can be found."""
    known = (await answers.attempts(url, asker)).fetches if url else []
    kept = [one for one in known if one.retired is None or one.retired.to]
    named = [one for one in kept if one.record_id == record and one.warc_filename]
    return await answers.capture(named[0], RECORD_BYTES_MAX, asker) if named else None


def _decoded(original: Capture, told: dict[str, Any]) -> Copy:
    raw = original.body_raw
    decoded = decode_body(raw, original.headers.get("content-encoding", ""), decoded_bytes_max(raw, BODY_BYTES_MAX))
    truncated = original.truncated or ("" if decoded.complete else UNSPECIFIED)
    kind = told.get("content_mime_detected") or sniff(original.headers.get("content-type", ""), decoded.body)
    return Copy(original, decoded.body, told, kind, truncated)


def shown_body(copy: Copy) -> bytes:
    """The body as a browser may show it: a page in UTF-8, without the elements that could reach out to other hosts in
    spite of a policy. They get names that mean nothing."""
    if copy.shown_as != HTML:
        return copy.body
    # Browsers believe a byte-order mark more than the header of our answer. Without this one, a page that has two would
    # be read by its second: as UTF-16, in which its elements were not found.
    return codecs.BOM_UTF8 + _REACHING_OUT.sub(b"<no-", _in_utf8(copy)[1])


def _in_utf8(copy: Copy) -> tuple[str, bytes]:
    """The name of a text's encoding, and the text in UTF-8."""
    declared = f"{HTML}; charset={copy.charset}" if copy.charset else copy.capture.headers.get("content-type", "")
    return to_utf8(copy.body, declared)


def copy_view(copy: Copy) -> CaptureView:
    """What is told of a copy. It takes a while for a long one."""
    capture, told = copy.capture, copy.told
    text, source, charset = told.get("text"), None, copy.charset
    headers = capture.response_headers.decode("utf-8", "replace").strip()
    if copy.is_text:
        charset, utf8 = _in_utf8(copy)
        source = utf8.decode("utf-8", "replace")
    return CaptureView(
        url=capture.url,
        fetched=capture.fetched,
        status_code=capture.status,
        record_id=capture.record_id,
        warc_filename=capture.warc_filename,
        warc_record_offset=capture.warc_offset,
        headers=headers[:SHOWN_CHARS_MAX],
        type=copy.type,
        charset=charset,
        language=told.get("content_languages") or "",
        title=told.get("title") or "",
        text=None if text is None else text[:SHOWN_CHARS_MAX],
        source=None if source is None else source[:SHOWN_CHARS_MAX],
        cut=max(map(len, (text or "", source or "", headers))) > SHOWN_CHARS_MAX,
        body_bytes=len(copy.body),
        truncated=copy.truncated,
        same_as=copy.same_as,
        shown_as=copy.shown_as,
    )
