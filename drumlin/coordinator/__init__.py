"""What a coordinator decides: which node gets which hosts, and what results mean. Read `dispatch` first.

`dispatch.Dispatcher` is what a coordinator does, as plain calls that take `now`: no clock, no socket. `giving` gives
work out, `taking` takes results in; the other files are what both need to know:

- `nodes`, `orders`, `losses`: which nodes there are, what people have ordered, and what follows if an engine lost data.
- `steering`, `narrowing`, `letters`: settings that change while a crawl runs, and what happens to queued URLs then.
- `engine_time`, `calendar`: the one time that all coordinators go by, and how it relates to the calendar.
- `totals`, `health`, `patience`, `resketching`, `breathing`: figures, troubles, and long work in parts.

A coordinator holds no state that would be missed. Everything that matters is in the engine, so a coordinator can be
killed at any moment and another can take its place. `drumlin.api` puts this on HTTP; `drumlin.serving` runs it.

Invariants: links are added before the page they were found on is settled; a page's counters change exactly when its
state does; no more URLs are leased than the page budget allows.
"""
