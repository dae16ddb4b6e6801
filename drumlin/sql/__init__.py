"""Questions in SQL about what a crawl has stored, answered by DuckDB over the tables, while it runs or afterwards.

- `views`: the names that a question may use: the tables, and views that answer common questions
- `ready`: questions that are ready to be asked; `reference` makes the docs of both
- `database`: opens the tables so that a question can read them, and nothing else
- `asking`: asks for somebody on the network: in a process of its own, `answerer`, that the operating system confines
  (`confinement`, with `call_filter`)

Invariants: a question changes nothing. It is a single SELECT, so it cannot write a file; it can read no file but those
of the tables, use no network and load no extension; and it cannot change these settings. For `drumlin query` DuckDB
sees to that; for questions from the network the operating system does too.

Limits: rows are seen about a minute after their pages, as by any reader of the tables. What only the queue knows (which
URLs wait, which will be tried again) is not here.
"""
