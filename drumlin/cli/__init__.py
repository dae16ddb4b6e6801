"""The command line: one file for each verb, which exposes `command`, a click command. Read `main` first.

How it works. `main` knows the verbs by name and imports a verb's file only when it is called, so `drumlin --help` stays
quick. A verb gets its settings from `drumlin.config.config_options`, finds the crawl it is about with `remote`, prints
through `console`, and may return an exit code. `help` groups the options; `progress`, `estimate` and `summary` show how
a crawl goes and how it ended, with the words of `figures`; `screen/` is what `drumlin top` draws. `reference` and
`exit_codes` write pages of the docs.

Invariants
- A `DrumlinError` reaches the user as one sentence on stderr and its documented exit code, never as a traceback.
- Results go to stdout and everything else to stderr, so a pipe gets only results.
- An unexpected exception leaves its traceback in a file, and a sentence says where.
"""
