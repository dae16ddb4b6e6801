"""The calls of the API, one file for each group of callers. Each makes routes of what the dispatcher can do.

- `nodes`: nodes that work in batches; `single`: workers that take one URL at a time.
- `people`, `hosts`, `dead_letters`, `settings`: how the crawl stands, its hosts and URLs, what was given up, and the
  levers to change it.
- `data`: what is stored: sums, SQL, copies of pages.
- `page`: the dashboard's files and its sessions.
- `history`, `marks`: the same figures for the time that has passed, and what happened meanwhile.
- `figures`, `events`, `metrics`: the same figures when asked for, live, and for Prometheus.
"""
