"""What a crawl leaves behind: WARC files, their CDXJ indexes, and the tables `pages`, `links` and `fetches`.

How it works
    A node appends each batch of captures to its own WARC (`WarcWriter.store`), which makes them durable. Once it is
    known which of them count, these get lines in the index and the others marks in the WARC (`WarcWriter.settle`), and
    rows go to a Parquet segment (`SegmentWriter`), which only becomes visible when it is complete. After a kill,
    `repair` cuts torn tails off WARC files and settles and indexes what they hold, `discard_unfinished` deletes
    half-written segments, and rows that no segment holds are rebuilt by reading captures back (`read_capture`).

Invariants
    - When `WarcWriter.store` returns, its captures survive kill -9 (and a power cut with `sync=True`).
    - When it raises, the file ends where it did before: it is a valid WARC at every moment but during the write.
    - A file with its final name is complete; while it grows its name ends in `.open`, `.partial` or `.tmp`.
    - In a finished WARC every capture either has one line in the index or one mark that calls it surplus. So the index
      is what the WARC holds without a mark, and the same captures as in the tables (docs/reference/store.md).
    - Records and their ids depend on the capture alone, so storing a capture twice gives the same id twice.
    - A segment's three files count once its `pages` file is there; it is renamed last.

Limits
    A writer belongs to one thread. `store` writes batches in pieces of about 32 MB; a row group is held in memory
    (at most 500 pages, 32 MB of text or 100,000 links); sorting an index takes the lines of one WARC (200,000).
"""

from drumlin.store.cdxj import merge
from drumlin.store.reader import read_capture, read_captures
from drumlin.store.records import UNSPECIFIED, is_revisit, record_id_of
from drumlin.store.repair import Repaired, repair
from drumlin.store.rows import FetchRecord
from drumlin.store.surt import surt
from drumlin.store.tables import SegmentWriter, discard_unfinished
from drumlin.store.warc import WarcWriter
from drumlin.store.warcfile import StoredCapture

__all__ = [
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
    "read_captures",
    "record_id_of",
    "repair",
    "surt",
]
