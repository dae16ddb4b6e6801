"""Same and nearly the same content within a registrable domain.

`digest` (sha256 of the body) tells equal bodies, `simhashes` (64 bits of the text) nearly equal texts: pages whose
SimHashes differ in at most 3 bits are near-duplicates. `ContentIndex` remembers both per domain in a key-value store
that the caller supplies (`KeyValue`), and answers in batches which earlier capture a page repeats.

Invariants: recording a capture again answers as the first time and changes nothing; a capture is never its own
duplicate; a batch is written by one atomic `put_many` per 128 contents before it is answered; memory holds only copies
of what the store holds, so a restart forgets nothing. Limits: one `ContentIndex` per store; `near` says how many
fingerprints a domain keeps and what memory that takes, `fingerprints` which texts are too short to judge.
Costs in CPU-µs (bench/dedupe.py, RocksDB, batches of 32): SimHash 2.4 per KB of text; look-up and insert 13 to 19 with
100 pages in each domain, 17 to 22 with a million pages in one, `known` 1.5.
"""

from drumlin.dedupe.fingerprints import digest, simhashes
from drumlin.dedupe.index import ContentIndex
from drumlin.dedupe.near import DISTANCE_BITS_MAX, KeyValue

__all__ = ["DISTANCE_BITS_MAX", "ContentIndex", "KeyValue", "digest", "simhashes"]
