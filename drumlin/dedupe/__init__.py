"""Finds pages with the same or nearly the same content within a registrable domain. Read `sketches` first.

How it works. Equal bodies have the same `digest` (sha256). How much two texts overlap is estimated from their sketches,
88 bytes each (`sketches`, `overlap`). The overlap is the share of their three-word shingles, each counted once, that
both have (the Jaccard index of the sets). Two pages are near-duplicates if the overlap of the first `TEXT_BYTES_MAX` of
their texts is estimated to be `OVERLAP_MIN` or more. `ContentIndex` (`index`) remembers digests and sketches for each
domain in a key-value store that the caller supplies (`KeyValue`), and answers in batches which earlier capture a page
repeats. `near`, `runs` and `search` find the nearest sketch among millions.

Invariants
- Recording a capture again gives the same answer as the first time and changes nothing.
- A capture is never its own duplicate.
- A batch is written before it is answered, by one atomic `put_many` for every 128 contents.
- Memory holds only copies of what the store holds, so a restart forgets nothing.

Limits. There may be only one `ContentIndex` for each store. `near` says how many sketches a domain keeps and how much
memory that takes. The nearest page may be missed: one with an overlap of 0.95 once in 80 times, one with 0.9 once in 10
times (`sketches` says why), and others if more than 512 pages share a band. `python -m bench.near DIRECTORY` measures
precision and recall on a folder of HTML files, `python -m bench.dedupe` measures the cost.
"""

from drumlin.dedupe.index import ContentIndex
from drumlin.dedupe.near import KeyValue, memory_bytes_max
from drumlin.dedupe.overlap import OVERLAP_MIN
from drumlin.dedupe.sketches import SKETCH_BYTES, SKETCH_FORMAT, TEXT_BYTES_MAX, digest, readable, sketches

__all__ = [
    "OVERLAP_MIN",
    "SKETCH_BYTES",
    "SKETCH_FORMAT",
    "TEXT_BYTES_MAX",
    "ContentIndex",
    "KeyValue",
    "digest",
    "memory_bytes_max",
    "readable",
    "sketches",
]
