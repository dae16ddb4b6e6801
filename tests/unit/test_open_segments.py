"""What a node has fetched can be asked about before its tables show it: its journal has it."""

from __future__ import annotations

from pathlib import Path

from drumlin.api.explaining.open_segments import unshown_fetches, unshown_links, unshown_of_host
from drumlin.disk import AppendFile
from drumlin.model import Duplicate, Outcome
from drumlin.node.keeping.journal import Answer, ContactEntry, Entry, Journal, JournalBatch
from drumlin.node.outcomes import fetch_record, result_without_capture
from drumlin.protocol import Assignment, KnownPage
from drumlin.store.files import DirectoryFiles
from drumlin.store.frames import framed
from drumlin.store.tables.lookup import StoredFetch
from drumlin.store.tables.rows import FetchRecord

TWIN = Duplicate("http://a.test/first", 1.0, "")


def entry(url: str) -> Entry:
    task = Assignment("n0:token/1.0.0.seal", url, 5, 0.0, "a.test", 0.0)
    result = result_without_capture(task, Outcome.FETCHED, "c", 1.5, "", "")
    return Entry(result, fetch_record(result, task, "a.test", "n0"), "w.warc.gz", 100, "http://a.test/")


def journal(store: Path) -> Journal:
    folder = store / "nodes" / "n0"
    folder.mkdir(parents=True)
    return Journal(AppendFile(folder / "n0-1-1.journal"))


def found(store: Path, url: str) -> list[StoredFetch]:
    return unshown_fetches(DirectoryFiles(store), url, lambda: True)


def test_a_page_is_found_as_soon_as_it_is_in_the_journal_and_then_counts(tmp_path: Path) -> None:
    written = journal(tmp_path)
    assert found(tmp_path, "http://a.test/1") == []
    written.append(JournalBatch([entry("http://a.test/0")]))
    written.append(JournalBatch([entry("http://a.test/1"), entry("http://a.test/2"), entry("http://a.test/3?b=1&a=2")]))
    (one,) = found(tmp_path, "http://a.test/1")
    assert (one.unshown, one.unsettled, one.segment, one.found_on) == (True, True, "n0-1-1", "http://a.test/")
    assert (one.warc_filename, one.warc_offset, one.page, one.duplicate_of) == ("w.warc.gz", 100, True, "")
    written.answered(Answer(1, [1], [KnownPage(0, TWIN)]))
    (one,) = found(tmp_path, "http://a.test/1")
    assert (one.unsettled, one.duplicate_of, one.duplicate_kind) == (False, TWIN.url, "exact")
    assert found(tmp_path, "http://a.test/2") == [], "it did not count"
    assert len(found(tmp_path, "http://a.test/3?a=2&b=1")) == 1, "another spelling"
    written.delete()
    assert found(tmp_path, "http://a.test/1") == []


def test_what_was_asked_of_a_host_is_found_with_its_robots_txt(tmp_path: Path) -> None:
    robots = FetchRecord("http://a.test/robots.txt", "a.test", 1.0, "robots", 404, node="n0")
    other = entry("http://b.test/1")
    other.result.links = ["http://a.test/linked"]
    contact = ContactEntry(robots, "lease", "w.warc.gz", 7)
    journal(tmp_path).append(JournalBatch([entry("http://a.test/1"), other], [contact]))
    found_here = unshown_of_host(DirectoryFiles(tmp_path), "a.test", lambda: True)
    assert [one.url for one in found_here] == ["http://a.test/1", robots.url]
    (one,) = found(tmp_path, robots.url)
    assert (one.outcome, one.warc_offset, one.page, one.unsettled) == ("robots", 7, False, False)


def test_a_torn_or_strange_journal_hides_nothing_else(tmp_path: Path) -> None:
    written = journal(tmp_path)
    written.append(JournalBatch([entry("http://a.test/1")]))
    written.close()
    other = tmp_path / "nodes" / "n1"
    other.mkdir()
    (other / "n1-1-1.journal").write_bytes(framed(b"\x93\x00http://a.test/1") + b"torn")
    assert [one.segment for one in found(tmp_path, "http://a.test/1")] == ["n0-1-1"]


def test_pages_in_a_journal_that_link_or_redirect_to_a_url_are_found(tmp_path: Path) -> None:
    linking, moved = entry("http://a.test/1"), entry("http://a.test/2")
    linking.result.links = ["http://a.test/x", "http://a.test/t?b=1&a=2"]
    moved.fetch.redirect_to = "http://a.test/t?a=2&b=1"
    journal(tmp_path).append(JournalBatch([linking, moved]))
    found = unshown_links(DirectoryFiles(tmp_path), "http://a.test/t?a=2&b=1", lambda: True)
    assert [(link.page, link.kind) for link in found] == [("http://a.test/1", "a"), ("http://a.test/2", "redirect")]
