"""Long robots rules: how they are kept short, and what becomes of those that cannot be."""

from __future__ import annotations

import random
import zlib

import msgspec
import pytest

from drumlin.config import CrawlConfig
from drumlin.contact import robots_asking
from drumlin.contact.robots_asking import LONG_RULES_BYTES_MAX
from drumlin.coordinator.taking.host_reports import NOTE_KEPT_BYTES_MAX, bounded
from drumlin.model import Settlement
from drumlin.protocol import HostNote
from drumlin.robots import KEPT_BYTES_MAX, NOTED_BYTES_MAX, Decision, as_noted, decide, decisions_in
from drumlin.robots.packing import PLAIN_BYTES_MAX
from tests.harness.contacts import Driver, lease_of

ORDINARY = b"User-agent: *\n" + b"".join(b"Disallow: /some/path/%d/\n" % number for number in range(2_000))


def incompressible(seed: int, size: int = 100_000) -> bytes:
    """Rules that stay long."""
    chance = random.Random(seed)
    return b"User-agent: *\n" + b"".join(
        b"Disallow: /%b\n" % chance.randbytes(45).hex().encode() for _ in range(size // 102)
    )


def rules(body: bytes) -> Decision:
    return decide(200, body, 0, "", 0.0, agent="drumlin")


def test_ordinary_long_rules_are_kept_short_and_come_back_as_they_were() -> None:
    decision = rules(ORDINARY)
    assert PLAIN_BYTES_MAX < NOTED_BYTES_MAX < len(ORDINARY) == decision.rules_bytes
    assert len(decision.rules_body or b"") < NOTED_BYTES_MAX
    (again,) = decisions_in(HostNote(as_noted({"http": decision}))).values()
    assert again.rules == ORDINARY


def test_rules_that_stay_long_are_in_no_note() -> None:
    """The engine keeps a note of every host, and somebody may have a million hosts."""
    decision = rules(incompressible(1))
    assert decision.too_long_to_note
    assert as_noted({"http": decision, "https": rules(ORDINARY)}).keys() == {"https"}


def test_of_a_file_that_stays_long_only_our_rules_are_kept_so_they_may_be_short_after_all() -> None:
    others = incompressible(2, 60_000).replace(b"User-agent: *", b"User-agent: other")
    decision = rules(others + b"User-agent: drumlin\nDisallow: /x\n")
    assert (decision.agent, decision.rules) == ("drumlin", b"User-agent: *\nDisallow:\nDisallow: /x")


@pytest.mark.parametrize(
    ("kept", "packed_from"),
    [
        (b"not compressed", 5_000),
        (zlib.compress(ORDINARY)[:-100], len(ORDINARY)),
        (zlib.compress(ORDINARY), len(ORDINARY) - 1),
        (zlib.compress(ORDINARY), len(ORDINARY) + 1),
        (zlib.compress(b"#" * 10**8), KEPT_BYTES_MAX + 1),
    ],
    ids=["garbage", "cut-off", "longer", "shorter", "bomb"],
)
def test_rules_that_some_node_made_unreadable_deny_everything(kept: bytes, packed_from: int) -> None:
    decision = msgspec.structs.replace(rules(b""), rules_body=kept, packed_from=packed_from)
    assert decision.rules == b"User-agent: *\nDisallow: /"


def test_a_node_holds_only_so_many_long_rules_and_leaves_further_hosts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(rules(incompressible(0)).rules_body or b"")
    monkeypatch.setattr(robots_asking, "LONG_RULES_BYTES_MAX", 3 * size + size // 2)
    assert LONG_RULES_BYTES_MAX > KEPT_BYTES_MAX
    driver = Driver(delay_s=1.0)
    hosts = [driver.grant(lease_of(f"h{number}.test", "/1")) for number in range(5)]
    driver.tick()
    for seed in range(5):
        driver.answer(200, body=incompressible(seed))
    assert [sorted(host.robots) for host in hosts] == [["http"], ["http"], ["http"], [], []]
    assert driver.released == ["h3.test", "h4.test"]
    assert [host.backoff["http"].kind for host in hosts[3:]] == ["robots_unreachable"] * 2


def test_a_note_that_is_longer_than_any_honest_one_is_not_kept() -> None:
    for note, kept in ((HostNote(slow_s=1.0), True), (HostNote({"http": b"#" * NOTE_KEPT_BYTES_MAX}), False)):
        raw = msgspec.msgpack.encode(note)
        settlement = bounded(Settlement("a.test", "n:1", [], note=raw), CrawlConfig(), 0.0)
        assert (settlement.note is not None) is kept
