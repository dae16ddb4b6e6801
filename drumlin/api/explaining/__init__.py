"""Why things are as they are, in words for people. Read `why` first: what bounds the crawl right now.

- `bounds`: why a crawl that fetches does not fetch more.
- `stories`, `unfollowed`: what happened to one URL, and why one that pages link to was never queued.
- `store_answers`, `open_segments`: what the store knows of a URL; `host_views`: one host.
- `copies`: the stored copy of a page.
- `causes`: why a fetch failed; `seed_fates`: which seeds gave no page.
- `report`: the final report; `shown`: times as people read them.
"""
