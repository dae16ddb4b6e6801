"""A node: leases hosts from a coordinator, fetches, reads, stores and settles their pages.

How it works. One process, one thread, one event loop: `agent.Agent`, which performs what `drumlin.contact` decides.
Read `agent` first; `main` starts and ends it. What arrives is made a result (`arriving`, `outcomes`), read in batches
(`settling`), archived and sent (`keeping`). `leases` and `calling` carry everything that is said to coordinators.
`single` fetches one URL by the same law, without a coordinator. `membership` says who a node is, `load` how much it has
to do, `figures` counts for Prometheus, and `traces` tells what becomes of URLs that are traced.

Invariants
- A host is contacted only while its lease is ours by our own clock, and no sooner than the host's delay after the
  answer before (`drumlin.contact` decides).
- A response is on disk before its result is sent, and tables show each page that counted exactly once.
- A node goes on while no coordinator answers: it finishes the leases it has and keeps the results on disk.
- If a node cannot write to the store, whole segments go there through a coordinator (`keeping.bundles`).

Limits: `agent` names how many hosts, pages and bytes a node holds at once, `limits` how much of the machine it may
take; nothing here is unbounded.
"""
