"""What a node has fetched can be asked about before its tables show it: its journal has it."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from drumlin.api.explaining.copies import stored_copy
from drumlin.api.explaining.open_segments import unshown_fetches, unshown_links, unshown_of_host
from drumlin.api.explaining.store_answers import StoreAnswers
from drumlin.disk import AppendFile
from drumlin.http.refusal import Refused
from drumlin.model import Duplicate, Outcome
from drumlin.node.keeping.journal import Answer, ContactEntry, Entry, Journal, JournalBatch
from drumlin.node.outcomes import fetch_record, result_without_capture
from drumlin.protocol import Assignment, KnownPage
from drumlin.store.files import DirectoryFiles
from drumlin.store.frames import framed
from drumlin.store.tables.lookup import StoredFetch
from drumlin.store.tables.rows import FetchRecord
from tests.harness.recent import NothingRecent

Look = Callable[[DirectoryFiles, Callable[[], bool]], list[Any]]
TWIN = Duplicate("http://a.test/first", 1.0, "")


def entry(url: str, depth: int = 1) -> Entry:
    task = Assignment(f"n0:token/1.{depth}.0.seal", url, 5, 0.0, "a.test", 0.0)
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


def test_urls_of_a_host_that_were_settled_at_the_same_moment_are_all_told(tmp_path: Path) -> None:
    urls = [f"http://a.test/{number}" for number in range(3)]
    journal(tmp_path).append(JournalBatch([entry(url) for url in urls]))
    attempts = asyncio.run(StoreAnswers(DirectoryFiles(tmp_path), NothingRecent()).host_fetches("a.test", 10, "me"))
    assert sorted(one.url for one in attempts.fetches) == urls


def test_a_seed_is_known_as_one_before_tables_show_it(tmp_path: Path) -> None:
    seed, linked = entry("http://a.test/", depth=0), entry("http://a.test/1", depth=2)
    seed.found_on = ""
    journal(tmp_path).append(JournalBatch([seed, linked]))
    told = {one.url: (one.depth, one.tells_origin) for url in (seed, linked) for one in found(tmp_path, url.fetch.url)}
    assert told == {"http://a.test/": (0, True), "http://a.test/1": (2, True)}


def test_only_pages_have_a_copy_to_look_at_as_the_tables_have_it(tmp_path: Path) -> None:
    moved, page = entry("http://a.test/moved"), entry("http://a.test/page")
    moved.fetch.outcome = Outcome.REDIRECTED
    journal(tmp_path).append(JournalBatch([moved, page]))
    for url, code in ((moved.fetch.url, "no_copy"), (page.fetch.url, "copy_unreadable")):
        with pytest.raises(Refused) as refused:
            asyncio.run(stored_copy(StoreAnswers(DirectoryFiles(tmp_path), NothingRecent()), url, "", "me"))
        assert refused.value.code == code


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


# Journals of hostile sites


def full_of_links(store: Path, batches: int) -> Journal:
    """A journal of pages each of which has two megabytes of links to its own site."""
    written = journal(store)
    for number in range(batches):
        page = entry(f"http://a.test/{number}")
        page.result.links = [f"http://a.test/{'x' * 200}/{number}/{link}" for link in range(10_000)]
        written.append(JournalBatch([page]))
    return written


class Limit:
    """There is time for so many looks at the clock."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def __call__(self) -> bool:
        self.left -= 1
        return self.left >= 0


def memory(look: Look, store: Path) -> int:
    """What a look took at most."""
    tracemalloc.start()
    look(DirectoryFiles(store), lambda: True)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


LOOKS: dict[str, Look] = {
    "host": lambda files, in_time: unshown_of_host(files, "a.test", in_time),
    "attempts": lambda files, in_time: unshown_fetches(files, "http://a.test/", in_time),
    "links": lambda files, in_time: unshown_links(files, "http://a.test/", in_time),
}


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_a_journal_is_never_in_memory_as_a_whole(tmp_path: Path, look: Look) -> None:
    full_of_links(tmp_path, 6).close()
    assert memory(look, tmp_path) < (tmp_path / "nodes" / "n0" / "n0-1-1.journal").stat().st_size * 2 / 3


def test_links_are_not_unpacked_for_a_look_at_attempts(tmp_path: Path) -> None:
    full_of_links(tmp_path, 2).close()
    size = (tmp_path / "nodes" / "n0" / "n0-1-1.journal").stat().st_size
    for name in ("host", "attempts"):
        assert memory(LOOKS[name], tmp_path) < 1.2 * size, "little more than the bytes of the two batches"
    assert memory(LOOKS["links"], tmp_path) > 1.4 * size


@pytest.mark.parametrize("look", LOOKS.values(), ids=LOOKS)
def test_the_time_limit_holds_within_a_journal(tmp_path: Path, look: Look) -> None:
    full_of_links(tmp_path, 5).close()
    for looks in (4, 6):
        limit = Limit(looks)
        look(DirectoryFiles(tmp_path), limit)
        assert -2 <= limit.left < 0, "it stops in the middle"


def test_a_look_whose_time_is_over_lists_no_folder(tmp_path: Path) -> None:
    class Unlisted(DirectoryFiles):
        def folders(self, folder: str) -> list[str]:
            raise AssertionError

    for look in LOOKS.values():
        assert look(Unlisted(tmp_path), lambda: False) == []


def test_of_a_journal_that_was_not_read_to_its_end_only_what_was_answered_is_told(tmp_path: Path) -> None:
    written = journal(tmp_path)
    for number in range(3):
        written.append(JournalBatch([entry(f"http://a.test/{number}")]))
        written.answered(Answer(number, [], []))
    told = [unshown_of_host(DirectoryFiles(tmp_path), "a.test", Limit(looks)) for looks in range(10)]
    assert sorted({len(found) for found in told}) == [0, 1, 2, 3]
    assert not any(one.unsettled for found in told for one in found)
