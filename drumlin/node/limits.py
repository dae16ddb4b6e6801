"""How much of its machine a node may take. A page that was made to be expensive then costs a restart, not the machine.

- Memory: the kernel refuses more than `--memory-max` of private writable memory (RLIMIT_DATA). Unlike a limit on the
  address space, it does not count memory that is only reserved, or mapped files.
- CPU: one parse may take `PARSE_CPU_S` of CPU time; then the kernel ends the process (ITIMER_VIRTUAL). Its signal has
  no handler, so it ends the process even if native code never returns. A frozen or starved process uses no CPU time.
- Open files: the limit is raised as far as the requests in flight need it.

The black box names the page that was being parsed, so the next process can report it (`recovery.report_killer`).
"""

from __future__ import annotations

import resource
import signal

from drumlin.errors import ConfigError

PARSE_CPU_S = 8.0
"""Twenty times what the largest honest sitemap takes. It is less than the rest of a lease that is renewed in time, so
the next process can report the page before another node gets it."""
MEMORY_BYTES_MIN = 256 * 1024 * 1024
FILES_PER_REQUEST = 2
FILES_BESIDE = 128


def limit_memory(bytes_max: int) -> None:
    """Let the kernel refuse this process more memory than this; 0 sets no limit."""
    if not bytes_max:
        return
    if bytes_max < MEMORY_BYTES_MIN:
        raise ConfigError(f"A node needs at least {MEMORY_BYTES_MIN // 1024**2} MB of memory.", "Raise --memory-max.")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    allowed = bytes_max if hard == resource.RLIM_INFINITY else min(bytes_max, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (allowed, hard))


def allow_open_files(concurrency: int) -> None:
    """Raise the limit on open files to what so many requests in flight need; ConfigError if that is not allowed."""
    needed = FILES_PER_REQUEST * concurrency + FILES_BESIDE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        hint = f"Raise it (`ulimit -n {needed}`) or lower --concurrency."
        raise ConfigError(f"{concurrency} requests in flight need {needed} open files; the limit is {hard}.", hint)
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def start_parse_clock() -> None:
    """Call before a parse: if it takes more than `PARSE_CPU_S`, the kernel ends the process."""
    signal.setitimer(signal.ITIMER_VIRTUAL, PARSE_CPU_S)


def stop_parse_clock() -> None:
    signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
