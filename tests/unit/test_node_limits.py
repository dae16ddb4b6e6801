"""How much of its machine a node may take. Each limit is tested in another process, since it cannot be undone."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys

import pytest

from drumlin.errors import ConfigError
from drumlin.node.limits import MEMORY_BYTES_MIN, allow_open_files, limit_memory

SECONDS_MAX = 120.0


def run_program(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )


def test_a_parse_that_does_not_end_ends_its_process_even_if_python_never_runs_again() -> None:
    # One call of a regular expression that backtracks for ever holds the interpreter as a native parser would.
    program = (
        "import re; from drumlin.node import limits; limits.PARSE_CPU_S = 0.3; limits.start_parse_clock();"
        "re.match('(a+)+b', 'a' * 64)"
    )
    assert run_program(program).returncode == -signal.SIGVTALRM


def test_a_parse_that_ends_in_time_and_a_process_that_sleeps_are_left_alone() -> None:
    program = (
        "import time; from drumlin.node import limits; limits.PARSE_CPU_S = 0.3; limits.start_parse_clock();"
        "time.sleep(0.6); limits.stop_parse_clock();"
        "until = time.process_time() + 0.6\n"
        "while time.process_time() < until: pass\n"
        "print('alive')"
    )
    assert run_program(program).stdout == "alive\n"


@pytest.mark.parametrize(
    "greed",
    ["bytearray(2 << 30)", "__import__('numpy').ones(1 << 28)", "__import__('pyarrow').allocate_buffer(2 << 30)"],
    ids=["python", "numpy", "arrow"],
)
def test_memory_beyond_the_limit_is_refused_whoever_asks_for_it(greed: str) -> None:
    program = (
        f"from drumlin.node.limits import limit_memory; limit_memory({512 << 20})\n"
        f"try:\n    {greed}\nexcept MemoryError: print('refused')"
    )
    done = run_program(program)
    assert done.stdout == "refused\n", done.stderr


def test_a_node_works_within_a_limit_of_half_a_gigabyte() -> None:
    program = (
        f"from drumlin.node.limits import limit_memory; limit_memory({512 << 20})\n"
        "import drumlin.node.main, numpy, pyarrow\n"
        "from drumlin.parse import Source, parse_all\n"
        "page = Source(b'<p>' + b'<a href=x>y</a>' * 100_000, 'text/html', 'http://a.test/')\n"
        "for _ in range(3): parse_all([page])\n"
        "print('alive')"
    )
    done = run_program(program)
    assert done.stdout == "alive\n", done.stderr


def test_less_memory_than_a_node_needs_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match="needs at least"):
        limit_memory(MEMORY_BYTES_MIN - 1)


def test_more_requests_than_there_can_be_open_files_are_refused_with_a_sentence() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pytest.raises(ConfigError, match="open files"):
        allow_open_files(10**9)
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
