"""One coordinator process. Read `service` first: it opens the engine, serves the application and ticks once a second.

`running_time` knows how long the crawl has run; `finishing` completes the store when it has ended; `freed_memory`
returns memory to the machine after a flood of large requests; `failure_log` says which nodes failed; `removals` notices
what was removed while the process stood still.

Invariants: a coordinator keeps nothing that others need, so it may be killed at any moment; if the engine cannot be
reached, the process stays and tries again, and nodes go on meanwhile.
"""
