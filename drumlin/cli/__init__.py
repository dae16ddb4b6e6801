"""The command line: one file per verb, each exposing `command`, a click command.

How it works: `drumlin.cli.main` knows the verbs by name and loads a verb's file only when it is called, so that
`drumlin --help` stays instant. A verb takes its settings from `drumlin.config.crawl_options`, prints through
`drumlin.cli.console`, and may return an exit code.

Invariants:
- a `DrumlinError` reaches the user as one sentence on stderr and its documented exit code, never as a traceback;
- results go to stdout, everything said about the work goes to stderr, so that a pipe gets only results;
- an unexpected exception leaves its traceback in a file and says where.
"""
