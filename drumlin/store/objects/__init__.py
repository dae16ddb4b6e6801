"""A store in a bucket of an S3-compatible service, for crawls whose captures shall not stay on one machine.

How it works
    What nodes write grows on their own disks (journal, WARC, tables), as ever. A segment that is complete becomes
    objects, each named after the SHA-256 of its content, and then one entry of the `manifest`, which says which paths
    of a store these objects are. An entry is written only if there is none of its number (`If-None-Match: *`), so all
    writers agree on one order without talking to each other. Readers see what the manifest says and nothing else.

Where to read
    `address` is where a store is and with which credentials, `bucket` what is asked of the service, `manifest` what is
    in the store, `files` the store as readers and writers use it (`drumlin.store.files`). `signing` lets nodes without
    credentials upload one object each. `compaction` makes few large files of many small ones, and `collection` removes
    what no reader can need any more.

Invariants
    - An object is complete before the manifest names it, and is never changed.
    - A segment is added at most once, however often it is sent, also after it was compacted.
    - What the manifest no longer names stays readable for `KEPT_S`, for readers who began before.

Limits
    The manifest is held in memory: about 200 bytes for each file. Entries are never removed; a reader begins with the
    newest checkpoint, so it reads a bounded number of them.
"""
