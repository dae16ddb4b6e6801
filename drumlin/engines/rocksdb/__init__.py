"""The embedded engine on RocksDB, the default on one machine. Read `engine` first, and `layout` for what is on disk.

`change` gathers the writes of one call into one atomic batch, `settling` settles results, `letters` lists and counts
dead letters, `keeping` moves a frontier to another engine, `founding` begins one, `storage` opens and reads.
"""
