"""`bench.seeds` says what is wrong with its command line before it runs anything."""

from __future__ import annotations

import sys

import pytest

from bench import seeds


@pytest.mark.parametrize(
    ("flag", "value", "bounds"),
    [
        ("--seeds", "-1", "from 1 to 1,000,000"),
        ("--seeds", "0", "from 1 to 1,000,000"),
        ("--first", "-1", "from 0 to 1,000,000"),
        ("--processes", "0", "from 1 to 256"),
        ("--processes", "2000", "from 1 to 256"),
        ("--processes", "two", "from 1 to 256"),
    ],
)
def test_numbers_out_of_bounds_get_one_sentence(
    flag: str, value: str, bounds: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench.seeds", flag, value])
    with pytest.raises(SystemExit) as ended:
        seeds.main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err.splitlines()[-1].endswith(f"error: argument {flag}: {value} is not a whole number {bounds}")
