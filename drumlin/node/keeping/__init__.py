"""What a node keeps on disk, and how nothing of it is lost: archive, journal, parcels, bundles, and recovery.

A page goes through `archive` (WARC, journal) before its result leaves through `outbox`; the answer goes into the
journal, and only then into the tables and the index. `recovery` finishes what a killed process left, whichever node
finds it. `bundles` carry whole segments to a store that is elsewhere. `blackbox` tells which page killed a
process, `own_records` which captures are surely stored, `past` what earlier runs have found. Begin with `archive`: its
head says which order makes this safe.
"""
