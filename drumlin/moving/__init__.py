"""Moves a whole frontier: into a file, out of a file, or from one engine to another; and compares two of them.

`Engine.read_kept` tells a frontier in pages, `Engine.fill` takes them in (`drumlin.engines.kept`). Between the two,
`file` is the format of a file, `sources` makes an engine and a file look alike, `filling` fills an engine from either,
and `digests` is how two frontiers are compared without holding either in memory. Read `file` first.

Invariants
- No coordinator may run on an engine while it is read or filled: its time must stand still (`check_at_rest`).
- An engine that is only half filled is refused by everybody (`CLOSED_KEY`), except by the same import made again, which
  goes on where it was broken off.
- What was filled is compared with its source, record by record, before it may be used.

Limits: memory holds some pages (`filling.BUFFERED_MAX` URLs and hosts). A file has the crawl's secret in it, so it is
readable by its owner alone.
"""
