"""Retention: how long each kind of stored data is kept, and when it moves to a cheaper place.

How it works
    A `policy` has a rule for each kind. Whoever carries it out looks at what is there (`found`), makes a plan
    (`planning`) and performs its steps, one unit after the other: in a directory (`in_directory`) or in a bucket
    (`in_bucket`). A unit is a WARC file with its index, or a segment of the tables, or a file of a log. The text of
    pages is a column of a table, so taking it away means to write that table anew (`texts`).

Limits
    The age of a unit is that of its newest record, row or line, so some of its contents are older than the policy says:
    by as much as one file spans. A plan is held in memory, about 1 kB for each unit that is due. Each run reads the
    heads of all tables and the indexes of all WARC files whose kind has a rule, one after the other: in a bucket, some
    requests for each segment.
"""
