"""Conformance of what coordinators share beside the frontier: tables, claims and the engine time."""

from __future__ import annotations

from drumlin.engines.blocking import BlockingEngine


class SharedConformance:
    """Examples as sentences. The fixture `engine` comes from `base.ConformanceBase`, by way of `suite`."""

    def test_tables_keep_their_entries_apart(self, engine: BlockingEngine) -> None:
        engine.put_entries("nodes", {"b": b"2", "a": b"1"})
        engine.put_entries("node", {"c": b"3"})
        engine.put_entries("nodes", {"a": b"9"})
        assert list(engine.get_entries("nodes").items()) == [("a", b"9"), ("b", b"2")]
        assert (engine.get_entry("nodes", "b"), engine.get_entry("nodes", "c")) == (b"2", None)
        engine.delete_entries("nodes", ["a", "unknown"])
        assert engine.get_entries("nodes") == {"b": b"2"}
        assert engine.get_entries("node") == {"c": b"3"}

    def test_the_last_entries_of_a_table_come_first(self, engine: BlockingEngine) -> None:
        engine.put_entries("audit", {f"{number:03d}": b"%d" % number for number in range(120)} | {"ü": b"last"})
        engine.put_entries("audits", {"999": b"of another table"})
        engine.put_entries("audi", {"999": b"of another table"})
        assert list(engine.last_entries("audit", limit=2).items()) == [("ü", b"last"), ("119", b"119")]
        assert list(engine.last_entries("audit", limit=2, before="118")) == ["117", "116"]
        assert list(engine.last_entries("audit", limit=9, before="0015")) == ["001", "000"]
        assert engine.last_entries("audit", limit=9, before="000") == {}
        assert len(engine.last_entries("audit", limit=500)) == 121
        assert engine.last_entries("nothing", limit=9) == {}

    def test_a_claim_is_one_holders_until_it_runs_out(self, engine: BlockingEngine) -> None:
        assert engine.claim("leader", "one", 100.0, until=110.0)
        assert not engine.claim("leader", "other", 101.0, until=111.0)
        assert engine.claim("other", "other", 101.0, until=111.0)
        assert engine.claim("leader", "one", 105.0, until=115.0)
        assert not engine.claim("leader", "other", 114.9, until=120.0)
        assert engine.claim("leader", "other", 115.0, until=120.0)

    def test_meta_values_are_kept(self, engine: BlockingEngine) -> None:
        assert engine.get_meta("crawl") is None
        engine.put_meta("crawl", b"\x00settings")
        engine.check(within_s=60.0)
        assert engine.get_meta("crawl") == b"\x00settings"
        assert engine.put_meta_if_absent("crawl", b"another's") == b"\x00settings"
        assert [engine.put_meta_if_absent("first", value) for value in (b"", b"another's")] == [b"", b""]

    def test_the_time_that_is_kept_is_the_latest_told(self, engine: BlockingEngine) -> None:
        assert engine.keep_time(0.0) == 0.0
        told = (1_795_000_000.1234567, 1_795_000_000.0, 1_795_000_000.1234569, 0.0)
        assert [engine.keep_time(mine) for mine in told] == [told[0], told[0], told[2], told[2]]
