"""Same and nearly the same content within a registrable domain.

`digest` (sha256 of the body) tells equal bodies, `sketches` (88 bytes of a text) how much texts overlap. The overlap of
two texts is the share of their three-word shingles, each counted once, that they have in common (Jaccard index of the
sets). Two pages are near-duplicates if the overlap of the first `TEXT_BYTES_MAX` of their texts is estimated to be
`OVERLAP_MIN` or more. `ContentIndex` remembers both per domain in a key-value store that the caller supplies
(`KeyValue`), and answers in batches which earlier capture a page repeats.

Invariants: recording a capture again answers as the first time and changes nothing; a capture is never its own
duplicate; a batch is written by one atomic `put_many` per 128 contents before it is answered; memory holds only copies
of what the store holds, so a restart forgets nothing. Limits: one `ContentIndex` per store; `near` says how many
sketches a domain keeps and what memory that takes. A page's nearest may be missed: with an overlap of 0.95 once in 80
times, with 0.9 once in 10 (`sketches` says why), and where more than 512 pages share a band.
`python -m bench.near DIRECTORY` measures precision and recall on a folder of HTML, `python -m bench.dedupe` costs.
"""

from drumlin.dedupe.index import ContentIndex
from drumlin.dedupe.near import KeyValue
from drumlin.dedupe.overlap import OVERLAP_MIN
from drumlin.dedupe.sketches import SKETCH_BYTES, TEXT_BYTES_MAX, digest, readable, sketches

__all__ = [
    "OVERLAP_MIN",
    "SKETCH_BYTES",
    "TEXT_BYTES_MAX",
    "ContentIndex",
    "KeyValue",
    "digest",
    "readable",
    "sketches",
]
