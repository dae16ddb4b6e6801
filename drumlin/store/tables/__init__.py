"""The tables `pages`, `links` and `fetches`. Read `segments` first: Parquet files that appear when they are complete.

`schema` names every column and its meaning (`reference` makes the docs from it), `rows` turns captures into rows, and
`counted` adds those of a batch. `lookup` (with `url_index` and `spellings`), `contents`, `fates`, `past_links` and
`past_pages` read the tables; `reading` does it in small pieces, within a time limit.
"""
