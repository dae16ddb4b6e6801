"""What a crawl leaves behind: WARC files, their CDXJ indexes, and the tables `pages`, `links` and `fetches`.

How it works
    A node appends each batch of captures to its own WARC (`WarcWriter.store`), which makes them durable. The
    coordinator then says which captures count. Those get a line in the index, the others get a mark in the WARC that
    calls them surplus (`WarcWriter.settle`), and rows go to a Parquet segment (`SegmentWriter`). After a kill, `repair`
    cuts torn tails off WARC files, settles and indexes what they hold; `discard_unfinished` deletes half-written
    segments; and rows that no segment holds are rebuilt by reading captures back (`read_capture`).

Where to read
    `warc/` and `tables/` are the two kinds of files, `names` what they are called, `spools` and `frames` the journals
    of nodes. `bundles` are segments of nodes that cannot write here, `finish` completes a store when its crawl has
    ended, `files` is how a store is read wherever it is, and `copies` reads one capture for people.

Invariants
    - When `WarcWriter.store` returns, its captures survive kill -9 (and a power cut with `sync=True`).
    - When it raises, the file ends where it did before: it is a valid WARC at every moment but during the write.
    - A file with its final name is complete; while it grows its name ends in `.open`, `.partial` or `.tmp`.
    - In a finished WARC every capture has either one line in the index or one mark that calls it surplus. So the index
      lists exactly the captures without a mark, which are also those in the tables (docs/reference/store.md).
    - Records and their ids depend on the capture alone, so storing a capture twice gives the same id twice.
    - A segment's three files count once its `pages` file has its final name; that one is renamed last.

Limits
    A writer belongs to one thread. `store` writes batches in pieces of about 32 MB; a row group is held in memory
    (at most 500 pages, 32 MB of text, 100,000 links or 32 MB of them); sorting an index takes the lines of one WARC
    (200,000).
"""

from drumlin.store.tables.rows import ROBOTS_OUTCOME, FetchRecord
from drumlin.store.tables.segments import SegmentWriter, discard_unfinished
from drumlin.store.warc.cdxj import merge
from drumlin.store.warc.file import StoredCapture
from drumlin.store.warc.reader import read_capture
from drumlin.store.warc.records import LENGTH, UNSPECIFIED, is_revisit, record_id_of
from drumlin.store.warc.repair import Repaired, repair
from drumlin.store.warc.surt import surt
from drumlin.store.warc.writer import WarcWriter

__all__ = [
    "LENGTH",
    "ROBOTS_OUTCOME",
    "UNSPECIFIED",
    "FetchRecord",
    "Repaired",
    "SegmentWriter",
    "StoredCapture",
    "WarcWriter",
    "discard_unfinished",
    "is_revisit",
    "merge",
    "read_capture",
    "record_id_of",
    "repair",
    "surt",
]
