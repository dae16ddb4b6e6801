"""WARC files and their indexes. Read `writer` first: it appends captures and rotates files.

`file` is one file while it grows; `records` and `block` make its records; `cdxj` and `surt` make its index; `reader`
reads captures back; `repair` makes a file valid after a kill.
"""
