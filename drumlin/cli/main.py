"""The `drumlin` command: finds the verb, runs it, and turns whatever happens into one sentence and an exit code."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click

from drumlin import __version__
from drumlin.cli.help import write_examples
from drumlin.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_OK, EXIT_STORAGE, EXIT_USAGE, DrumlinError
from drumlin.lines import did_you_mean, tell
from drumlin.logs import log_for_people, log_last_words, safe_lines, unforgeable, without_secrets

# If the reader of our output has gone away, a shell expects 128 + SIGPIPE.
EXIT_PIPE_CLOSED = 141
DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
OUT_OF_REACH = frozenset({errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.ELOOP, errno.EIO, errno.ESTALE})
"""Why a file cannot be used, where drumlin is not to blame."""

# The lines of help are here, because showing them must not import the verbs, which may import numpy.
GROUPS = {
    "Crawl": {
        "crawl": "Crawl from the given URLs; the same command resumes.",
        "fetch": "Fetch one page and explain every decision.",
        "demo": "Crawl a bundled fake web on loopback.",
        "config": "Show the settings and where they come from.",
    },
    "See what a crawl does": {
        "status": "Show the state of a crawl.",
        "top": "Watch a crawl on the whole terminal.",
        "open": "Show a crawl in a browser.",
        "why": "Say what happened to a URL, or why nothing is fetched.",
        "report": "Show the report of a crawl.",
        "query": "Ask what a crawl has stored, in SQL.",
        "host": "Show everything about one host.",
        "hosts": "List hosts, or change the delay or budget of one.",
        "nodes": "List the nodes of a crawl; drain or quarantine one.",
        "audit": "Show who changed what.",
    },
    "Steer it": {
        "pause": "Pause a crawl.",
        "resume": "Go on with a crawl that was paused or stopped.",
        "stop": "End a crawl before it is finished.",
        "set": "Change a setting of a running crawl.",
        "enqueue": "Give a crawl further URLs, or queued ones another priority.",
        "dead-letters": "List, retry or drop the URLs that were given up.",
        "remove": "Remove a URL, a host or a domain from a crawl, on request.",
    },
    "Run a fleet": {
        "fleet": "Run a whole fleet on this machine.",
        "coordinator": "Run one coordinator of a fleet.",
        "node": "Run one worker; `crawl` starts its own.",
        "store": "Complete the store of a fleet.",
        "frontier": "Move a crawl's queue to another engine, keep it, or put it back.",
        "tokens": "Make, list and revoke tokens.",
        "plan": "Say what a fleet needs: cores, servers, memory, network, disk.",
        "retention": "Say how long stored data is kept, and delete or move what is older.",
        "hold": "Keep stored data, whatever its rules say.",
        "certs": "Make certificates for trying out TLS.",
        "sim": "Simulate a fleet, with faults, on virtual time.",
    },
}
VERBS = {verb: line for verbs in GROUPS.values() for verb, line in verbs.items()}
EXAMPLES = (
    ("crawl a site", "drumlin crawl https://example.org/ --out example --contact you@example.org"),
    ("how does it go?", "drumlin top --out example"),
    ("what happened to this page?", "drumlin why https://example.org/a --out example"),
    ("one page, every decision explained", "drumlin fetch https://example.org/"),
)


class VerbGroup(click.Group):
    """A group whose commands are files, loaded when they are called."""

    def list_commands(self, context: click.Context) -> list[str]:
        return [verb for verb in VERBS if (Path(__file__).parent / f"{_module(verb)}.py").exists()]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name not in self.list_commands(context):
            return None
        command = importlib.import_module(f"drumlin.cli.{_module(name)}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in self.list_commands(context):
            context.fail(f"There is no command {args[0]!r}. {did_you_mean(args[0], VERBS)}".rstrip())
        return super().resolve_command(context, args)

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        there = set(self.list_commands(context))
        for name, verbs in GROUPS.items():
            with formatter.section(name):
                formatter.write_dl([(verb, line) for verb, line in verbs.items() if verb in there])
        write_examples(EXAMPLES, formatter)


def _module(verb: str) -> str:
    return verb.replace("-", "_")


@click.group(cls=VerbGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(__version__, prog_name="drumlin", message="%(prog)s %(version)s")
def drumlin() -> None:
    """A polite, durable and fast web crawler."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The entry point of the `drumlin` script."""
    _open_closed_streams()
    if arguments is None:
        _hide_secrets()
    sys.exit(run(arguments))


def _hide_secrets() -> None:
    """Move secrets from the command line, which every user of this machine can read, into the environment. This comes
    before anything else."""
    if any(argument.startswith(("--token", "--engine", "--to")) for argument in sys.argv):
        from drumlin.cli.tokens import ENGINE_VARIABLE, TOKEN_VARIABLE, has_password, hide_argument

        hide_argument("--token", TOKEN_VARIABLE)
        hide_argument("--engine", ENGINE_VARIABLE, has_password)
        hide_argument("--to", ENGINE_VARIABLE, has_password)


def _open_closed_streams() -> None:
    """Connect standard streams that the caller has closed to /dev/null. Otherwise the next file that is opened would
    get the number of one, and messages would be written into it."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None and os.open(os.devnull, os.O_RDWR) == number:
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115  # for the whole run


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code. If something went wrong, a sentence on stderr has said so."""
    log_for_people()
    stdout = sys.stdout
    try:
        result = drumlin.main(arguments, prog_name="drumlin", standalone_mode=False)
        sys.stdout.flush()
    except Exception as error:  # the boundary: every error becomes a sentence here
        return _explain(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as ending:
        # Both click and rich end the process by themselves when the reader of their output went away. Click does not
        # say why since 8.5, but puts something else into the place of stdout.
        if isinstance(ending.__context__, BrokenPipeError) or sys.stdout is not stdout:
            return _pipe_closed()
        raise
    return result if isinstance(result, int) else EXIT_OK


def _explain(error: Exception) -> int:
    """Write what happened to stderr, and return the exit code."""
    if isinstance(error, DrumlinError):
        return _fail(str(error), error.exit_code)
    if isinstance(error, click.Abort):
        return EXIT_INTERRUPTED
    if isinstance(error, click.ClickException):
        return _explain_usage(error)
    if isinstance(error, BrokenPipeError):
        return _pipe_closed()
    if isinstance(error, OSError) and isinstance(error.__cause__, DrumlinError):
        # A file of a store in a bucket, which somebody read as any other file.
        return _fail(f"{error} {error.__cause__.hint}".rstrip(), error.__cause__.exit_code)
    if isinstance(error, OSError) and error.errno in DISK_FULL:
        return _fail(
            f"{error.strerror}: {error.filename or 'while writing'}. Free some space and repeat.", EXIT_STORAGE
        )
    if isinstance(error, OSError) and error.errno in OUT_OF_REACH and error.filename:
        return _fail(f"Cannot use {error.filename}: {error.strerror}.", EXIT_STORAGE)
    return _fail(f"unexpected {type(error).__name__}: {error}. {_keep_traceback(error)}", EXIT_INTERNAL)


def _explain_usage(error: click.ClickException) -> int:
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return EXIT_USAGE
    path = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "drumlin"
    message = error.format_message()
    end = "" if message.endswith((".", "?", "?)")) else "."
    return _fail(f"{message}{end} See `{path} --help`.", EXIT_USAGE)


def _fail(sentence: str, exit_code: int) -> int:
    """Write a sentence to stderr and return the exit code. If stderr is gone too, the exit code still tells."""
    words = " ".join(without_secrets(sentence).split())
    try:
        if not log_last_words(words):
            tell(f"drumlin: {words}", marked="drumlin:" if _in_colour() else "")
    except OSError:
        return exit_code
    return exit_code


def _in_colour() -> bool:
    """Whether to use colour. The settings cannot be asked, since they may be what is wrong."""
    wanted = not os.environ.get("NO_COLOR") and "--no-color" not in sys.argv
    return wanted and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


def _pipe_closed() -> int:
    """Connect stdout to /dev/null: Python flushes it once more when it ends, which would fail without a reader."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return EXIT_PIPE_CLOSED


def _keep_traceback(error: Exception) -> str:
    """Write the traceback to a new file. Returns a sentence that names the file."""
    import tempfile
    import traceback

    told = f"drumlin {__version__}, Python {sys.version}\n{sys.argv}\n\n" + "".join(traceback.format_exception(error))
    text = "\n".join(safe_lines(told))
    try:
        descriptor, path = tempfile.mkstemp(prefix="drumlin-traceback-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        sys.stderr.write(unforgeable(text))
        return "This is a bug; please report it with the traceback above."
    return f"This is a bug; please report it with the traceback in {path}."
