"""Same and nearly the same content within a registrable domain.

`digest` (sha256 of the body) tells equal bodies, `simhashes` (64 bits of the text) nearly equal texts: pages whose
SimHashes differ in at most 3 bits are near-duplicates. `ContentIndex` remembers both per domain in a key-value store
that the caller supplies (`KeyValue`), and answers in batches which earlier capture a page repeats.

Invariants: recording a capture again answers as the first time and changes nothing; a capture is never its own
duplicate; everything of a batch is written by one atomic `put_many`; no state outside the store, so a restart
forgets nothing. Limits: `near` says when a near-duplicate could be missed, `fingerprints` what is too short to judge.
Costs, bench/dedupe.py: about 2.4 µs per KB of text for a SimHash, 10 to 20 µs for a look-up and insert.
"""

from drumlin.dedupe.fingerprints import digest, simhashes
from drumlin.dedupe.index import ContentIndex
from drumlin.dedupe.near import DISTANCE_BITS_MAX, KeyValue

__all__ = ["DISTANCE_BITS_MAX", "ContentIndex", "KeyValue", "digest", "simhashes"]
