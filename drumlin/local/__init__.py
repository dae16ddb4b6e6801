"""A whole crawl on one machine. Read `crawl` first: this process coordinates, and one child process per core fetches.

- `directory`: the crawl directory, its lock, and whether a crawl is in it.
- `keepers`, `processes`: start the nodes, notice when they end, and start them again.
- `restarting`: what has to be done when a crawl is started again with other settings.
- `bounds`: what keeps the crawl from fetching more, for the live display.
- `troubles`: what does not go well, in a few lines for the live display.
- `page`: the dashboard of the crawl, for whoever started it.
- `moving`, `moved`: the frontier of a crawl that is moved elsewhere, and the note of where it is since.
- `removing`: takes out of a crawl what somebody wants to be removed; `one_removal`: not two at once.
- `standing`: answers questions about a crawl that is not running, as if it were.

Invariants: one lock on the crawl directory is held as long as any process of the crawl lives, so no two crawls work in
it; every process may be killed at any moment, and the same command resumes the crawl.
"""
