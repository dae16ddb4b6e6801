"""What a node may take of its machine, so that a page made to be expensive costs a restart and not the machine.

- Memory: the kernel refuses more than `--memory-max` of private writable memory (RLIMIT_DATA). Unlike a limit on
  address space it does not count what is merely reserved, or files that are mapped.
- CPU: one parse may take `PARSE_CPU_S` of CPU time; then the kernel ends the process (ITIMER_VIRTUAL, whose signal is
  left to its default: native code that never returns cannot stop it). A frozen or starved process uses none of it.
- Open files: as many as the kernel allows, which must be enough for the requests in flight.

The black box names the page that was being parsed, so that the next process can report it.
"""

from __future__ import annotations

import resource
import signal

from drumlin.errors import ConfigError

PARSE_CPU_S = 30.0
MEMORY_BYTES_MIN = 256 * 1024 * 1024
MEMORY_BYTES_MAX = 4 * 1024**3
FILES_PER_REQUEST = 2
FILES_BESIDE = 128


def limit_memory(bytes_max: int) -> None:
    """Have the kernel refuse this process more memory than that; 0 sets no limit."""
    if not bytes_max:
        return
    if bytes_max < MEMORY_BYTES_MIN:
        raise ConfigError(f"A node needs at least {MEMORY_BYTES_MIN // 1024**2} MB of memory.", "Raise --memory-max.")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))


def allow_open_files(concurrency: int) -> None:
    """Raise the limit on open files to what so many requests in flight need; an error when it cannot be had."""
    needed = FILES_PER_REQUEST * concurrency + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        hint = f"Raise it (`ulimit -n {needed}`) or lower --concurrency."
        raise ConfigError(f"{concurrency} requests in flight need {needed} open files; the limit is {hard}.", hint)
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def start_parse_clock() -> None:
    """One parse begins: it ends within its CPU time, or the process does."""
    signal.setitimer(signal.ITIMER_VIRTUAL, PARSE_CPU_S)


def stop_parse_clock() -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
