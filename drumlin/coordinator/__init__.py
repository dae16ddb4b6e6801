"""A coordinator: gives leases from the engine to nodes, takes their results, and answers people.

It keeps nothing that matters of its own: the engine is the truth, so that it can be killed at any moment and another
can take its place. `dispatch.Dispatcher` is what it does, as plain calls that take `now`; `app` puts them on HTTP;
`drumlin.local` runs a whole crawl on one machine, coordinator and nodes, over a Unix socket.

Invariants: links are added before the page they were found on is settled; a page's counters change exactly when its
state does; no more URLs are leased than the page budget allows.
"""
