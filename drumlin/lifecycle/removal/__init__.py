"""Removal on request of URLs, hosts or registrable domains: from frontier, tables, WARC files, indexes and journals.

`targets` is what is removed, `tombstones` what keeps it from coming back: a keyed hash of each name, which every
coordinator looks at before it accepts a URL or a bundle. `frontier` removes it from an engine; `warcs`, `rows` and
`texts` write one file without it; `directory` and `bucket` do that to a whole store, `bundles` to a bundle that comes
late. `counts` is what people are told. Read `targets`, then `directory`.

Invariants
- Tombstones are written first. From then on nothing of the removed is accepted, whatever is killed.
- A dry run reads the same and counts the same as a run; the numbers are equal.
- A kill at any moment leaves a crawl whose rows lead to their records, and the same command made again ends it.
- Names of the removed are in no tombstone, report or entry of the audit log: those have a keyed hash.

Limits: what others say of the removed (a link, a text) is theirs and stays; it is counted. All WARC files and tables
are read once.
"""
