"""Taking results in. Read `settling` first: whose they are, which of them count, and what becomes of their URLs.

- `findings`: links, redirect targets and sitemaps that are offered to the frontier.
- `host_reports`: what a node says about a host, and how much of it is believed.
- `receipts`: how a node that sends bundles proves that what is in them was settled.
- `owed`: what is settled and not in the store yet, and how much of that a node may have.
- `backlog`, `fair_line`: how many batches may wait to be settled, and whose turn it is.
- `strikes`: counts how often a URL ended the process that parsed it.

Invariants: settling the same results twice changes nothing; a result counts only once, and never while another node
holds the lease of its host.
"""
