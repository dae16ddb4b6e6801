"""Takes pages and bundles from workers and nodes that cannot write to the store. Read `workers` first.

- `telling`, `forms`: what workers that others wrote say about a page, and the formats in which they may write it.
- `reading`: their pages are parsed in another process, so a hostile page cannot end the coordinator.
- `keeping`, `kept`: how their pages are stored and settled, and how the work of a killed coordinator is finished.
- `bundles`, `checking`: segments that nodes without a store send whole; they too are checked in another process.
"""
