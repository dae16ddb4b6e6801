"""A node: leases hosts from a coordinator, fetches, reads, stores and settles their pages.

One process, one thread, one event loop (`agent.Agent`). It contacts a host only while it holds the host's lease by its
own clock, one contact after another, each no sooner than the host's delay after the answer to the one before (`hosts`).
A page is read (`settling`), archived and journalled (`archive`, `spool`) before its result is sent (`outbox`), and its
table rows are written once the coordinator has accepted it, so that tables show each page once. Whatever kills the
process, the spool it leaves is replayed by the next node that finds it (`recovery`).

A node goes on while no coordinator answers (`client`): it finishes the leases it has, and keeps results on disk, within
a bound. Where it cannot write to the store, whole segments go there through a coordinator (`bundles`).

Limits: `agent` names how many hosts, pages and bytes a node holds at once; nothing here is unbounded.
"""
