"""Giving work out. Read `granting` first: which hosts a node gets, how many, and what is taken back for others.

- `crowd`, `placement`, `shares`, `hunger`, `memories`: how many nodes there are, which shards a node is served from,
  what its fair share is, who lacks work, and what is remembered of each node.
- `host_budgets`, `lost_hosts`, `visiting`: hosts with a page limit, hosts whose leases were lost, and leases of
  hosts that are only asked for their robots.txt.
- `work_leases`, `flat`: a lease as a node gets it, and as single assignments for nodes that do not understand leases.

Invariants: one live lease a host; no host is given out before its next contact is due.
"""
