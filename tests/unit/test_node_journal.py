"""What a dead node leaves behind: its journal, possibly torn, and the URL it died on."""

from __future__ import annotations

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from drumlin.disk import AppendFile
from drumlin.model import Duplicate, Outcome
from drumlin.node.keeping.blackbox import URL_BYTES_MAX, BlackBox, read_blackbox
from drumlin.node.keeping.journal import Answer, ContactEntry, Entry, FoundJournal, Journal, JournalBatch, answer_of
from drumlin.node.outcomes import fetch_record, result_without_capture
from drumlin.protocol import Accepted, Assignment, KnownPage, Rejected, Rejection
from drumlin.store import ROBOTS_OUTCOME, FetchRecord
from drumlin.store.frames import framed


def entry(number: int) -> Entry:
    task = Assignment(f"n0:token/{number}.0.0.seal", f"http://a.test/{number}", 5, 0.0, "a.test", 0.0)
    result = result_without_capture(task, Outcome.FETCHED, str(number), 1.0, "", "")
    return Entry(result, fetch_record(result, task, "a.test", "n0"), "file.warc.gz", 100 * number, "http://a.test/")


def contact(number: int) -> ContactEntry:
    record = FetchRecord(f"http://{number}.test/robots.txt", f"{number}.test", 1.0, ROBOTS_OUTCOME, 404)
    return ContactEntry(record, f"n0:token{number}.seal", "file.warc.gz", 1_000 * number)


BATCHES = [
    JournalBatch([entry(1), entry(2)]),
    JournalBatch([entry(3)], [contact(1), contact(2)]),
    JournalBatch([], [contact(3)]),
    JournalBatch([entry(4), entry(5), entry(6)]),
]


def journal_of(folder: Path, batches: list[JournalBatch]) -> Path:
    journal = Journal(AppendFile(folder / "a.journal"))
    for batch in batches:
        journal.append(batch)
    journal.close()
    return journal.path


def test_a_journal_gives_back_what_was_written(tmp_path: Path) -> None:
    assert FoundJournal(journal_of(tmp_path, BATCHES)).batches == BATCHES


def test_a_journal_of_an_earlier_version_without_contacts_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.journal"
    path.write_bytes(framed(msgspec.msgpack.encode([0, [entry(1)]])))
    assert FoundJournal(path).batches == [JournalBatch([entry(1)])]


def test_answers_are_found_with_the_batches_they_belong_to(tmp_path: Path) -> None:
    journal = Journal(AppendFile(tmp_path / "a.journal"))
    numbers = [journal.append(batch) for batch in BATCHES]
    answer = Answer(numbers[1], [0], [KnownPage(0, Duplicate("http://a.test/0", 0.5, "earlier"))])
    journal.answered(answer)
    journal.close()
    found = FoundJournal(journal.path)
    assert (found.batches, found.answers) == (BATCHES, {1: answer})


def test_an_answer_is_added_to_a_torn_journal_in_place_of_its_torn_end(tmp_path: Path) -> None:
    path = journal_of(tmp_path, BATCHES)
    path.write_bytes(path.read_bytes()[:-3])
    found = FoundJournal(path)
    found.answered(Answer(0, [], []))
    found.answered(Answer(1, [0], []))
    again = FoundJournal(path)
    assert (again.batches, sorted(again.answers)) == (BATCHES[:3], [0, 1])


def test_an_answer_that_may_change_is_not_kept() -> None:
    accepted = Accepted(1, 1, [Rejected("n1:x/1.0.0", Rejection.NOT_YOURS)], rejected_at=[1])
    assert answer_of(0, accepted) is None
    stale = Accepted(1, 1, [Rejected("n1:x/1.0.0", "stale")], rejected_at=[1])
    assert answer_of(3, stale) == Answer(3, [1], [])


def test_a_deleted_journal_is_gone(tmp_path: Path) -> None:
    journal = Journal(AppendFile(tmp_path / "a.journal"))
    journal.append(BATCHES[0])
    journal.delete()
    assert list(tmp_path.iterdir()) == []


@given(st.data())
def test_a_journal_cut_anywhere_gives_its_whole_batches_and_no_part_of_another(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ends = []
        path = Path(folder) / "a.journal"
        journal = Journal(AppendFile(path))
        for batch in BATCHES:
            journal.append(batch)
            ends.append(path.stat().st_size)
        journal.close()
        size = data.draw(st.integers(0, ends[-1]))
        path.write_bytes(path.read_bytes()[:size])
        whole = [batch for batch, end in zip(BATCHES, ends, strict=True) if end <= size]
        assert FoundJournal(path).batches == whole


@given(st.data())
def test_a_journal_damaged_anywhere_gives_no_batch_that_was_not_written(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = journal_of(Path(folder), BATCHES)
        content = bytearray(path.read_bytes())
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        found = FoundJournal(path).batches
        assert len(found) < len(BATCHES)
        assert found == BATCHES[: len(found)]


def test_the_black_box_tells_what_was_being_parsed_until_it_is_cleared(tmp_path: Path) -> None:
    path = tmp_path / "parsing"
    box = BlackBox(path)
    assert read_blackbox(path) == ("", 0.0)
    box.parsing("http://a.test/long/path")
    box.parsing("http://a.test/é")
    url, since = read_blackbox(path)
    assert (url, since > 0) == ("http://a.test/é", True)
    box.clear()
    assert read_blackbox(path)[0] == ""
    box.close()


def test_a_url_too_long_for_the_black_box_is_cut(tmp_path: Path) -> None:
    box = BlackBox(tmp_path / "parsing")
    box.parsing("http://a.test/" + "x" * 10_000)
    assert len(read_blackbox(tmp_path / "parsing")[0]) == URL_BYTES_MAX
    box.close()


def test_a_missing_or_short_black_box_tells_nothing(tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"abc")
    assert read_blackbox(tmp_path / "missing") == read_blackbox(tmp_path / "short") == ("", 0.0)
