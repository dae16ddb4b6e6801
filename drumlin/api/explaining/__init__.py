"""Why things are as they are, in words for people. Read `why` first: what bounds the crawl right now.

- `stories`, `unfollowed`: what happened to one URL, and why one that pages link to was never queued.
- `causes`: why a fetch failed; `seed_fates`: which seeds gave no page.
- `report`: the final report; `shown`: times as people read them.
"""
