"""The audit log says who did what, keeps the newest entries, and holds no secrets."""

from __future__ import annotations

import json
import logging

import pytest

from drumlin.access import audit
from drumlin.access.audit import AUDIT_TABLE, LOG_IN_ACTION, AuditEntry, AuditLog
from drumlin.access.tokens import AccessControl, Identity, Role
from drumlin.engines.blocking import drive
from drumlin.engines.memory.engine import MemoryEngine
from drumlin.logs.formats import JSONFormatter

NOW = 1_800_000_000.0
WHO = Identity(Role.OPERATOR, "abc")


def write(log: AuditLog, now: float, target: str = "crawl") -> AuditEntry:
    return drive(log.record(WHO, "pause", target, "done", "127.0.0.1", now))


def test_an_entry_says_who_did_what_when_from_where_and_how_it_ended() -> None:
    engine = MemoryEngine(1)
    token = drive(AccessControl(bytes(32)).issue(engine, Role.OPERATOR, "Ada", NOW))
    who = Identity(Role.OPERATOR, token.split("_")[2])
    drive(AuditLog(engine).record(who, "quarantine", "node/n1", "done", "10.0.0.7", NOW))
    expected = AuditEntry(NOW, who.id, "Ada", Role.OPERATOR, "quarantine", "node/n1", "done", "10.0.0.7")
    assert drive(AuditLog(engine).read()) == [expected]


def test_the_newest_come_first_and_older_ones_are_read_on_from_there() -> None:
    log = AuditLog(MemoryEngine(1))
    for second in range(10):
        write(log, NOW + second, str(second))
    assert [entry.target for entry in drive(log.read(limit=3))] == ["9", "8", "7"]
    assert [entry.target for entry in drive(log.read(limit=3, before=NOW + 7))] == ["6", "5", "4"]
    assert drive(log.read(limit=-1)) == drive(log.read(before=0.0)) == []


def test_two_coordinators_write_at_the_same_moment_and_lose_nothing() -> None:
    engine = MemoryEngine(1)
    for log in (AuditLog(engine), AuditLog(engine)):
        write(log, NOW)
    assert len(drive(AuditLog(engine).read())) == 2


def test_the_log_keeps_the_newest_entries_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "CHANGES_MAX", 50)
    monkeypatch.setattr(audit, "TRIM_EVERY", 10)
    engine = MemoryEngine(1)
    log = AuditLog(engine)
    for second in range(500):
        write(log, NOW + second, str(second))
        assert len(drive(engine.get_entries(AUDIT_TABLE))) <= 60
    newest = [entry.target for entry in drive(log.read(limit=50))]
    assert newest == [str(second) for second in range(499, 449, -1)]


def test_nobody_pushes_out_what_others_did_by_logging_in_or_by_bringing_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "TRIM_EVERY", 0)
    monkeypatch.setattr(audit, "LOG_INS_EACH_MAX", 3)
    monkeypatch.setattr(audit, "NODES_MAX", 4)
    log = AuditLog(MemoryEngine(1))
    write(log, NOW, "a change")
    drive(log.record(Identity(Role.VIEWER, "honest"), LOG_IN_ACTION, "/session", "done", "10.0.0.1", NOW + 1))
    for second in range(2, 50):
        drive(log.record(Identity(Role.VIEWER, "greedy"), LOG_IN_ACTION, "/session", "done", "10.0.0.2", NOW + second))
        drive(log.record(Identity(Role.NODE, f"n{second}"), "node.quarantine", "", "done", "10.0.0.3", NOW + second))
    kept = [(entry.action, entry.token_id, entry.time) for entry in drive(log.read())]
    assert [one for one in kept if one[1] in ("abc", "honest")] == [
        (LOG_IN_ACTION, "honest", NOW + 1),
        ("pause", "abc", NOW),
    ]
    assert [time for action, who, time in kept if who == "greedy"] == [NOW + 49, NOW + 48, NOW + 47]
    assert [who for action, who, time in kept if action == "node.quarantine"] == ["n49", "n48", "n47", "n46"]


def test_the_log_has_every_entry_with_all_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog(MemoryEngine(1))
    with caplog.at_level(logging.INFO, "drumlin.audit"):
        write(log, NOW, 'a "quoted"\nline')
    (record,) = caplog.records
    said = json.loads(JSONFormatter().format(record))
    # Escaped by us: whoever reads the entry and prints it gets one line too.
    assert said["message"] == 'operator abc from 127.0.0.1: pause a "quoted"\\nline: done'
    assert (said["event"], said["action"], said["target"]) == ("audit", "pause", 'a "quoted"\\nline')
    assert (said["token_id"], said["role"], said["outcome"], said["address"]) == (
        "abc",
        "operator",
        "done",
        "127.0.0.1",
    )


def test_a_long_target_is_cut() -> None:
    assert len(write(AuditLog(MemoryEngine(1)), NOW, "x" * 100_000).target) == audit.TEXT_CHARS_MAX


def test_who_takes_much_data_pushes_out_no_changes_and_nothing_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "TRIM_EVERY", 10)
    monkeypatch.setattr(audit, "DATA_EACH_MAX", 5)
    engine = MemoryEngine(1)
    log = AuditLog(engine)
    write(log, NOW)
    drive(log.record(Identity(Role.READER, "other"), "data.table", "pages", "done", "", NOW))
    for second in range(100):
        drive(log.record(Identity(Role.READER, "greedy"), "data.export", str(second), "done", "", NOW + second))
    entries = drive(log.read())
    assert {"pause", "data.table"} < {entry.action for entry in entries}
    taken = [entry.target for entry in entries if entry.token_id == "greedy"]
    assert taken[:5] == ["99", "98", "97", "96", "95"]
    assert len(taken) <= 5 + 10
